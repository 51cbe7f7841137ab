/* SPDX-License-Identifier: Apache-2.0 */
/* group: children that end together. The invariants are in child.c. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spawn/child.h"

struct tn_group {
    struct tn_domain *domain; /* kept by tni_process_keep() */
    int32_t owner_pid;        /* the process that made the group */
    struct tn_process **children;
    int *fds; /* [capacity], for poll */
    uint32_t count, capacity;
    bool has_failed;
    uint32_t told_count; /* children [0, told_count) were told to end */
    tn_process_status first;
};

int tn_group_create(tn_domain *domain, tn_group **ret_group)
{
    if (domain == NULL || ret_group == NULL)
        return tni_fail_null(domain == NULL ? "the domain" : "ret_group");
    int status = tni_process_check(domain);
    if (status != 0)
        return status;
    struct tn_group *group = calloc(1, sizeof *group);
    if (group == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for a group");
    group->domain = domain;
    group->owner_pid = tni_os_pid();
    tni_process_keep(domain);
    *ret_group = group;
    return 0;
}

/*
 * A forked child has a copy of the group, but must not use it: the children in it are its
 * siblings, and it would read their messages to the parent.
 */
static int check(const struct tn_group *group)
{
    if (group == NULL)
        return tni_fail_null("the group");
    if (group->owner_pid != tni_os_pid())
        return tni_fail(TN_ERR_INVALID, "the process %d made the group, and only it may use it",
                        group->owner_pid);
    return 0;
}

static int reserve(struct tn_group *group, uint32_t more)
{
    if (more > UINT32_MAX / 16 - group->count)
        return tni_fail(TN_ERR_INVALID, "a group of %u children cannot get %u more",
                        group->count, more);
    uint32_t need = group->count + more;
    if (need <= group->capacity)
        return 0;
    uint32_t capacity = TNI_MAX(need, 2 * group->capacity);
    struct tn_process **children = calloc(capacity, sizeof children[0]);
    int *fds = calloc(capacity, sizeof fds[0]);
    if (children == NULL || fds == NULL) {
        free(children);
        free(fds);
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for %u children", need);
    }
    struct tn_process **old_children = group->children;
    int *old_fds = group->fds;
    if (group->count > 0)
        memcpy(children, old_children, group->count * sizeof children[0]);
    group->children = children;
    group->fds = fds;
    group->capacity = capacity;
    free(old_children); /* child.c, I7 */
    free(old_fds);
    return 0;
}

static void append(struct tn_group *group, struct tn_process *child)
{
    child->status.index = group->count;
    child->is_in_group = true;
    group->children[group->count++] = child;
}

/* ---- starting ---------------------------------------------------------------------------- */

struct indexed_run {
    tn_group_fn *run;
    void *argument;
    uint32_t index;
};

static int run_indexed(struct tn_domain *domain, void *context)
{
    struct indexed_run *indexed = context;
    return indexed->run(domain, indexed->index, indexed->argument);
}

/* Kill all children from `first` on, then collect them one after the other. */
static void end_from(struct tn_group *group, uint32_t first)
{
    for (uint32_t i = first; i < group->count; i++)
        if ((group->children[i]->flags & TN_PROCESS_DETACHED) == 0)
            (void)!tn_process_kill(group->children[i], SIGKILL);
    while (group->count > first)
        tn_process_close(group->children[--group->count]);
    group->told_count = TNI_MIN(group->told_count, first);
}

int tn_group_fork(tn_group *group, uint32_t count, tn_group_fn *run, void *argument)
{
    int status = check(group);
    if (status != 0)
        return status;
    if (run == NULL)
        return tni_fail_null("run");
    uint32_t first = group->count;
    status = reserve(group, count);
    for (uint32_t i = 0; i < count && status == 0; i++) {
        struct indexed_run indexed = {run, argument, group->count};
        struct tn_process *child;
        status = tn_process_fork(group->domain, run_indexed, &indexed, 0, &child);
        if (status == 0)
            append(group, child);
    }
    if (status == 0)
        return 0;
    char detail[256];
    snprintf(detail, sizeof detail, "%s", tn_error_detail());
    end_from(group, first);
    return tni_fail(status, "%s", detail); /* end_from() may have replaced the detail */
}

int tn_group_add(tn_group *group, tn_process *process)
{
    int status = check(group);
    if (status != 0)
        return status;
    if (process == NULL)
        return tni_fail_null("the process");
    if (process->owner_pid != tni_os_pid())
        return tni_fail(TN_ERR_INVALID, "another process started the process %d", process->pid);
    if (process->is_in_group)
        return tni_fail(TN_ERR_INVALID, "process %d is in a group already", process->pid);
    status = reserve(group, 1);
    if (status == 0)
        append(group, process);
    return status;
}

/* ---- waiting ----------------------------------------------------------------------------- */

/* Collect children that ended, and note the first failure (I5). @return how many others run */
static uint32_t collect(struct tn_group *group)
{
    uint32_t running = 0;
    for (uint32_t i = 0; i < group->count; i++) {
        struct tn_process *child = group->children[i];
        if (tni_child_collect(child, 0) != 0)
            running++;
        else if (tni_child_has_failed(child) && !group->has_failed) {
            group->has_failed = true;
            group->first = child->status;
        }
    }
    return running;
}

static void signal_child(struct tn_process *child, int signal)
{
    if (tn_process_kill(child, signal) != 0)
        tni_log(TNI_LOG_WARNING, "signal %d could not be sent to process %d: %s", signal,
                child->pid, tn_error_detail());
}

/*
 * I5. Send SIGTERM to each child that was not told to end yet, and SIGKILL to each child whose
 * grace time is over. Each child has its own grace time, so a child that joins late does not
 * delay the SIGKILL of the others.
 */
static void end_rest(struct tn_group *group, uint64_t now_ns, uint64_t grace_ns)
{
    for (; group->told_count < group->count; group->told_count++) {
        struct tn_process *child = group->children[group->told_count];
        if (!tni_add_size(now_ns, grace_ns, &child->kill_ns))
            child->kill_ns = TNI_FOREVER;
        if (grace_ns > 0)
            signal_child(child, SIGTERM);
    }
    for (uint32_t i = 0; i < group->count; i++) {
        struct tn_process *child = group->children[i];
        if (now_ns < child->kill_ns)
            continue;
        signal_child(child, SIGKILL);
        child->kill_ns = TNI_FOREVER;
    }
}

static int report(const struct tn_group *group, tn_process_status *ret_first)
{
    const tn_process_status *first = &group->first;
    if (!group->has_failed)
        return 0;
    int status = ret_first == NULL
                     ? 0
                     : tni_give_struct("tn_process_status", first, sizeof *first, ret_first);
    if (status != 0)
        return status;
    char end[TNI_CHILD_END_BYTES];
    tni_child_describe_end(first, end, sizeof end);
    return tni_fail(TN_ERR_CHILD_FAILED, "child %u, process %d, %s", first->index, first->pid,
                    end);
}

/* Ask the program's hook, then check whether the hook forked (child.c, I7). */
static int ask(const struct tn_group *group, uint64_t now_ns)
{
    int asked = tni_interrupt_ask(now_ns), status = check(group);
    return status != 0 ? status : asked;
}

/* Sleep until a child ends, a grace time is over, or a slice of the wait is over. */
static int sleep_until(struct tn_group *group, uint64_t deadline_ns)
{
    uint64_t slice_ns = tni_os_now_ns() + TNI_SPAWN_SLICE_NS;
    for (uint32_t i = 0; i < group->count; i++) {
        group->fds[i] = group->children[i]->pid_fd;
        if (i < group->told_count)
            deadline_ns = TNI_MIN(deadline_ns, group->children[i]->kill_ns);
    }
    int status = tni_os_poll(group->fds, group->count, TNI_MIN(deadline_ns, slice_ns));
    if (status == TN_ERR_TIMED_OUT)
        tni_child_survive(group->domain);
    return status == TN_ERR_TIMED_OUT ? 0 : TNI_MIN(status, 0);
}

int tn_group_wait(tn_group *group, uint64_t grace_ns, tn_deadline deadline,
                  tn_process_status *ret_first)
{
    int status = check(group);
    if (status == 0 && ret_first != NULL)
        status = tni_check_struct("tn_process_status", ret_first, sizeof *ret_first);
    if (status != 0)
        return status;
    for (;;) {
        uint32_t running = collect(group);
        uint64_t now_ns = tni_os_now_ns();
        if (running == 0)
            return report(group, ret_first);
        if (group->has_failed)
            end_rest(group, now_ns, grace_ns);
        if (now_ns >= deadline.ns)
            return tni_fail(TN_ERR_TIMED_OUT, "%u of %u children still run", running,
                            group->count);
        status = ask(group, now_ns);
        if (status == 0)
            status = sleep_until(group, deadline.ns);
        if (status != 0)
            return status;
    }
}

tn_process *tn_group_get(tn_group *group, uint32_t index)
{
    return group != NULL && index < group->count ? group->children[index] : NULL;
}

tn_group *tn_group_close(tn_group *group)
{
    if (group == NULL)
        return NULL;
    end_from(group, 0);
    tni_process_unkeep(group->domain);
    free(group->children);
    free(group->fds);
    free(group);
    return NULL;
}
