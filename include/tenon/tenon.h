/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENON_TENON_H
#define TENON_TENON_H

/*
 * tenon shares tensors between the processes of one machine, without copying.
 *
 *   domain     the processes that share, with their memory    domain.h
 *   device     the host, and cards with memory of their own    device.h
 *   tensor     a typed, strided view of a storage              tensor.h
 *   share      strategies: how storages cross                 share.h
 *   attribute  what frameworks know of a tensor               attribute.h
 *   queue      bounded queues of messages                      queue.h
 *   store      a map from keys to messages                     store.h
 *   channel    each message goes to every subscriber           channel.h
 *   event, semaphore, lock, condition, barrier                 sync.h
 *   handle     plain bytes that another member can import      handle.h
 *   process    children that are members                       process.h
 *   pool       worker processes with leased jobs               pool.h
 *   sched      tasks that run when the resources are free    sched.h
 *              and their data                                  sched_data.h
 *   inspect    who holds what; the audit                       inspect.h
 *
 * Functions return 0 or a count, or a negative TN_ERR_*; tn_error_detail() says more.
 * Calls that can wait take a deadline: tenon/deadline.h.
 *
 * Threads may call any function at the same time, unless its comment says otherwise. A signal
 * handler must not call any of them: none is async-signal-safe. A call that a handler makes in
 * the middle of another call can lose a hold, or wait for the call that it interrupted for
 * ever. A program that answers signals outside of their handlers can end waits:
 * tn_interrupt_set().
 */
#include <tenon/attribute.h>
#include <tenon/channel.h>
#include <tenon/deadline.h>
#include <tenon/device.h>
#include <tenon/domain.h>
#include <tenon/handle.h>
#include <tenon/inspect.h>
#include <tenon/object.h>
#include <tenon/pool.h>
#include <tenon/process.h>
#include <tenon/queue.h>
#include <tenon/sched.h>
#include <tenon/sched_data.h>
#include <tenon/share.h>
#include <tenon/status.h>
#include <tenon/store.h>
#include <tenon/sync.h>
#include <tenon/tensor.h>
#include <tenon/version.h>

#endif
