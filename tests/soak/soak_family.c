/* SPDX-License-Identifier: Apache-2.0 */
/* Members that start processes: children of every kind, groups, fork servers. */
#include "soak.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { EXIT_LEAST = 10, EXIT_NO_SEAT = 3, WAIT_S = 600, GROUP = 3, TURNS = 12 };

/* Statuses that a start may return after a kill, or when a table is full. */
static bool is_start_refusal(int status)
{
    return status == TN_ERR_FULL || status == TN_ERR_NO_MEMORY || status == TN_ERR_PEER_DIED ||
           (status == TN_ERR_SYSTEM &&
            strstr(tn_error_detail(), "before it could start") != NULL);
}

static void judge_start(const char *call, int status)
{
    if (status == 0)
        soak_count(SOAK_N_CHILDREN, 1);
    else if (!is_start_refusal(status))
        soak_fail_status(SOAK_ON_CHILDREN, call, status);
}

/* ---- what a child does ------------------------------------------------------------------- */

int soak_be_child(tn_domain *domain, void *argument)
{
    int code = *(const int *)argument;
    me.domain = domain;
    soak_enlist(SOAK_CHILD);
    switch (soak_below(3)) {
    case 0:
        soak_produce(soak_below(TURNS));
        break;
    case 1:
        soak_relay(soak_below(TURNS));
        break;
    default:
        soak_keep(soak_below(TURNS));
    }
    soak_dismiss();
    return code;
}

static int be_one_of_group(tn_domain *domain, uint32_t index, void *argument)
{
    (void)index;
    (void)soak_be_child(domain, argument);
    return 0;
}

/* ---- what its parent does ---------------------------------------------------------------- */

static void judge_end(const tn_process_status *end, int code)
{
    if (end->signal == SIGKILL || end->signal == SIGTERM)
        return;
    if (end->signal == 0 && (end->exit_code == code || end->exit_code == EXIT_NO_SEAT))
        return;
    soak_fail(SOAK_ON_CHILDREN, "child %d exited with %d, signal %d; should be %d: '%s'",
              (int)end->pid, (int)end->exit_code, (int)end->signal, code, end->message);
}

static void await_child(tn_process *process, int code)
{
    tn_process_status end = {.struct_size = sizeof end};
    soak_do(SOAK_AWAITING_CHILD);
    int status = tn_process_wait(process, soak_deadline(WAIT_S * 1000), &end);
    if (status != 0)
        soak_fail_status(SOAK_ON_CHILDREN, "tn_process_wait", status);
    judge_end(&end, code);
    soak_checked(SOAK_ON_CHILDREN);
    tn_process_close(process);
}

static void fork_one(int code)
{
    tn_process *process = NULL;
    soak_do(SOAK_FORKING);
    int status = tn_process_fork(me.domain, soak_be_child, &code, 0, &process);
    judge_start("tn_process_fork", status);
    if (status == 0)
        await_child(process, code);
}

static void execute_one(int code)
{
    tn_process *process = NULL;
    soak_do(SOAK_EXECUTING);
    int status =
        tn_process_exec(me.domain, soak_program("child", (uint32_t)code), NULL, 0, &process);
    judge_start("tn_process_exec", status);
    if (status == 0)
        await_child(process, code);
}

static void serve_some(int code)
{
    tn_forkserver *server = NULL;
    tn_process *process = NULL;
    soak_do(SOAK_FORKING);
    int status = tn_forkserver_start(me.domain, &server);
    judge_start("tn_forkserver_start", status);
    for (int i = 0; i < 2 && status == 0; i++) {
        soak_do(SOAK_FORKING);
        status = tn_forkserver_fork(server, soak_be_child, &code, sizeof code, 0, &process);
        judge_start("tn_forkserver_fork", status);
        if (status == 0)
            await_child(process, code);
    }
    soak_do(SOAK_FORKING);
    tn_forkserver_close(server);
}

static void fork_group(int code)
{
    tn_group *group = NULL;
    tn_process_status first = {.struct_size = sizeof first};
    soak_do(SOAK_FORKING);
    int status = tn_group_create(me.domain, &group);
    if (status == 0)
        status = tn_group_fork(group, GROUP, be_one_of_group, &code);
    judge_start("tn_group_fork", status);
    if (status == 0) {
        soak_do(SOAK_AWAITING_CHILD);
        status = tn_group_wait(group, 20 * SOAK_MS_NS, soak_deadline(WAIT_S * 1000), &first);
        if (status != 0 && status != TN_ERR_CHILD_FAILED)
            soak_fail_status(SOAK_ON_CHILDREN, "tn_group_wait", status);
        if (status == TN_ERR_CHILD_FAILED)
            judge_end(&first, 0);
        soak_checked(SOAK_ON_CHILDREN);
    }
    soak_do(SOAK_AWAITING_CHILD);
    tn_group_close(group);
}

void soak_be_parent(uint32_t turns)
{
    static void (*const ways[])(int) = {fork_one, fork_one, execute_one, serve_some,
                                        fork_group};
    for (uint32_t i = 0; i < turns && soak_goes_on(); i++)
        ways[soak_below(sizeof ways / sizeof ways[0])](EXIT_LEAST + (int)soak_below(100));
}
