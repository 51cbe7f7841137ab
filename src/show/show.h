/* SPDX-License-Identifier: Apache-2.0 */
/*
 * show: writes what a scheduler does into a domain, where inspectors read it; and tells a
 * scheduler what tensors of the domain take of a device.
 */
#ifndef TNI_SHOW_H
#define TNI_SHOW_H

#include <stdbool.h>
#include <tenon/sched.h>

/* A scheduler that a domain shows. Private memory. */
struct tni_shown;

/**
 * Let a domain show a scheduler.
 * @param name  copied; NULL: ""
 * @param info  what tn_sched_get_info() would say
 * @return 0; TN_ERR_INVALID: the name; TN_ERR_NO_MEMORY, TN_ERR_FULL, TN_ERR_CLOSED,
 *         TN_ERR_FORKED: as tn_tensor_empty()
 */
int tni_show_begin(struct tn_domain *domain, const char *name, const tn_sched_info *info,
                   struct tni_shown **ret_shown);
/** Write what the scheduler does now. By one thread at a time. */
void tni_show_write(struct tni_shown *shown, const tn_sched_info *info);
/** NULL is accepted. @param is_own  whether this process began it */
void tni_show_end(struct tni_shown *shown, bool is_own);

/**
 * How much of a device a tensor of this size takes: a block of a slab, or pieces of its own.
 * What slabs have left over is not counted.
 */
uint64_t tni_show_device_bytes(const struct tn_domain *domain, uint64_t size_bytes);
/** The quota of devices of a domain; UINT64_MAX: there is none. */
uint64_t tni_show_device_quota(const struct tn_domain *domain);

#endif
