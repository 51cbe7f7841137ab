/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The conductor's crew: its processes are started in five ways, collected, watched, parked
 * and ended.
 */
#include "soak.h"

#include <dirent.h>
#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "process/process.h"

enum { TREE = 512, EXIT_NO_SEAT = 3 };

static const enum soak_role roles[SOAK_CREW] = {
    SOAK_PRODUCER, SOAK_PRODUCER, SOAK_PRODUCER, SOAK_PRODUCER, SOAK_PRODUCER, SOAK_PRODUCER,
    SOAK_CONSUMER, SOAK_CONSUMER, SOAK_CONSUMER, SOAK_CONSUMER, SOAK_CONSUMER, SOAK_CONSUMER,
    SOAK_CONSUMER, SOAK_RELAY,    SOAK_RELAY,    SOAK_KEEPER,   SOAK_KEEPER,   SOAK_KEEPER,
    SOAK_POOL,     SOAK_POOL,     SOAK_PARENT,   SOAK_PARENT,   SOAK_HOARDER,  SOAK_RECLAIMER,
    SOAK_VISITOR,  SOAK_VISITOR,
};

static struct {
    pid_t pid; /* 0: none */
    tn_process *process;
} crew[SOAK_CREW];
static tn_forkserver *server;

bool soak_crew_has(pid_t pid)
{
    bool has = server != NULL && tn_forkserver_pid(server) == pid;
    for (uint32_t i = 0; i < SOAK_CREW; i++)
        has = has || crew[i].pid == pid;
    return has;
}

uint32_t soak_crew_members(void)
{
    uint32_t count = server != NULL;
    for (uint32_t i = 0; i < SOAK_CREW; i++)
        count += crew[i].pid != 0 && roles[i] != SOAK_VISITOR;
    return count;
}

/* ---- starting ---------------------------------------------------------------------------- */

static bool is_start_refusal(int status)
{
    return status == TN_ERR_FULL || status == TN_ERR_NO_MEMORY || status == TN_ERR_PEER_DIED ||
           (status == TN_ERR_SYSTEM &&
            strstr(tn_error_detail(), "before it could start") != NULL);
}

static int run_forked(tn_domain *domain, void *argument)
{
    me.domain = domain;
    return soak_play(argument);
}

static int run_served(tn_domain *domain, void *argument)
{
    me.domain = domain;
    return soak_play(&soak->slots[*(const uint32_t *)argument]);
}

static int serve(tn_domain *domain, uint32_t i)
{
    int status = 0;
    if (server == NULL)
        status = tn_forkserver_start(domain, &server);
    if (status == 0)
        atomic_store(&soak->server_pid, tn_forkserver_pid(server));
    if (status == 0)
        status = tn_forkserver_fork(server, run_served, &i, sizeof i, 0, &crew[i].process);
    if (status == TN_ERR_PEER_DIED)
        server = tn_forkserver_close(server);
    return status;
}

/* A plain fork: the child gets a seat with it, and no process waits for a report. */
static int fork_plainly(tn_domain *domain, uint32_t i)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(domain->seat == TNI_NO_SEAT ? EXIT_NO_SEAT : run_forked(domain, &soak->slots[i]));
    crew[i].pid = pid > 0 ? pid : 0;
    return 0;
}

static int start_visitor(uint32_t i)
{
    const char *const *argv = soak_program("visitor", i);
    pid_t pid = vfork();
    if (pid == 0) {
        execv(argv[0], (char *const *)argv);
        _exit(127);
    }
    crew[i].pid = pid > 0 ? pid : 0;
    return 0;
}

static void start_one(tn_domain *domain, uint32_t i)
{
    struct soak_slot *slot = &soak->slots[i];
    int status = 0;
    atomic_store(&slot->role, roles[i]);
    if (roles[i] == SOAK_VISITOR) {
        start_visitor(i);
    } else {
        uint32_t dice = soak_below(100);
        if (dice < 35)
            status = tn_process_fork(domain, run_forked, slot, 0, &crew[i].process);
        else if (dice < 55)
            status = fork_plainly(domain, i);
        else if (dice < 85)
            status = serve(domain, i);
        else
            status =
                tn_process_exec(domain, soak_program("crew", i), NULL, 0, &crew[i].process);
    }
    if (crew[i].process != NULL)
        crew[i].pid = tn_process_pid(crew[i].process);
    if (status != 0 && !is_start_refusal(status))
        soak_fail_status(SOAK_ON_CHILDREN, "starting one of the crew", status);
    soak_count(status == 0               ? SOAK_N_STARTS
               : status == TN_ERR_SYSTEM ? SOAK_N_DEAD_STARTS
                                         : SOAK_N_REFUSED_STARTS,
               1);
}

void soak_crew_fill(tn_domain *domain)
{
    for (uint32_t i = 0; i < SOAK_CREW; i++)
        if (crew[i].pid == 0)
            start_one(domain, i);
}

/* ---- collecting -------------------------------------------------------------------------- */

/*
 * At most `count` messages: a message that was only taken is delivered again, or lost, by
 * policy.
 */
static uint32_t in_hand(uint32_t seen_as, uint32_t queue, uint32_t count)
{
    if (seen_as == SOAK_SEEN_WAITING)
        return 0;
    if (seen_as == SOAK_SEEN_TAKING && soak_queue_kinds[queue].policy != TN_QUEUE_DROP)
        return count - 1;
    return count;
}

/*
 * Account for the operation that was under way when this process ended: it may have happened
 * or not.
 */
static void account(struct soak_slot *slot)
{
    uint32_t queue = atomic_load(&slot->queue), count = atomic_load(&slot->count);
    switch (atomic_load(&slot->deed)) {
    case SOAK_POPPING:
        atomic_fetch_add(&soak->queues[queue].in_hand,
                         in_hand(atomic_load(&slot->seen_as), queue, count));
        break;
    case SOAK_PUSHING:
        soak_count(SOAK_N_CUT_PUSHES, 1);
        break;
    case SOAK_EXPORTING:
        atomic_fetch_add(&soak->maybe_tickets, 1);
        break;
    case SOAK_AT_SIGNAL_UP:
        atomic_fetch_add(&soak->maybe_ups, 1);
        break;
    case SOAK_AT_SIGNAL_DOWN:
        atomic_fetch_add(&soak->maybe_downs, 1);
        break;
    default:
        break;
    }
    atomic_store(&slot->deed, SOAK_NOTHING);
    atomic_store(&slot->seen_as, SOAK_SEEN_NOT);
    atomic_store(&slot->pid, 0);
}

/*
 * SIGPIPE of a helper process that starts tenond: the process that waited for its report is
 * dead.
 */
static bool is_crash(int signal_number, bool is_crew)
{
    return signal_number != SIGKILL && signal_number != SIGTERM &&
           (is_crew || signal_number != SIGPIPE);
}

static void judge_end(const siginfo_t *end, uint32_t of_crew)
{
    char name[32];
    bool exited = end->si_code == CLD_EXITED;
    if (exited && (end->si_status == 0 || end->si_status == EXIT_NO_SEAT))
        return;
    /*
     * For a crew that must not act by itself any more; other processes end with their
     * parents.
     */
    if (exited && of_crew == SOAK_CREW)
        return;
    if (!exited && !is_crash(end->si_status, of_crew < SOAK_CREW))
        return;
    soak_process_name(end->si_pid, name);
    soak_fail(SOAK_ON_LIVENESS, "process %d '%s' (%s) ended with %s %d", (int)end->si_pid, name,
              of_crew < SOAK_CREW ? soak_role_names[roles[of_crew]] : "not of the crew",
              exited ? "exit code" : "signal", end->si_status);
}

static void collect_crew(uint32_t i)
{
    if (crew[i].process != NULL) {
        int status = tn_process_wait(crew[i].process, soak_deadline(20000), NULL);
        if (status != 0)
            soak_fail_status(SOAK_ON_CHILDREN, "tn_process_wait", status);
        crew[i].process = tn_process_close(crew[i].process);
    } else {
        waitpid(crew[i].pid, NULL, 0);
    }
    crew[i].pid = 0;
    account(&soak->slots[i]);
}

static void collect_one(const siginfo_t *end)
{
    uint32_t i = 0;
    while (i < SOAK_CREW && crew[i].pid != end->si_pid)
        i++;
    judge_end(end, i);
    if (i < SOAK_CREW)
        collect_crew(i);
    else if (server != NULL && tn_forkserver_pid(server) == end->si_pid)
        server = tn_forkserver_close(server);
    else
        waitpid(end->si_pid, NULL, 0);
}

static bool is_gone(pid_t pid)
{
    char state = soak_process_state(pid);
    return state == 0 || state == 'Z' || state == 'X';
}

/* Account for the slots of processes that the crew started. */
static void collect_slots(void)
{
    for (uint32_t i = SOAK_CREW; i < SOAK_SLOTS; i++) {
        pid_t pid = atomic_load(&soak->slots[i].pid);
        if (pid != 0 && is_gone(pid) && atomic_load(&soak->slots[i].pid) == pid)
            account(&soak->slots[i]);
    }
}

void soak_crew_collect(void)
{
    for (;;) {
        siginfo_t end = {.si_pid = 0};
        if (waitid(P_ALL, 0, &end, WEXITED | WNOHANG | WNOWAIT) != 0 || end.si_pid == 0)
            break;
        collect_one(&end);
    }
    collect_slots();
    if (atomic_load(&soak->failed) == 2) {
        soak_report_failure();
        _exit(1);
    }
}

/* ---- watching ---------------------------------------------------------------------------- */

static bool may_last(const struct soak_slot *slot)
{
    uint32_t deed = atomic_load(&slot->deed), role = atomic_load(&slot->role);
    return deed == SOAK_PARKED || (role == SOAK_WORKER && deed == SOAK_NOTHING);
}

void soak_crew_watch(void)
{
    for (uint32_t i = 0; i < SOAK_SLOTS; i++) {
        struct soak_slot *slot = &soak->slots[i];
        pid_t pid = atomic_load(&slot->pid);
        uint64_t since_ns = atomic_load(&slot->since_ns);
        if (pid == 0 || may_last(slot) || soak_now_ns() < since_ns + SOAK_HANG_NS ||
            is_gone(pid) || atomic_load(&slot->since_ns) != since_ns)
            continue;
        soak_report_stack(pid);
        soak_fail(SOAK_ON_LIVENESS, "%s %d (life %u) hangs: it is at %s since %.1f s",
                  soak_role_names[atomic_load(&slot->role)], (int)pid, atomic_load(&slot->life),
                  soak_deed_names[atomic_load(&slot->deed)],
                  (double)(soak_now_ns() - since_ns) / 1e9);
    }
}

/* ---- parking ----------------------------------------------------------------------------- */

/* 0: all processes are where they should be; else the pid of one that is not. */
static pid_t find_straggler(void)
{
    pid_t tree[TREE];
    uint32_t round = atomic_load(&soak->round);
    for (uint32_t i = 0; i < SOAK_CREW; i++)
        if (crew[i].pid != 0 && atomic_load(&soak->slots[i].parked) != round)
            return crew[i].pid;
    uint32_t count = soak_list_tree(getpid(), tree, TREE);
    for (uint32_t i = 0; i < count; i++) {
        char name[32];
        soak_process_name(tree[i], name);
        /* A process that has ended, and that its parent did not collect, is found later. */
        char state = soak_process_state(tree[i]);
        if (!soak_crew_has(tree[i]) && strncmp(name, "tenond", 6) != 0 &&
            strcmp(name, "soak-killer") != 0 && state != 0 && state != 'Z')
            return tree[i];
    }
    return 0;
}

/* A process that rests has collected each child that it started. tenond does not rest. */
static void check_collected(void)
{
    pid_t tree[TREE];
    uint32_t count = soak_list_tree(getpid(), tree, TREE);
    for (uint32_t i = 0; i < count; i++) {
        char name[32];
        pid_t parent = soak_process_parent(tree[i]);
        soak_process_name(parent, name);
        if (parent != getpid() && strncmp(name, "tenond", 6) != 0 &&
            soak_process_state(tree[i]) == 'Z')
            soak_fail(SOAK_ON_CHILDREN, "process %d has ended, and its parent %d rests",
                      (int)tree[i], (int)parent);
    }
}

static void gather(void)
{
    uint64_t deadline_ns = soak_now_ns() + SOAK_GATHER_NS;
    pid_t straggler = 0;
    while ((straggler = find_straggler()) != 0) {
        soak_crew_collect();
        soak_crew_watch();
        if (soak_now_ns() > deadline_ns) {
            char name[32];
            soak_process_name(straggler, name);
            soak_report_stack(straggler);
            soak_fail(SOAK_ON_LIVENESS,
                      "process %d '%s', state %c, child of %d, does not come "
                      "to rest",
                      (int)straggler, name, soak_process_state(straggler),
                      (int)soak_process_parent(straggler));
        }
        soak_await_news();
    }
    soak_crew_collect();
    check_collected();
}

void soak_crew_park(void)
{
    atomic_store(&soak->killer_rests, 1);
    while (atomic_load(&soak->killer_rests) != 2) {
        soak_crew_collect();
        soak_await_news();
    }
    atomic_store(&soak->parking, 1);
    gather();
}

static void wake_all(void)
{
    atomic_store(&soak->parking, 0);
    syscall(SYS_futex, &soak->parking, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

void soak_crew_resume(void)
{
    wake_all();
    atomic_store(&soak->killer_rests, 0);
}

/* The processes are parked: they see that this is the end, and leave in good order. */
void soak_crew_end(void)
{
    atomic_store(&soak->ending, 1);
    wake_all();
    uint64_t deadline_ns = soak_now_ns() + SOAK_GATHER_NS;
    server = tn_forkserver_close(server);
    for (uint32_t i = 0; i < SOAK_CREW; i++) {
        while (crew[i].pid != 0) {
            soak_crew_collect();
            if (soak_now_ns() > deadline_ns) {
                soak_report_stack(crew[i].pid);
                soak_fail(SOAK_ON_LIVENESS, "process %d does not end", (int)crew[i].pid);
            }
            soak_await_news();
        }
    }
}
