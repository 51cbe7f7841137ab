/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process.c as it is shipped, and a door to its fork handlers: fork() of the model is a process
 * that begins where the child would, with a copy of its parent's private memory.
 */
#include "fork.h"

#include "process/process.c"

void fork_register(struct tn_domain *parent) { all_domains = parent; }
void fork_before(void) { fork_prepare(); }
void fork_after_in_parent(void) { fork_parent(); }

void fork_after_in_child(struct tn_domain *copy)
{
    /* As the parent left them: the list is locked, the pipe is open. */
    all_domains = copy;
    atomic_store(&all_domains_lock.state, 1);
    tni_os_pipe(fork_pipe);
    fork_child();
}
