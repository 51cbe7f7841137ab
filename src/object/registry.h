/* SPDX-License-Identifier: Apache-2.0 */
/*
 * registry: the claim by which one process at a time makes, opens and ends objects. Inside the
 * room object.
 */
#ifndef TNI_OBJECT_REGISTRY_H
#define TNI_OBJECT_REGISTRY_H

#include "process/process.h"

/**
 * Take the registry if it is free, or if its owner is `from`: a seat that is dead and not FREE
 * yet.
 * @return whether this process has the registry now
 */
bool tni_registry_take(struct tn_domain *domain, uint64_t from);
/**
 * Wait for the registry: 5 s, or 0.1 s if this process waited in vain for the same owner
 * before.
 * @return 0, or TN_ERR_TIMED_OUT, with an error sentence that names the owner
 */
int tni_registry_enter(struct tn_domain *domain);
/** As tni_registry_enter(), for a reaper: it waits 1 ms at most, and suspects no owner. */
int tni_registry_enter_reclaiming(struct tn_domain *domain);
/** Release the registry. pre: this process has it. */
void tni_registry_leave(struct tn_domain *domain);

#endif
