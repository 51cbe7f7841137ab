/* SPDX-License-Identifier: Apache-2.0 */
/* The first exercise: takes whole frames, and pushes views of their digits. */
#include "tutorial.h"
#include <tenon/tenon.hpp>
#include <thread>

using namespace std::chrono_literals;

int main()
{
    tenon::domain domain("line");
    tn_queue_options options = {};
    options.capacity = 16;
    options.policy = TN_QUEUE_LEASE;
    tenon::queue frames(domain, "frames", options), crops(domain, "crops", options);
    try {
        while (auto message = frames.pop()) {
            auto frame = message->take(0);
            auto found = read_picture(frame.data<uint8_t>(), HEIGHT, WIDTH, WIDTH);
            int64_t top = found.top * CELL, left = found.left * CELL;
            auto crop = frame.slice(0, top, top + DIGIT_ROWS * CELL)
                            .slice(1, left, left + DIGIT_COLUMNS * CELL);
            crops.push({"", {crop, message->take(1)}});
            message->ack();
        }
    } catch (const tenon::closed &) {
    } catch (const tenon::peer_died &) { /* the camera died */
    }
    crops.end();
    /* The worker may be started late: without this process the queue would end with its
     * messages. */
    for (int i = 0; i < 3000 && crops.count() > 0; i++)
        std::this_thread::sleep_for(10ms); /* 30 seconds in all, as long as the camera waits */
}
