/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sources of src/process as they are shipped, and functions that call its fork handlers.
 * fork() in the model is a process that begins where the child would, with a copy of its
 * parent's private memory.
 */
#include "fork.h"

/*
 * The header names the block that is recounted, so that other threads wait; the name orders
 * nothing. In C11 each read of the name may return an old value, which makes many more states
 * that differ in nothing else. So here no thread writes the name.
 */
#if defined(MODEL_NOT_X86)
void name_recounted_unexplored(struct tn_domain *domain, uint32_t id);
#define tni_process_name_recounted name_recounted_unexplored
#endif
#include "process/claims.c"
#include "process/domains.c"
#include "process/fork.c"
#include "process/process.c"
#include "process/sit.c"
#include "process/thread.c"
#if defined(MODEL_NOT_X86)
#undef tni_process_name_recounted
void tni_process_name_recounted(struct tn_domain *domain, uint32_t id)
{
    (void)domain;
    (void)id;
}
#endif

void fork_register(struct tn_domain *parent) { tni_domains = parent; }
void fork_before(void) { fork_prepare(); }
void fork_after_in_parent(bool seems_failed) { fork_parent(seems_failed); }

void fork_after_in_child(struct tn_domain *copy)
{
    /* The state that the parent left: the list is locked, the pipe is open. */
    tni_domains = copy;
    atomic_store(&domains_lock.state, 1);
    tni_os_pipe(fork_pipe);
    fork_child();
}
