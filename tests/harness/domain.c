/* SPDX-License-Identifier: Apache-2.0 */
/* Fixtures that need the whole library; a room's own tests do not link this file. */
#include "harness/harness.h"

tn_domain *tnt_domain(const tn_domain_options *options)
{
    tn_domain *domain = NULL;
#if defined(__SANITIZE_THREAD__) /* it leaves hardly enough address space for a domain of the  \
                                    default size */
    tn_domain_options small = {.struct_size = sizeof small};
    if (options != NULL)
        small = *options;
    if (small.blocks == 0 && small.quota_bytes == 0)
        small.blocks = 1 << 14;
    options = &small;
#endif
    int status = tn_domain_open(NULL, options, 0, &domain);
    if (status != 0)
        fail_msg("tn_domain_open: %s: %s", tn_status_name(status), tn_error_detail());
    return domain;
}

static int print_sentence(const char *sentence, bool repaired, void *context)
{
    (void)repaired, (void)context;
    printf("audit: %s\n", sentence);
    return 0;
}

void tnt_audit(tn_domain *domain, const char *file, int line)
{
    int found = tn_domain_audit(domain, false, print_sentence, NULL, NULL);
    if (found < 0)
        fail_msg("%s:%d: audit: %s: %s", file, line, tn_status_name(found), tn_error_detail());
    if (found > 0)
        fail_msg("%s:%d: the audit found %d discrepancies", file, line, found);
}
