/* SPDX-License-Identifier: Apache-2.0 */
#include "tutorial.h"

int main(void)
{
    tn_domain *domain;
    tn_tensor *frame;
    must(tn_domain_open(NULL, NULL, 0, &domain));
    must(tn_tensor_create(domain, TN_UINT8, 2, (int64_t[]){HEIGHT, WIDTH}, NULL, &frame));
    draw_frame(tn_tensor_data(frame), 3);
    printf("frame 3 shows a %d\n", read_digit(frame));
    tn_tensor_unref(frame);
    tn_domain_close(domain);
    return 0;
}
