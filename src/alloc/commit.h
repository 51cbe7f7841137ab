/* SPDX-License-Identifier: Apache-2.0 */
/* commit: memory behind blocks, and the quota; hints. Inside the room alloc. */
#ifndef TNI_ALLOC_COMMIT_H
#define TNI_ALLOC_COMMIT_H

#include "process/process.h"

/** Whether [0, bytes) of the block has memory behind it that this process has touched. */
bool tni_commit_is_done(const struct tn_domain *domain, tni_block block, uint64_t bytes);

/**
 * Put memory behind [0, bytes) of a block that this thread announces.
 * @return as of tni_alloc_quota_begin()
 */
int tni_commit(struct tn_domain *domain, struct tni_thread *thread, tni_block block,
               uint64_t bytes, bool *ret_is_zero);

/** Bytes that are committed together, from a span's first block on. */
uint64_t tni_commit_span_bytes(const struct tn_domain *domain, uint32_t class_id);

/** So many bytes that were behind hints are not any more. */
void tni_alloc_note_taken(struct tn_domain *domain, uint64_t bytes);

/** Undo a take: give the reference of a block that nobody recorded back. pre: announced */
void tni_alloc_untake(struct tn_domain *domain, tni_block block);

#endif
