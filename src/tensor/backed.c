/* SPDX-License-Identifier: Apache-2.0 */
/* backed: storages with an object of their own, for tensors. See tensor.c for the invariants.
 */
#include <stdio.h>
#include <string.h>

#include "tensor/build.h"

/*
 * The object of a block that this process holds. Each try keeps the block: if it gave the block
 * back, it would wake everybody who waits for memory, and itself.
 */
static int create_before(struct tn_domain *d, tni_block block,
                         const struct tni_backing_about *backing, uint64_t deadline_ns,
                         struct tni_mapping **ret_mapping)
{
    struct tni_wait wait = {.deadline_ns = deadline_ns};
    uint64_t until_ns = tni_alloc_patient_until(tni_os_now_ns(), deadline_ns);
    uint32_t tries = 0;
    int status = tni_backing_create(d, block, backing, until_ns, ret_mapping);
    if (!tni_ref_is_short(status) || !tni_backing_can_fit(d, backing))
        return status;
    while (tni_ref_is_short(status) && tni_os_now_ns() < until_ns &&
           tni_process_relieve(d, &tries))
        status = tni_backing_create(d, block, backing, until_ns, ret_mapping);
    while (status == TN_ERR_NO_MEMORY && deadline_ns != 0) {
        uint32_t seen = tni_alloc_arm(d);
        until_ns = TNI_MAX(until_ns, tni_os_now_ns() + TNI_ALLOC_ROUND_NS);
        status = tni_backing_create(d, block, backing, until_ns, ret_mapping);
        int waited = status == TN_ERR_NO_MEMORY
                         ? tni_ref_await_memory(d, &wait, seen, backing->data_bytes)
                         : 0;
        if (waited != 0)
            return waited;
    }
    return status;
}

static int new_before(struct tn_domain *d, const struct tni_backing_about *backing,
                      const struct tni_block_about *about, uint64_t deadline_ns,
                      tni_block *ret_block, struct tni_mapping **ret_mapping)
{
    bool is_zero;
    /* What can never fit fails at once, whatever there is of blocks. */
    uint64_t until_ns = deadline_ns != 0 && tni_backing_can_fit(d, backing) ? deadline_ns : 0;
    int status = tni_ref_alloc(d, sizeof(struct tni_backing), about, true, until_ns, ret_block,
                               &is_zero);
    if (status != 0)
        return status;
    TNI_KILL_POINT("backed_allocated");
    if ((status = create_before(d, *ret_block, backing, deadline_ns, ret_mapping)) == 0)
        return 0;
    /* The block's end looks for an object, and says that there is none. */
    char why[256];
    snprintf(why, sizeof why, "%s", tn_error_detail());
    tni_ref_release(d, *ret_block);
    return tni_fail(status, "%s", why);
}

int tni_backed_new(struct tn_domain *d, const tn_tensor *t, uint64_t size_bytes,
                   const void *source, const tn_share_options *options, uint64_t deadline_ns,
                   tni_block *ret_block, struct tni_mapping **ret_mapping)
{
    struct tni_block_about about = tni_tensor_about(t);
    struct tni_backing_about backing = {.strategy = options->strategy,
                                        .flags = options->flags,
                                        .data_bytes = size_bytes,
                                        .dtype = t->dtype,
                                        .ndim = t->ndim,
                                        .shape = t->extents,
                                        .strides = tn_tensor_strides(t),
                                        .byte_offset = t->byte_offset};
    about.kind = TNI_KIND_BACKING;
    int status = new_before(d, &backing, &about, deadline_ns, ret_block, ret_mapping);
    if (status == 0 && source != NULL && size_bytes > 0)
        memcpy((*ret_mapping)->address + (*ret_mapping)->data_offset, source, size_bytes);
    return status;
}
