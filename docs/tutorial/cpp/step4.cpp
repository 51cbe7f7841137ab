/* SPDX-License-Identifier: Apache-2.0 */
/* show: job */
#include "tutorial.h"
#include <tenon/tenon.hpp>

enum { WORKERS = 3, ROUNDS = 300 };

static tenon::content infer(tn_domain *, const tenon::job &job)
{
    auto frame = job.take(0);
    int digit = 0;
    for (int round = 0; round < ROUNDS;
         round++) /* some ten milliseconds, as a larger network */
        digit = read_digit(frame);
    return {std::to_string(digit), {}};
}
/* end */

/* show: main */
static tn_pool_info info_of(const tenon::pool &pool)
{
    tn_pool_info info = {};
    info.struct_size = sizeof info;
    tenon::check(
        tn_pool_get_info(pool, &info)); /* a function of C, and its error as an exception */
    return info;
}

int main(int argc, char **argv)
{
    int frames = argc > 1 ? atoi(argv[1]) : 1000, right = 0;
    setvbuf(stdout, nullptr, _IOLBF, 0);
    tenon::domain domain("factory");
    tn_pool_options options = {};
    options.workers = WORKERS;
    tenon::pool pool(domain, infer, options);
    for (int i = 0; i < WORKERS; i++)
        printf("worker %d is process %d\n", i, info_of(pool).worker_pids[i]);
    auto fetch = [&](int number) {
        right += pool.fetch(number)->content.bytes == std::to_string(digit_of(number));
    };
    for (int number = 1; number <= frames; number++) {
        auto frame = tenon::tensor::of<uint8_t>(domain, {HEIGHT, WIDTH});
        draw_frame(frame.data<uint8_t>(), number);
        pool.submit({"", {std::move(frame)}});
        if (number > 10) /* ten frames are under way */
            fetch(number - 10);
    }
    pool.end();
    for (int number = frames > 10 ? frames - 9 : 1; number <= frames; number++)
        fetch(number);
    pool.join();
    printf("%d of %d frames were read right, %d workers were started again\n", right, frames,
           static_cast<int>(info_of(pool).restart_count));
}
/* end */
