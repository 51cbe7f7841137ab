/* SPDX-License-Identifier: Apache-2.0 */
/* Operations: handles, forks, joining and leaving, the reaper and the audit themselves. */
#include "process/crash.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "process/process.h"

/* ---- handles ----------------------------------------------------------------------------- */

static void export_with(struct crash_world *w, tn_tensor *tensor, uint32_t uses,
                        uint64_t lifetime_ns)
{
    tn_handle_options options = {
        .struct_size = sizeof options, .uses = uses, .lifetime_ns = lifetime_ns};
    TN_CHECK_OK(
        tn_handle_export(tensor, &options, w->handle, sizeof w->handle, &w->handle_bytes));
}

static tn_tensor *import(struct crash_world *w)
{
    tn_tensor *tensor;
    TN_CHECK_OK(tn_handle_import(w->domain, w->handle, w->handle_bytes, &tensor));
    return tensor;
}

static void export_bound(struct crash_world *w) { export_with(w, crash_tensor(w, 1000), 1, 0); }

static void export_forever(struct crash_world *w)
{
    tn_tensor *tensor = crash_tensor(w, 1000);
    export_with(w, tensor, 3, TN_NO_EXPIRY);
    tn_tensor_unref(tensor);
}

/* Export a tensor and release it: the ticket has the only reference. */
static void export_away(struct crash_world *w)
{
    tn_tensor *tensor = crash_tensor(w, 1000);
    export_with(w, tensor, 1, 0);
    tn_tensor_unref(tensor);
}

static void import_last(struct crash_world *w) { import(w); }

/* The process holds the tensor already, so the reference of the import is one too many. */
static void export_held(struct crash_world *w)
{
    w->tensor[0] = crash_tensor(w, 1000);
    export_with(w, w->tensor[0], 1, TN_NO_EXPIRY);
}

static void import_all(struct crash_world *w)
{
    tn_tensor *tensor;
    for (int i = 0; i < 3; i++)
        import(w);
    assert_int_equal(tn_handle_import(w->domain, w->handle, w->handle_bytes, &tensor),
                     TN_ERR_STALE);
}

static void revoke_ticket(struct crash_world *w)
{
    TN_CHECK_OK(tn_handle_revoke(w->domain, w->handle, w->handle_bytes));
}

static void export_for_a_moment(struct crash_world *w)
{
    export_with(w, crash_tensor(w, 1000), 1, 1);
}

static void import_expired(struct crash_world *w)
{
    tn_tensor *tensor;
    export_for_a_moment(w);
    assert_int_equal(tn_handle_import(w->domain, w->handle, w->handle_bytes, &tensor),
                     TN_ERR_STALE);
}

static void fill_with_expired(struct crash_world *w)
{
    for (int i = 0; i < 32; i++)
        export_for_a_moment(w);
    for (int i = 0; i < 4; i++)
        export_bound(w); /* no ticket is free, so the expired ones are ended */
}

/* ---- forks ------------------------------------------------------------------------------- */

/*
 * Hold the survivor's tensors, which were inherited, and one of each kind that only the child
 * holds.
 */
static void hold_much(struct crash_world *w)
{
    w->tensor[0] = crash_tensor(w, 1000);
    w->tensor[1] = crash_tensor(w, 3 << 20);
    crash_push(w, 3, 100);
    crash_push(w, 0, 100 << 10);
}

static void take_much(struct crash_world *w)
{
    crash_tensor(w, 100);
    crash_pop(w);
    TN_CHECK_OK(tn_lock_acquire(w->lock, TN_NOW));
    TN_CHECK_OK(tn_semaphore_acquire(w->semaphore, TN_NOW));
    export_bound(w);
    TN_CHECK_OK(tn_object_watch(w->queue, true));
}

static void look(struct crash_world *w)
{
    assert_int_equal(*(uint8_t *)tn_tensor_data(w->tensor[0]), CRASH_BYTE);
    w->tensor[0] = tn_tensor_unref(w->tensor[0]);
}

static void fork_with_much(struct crash_world *w)
{
    take_much(w);
    crash_fork(w, look);
}

static void fail_to_fork(struct crash_world *w)
{
    take_much(w);
    TN_CHECK(tnt_refuse(SYS_clone, EAGAIN));
    TN_CHECK(fork() == -1);
}

/* The child of the process that dies goes on, with holds of its own. */
static int run_process(tn_domain *domain, void *argument)
{
    struct crash_world *w = argument;
    (void)domain;
    look(w);
    return 0;
}

static void process_fork(struct crash_world *w)
{
    tn_process *process;
    tn_process_status status = {.struct_size = sizeof status};
    int result = tn_process_fork(w->domain, run_process, w, 0, &process);
    if (result == TN_ERR_SYSTEM) /* the child was killed before it had started */
        _exit(CRASH_KILLED_BELOW);
    TN_CHECK_OK(result);
    TN_CHECK_OK(tn_process_wait(process, TN_FOREVER, &status));
    if (status.signal == 9)
        _exit(CRASH_KILLED_BELOW);
    assert_int_equal(status.exit_code, 0);
    tn_process_close(process);
}

static void process_exec(struct crash_world *w)
{
    const char *const argv[] = {"true", NULL};
    tn_process *process;
    TN_CHECK_OK(tn_process_exec(w->domain, argv, NULL, 0, &process));
    TN_CHECK_OK(tn_process_wait(process, TN_FOREVER, NULL));
    tn_process_close(process);
}

/* The process executes a program that does not use its seat. */
static void exec_away(struct crash_world *w)
{
    take_much(w);
    execlp("true", "true", (char *)NULL);
    _exit(1);
}

/* ---- joining and leaving ----------------------------------------------------------------- */

static void leave(struct crash_world *w)
{
    take_much(w);
    w->domain = tn_domain_close(w->domain);
}

static void use(tn_domain *domain)
{
    int64_t size = 1000;
    tn_tensor *tensor;
    tn_queue *queue;
    TN_CHECK_OK(tn_tensor_create(domain, TN_UINT8, 1, &size, NULL, &tensor));
    crash_fill(tn_tensor_data(tensor), (size_t)size);
    TN_CHECK_OK(tn_queue_open(domain, "queue", NULL, TN_OPEN_EXISTING, &queue));
    TN_CHECK_OK(tn_queue_push_tensor(queue, tensor, TN_PUSH_MOVE, TN_NOW));
}

static void join_by_name(struct crash_world *w)
{
    tn_domain *domain;
    w->domain = tn_domain_close(w->domain);
    TN_CHECK_OK(tn_domain_open(w->name, NULL, TN_OPEN_EXISTING, &domain));
    use(domain);
    TN_CHECK_OK(tn_domain_open(w->name, NULL, 0, &domain));
}

/* Join through descriptors alone, as a program does after an exec. */
static void join_by_inheritance(struct crash_world *w)
{
    tn_domain *domain;
    char value[64];
    int control_fd, arena_fd;
    TN_CHECK_OK(tn_domain_pass(w->domain, value, sizeof value));
    TN_CHECK_OK(tni_process_parse_pass(value, &control_fd, &arena_fd));
    snprintf(value, sizeof value, "%d,%d", dup(control_fd), dup(arena_fd));
    w->domain = tn_domain_close(w->domain);
    setenv("TENON_DOMAIN", value, 1);
    TN_CHECK_OK(tn_domain_inherit(&domain));
    use(domain);
}

static void create_domain(struct crash_world *w)
{
    tn_domain *domain;
    tn_domain_options options = {.struct_size = sizeof options, .quota_bytes = 64 << 20};
    char name[64];
    snprintf(name, sizeof name, "%s-more", w->name);
    TN_CHECK_OK(tn_domain_open(name, &options, TN_OPEN_NEW, &domain));
    tn_domain_close(domain);
}

/* ---- the reaper and the audit ------------------------------------------------------------ */

static int die_with_much(void *argument)
{
    take_much(argument);
    abort();
}

static void leave_a_dead(struct crash_world *w)
{
    hold_much(w);
    pid_t pid = tnt_fork(die_with_much, w);
    int status = tnt_wait(pid);
    TN_CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void reap(struct crash_world *w)
{
    uint32_t reaped;
    TN_CHECK_OK(tn_domain_reap(w->domain, &reaped));
    assert_in_range(reaped, 0, 1); /* 0: a `tenon gc` of another test has reclaimed it */
}

/* A block that no seat holds: its only hold is cleared. */
static void leak(struct crash_world *w)
{
    const struct tni_segment *s = &w->domain->segment;
    crash_tensor(w, 5000);
    for (uint32_t c = 1; c < s->geometry.class_count; c++)
        for (uint32_t i = 0; i < tni_frontier(s, c); i += 64)
            atomic_store(tni_row_at(s, w->domain->seat, s->geometry.classes[c].base + i), 0);
}

/* Write wrong counts: some that are too high, and some of blocks that no record names. */
static void damage(struct crash_world *w)
{
    hold_much(w);
    crash_member(w, leak);
    const struct tni_segment *s = &w->domain->segment;
    uint32_t damaged = 0;
    for (uint32_t c = 1; c < s->geometry.class_count; c++)
        for (uint32_t i = 0; i < tni_frontier(s, c); i++) {
            _Atomic uint64_t *word = tni_word_at(s, tni_block_make(c, i));
            if (tni_word_state(atomic_load(word)) == TNI_BLOCK_ALLOC)
                atomic_fetch_add(word, damaged++ % 2 == 0 ? TNI_WORD_INC : 5 * TNI_WORD_INC);
        }
    assert_true(damaged > 4);
}

static void audit(struct crash_world *w)
{
    TN_CHECK(tn_domain_audit(w->domain, true, NULL, NULL, NULL) > 0);
    assert_int_equal(tn_domain_audit(w->domain, false, NULL, NULL, NULL), 0);
}

const struct crash_op crash_member_ops[] = {
    {.name = "handle_export_bound", .run = export_bound},
    {.name = "handle_export_forever", .run = export_forever},
    {.name = "handle_import_the_last_use", .prepare = export_away, .run = import_last},
    {.name = "handle_import_of_what_is_held", .prepare = export_held, .run = import_last},
    {.name = "handle_import_of_many_uses", .prepare = export_forever, .run = import_all},
    {.name = "handle_revoke", .prepare = export_forever, .run = revoke_ticket},
    {.name = "handle_import_of_an_expired_one", .run = import_expired},
    {.name = "handle_export_with_all_tickets_expired",
     .is_costly = true,
     .run = fill_with_expired},
    {.name = "fork_while_holding_much",
     .is_owned = true,
     .prepare = hold_much,
     .run = fork_with_much},
    {.name = "fork_that_fails", .is_owned = true, .prepare = hold_much, .run = fail_to_fork},
    {.name = "process_fork", .prepare = hold_much, .run = process_fork},
    {.name = "process_exec", .prepare = hold_much, .run = process_exec},
    {.name = "exec_of_a_stranger", .is_owned = true, .prepare = hold_much, .run = exec_away},
    {.name = "leave", .is_owned = true, .prepare = hold_much, .run = leave},
    {.name = "join_by_name", .is_named = true, .is_costly = true, .run = join_by_name},
    {.name = "join_by_inheritance", .run = join_by_inheritance},
    {.name = "domain_create", .is_named = true, .is_costly = true, .run = create_domain},
    {.name = "reap", .is_owned = true, .prepare = leave_a_dead, .run = reap},
    {.name = "audit_with_repair",
     .is_costly = true,
     .needs_repair = true,
     .prepare = damage,
     .run = audit},
    {0},
};
