/* SPDX-License-Identifier: Apache-2.0 */
/* The third exercise: counts in shared memory that survive a process which dies while it
 * changes them. board keep | add DIGIT TIMES | break DIGIT | stop */
#include "tutorial.h"
#include <csignal>
#include <fstream>
#include <iterator>
#include <mutex>
#include <numeric>
#include <tenon/tenon.hpp>

enum { TOTAL = 10, COUNTS = 11 }; /* ten counts, and their sum */

static const char *const path = "board.handle";

static tenon::tensor make_board(tenon::domain &domain)
{
    tn_tensor_options zeroed = {};
    zeroed.flags = TN_TENSOR_ZEROED;
    auto board = tenon::tensor::of<int64_t>(domain, {COUNTS}, zeroed);
    tn_handle_options options = {};
    options.uses = 1000;
    auto handle = board.to_handle(options);
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char *>(handle.data()),
               static_cast<std::streamsize>(handle.size()));
    return board;
}

static tenon::tensor load_board(tenon::domain &domain)
{
    std::ifstream file(path, std::ios::binary);
    std::vector<unsigned char> handle{std::istreambuf_iterator<char>(file), {}};
    return tenon::tensor::from_handle(domain, handle);
}

/* With the lock held: mend the board if the last owner of the lock died on the way. */
static void mend(const tenon::mutex &lock, int64_t *count)
{
    if (lock.was_recovered()) {
        count[TOTAL] = std::accumulate(count, count + TOTAL, int64_t{0});
        printf("process %d died with the lock: the total is mended\n", lock.dead_owner().pid);
    }
}

static void keep(tenon::mutex &lock, tenon::event &stop, int64_t *count)
{
    printf("the board is there\n");
    fflush(stdout);
    while (!stop.is_set()) {
        try {
            stop.wait();
        } catch (const tenon::peer_died &) { /* the board outlives those who use it */
        }
    }
    std::lock_guard<tenon::mutex> held(lock);
    mend(lock, count);
    for (int digit = 0; digit < TOTAL; digit++)
        printf("%d ", static_cast<int>(count[digit]));
    printf("total %d\n", static_cast<int>(count[TOTAL]));
}

int main(int argc, char **argv)
{
    std::string verb = argc > 1 ? argv[1] : "";
    int digit = argc > 2 ? atoi(argv[2]) % 10 : 0, times = argc > 3 ? atoi(argv[3]) : 1;
    tenon::domain domain("line");
    tenon::mutex lock(domain, "board");
    tenon::event stop(domain, "stop");
    if (verb == "stop") {
        stop.set();
        return 0;
    }
    auto board = verb == "keep" ? make_board(domain) : load_board(domain);
    auto count = board.data<int64_t>();
    if (verb == "keep")
        keep(lock, stop, count);
    for (int i = 0; verb == "add" && i < times; i++) {
        std::lock_guard<tenon::mutex> held(lock);
        mend(lock, count);
        count[TOTAL]++;
        count[digit]++;
    }
    if (verb == "break") {
        lock.lock();
        count[TOTAL]++;
        raise(SIGKILL); /* between the two */
    }
}
