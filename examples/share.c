/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <tenon/tenon.h>

static int child(tn_domain *domain, void *tensor)
{
    (void)domain;
    *(float *)tn_tensor_data(tensor) = 42; /* the parent's memory, not a copy of it */
    return 0;
}

int main(void)
{
    tn_domain *domain;
    tn_tensor *tensor;
    tn_process *process;
    if (tn_domain_open(NULL, NULL, 0, &domain) != 0 ||
        tn_tensor_create(domain, TN_FLOAT32, 2, (int64_t[]){2, 3}, NULL, &tensor) != 0 ||
        tn_process_fork(domain, child, tensor, 0, &process) != 0 ||
        tn_process_wait(process, TN_FOREVER, NULL) != 0)
        return fprintf(stderr, "%s\n", tn_error_detail()), 1;
    printf("the child wrote %g\n", (double)((float *)tn_tensor_data(tensor))[0]);
    tn_process_close(process);
    tn_tensor_unref(tensor);
    tn_domain_close(domain);
}
