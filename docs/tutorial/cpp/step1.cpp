/* SPDX-License-Identifier: Apache-2.0 */
#include "tutorial.h"
#include <tenon/tenon.hpp>

int main()
{
    tenon::domain domain;
    auto frame = tenon::tensor::of<uint8_t>(domain, {HEIGHT, WIDTH});
    draw_frame(frame.data<uint8_t>(), 3);
    printf("frame 3 shows a %d\n", read_digit(frame));
}
