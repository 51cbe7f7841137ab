/* SPDX-License-Identifier: Apache-2.0 */
/* show: child */
#include "tutorial.h"
#include <tenon/tenon.hpp>

static void look(tenon::queue &queue)
{
    auto frame = queue.pop_tensor();
    printf("the child sees a %d\n", read_digit(*frame));
    frame->data<uint8_t>()[0] = 255; /* its first pixel, in the one memory of both */
}
/* end */

/* show: parent */
int main()
{
    tenon::domain domain;
    tenon::queue queue(domain);
    auto child = tenon::process::fork(domain, [&] { look(queue); });
    auto frame = tenon::tensor::of<uint8_t>(domain, {HEIGHT, WIDTH});
    draw_frame(frame.data<uint8_t>(), 3);
    queue.push(frame);
    child.wait();
    printf("the parent reads the child's pixel: %d\n", frame.data<uint8_t>()[0]);
}
/* end */
