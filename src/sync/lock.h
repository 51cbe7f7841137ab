/* SPDX-License-Identifier: Apache-2.0 */
/* lock: functions on locks for condition.c. Private to the room sync. */
#ifndef TNI_SYNC_LOCK_H
#define TNI_SYNC_LOCK_H

#include "sync/sync.h"

/**
 * Check that this thread holds the lock.
 * @return 0, TN_ERR_INVALID, or why the lock cannot be used
 */
int tni_lock_check_held(const tn_lock *lock);
/** Acquire the lock without a deadline, and without asking tn_interrupt_set()'s hook. */
int tni_lock_acquire_again(tn_lock *lock);

#endif
