/* SPDX-License-Identifier: Apache-2.0 */
/* A program outside tenon's tree: built with what pkg-config says of the installed library. */
#include <stdio.h>
#include <string.h>
#include <tenon/tenon.h>

static int fail(const char *what, int status)
{
    fprintf(stderr, "%s: %s: %s\n", what, tn_status_name(status), tn_error_detail());
    return 1;
}

static int add_one(tn_domain *domain, void *tensor)
{
    (void)domain;
    float *value = tn_tensor_data(tensor);
    for (int i = 0; i < 6; i++)
        value[i] += 1;
    return 0;
}

int main(void)
{
    tn_domain *domain = NULL;
    int status = tn_domain_open("outside", NULL, TN_OPEN_NEW, &domain);
    if (status < 0)
        return fail("tn_domain_open", status);

    tn_tensor *tensor = NULL;
    status = tn_tensor_create(
        domain, TN_FLOAT32, 2, (const int64_t[]){2, 3},
        TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED, .deadline = TN_FOREVER),
        &tensor);
    if (status < 0)
        return fail("tn_tensor_create", status);

    tn_process *child = NULL;
    status = tn_process_fork(domain, add_one, tensor, 0, &child);
    if (status < 0)
        return fail("tn_process_fork", status);
    tn_process_status end = {.struct_size = sizeof end};
    status = tn_process_wait(child, TN_FOREVER, &end);
    if (status < 0 || end.exit_code != 0)
        return fail("tn_process_wait", status);
    tn_process_close(child);

    float sum = 0;
    for (int i = 0; i < 6; i++)
        sum += ((float *)tn_tensor_data(tensor))[i];
    tn_tensor_unref(tensor);
    tn_domain_close(domain);
    printf("tenon %s: the child added %.0f\n", tn_version(), (double)sum);
    return sum == 6 ? 0 : 1;
}
