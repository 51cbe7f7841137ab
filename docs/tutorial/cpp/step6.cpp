/* SPDX-License-Identifier: Apache-2.0 */
/* show: camera */
#include "tutorial.h"
#include <tenon/tenon.hpp>

using namespace std::chrono_literals;

enum { FRAMES = 60, ROOM = 4, ROUNDS = 600 };

static int film(tenon::domain &domain, tenon::queue &queue)
{
    int dropped = 0;
    for (int number = 1; number <= FRAMES; number++) {
        tn_deadline next = tenon::after(10ms); /* when the next frame is due */
        auto frame = tenon::tensor::of<uint8_t>(domain, {HEIGHT, WIDTH});
        draw_frame(frame.data<uint8_t>(), number);
        if (!queue.push(std::move(frame), next)) /* the queue is full, and this frame is late */
            dropped++;
    }
    queue.end();    /* no frame comes any more */
    return dropped; /* the exit code of this process */
}
/* end */

/* show: main */
int main()
{
    tenon::domain domain;
    tn_queue_options options = {};
    options.capacity = ROOM;
    tenon::queue queue(domain, nullptr, options);
    auto camera = tenon::process::fork(domain, [&] { return film(domain, queue); });
    int count = 0;
    try {
        while (auto frame = queue.pop_tensor(tenon::after(5s))) {
            for (int round = 0; round < ROUNDS; round++)
                read_digit(*frame);
            count++;
        }
    } catch (const tenon::closed &) { /* the queue was ended, and is empty */
    } catch (const tenon::peer_died &death) {
        printf("the camera, process %d, was killed\n", death.peer().pid);
    }
    auto end = camera.wait();
    printf("%d frames were read, %d were dropped\n", count, end->exit_code);
}
/* end */
