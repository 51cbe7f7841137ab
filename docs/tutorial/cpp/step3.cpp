/* SPDX-License-Identifier: Apache-2.0 */
/* show: job */
#include "tutorial.h"
#include <tenon/tenon.hpp>

enum { FRAMES = 100, WORKERS = 3 };

static tenon::content infer(tn_domain *, const tenon::job &job)
{
    auto frame = job.take(0);
    return {std::to_string(read_digit(frame)), {}};
}
/* end */

/* show: main */
int main()
{
    tenon::domain domain;
    tn_pool_options options = {};
    options.workers = WORKERS;
    tenon::pool pool(domain, infer, options);
    for (int number = 1; number <= FRAMES; number++) {
        auto frame = tenon::tensor::of<uint8_t>(domain, {HEIGHT, WIDTH});
        draw_frame(frame.data<uint8_t>(), number);
        pool.submit({"", {std::move(frame)}});
    }
    pool.end(); /* no more jobs */
    int right = 0;
    for (int number = 1; number <= FRAMES; number++) /* jobs count from 1 */
        right += pool.fetch(number)->content.bytes == std::to_string(digit_of(number));
    pool.join();
    printf("%d of %d frames were read right\n", right, FRAMES);
}
/* end */
