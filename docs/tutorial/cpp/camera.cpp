/* SPDX-License-Identifier: Apache-2.0 */
/* show: send */
#include "tutorial.h"
#include <set>
#include <tenon/tenon.hpp>

using namespace std::chrono_literals;

static void send_frame(tenon::domain &domain, tenon::queue &frames, int32_t number)
{
    auto picture = tenon::tensor::of<uint8_t>(domain, {HEIGHT, WIDTH});
    auto label = tenon::tensor::of<int32_t>(domain, {1});
    draw_frame(picture.data<uint8_t>(), number);
    label.data<int32_t>()[0] = number;
    for (bool is_sent = false; !is_sent;) {
        try {
            is_sent = frames.push({"", {picture, label}});
        } catch (const tenon::peer_died &) {
            /* the last worker died while the queue was full: another one may come */
        }
    }
}
/* end */

/* show: collect */
/* Take one reading. A frame comes twice if its worker died before it acknowledged. */
static bool collect(tenon::queue &readings, tn_deadline deadline, std::set<int> &read,
                    int &right)
{
    std::optional<tenon::tensor> reading;
    try {
        reading = readings.pop_tensor(deadline);
    } catch (const tenon::peer_died &) {
        return true; /* another worker may come */
    }
    if (!reading)
        return false;
    const int32_t *value = reading->data<int32_t>(); /* number, digit, process */
    if (read.insert(value[0]).second)
        right += value[1] == digit_of(value[0]);
    return true;
}
/* end */

/* show: main */
static void film(int count, const char *name)
{
    int right = 0;
    std::set<int> read;
    tenon::domain domain("line");
    tn_queue_options lent = {}, large = {};
    lent.capacity = 16;
    lent.policy = TN_QUEUE_LEASE;
    large.capacity = 1024;
    tenon::queue frames(domain, name, lent);
    tenon::queue readings(domain, "readings", large);
    for (int number = 1; number <= count; number++) {
        send_frame(domain, frames, number);
        while (collect(readings, tenon::now, read, right))
            continue;
    }
    frames.end(); /* workers take what is left, and end */
    while (read.size() < static_cast<size_t>(count) &&
           collect(readings, tenon::after(30s), read, right))
        continue;
    printf("%d of %d frames were read right\n", right, count);
}

int main(int argc, char **argv)
{
    try {
        film(argc > 1 ? atoi(argv[1]) : 1000, argc > 2 ? argv[2] : "frames");
    } catch (const tenon::error &failed) {
        fprintf(stderr, "%s\n", failed.what());
        return 1;
    }
}
/* end */
