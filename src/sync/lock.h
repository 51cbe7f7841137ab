/* SPDX-License-Identifier: Apache-2.0 */
/* lock: what a condition asks of a lock. Inside the room sync. */
#ifndef TNI_SYNC_LOCK_H
#define TNI_SYNC_LOCK_H

#include "sync/sync.h"

/** 0, or TN_ERR_INVALID: this thread does not hold it; or why it cannot be used. */
int tni_lock_check_held(const tn_lock *lock);
/** Acquire it, however long that takes: the program is not asked whether to go on. */
int tni_lock_acquire_again(tn_lock *lock);

#endif
