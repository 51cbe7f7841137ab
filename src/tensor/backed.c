/* SPDX-License-Identifier: Apache-2.0 */
/* backed: storages with an object of their own, for tensors. See tensor.c for the invariants.
 */
#include <stdio.h>
#include <string.h>

#include "tensor/build.h"

static int try_new(struct tn_domain *d, const struct tni_backing_about *backing,
                   const struct tni_block_about *about, uint64_t deadline_ns,
                   tni_block *ret_block, struct tni_mapping **ret_mapping)
{
    bool is_zero;
    int status = tni_ref_alloc(d, sizeof(struct tni_backing), about, true, deadline_ns,
                               ret_block, &is_zero);
    if (status != 0)
        return status;
    TNI_KILL_POINT("backed_allocated");
    if ((status = tni_backing_create(d, *ret_block, backing, ret_mapping)) == 0)
        return 0;
    /* The block's end looks for an object, and says that there is none. */
    char why[256];
    snprintf(why, sizeof why, "%s", tn_error_detail());
    tni_ref_release(d, *ret_block);
    return tni_fail(status, "%s", why);
}

/* What the arena keeps warm counts against the quota. */
static void trim(struct tn_domain *d)
{
    struct tni_thread *thread = tni_thread_enter(d);
    tni_alloc_flush(d, thread);
    tni_alloc_trim(d, thread, 0);
    tni_thread_leave(thread);
}

static int new_before(struct tn_domain *d, const struct tni_backing_about *backing,
                      const struct tni_block_about *about, uint64_t deadline_ns,
                      tni_block *ret_block, struct tni_mapping **ret_mapping)
{
    struct tni_wait wait = {.deadline_ns = deadline_ns};
    /* Without waiting, even for the block: what can never fit fails at once. */
    int status = try_new(d, backing, about, 0, ret_block, ret_mapping);
    if ((status != TN_ERR_NO_MEMORY && status != TN_ERR_FULL) ||
        !tni_backing_can_fit(d, backing))
        return status;
    trim(d);
    /* What the dead hold counts as well. */
    uint32_t tries = 0;
    uint64_t until_ns = tni_os_now_ns() + TNI_ALLOC_PATIENCE_NS; /* each try may take as long */
    (void)tni_process_relieve(d, &tries);
    do {
        status = try_new(d, backing, about, deadline_ns, ret_block, ret_mapping);
    } while ((status == TN_ERR_NO_MEMORY || status == TN_ERR_FULL) &&
             tni_os_now_ns() < until_ns && tni_process_relieve(d, &tries));
    while (status == TN_ERR_NO_MEMORY && deadline_ns != 0) {
        uint32_t seen = tni_alloc_arm(d);
        status = try_new(d, backing, about, deadline_ns, ret_block, ret_mapping);
        if (status != TN_ERR_NO_MEMORY)
            break;
        int waited = tni_ref_await_memory(d, &wait, seen, backing->data_bytes);
        if (waited != 0)
            return waited;
    }
    return status;
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
