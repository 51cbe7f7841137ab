/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of tenon/handle.h. */
#undef NDEBUG
#include "must.h"

#include <assert.h>

int main(void)
{
    tn_domain *domain;
    tn_tensor *tensor, *imported;
    must(tn_domain_open(NULL, NULL, 0, &domain));
    must(tn_tensor_create(domain, TN_FLOAT32, 1, (int64_t[]){1000}, NULL, &tensor));

    /* show: tn_handle_export */
    static uint8_t bytes[TN_HANDLE_MAX_BYTES];
    size_t used;
    must(tn_handle_export(tensor, TN_OPTIONS(tn_handle_options, .uses = 3), bytes, sizeof bytes,
                          &used));
    tensor = tn_tensor_unref(tensor); /* the handle keeps the memory */
    /* end */

    /* show: tn_handle_import */
    must(tn_handle_import(domain, bytes, used,
                          &imported)); /* in any member, up to three times */
    /* end */
    tn_tensor_unref(imported);

    /* show: tn_handle_revoke */
    must(tn_handle_revoke(domain, bytes, used)); /* nobody can import it any more */
    assert(tn_handle_import(domain, bytes, used, &imported) == TN_ERR_STALE);
    /* end */
    tn_domain_close(domain);
    return 0;
}
