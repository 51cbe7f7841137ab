/* SPDX-License-Identifier: Apache-2.0 */
/* contents: what a slot or a message block says of a message, checked. Inside the room queue.
 */
#ifndef TNI_QUEUE_CONTENTS_H
#define TNI_QUEUE_CONTENTS_H

#include "queue/ring.h"

/**
 * Read the head of a message block; `form` and `block` are left as they are. pre: it is one
 * @return 0, TN_ERR_CORRUPT
 */
int tni_contents_read(const struct tni_segment *segment, tni_block block,
                      struct tni_contents *contents);
/**
 * Make private objects for all tensors; they own no reference yet.
 * @param still        the record that keeps the message block, or the message in its slot
 * @param ret_tensors  [tensor_count], for tni_contents_hold() or tni_tensor_forget()
 * @return 0; TN_ERR_TIMED_OUT: the record has changed; or as tni_tensor_decode()
 */
int tni_contents_decode(struct tn_domain *domain, struct tni_thread *thread,
                        const struct tni_contents *contents, const struct tni_still *still,
                        tn_tensor **ret_tensors);
/**
 * Take a reference of a block.
 * @param still  the record that keeps the block, or keeps a record of it; NULL: it is kept
 *               meanwhile
 * @return 0; TN_ERR_FULL; TN_ERR_TIMED_OUT: the record has changed
 */
int tni_contents_hold_one(struct tn_domain *domain, struct tni_thread *thread, tni_block block,
                          const struct tni_still *still);
/**
 * Take references of the tensors of a message block.
 * @param still  the record that keeps the message block; NULL: the block is kept meanwhile
 * @return 0; TN_ERR_FULL; TN_ERR_TIMED_OUT: the record has changed. On failure the tensors own
 *         no reference
 */
int tni_contents_hold(struct tn_domain *domain, struct tni_thread *thread,
                      const struct tni_contents *contents, const struct tni_still *still,
                      tn_tensor **tensors);

#endif
