/* SPDX-License-Identifier: Apache-2.0 */
/*
 * registry: who may make, open and end objects; one at a time in a domain. Inside the room
 * object.
 */
#ifndef TNI_OBJECT_REGISTRY_H
#define TNI_OBJECT_REGISTRY_H

#include "process/process.h"

/**
 * Take the claim if nobody has it, or if `from` has: a seat that is dead and not yet free.
 * @return whether it is ours now
 */
bool tni_registry_take(struct tn_domain *domain, uint64_t from);
/**
 * Wait for the claim: 5 s, or 0.1 s for an owner that was waited for in vain.
 * @return 0, or TN_ERR_TIMED_OUT, with the owner named
 */
int tni_registry_enter(struct tn_domain *domain);
/** For who reclaims the dead: wait 1 ms at most, and suspect nobody. */
int tni_registry_enter_reclaiming(struct tn_domain *domain);
/** pre: the claim is ours. */
void tni_registry_leave(struct tn_domain *domain);

#endif
