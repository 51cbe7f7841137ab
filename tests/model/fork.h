/* SPDX-License-Identifier: Apache-2.0 */
/* fork: the fork handlers that process.c registers, for fork_model.c. */
#ifndef TENON_TESTS_MODEL_FORK_H
#define TENON_TESTS_MODEL_FORK_H

#include "process/process.h"

/** Register the handlers for the only domain of the parent. */
void fork_register(struct tn_domain *parent);
void fork_before(void);
void fork_after_in_parent(bool seems_failed);
/** `copy` is the child's copy of the parent's private object. */
void fork_after_in_child(struct tn_domain *copy);

#endif
