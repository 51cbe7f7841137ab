/* SPDX-License-Identifier: Apache-2.0 */
/* The second exercise: keeps three workers at work, whatever kills them. keeper [POISON] */
#include "tutorial.h"
#include <csignal>
#include <list>
#include <tenon/tenon.hpp>
#include <unistd.h>

using namespace std::chrono_literals;

enum { WORKERS = 3, MOST_ATTEMPTS = 2 };

static int digit_in(tenon::message &message, int number, int poison)
{
    if (message.attempt() >= MOST_ATTEMPTS) /* so many workers died of it */
        return -1;
    if (number == poison)
        raise(SIGKILL);
    auto picture = message.take(0);
    return read_digit(picture);
}

static void work(tenon::domain &domain, tenon::queue &frames, tenon::queue &readings,
                 int poison)
{
    try {
        while (auto message = frames.pop()) {
            auto label = message->take(1);
            int number = label.data<int32_t>()[0];
            auto reading = tenon::tensor::of<int32_t>(domain, {3});
            int32_t *value = reading.data<int32_t>();
            value[0] = number, value[1] = digit_in(*message, number, poison),
            value[2] = getpid();
            readings.push(std::move(reading));
            message->ack();
        }
    } catch (const tenon::closed &) {
    } catch (const tenon::peer_died &) { /* the camera died */
    }
}

int main(int argc, char **argv)
{
    int poison = argc > 1 ? atoi(argv[1]) : 0, restarts = 0;
    tenon::domain domain("line");
    tn_queue_options lent = {}, large = {};
    lent.capacity = 16;
    lent.policy = TN_QUEUE_LEASE;
    large.capacity = 1024;
    tenon::queue frames(domain, "frames", lent), readings(domain, "readings", large);
    auto start = [&] {
        return tenon::process::fork(domain, [&] { work(domain, frames, readings, poison); });
    };
    std::list<tenon::process> workers;
    while (workers.size() < WORKERS)
        workers.push_back(start());
    while (!workers.empty()) {
        auto worker = std::move(workers.front());
        workers.pop_front();
        auto end = worker.wait(tenon::after(50ms));
        if (!end) {
            workers.push_back(std::move(worker));
        } else if (end->signal != 0 || end->exit_code != 0) {
            workers.push_back(start());
            restarts++;
        }
    }
    printf("%d workers were started again\n", restarts);
}
