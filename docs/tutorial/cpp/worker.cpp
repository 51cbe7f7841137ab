/* SPDX-License-Identifier: Apache-2.0 */
/* show: work */
#include "tutorial.h"
#include <tenon/tenon.hpp>
#include <unistd.h>

using namespace std::chrono_literals;

static void work(tenon::domain &domain, tenon::message &message, tenon::queue &readings)
{
    auto picture = message.take(0), label = message.take(1);
    auto shape = picture.shape();
    int64_t row_stride = picture.info().strides[0];
    auto found = read_picture(picture.data<uint8_t>(), static_cast<int>(shape[0]),
                              static_cast<int>(shape[1]), row_stride);
    auto reading = tenon::tensor::of<int32_t>(domain, {3});
    int32_t *value = reading.data<int32_t>();
    value[0] = label.data<int32_t>()[0], value[1] = found.digit, value[2] = getpid();
    readings.push(std::move(reading));
}
/* end */

/* show: main */
int main(int argc, char **argv)
{
    setvbuf(stdout, nullptr, _IOLBF, 0);
    int count = 0;
    tenon::domain domain("line");
    tn_queue_options lent = {}, large = {};
    lent.capacity = 16;
    lent.policy = TN_QUEUE_LEASE;
    large.capacity = 1024;
    tenon::queue frames(domain, argc > 1 ? argv[1] : "frames", lent);
    tenon::queue readings(domain, "readings", large);
    printf("process %d waits for frames\n", getpid());
    try {
        while (auto message = frames.pop(tenon::after(30s))) {
            work(domain, *message, readings);
            message->ack(); /* until here another worker would get it again */
            count++;
        }
    } catch (const tenon::closed &) {
    }
    printf("process %d read %d frames\n", getpid(), count);
}
/* end */
