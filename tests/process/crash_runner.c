/* SPDX-License-Identifier: Apache-2.0 */
#include "process/crash.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/inspect.h"
#include "backing/backing.h"
#include "base/base.h"
#include "process/process.h"

enum { EXIT_KILLED_BELOW = 78, MOST_REAPS = 200000, MOST_COUNTS = 1000 };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SLOWNESS = 4 };
#else
enum { SLOWNESS = 1 };
#endif

/* Where the next child is to die. */
struct death {
    const char *point; /* NULL: at the end of the operation; "": nowhere */
    unsigned passing;
};
static const struct death nowhere = {"", 0};

/* ---- a world ----------------------------------------------------------------------------- */

/* What is asked for often, without all else that tn_inspect_stat() looks up. */
uint64_t crash_live_blocks(struct crash_world *w)
{
    const struct tni_segment *s = &w->domain->segment;
    uint64_t live = 0;
    for (uint32_t c = 1; c < s->geometry.class_count; c++)
        for (uint32_t i = 0; i < tni_frontier(s, c); i++)
            live += tni_word_state(atomic_load(tni_word_at(s, tni_block_make(c, i)))) !=
                    TNI_BLOCK_FREE;
    return live;
}

static bool is_alone(struct crash_world *w)
{
    return tni_process_count(&w->domain->segment) == 1;
}

/*
 * As tn_inspector_open() does it, without the search through all processes, which takes longer
 * than a death.
 */
static void open_inspector(struct crash_world *w)
{
    const struct tni_segment *s = &w->domain->segment;
    w->inspector = calloc(1, sizeof *w->inspector);
    TN_CHECK(w->inspector != NULL);
    TN_CHECK_OK(
        tni_segment_attach(dup(s->control_fd), dup(s->arena_fd), true, &w->inspector->segment));
}

static void make_domain(struct crash_world *w)
{
    static unsigned number;
    tn_domain_options options = {.struct_size = sizeof options,
                                 .quota_bytes = 64 << 20,
                                 .seats = 16,
                                 .blocks = 4096,
                                 .objects = 32,
                                 .tickets = 32,
                                 .flags = w->op->is_named ? 0 : TN_DOMAIN_NO_MANAGER};
    if (w->op->is_named)
        snprintf(w->name, sizeof w->name, "crash-%u", ++number);
    TN_CHECK_OK(tn_domain_create(w->op->is_named ? w->name : NULL, &options, &w->domain));
}

static void make_world(struct crash_world *w, const struct crash_op *op)
{
    tn_queue_options queue = {.struct_size = sizeof queue, .capacity = 8, .policy = op->policy};
    *w = (struct crash_world){.op = op};
    make_domain(w);
    open_inspector(w);
    TN_CHECK_OK(tn_queue_create(w->domain, "queue", &queue, &w->queue));
    TN_CHECK_OK(tn_event_create(w->domain, NULL, true, &w->event));
    TN_CHECK_OK(tn_semaphore_create(w->domain, NULL, 2, op->is_owned ? TN_SEMAPHORE_OWNED : 0,
                                    &w->semaphore));
    TN_CHECK_OK(tn_lock_create(w->domain, NULL, &w->lock));
    TN_CHECK_OK(tn_condition_create(w->domain, NULL, &w->condition));
    TN_CHECK_OK(tn_barrier_create(w->domain, NULL, 2, &w->barrier));
    w->base_blocks = crash_live_blocks(w);
    if (op->prepare != NULL)
        op->prepare(w);
}

static void check_empty(struct crash_world *w)
{
    tn_domain_stat stat;
    TN_CHECK_OK(tn_inspect_stat(w->inspector, &stat));
    assert_int_equal(stat.blocks_live, 0);
    assert_int_equal(stat.objects_used, 0);
    assert_int_equal(stat.tickets_used, 0);
    assert_int_equal(stat.domain.seats_used, 1);
}

static void unmake_world(struct crash_world *w)
{
    tn_queue_close(w->queue);
    tn_event_close(w->event);
    tn_semaphore_close(w->semaphore);
    tn_lock_close(w->lock);
    tn_condition_close(w->condition);
    tn_barrier_close(w->barrier);
    TNT_AUDIT(w->domain);
    check_empty(w);
    tn_inspector_close(w->inspector);
    tn_domain_close(w->domain);
}

/* ---- storages outside of the arena ------------------------------------------------------- */

struct objects {
    const uint8_t *domain;
    unsigned count;
};

static int count_if_ours(int32_t pid, int fd_number, const char *name, uint64_t inode,
                         void *context)
{
    struct objects *objects = context;
    struct tni_mapping m;
    int fd;
    (void)name;
    (void)inode;
    if (tni_os_memory_open(pid, fd_number, true, &fd) != 0)
        return 0;
    if (tni_store_map(fd, false, true, &m) == 0) {
        const tn_storage_header *header = (const tn_storage_header *)(void *)m.address;
        objects->count += memcmp(header->domain, objects->domain, sizeof header->domain) == 0;
        tni_os_unmap(m.address, m.object_bytes);
    }
    close(fd);
    return 0;
}

static unsigned count_objects(struct crash_world *w)
{
    struct objects objects = {.domain = w->domain->segment.header->id};
    TN_CHECK_OK(tni_os_memory_for_each(TNI_STORAGE_PREFIX, count_if_ours, &objects));
    return objects.count;
}

static int count_file(const char *path, const char *name, void *context)
{
    struct crash_world *w = context;
    (void)name;
    w->file_count += tni_files_is_ours(&w->domain->segment, path);
    return 0;
}

unsigned crash_count_files(struct crash_world *w)
{
    w->file_count = 0;
    TN_CHECK_OK(tni_os_shm_for_each(tni_os_shm_folder(), "tenon-", count_file, w));
    return w->file_count;
}

/*
 * tenond closes what it kept a moment after a block is free; and another test that counts has
 * ours open for a moment.
 */
void crash_check_storages(struct crash_world *w, unsigned files)
{
    assert_int_equal(crash_count_files(w), files);
    if (files > 0)
        return;
    for (unsigned tries = 0; count_objects(w) > 0; tries++) {
        TN_CHECK(tries < MOST_COUNTS);
        sched_yield();
    }
    assert_int_equal(tni_alloc_outside_bytes(&w->domain->segment), 0);
}

void crash_check_intents(struct crash_world *w)
{
    const struct tni_segment *s = &w->domain->segment;
    for (uint32_t seat = 0; seat < s->geometry.seats; seat++)
        for (uint32_t t = 0; t < TNI_THREADS; t++)
            assert_int_equal(atomic_load(&tni_announce_at(s, seat, t)->commit_bytes), 0);
}

tn_tensor *crash_storage(struct crash_world *w, uint32_t strategy, uint32_t flags,
                         int64_t bytes)
{
    tn_share_options options = {
        .struct_size = sizeof options, .strategy = strategy, .flags = flags};
    tn_tensor *tensor;
    TN_CHECK_OK(tn_tensor_empty_as(w->domain, TN_UINT8, 1, &bytes, &options, 0, &tensor));
    memset(tn_tensor_data(tensor), CRASH_BYTE, (size_t)bytes);
    return tensor;
}

/* Files that the dead held by path go with the domain. */
static void check_no_storages(struct crash_world *w)
{
    if (w->op->leaves_files)
        tni_files_end_domain(&w->domain->segment);
    crash_check_storages(w, 0);
    crash_check_intents(w);
    assert_int_equal(w->domain->kept_fds, 0);
}

static void go_on_with_storages(struct crash_world *w)
{
    tn_tensor *tensors[2] = {crash_storage(w, TN_STRATEGY_FILE_DESCRIPTOR, 0, 1000),
                             crash_storage(w, TN_STRATEGY_FILE_SYSTEM, 0, 1000)};
    tn_message m = {.tensors = tensors, .tensor_count = 2};
    TN_CHECK_OK(tn_queue_push(w->queue, &m, 0, 0));
    m = crash_pop(w);
    if (m.lease != 0)
        TN_CHECK_OK(tn_message_ack(w->queue, &m));
    assert_int_equal(m.tensor_count, 2);
    tn_message_fini(&m);
    for (int i = 0; i < 2; i++)
        tn_tensor_unref(tensors[i]);
    check_no_storages(w);
}

/* ---- a death ----------------------------------------------------------------------------- */

typedef void step_fn(struct crash_world *w);

static void reap(struct crash_world *w);

/* @return whether it was killed there. Returns when all that it started has ended too. */
static bool run_and_die(struct crash_world *w, step_fn *step, struct death death,
                        const char *list)
{
    int ends[2];
    char byte;
    TN_CHECK(pipe(ends) == 0);
    fflush(NULL);
    pid_t pid = fork();
    TN_CHECK(pid >= 0);
    if (pid == 0) {
        close(ends[0]);
        tni_kill_point_list(list);
        if (death.point != NULL)
            tni_kill_point_arm(death.point, death.passing);
        step(w);
        tni_kill_point_arm(NULL, 0);
        fflush(NULL);
        if (death.point == NULL)
            kill(getpid(), SIGKILL);
        _exit(0);
    }
    close(ends[1]);
    TN_CHECK(read(ends[0], &byte, 1) == 0);
    close(ends[0]);
    int status = tnt_wait(pid);
    bool is_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    bool is_killed_below = WIFEXITED(status) && WEXITSTATUS(status) == EXIT_KILLED_BELOW;
    if (!is_killed && !is_killed_below && status != 0)
        fail_msg("the child ended with status %#x", (unsigned)status);
    return is_killed || is_killed_below;
}

static void reap(struct crash_world *w)
{
    int status;
    for (unsigned tries = 0; (status = tn_domain_reap(w->domain, NULL)) == TN_ERR_TIMED_OUT;
         tries++) {
        TN_CHECK(tries < MOST_REAPS);
        sched_yield();
    }
    TN_CHECK_OK(status);
}

/*
 * Until nobody but the survivor is left: a process may be seen to end before its seat can be
 * settled.
 */
static void settle(struct crash_world *w)
{
    reap(w);
    for (unsigned tries = 0; !is_alone(w); tries++) {
        TN_CHECK(tries < MOST_REAPS);
        sched_yield();
        reap(w);
    }
    if (w->op->needs_repair)
        TN_CHECK_OK(tn_domain_audit(w->domain, true, NULL, NULL));
    TNT_AUDIT(w->domain);
}

/* ---- what the survivor finds ------------------------------------------------------------- */

static void check_bytes(const uint8_t *bytes, uint64_t count)
{
    if (count > 0 && (bytes[0] != CRASH_BYTE || memcmp(bytes, bytes + 1, count - 1) != 0))
        fail_msg("%llu bytes are not what they were", (unsigned long long)count);
}

static void check_message(const tn_message *m)
{
    check_bytes(m->bytes, m->size_bytes);
    for (uint32_t i = 0; i < m->tensor_count; i++)
        check_bytes(tn_tensor_data(m->tensors[i]), tn_tensor_size_bytes(m->tensors[i]));
}

static uint32_t drain(struct crash_world *w)
{
    tn_message m;
    uint32_t count = 0;
    int status;
    for (; (status = tn_queue_pop(w->queue, 0, &m)) == 0; count++) {
        check_message(&m);
        if (m.lease != 0 || w->op->policy == TN_QUEUE_LEASE)
            TN_CHECK_OK(tn_message_ack(w->queue, &m));
        tn_message_fini(&m);
    }
    if (status != TN_ERR_TIMED_OUT && status != TN_ERR_CLOSED && status != TN_ERR_PEER_DIED)
        TN_CHECK_OK(status);
    return count;
}

int crash_revoke(const tn_ticket_info *ticket, void *context)
{
    TN_CHECK_OK(tn_ticket_revoke(context, ticket->id));
    return 0;
}

static void give_back(struct crash_world *w)
{
    for (uint32_t i = 0; i < w->leased_count; i++) {
        check_message(&w->leased[i]);
        TN_CHECK_OK(tn_message_ack(w->queue, &w->leased[i]));
        tn_message_fini(&w->leased[i]);
    }
    for (unsigned i = 0; i < sizeof w->tensor / sizeof w->tensor[0]; i++) {
        if (w->tensor[i] != NULL)
            check_bytes(tn_tensor_data(w->tensor[i]), tn_tensor_size_bytes(w->tensor[i]));
        tn_tensor_unref(w->tensor[i]);
    }
    TN_CHECK_OK(tn_ticket_for_each(w->domain, crash_revoke, w->domain));
    w->extra = tn_queue_close(w->extra);
}

/* Nothing is wrong, nothing is lost, nothing is kept for nobody. */
static void check_accounts(struct crash_world *w)
{
    if (w->op->check != NULL)
        w->op->check(w);
    uint32_t left = drain(w);
    if (w->has_died && w->op->most != 0 && (left < w->op->least || left > w->op->most))
        fail_msg("%u messages are left, of %u to %u", left, w->op->least, w->op->most);
    give_back(w);
    TNT_AUDIT(w->domain);
    assert_int_equal(crash_live_blocks(w), w->base_blocks);
    if (w->op->has_storages)
        check_no_storages(w);
}

/* All that a survivor may want to go on with. */
static void go_on(struct crash_world *w)
{
    tn_queue *queue = w->queue;
    tn_message m = {.bytes = "ZZ", .size_bytes = 2};
    if (tn_queue_push(queue, &m, 0, 0) == TN_ERR_CLOSED) /* the operation ended it */
        return;
    tn_tensor *tensor = crash_tensor(w, 65536);
    TN_CHECK_OK(tn_queue_push_tensor(queue, tensor, TN_PUSH_MOVE, 0));
    assert_int_equal(drain(w), 2);
    if (w->op->has_storages)
        go_on_with_storages(w);

    int status = TN_CHECK_OK(tn_lock_acquire(w->lock, 0));
    assert_true(status == 0 || status == TN_LOCK_RECOVERED);
    TN_CHECK_OK(tn_condition_signal(w->condition));
    TN_CHECK_OK(tn_lock_release(w->lock));
    TN_CHECK_OK(tn_event_set(w->event));
    TN_CHECK_OK(tn_event_wait(w->event, 0));
    if (w->op->is_owned) {
        assert_int_equal(tn_semaphore_get(w->semaphore), 2);
        TN_CHECK_OK(tn_semaphore_acquire(w->semaphore, 0));
    }
    if (w->op->is_owned || tn_semaphore_get(w->semaphore) < 2)
        TN_CHECK_OK(tn_semaphore_release(w->semaphore));
    (void)!tn_barrier_wait(w->barrier, 0); /* it is broken, or is now */
    TN_CHECK_OK(tn_barrier_reset(w->barrier));
    assert_int_equal(tn_barrier_wait(w->barrier, 0), TN_ERR_TIMED_OUT);
}

static void judge(struct crash_world *w)
{
    settle(w);
    check_accounts(w);
    go_on(w);
    unmake_world(w);
}

/* ---- learning ---------------------------------------------------------------------------- */

static void add_point(struct crash_points *points, const char *name)
{
    unsigned i = 0;
    while (i < points->count && strcmp(points->point[i].name, name) != 0)
        i++;
    if (i == points->count) {
        TN_CHECK(points->count < CRASH_MAX_POINTS);
        snprintf(points->point[points->count++].name, sizeof points->point[0].name, "%.63s",
                 name);
    }
    points->point[i].passings++;
}

static void read_list(const char *path, struct crash_points *points)
{
    char line[128];
    FILE *list = fopen(path, "re");
    if (list == NULL)
        return; /* nothing was passed */
    while (fgets(line, sizeof line, list) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        add_point(points, line);
    }
    fclose(list);
    unlink(path);
}

static void learn(struct crash_world *w, step_fn *step, struct crash_points *points)
{
    char path[128];
    snprintf(path, sizeof path, "%s/points", tnt_folder());
    TN_CHECK(!run_and_die(w, step, nowhere, path));
    read_list(path, points);
}

void crash_learn(const struct crash_op *op, struct crash_points *points)
{
    struct crash_world w;
    make_world(&w, op);
    learn(&w, op->run, points);
    judge(&w);
}

/* ---- every point ------------------------------------------------------------------------- */

static bool die_once(const struct crash_op *op, struct death death)
{
    struct crash_world w;
    printf("%s at %s:%u\n", op->name, death.point == NULL ? "its end" : death.point,
           death.passing);
    make_world(&w, op);
    w.has_died = run_and_die(&w, op->run, death, NULL);
    bool has_died = w.has_died;
    w.has_died = has_died && death.point != NULL;
    judge(&w);
    return has_died;
}

void crash_run(const struct crash_op *op)
{
    static struct crash_points points;
    unsigned deaths = 0;
    crash_learn(op, &points);
    for (unsigned i = 0; i < points.count; i++)
        for (unsigned n = 1; n <= points.point[i].passings && n <= CRASH_MOST_PASSINGS; n++)
            deaths += die_once(op, (struct death){points.point[i].name, n});
    die_once(op, (struct death){NULL, 0});
    TN_CHECK(deaths >= points.count);
    tnt_note("%s: %u points, %u deaths, and one at its end", op->name, points.count, deaths);
}

/* ---- the reaper at every point ----------------------------------------------------------- */

/* A world with a dead member that nobody has settled. */
static bool make_victim(struct crash_world *w, const struct crash_op *op, struct death death)
{
    make_world(w, op);
    w->has_died = run_and_die(w, op->run, death, NULL) && death.point != NULL;
    return w->has_died || death.point == NULL;
}

static bool kill_reaper(const struct crash_op *op, struct death victim, const char *point)
{
    struct crash_world w;
    printf("%s at %s:%u, its reaper at %s\n", op->name,
           victim.point == NULL ? "its end" : victim.point, victim.passing, point);
    make_victim(&w, op, victim);
    bool is_killed = run_and_die(&w, reap, (struct death){point, 1}, NULL);
    judge(&w);
    return is_killed;
}

static void learn_from_victim(const struct crash_op *op, struct death victim,
                              struct crash_points *points)
{
    struct crash_world w;
    make_victim(&w, op, victim);
    learn(&w, reap, points);
    judge(&w);
}

void crash_learn_reaper(const struct crash_op *op, struct crash_points *points)
{
    struct crash_points own = {0};
    crash_learn(op, &own);
    for (unsigned i = 0; i < own.count; i++)
        learn_from_victim(op, (struct death){own.point[i].name, 1}, points);
}

/*
 * Of the reaper's points every n-th, and the ones between after other victims: each in the end,
 * and about as many deaths for a long operation as for a short one.
 */
void crash_run_reaper(const struct crash_op *op)
{
    static struct crash_points own, points;
    crash_learn(op, &own);
    unsigned deaths = 0, stride = own.count / 2 > 4 ? own.count / 2 : 4;
    stride *= SLOWNESS;
    unsigned turn = (unsigned)tnt_random_below(stride);
    for (unsigned i = 0; i <= own.count; i++) {
        struct death victim = {i < own.count ? own.point[i].name : NULL, i < own.count};
        memset(&points, 0, sizeof points);
        learn_from_victim(op, victim, &points);
        for (unsigned p = (i + turn) % stride; p < points.count; p += stride)
            deaths += kill_reaper(op, victim, points.point[p].name);
    }
    tnt_note("%s: %u points to die at, %u deaths of who settled it", op->name, own.count + 1,
             deaths);
}

/* ---- for operations ---------------------------------------------------------------------- */

tn_tensor *crash_tensor(struct crash_world *w, int64_t bytes)
{
    tn_tensor *tensor;
    TN_CHECK_OK(tn_tensor_empty(w->domain, TN_UINT8, 1, &bytes, 0, &tensor));
    memset(tn_tensor_data(tensor), CRASH_BYTE, (size_t)bytes);
    return tensor;
}

void crash_push(struct crash_world *w, uint32_t tensor_count, size_t size_bytes)
{
    static uint8_t bytes[1 << 20];
    tn_tensor *tensors[16];
    TN_CHECK(tensor_count <= 16 && size_bytes <= sizeof bytes);
    memset(bytes, CRASH_BYTE, size_bytes);
    for (uint32_t i = 0; i < tensor_count; i++)
        tensors[i] = crash_tensor(w, 1000);
    tn_message m = {.bytes = bytes,
                    .size_bytes = size_bytes,
                    .tensors = tensors,
                    .tensor_count = tensor_count};
    TN_CHECK_OK(tn_queue_push(w->queue, &m, TN_PUSH_MOVE, 0));
}

tn_message crash_pop(struct crash_world *w)
{
    tn_message m;
    TN_CHECK_OK(tn_queue_pop(w->queue, 0, &m));
    return m;
}

void crash_fork(struct crash_world *w, void (*run)(struct crash_world *w))
{
    fflush(NULL);
    pid_t pid = fork();
    TN_CHECK(pid >= 0);
    if (pid == 0) {
        run(w);
        fflush(NULL);
        _exit(0);
    }
    int status = tnt_wait(pid);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        _exit(EXIT_KILLED_BELOW);
    TN_CHECK(status == 0);
}

void crash_member(struct crash_world *w, void (*run)(struct crash_world *w))
{
    fflush(NULL);
    pid_t pid = fork();
    TN_CHECK(pid >= 0);
    if (pid == 0) {
        run(w);
        tn_domain_close(w->domain);
        fflush(NULL);
        _exit(0);
    }
    tnt_wait_ok(pid);
}
