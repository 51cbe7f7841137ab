/* SPDX-License-Identifier: Apache-2.0 */
/* start: starts a child: a function in a fork of this process, or a program by exec. */
#include <stdio.h>
#include <stdlib.h>

#include "spawn/child.h"

enum { EXIT_WITH_PARENT = 128 + 9, OWN_VARIABLES = 3, VARIABLE_BYTES = 96 };

struct tni_origin tni_child_origin(const struct tn_domain *domain)
{
    return (struct tni_origin){.who = domain->who, .pid = tni_os_pid()};
}

/* The clean-up may replace the error detail, so the detail is saved first. */
int tni_child_end_failed(struct tn_process *child, int status)
{
    char detail[256];
    struct tn_domain *domain = child->domain;
    snprintf(detail, sizeof detail, "%s", tn_error_detail());
    child->flags &= ~(uint32_t)TN_PROCESS_DETACHED;
    tn_process_close(child);
    /* A failed fork, or a child that was never collected, left a seat. */
    if (tni_process_has_seat(domain))
        tni_reaper_reclaim_all(domain);
    return tni_fail(status, "%s", detail);
}

/* ---- a function -------------------------------------------------------------------------- */

/*
 * Bind this child's life to its parent's (I3). The kernel sends the death signal when the
 * thread that forked ends, even if its process goes on, for example after pthread_exit(). So
 * the room os checks whether the process has ended.
 */
static void bind_to_parent(struct tn_domain *domain, const struct tni_origin *origin)
{
    tni_os_die_with_process(origin->pid);
    if (tni_process_bind_to_parent(domain, origin->who) != 0)
        tni_os_exit(EXIT_WITH_PARENT);
}

/*
 * Leave the domain. The function may have closed it: then there is no seat to leave. The struct
 * tn_domain is still valid, because the inherited struct tn_process keeps it.
 */
static void leave(struct tn_domain *domain)
{
    if (tni_process_has_seat(domain))
        tni_manager_leave(domain);
}

/* Report that the child runs. If the parent died or does not want the child any more, exit. */
static void report_start(void)
{
    if (tni_message_report(0, "") == TN_ERR_CLOSED)
        tni_os_exit(EXIT_WITH_PARENT);
}

void tni_child_run(struct tn_domain *domain, tn_process_fn *run, void *argument, uint32_t flags,
                   const struct tni_origin *origin, int message_fd)
{
    tni_message_set(message_fd);
    if (tni_process_check(domain) != 0) {
        tni_message_report(TN_ERR_FULL, tn_error_detail());
        tni_os_exit(1);
    }
    if ((flags & TN_PROCESS_DETACHED) == 0)
        bind_to_parent(domain, origin);
    TNI_KILL_POINT("spawn_child_bound");
    report_start();
    TNI_KILL_POINT("spawn_child_started");

    int code = run(domain, argument);
    tni_message_flush();
    leave(domain);
    tni_message_end(code & 255);
    tni_os_exit(code & 255);
}

/*
 * Whether the pid on a seat means the same process in this pid namespace. The parent of this
 * process is known to live; for other processes /proc is read.
 */
static bool is_here(const struct tni_segment *segment, uint32_t seat, int32_t pid)
{
    return pid == tni_os_parent_pid()
               ? tni_os_has_pid_space(TNI_LOOK(tni_seat_at(segment, seat)->pid_space))
               : tni_process_is_here(segment, seat);
}

/* Find the seat of a live member by its pid. @return 0: there is none */
static uint64_t find_member(struct tn_domain *domain, int32_t pid)
{
    const struct tni_segment *segment = &domain->segment;
    uint32_t limit = tni_seat_limit(segment); /* seats with a higher index were never used */
    for (uint32_t i = 0; pid > 0 && i < limit; i++) {
        const struct tni_seat *seat = tni_seat_at(segment, i);
        uint64_t word = atomic_load(&seat->word);
        /* The seat of a dead process that is not reclaimed yet may show the same pid. */
        if (atomic_load(&seat->pid) == pid && tni_seat_state(word) == TNI_SEAT_ALIVE &&
            i != domain->seat && is_here(segment, i, pid) &&
            tni_process_seat_state(segment, i) == TNI_OS_ALIVE)
            return tni_who(i, tni_seat_incarnation(word));
    }
    return 0;
}

/* Find a member by its pid. Forked members write their pid after fork(), so wait for them. */
static uint64_t await_member(struct tn_domain *domain, int32_t pid)
{
    enum { MOST_NS = 1000 * 1000 * 1000 };
    uint64_t who = find_member(domain, pid), until_ns = tni_os_now_ns() + MOST_NS;
    for (uint32_t tries = 0; who == 0 && tni_os_now_ns() < until_ns; tries++) {
        bool is_joining =
            tni_process_has_joining(&domain->segment); /* read before the seats are */
        who = find_member(domain, pid);
        if (!is_joining)
            break;
        if (who == 0)
            tni_os_back_off(tries);
    }
    return who;
}

int tn_process_follow(tn_domain *domain, int32_t pid)
{
    if (domain == NULL)
        return tni_fail(TN_ERR_INVALID, "the domain is NULL");
    int status = tni_process_check(domain);
    if (status != 0)
        return status;
    uint64_t who = await_member(domain, pid);
    if (who == 0)
        return tni_fail(TN_ERR_NOT_FOUND, "no other live member of the domain has the pid %d",
                        pid);
    status = tni_process_bind_to_parent(domain, who);
    if (status == 0 && tni_os_parent_pid() == pid)
        tni_os_die_with_process(pid);
    return status;
}

int tni_child_await_start(struct tn_process *child)
{
    struct tni_child_report report;
    int fds[2] = {child->message_fd, child->pid_fd};
    /* Without a pidfd the child has ended, so its report is in the pipe already. */
    int ready = tni_os_poll(fds, 2, child->pid_fd < 0 ? 0 : TNI_FOREVER);
    if (ready < 0 && ready != TN_ERR_TIMED_OUT)
        return ready;
    int got = tni_os_read(child->message_fd, &report, sizeof report);
    if (got == (int)sizeof report && report.status == 0)
        return 0;
    if (got == (int)sizeof report) {
        report.text[sizeof report.text - 1] = '\0';
        return tni_fail(report.status, "%s", report.text);
    }
    return tni_fail(TN_ERR_SYSTEM, "process %d ended before it could start", child->pid);
}

/* Fork the child. @return its pid, or an error; in the child the call does not return */
static int fork_child(struct tn_process *child, tn_process_fn *run, void *argument)
{
    struct tni_origin origin = tni_child_origin(child->domain);
    int ends[2];

    tni_message_flush();
    tni_children_lock();
    int status = tni_os_pipe(ends);
    if (status == 0) {
        child->message_fd = ends[0];
        status = tni_os_fork();
        if (status == 0) {
            child->message_fd = -1; /* in the child's copy; ends[0] is closed below */
            tni_servers_forget();
            tni_children_forget();
            tni_os_close(ends[0]);
            tni_child_run(child->domain, run, argument, child->flags, &origin, ends[1]);
        }
        tni_os_close(ends[1]);
    }
    tni_children_unlock();
    return status;
}

int tn_process_fork(tn_domain *domain, tn_process_fn *run, void *argument, uint32_t flags,
                    tn_process **ret_process)
{
    struct tn_process *child;
    if (domain == NULL || run == NULL || ret_process == NULL)
        return tni_fail_null(domain == NULL ? "the domain"
                             : run == NULL  ? "run"
                                            : "ret_process");
    int status = tni_child_create(domain, flags, &child);
    if (status != 0)
        return status;
    status = fork_child(child, run, argument);
    if (status > 0)
        status = tni_child_watch(child, status);
    if (status == 0)
        status = tni_child_await_start(child);
    if (status != 0)
        return tni_child_end_failed(child, status);
    *ret_process = child;
    return 0;
}

/* ---- a program --------------------------------------------------------------------------- */

bool tni_variable_has_name(const char *variable, const char *name)
{
    size_t len = strlen(name);
    return strncmp(variable, name, len) == 0 && variable[len] == '=';
}

/* The library sets these variables itself. */
static int check_environment(const char *const *environment)
{
    static const char *const own[] = {TNI_DOMAIN_VARIABLE, TNI_PARENT_VARIABLE,
                                      TNI_MESSAGE_VARIABLE};
    for (size_t i = 0; environment != NULL && environment[i] != NULL; i++) {
        if (strchr(environment[i], '=') == NULL || environment[i][0] == '=')
            return tni_fail(TN_ERR_INVALID, "'%.64s' in the environment is not NAME=VALUE",
                            environment[i]);
        for (size_t k = 0; k < TNI_COUNT(own); k++)
            if (tni_variable_has_name(environment[i], own[k]))
                return tni_fail(TN_ERR_INVALID,
                                "the environment has %s, which the library sets itself",
                                own[k]);
    }
    return 0;
}

/* The variables of this room stand first, so they win over the user's of the same name. */
struct variables {
    char own[OWN_VARIABLES][VARIABLE_BYTES];
    const char **list;
};

static size_t write_name(char *variable, const char *name)
{
    return (size_t)snprintf(variable, VARIABLE_BYTES, "%s=", name);
}

static int make_variables(const struct tn_process *child, int message_fd,
                          const char *const *given, struct variables *ret_variables)
{
    struct variables *v = ret_variables;
    size_t count = 0, used;
    int status;

    used = write_name(v->own[0], TNI_DOMAIN_VARIABLE);
    status = tni_process_write_pass(child->domain, v->own[0] + used, VARIABLE_BYTES - used);
    /* Empty for a detached child: it must not inherit the variable of this process. */
    used = write_name(v->own[1], TNI_PARENT_VARIABLE);
    if (status == 0 && (child->flags & TN_PROCESS_DETACHED) == 0)
        status =
            tni_process_write_parent(child->domain, v->own[1] + used, VARIABLE_BYTES - used);
    used = write_name(v->own[2], TNI_MESSAGE_VARIABLE);
    tni_message_write_variable(message_fd, v->own[2] + used, VARIABLE_BYTES - used);
    if (status != 0)
        return status;

    while (given != NULL && given[count] != NULL)
        count++;
    v->list = calloc(OWN_VARIABLES + count + 1, sizeof *v->list);
    if (v->list == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for an environment");
    for (size_t i = 0; i < OWN_VARIABLES; i++)
        v->list[i] = v->own[i];
    for (size_t i = 0; i < count; i++)
        v->list[OWN_VARIABLES + i] = given[i];
    return 0;
}

static int start_program(struct tn_process *child, const char *const *argv,
                         const char *const *environment, int message_fd)
{
    const struct tni_segment *s = &child->domain->segment;
    struct variables variables;
    int32_t pid = 0;
    int status = make_variables(child, message_fd, environment, &variables);
    if (status != 0)
        return status;
    /* This death signal serves until the program joins the domain, or for good if it never
     * does. */
    bool ends_with_us =
        (child->flags & TN_PROCESS_DETACHED) == 0 && tni_os_thread_id() == tni_os_pid();
    const int keep_fds[] = {s->control_fd, s->arena_fd, message_fd};
    const struct tni_os_program program = {.argv = argv,
                                           .environment = variables.list,
                                           .keep_fds = keep_fds,
                                           .keep_count = TNI_COUNT(keep_fds),
                                           .ends_with_us = ends_with_us};
    status = tni_os_spawn(&program, &pid);
    free(variables.list);
    return status != 0 ? status : tni_child_watch(child, pid);
}

int tn_process_exec(tn_domain *domain, const char *const *argv, const char *const *environment,
                    uint32_t flags, tn_process **ret_process)
{
    struct tn_process *child;
    int ends[2];
    if (domain == NULL || argv == NULL || ret_process == NULL)
        return tni_fail_null(domain == NULL ? "the domain"
                             : argv == NULL ? "argv"
                                            : "ret_process");
    if (argv[0] == NULL)
        return tni_fail_null("argv[0], the program,");
    if (argv[0][0] == '\0')
        return tni_fail(TN_ERR_INVALID, "argv[0], the program to start, is empty");
    int status = check_environment(environment);
    if (status == 0)
        status = tni_child_create(domain, flags, &child);
    if (status != 0)
        return status;
    tni_process_make_room(domain);
    tni_children_lock();
    status = tni_os_pipe(ends);
    if (status == 0) {
        child->message_fd = ends[0];
        status = start_program(child, argv, environment, ends[1]);
        tni_os_close(ends[1]);
    }
    tni_children_unlock();
    if (status != 0)
        return tni_child_end_failed(child, status);
    *ret_process = child;
    return 0;
}
