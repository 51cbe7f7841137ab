/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool_worker: the side of a pool that does the jobs. The invariants are in pool.c.
 *
 * A worker that dies leaves a lease, which the reaper gives back with a higher attempt count,
 * and a row of the board that names the worker's job. If the worker had pushed the result but
 * had not acknowledged the job, the job runs again, and the owner drops its second result (I2).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spawn/pool.h"

enum { DETAIL_BYTES = 256 };
static const uint64_t board_ns =
    UINT64_C(10000000000); /* the owner pushed the board before it started this worker */

struct worker {
    struct tn_domain *domain;
    int32_t pid; /* a process that the program's hook forks is not this worker */
    const struct tni_pool_pass *pass;
    tn_pool_fn *run;
    void *context;
    tn_queue *jobs, *results;
    tn_tensor *board;
    _Atomic uint64_t *row;
    uint8_t *out; /* the bytes of the result that is sent now */
    size_t out_bytes;
    _Alignas(16) uint8_t room[TN_POOL_ROOM_BYTES];
};

/* The job that a thread runs. */
struct running_job {
    struct worker *worker;
    const struct tni_pool_result_head *head;
    bool has_seceded;
};
static _Thread_local struct running_job *current_job;

/* ---- how it finds its pool --------------------------------------------------------------- */

/* The value is <jobs>,<results>,<boards>,<worker>,<attempts>,<pid of the owner>, in hex. */
void tni_pool_write_variable(const struct tni_pool_pass *pass, char *value, size_t size_bytes)
{
    snprintf(value, size_bytes, "%" PRIx64 ",%" PRIx64 ",%" PRIx64 ",%x,%x,%x", pass->jobs,
             pass->results, pass->boards, pass->worker, pass->attempts, (unsigned)tni_os_pid());
}

static int read_variable(struct tni_pool_pass *ret_pass)
{
    struct tni_pool_pass pass = {0};
    const char *value = tni_os_environment(TNI_POOL_VARIABLE);
    unsigned owner = 0;
    int at = 0;
    if (value == NULL)
        return tni_fail(TN_ERR_NOT_FOUND, TNI_POOL_VARIABLE " is not set");
    if (sscanf(value, "%" SCNx64 ",%" SCNx64 ",%" SCNx64 ",%x,%x,%x%n", &pass.jobs,
               &pass.results, &pass.boards, &pass.worker, &pass.attempts, &owner, &at) != 6 ||
        value[at] != '\0' || pass.attempts == 0)
        return tni_fail(TN_ERR_CORRUPT, TNI_POOL_VARIABLE "='%.40s' does not name a pool",
                        value);
    if ((int32_t)owner != tni_os_parent_pid())
        return tni_fail(TN_ERR_NOT_FOUND,
                        TNI_POOL_VARIABLE " is meant for a child of process %u", owner);
    *ret_pass = pass;
    return 0;
}

static int open_board(struct worker *w)
{
    tn_queue *boards;
    int status = tn_object_open_id(w->domain, TN_OBJECT_QUEUE, w->pass->boards, &boards);
    if (status != 0)
        return status;
    status = tn_queue_pop_tensor(boards, tn_deadline_after(board_ns), &w->board);
    tn_object_close(boards);
    if (status != 0)
        return status;
    if (w->board->dtype != TN_UINT64 || !w->board->is_row_major ||
        w->pass->worker >= (uint64_t)w->board->count / TNI_POOL_ROW)
        return tni_fail(TN_ERR_CORRUPT, "a pool's board has no row for worker %u",
                        w->pass->worker);
    w->row = tni_pool_row(w->board, w->pass->worker);
    return 0;
}

static int open_worker(struct worker *w)
{
    int status = tn_object_open_id(w->domain, TN_OBJECT_QUEUE, w->pass->jobs, &w->jobs);
    if (status == 0)
        status = tn_object_open_id(w->domain, TN_OBJECT_QUEUE, w->pass->results, &w->results);
    if (status == 0)
        status = tn_queue_attach(w->jobs, TN_CONSUMER);
    if (status == 0)
        status = tn_queue_attach(w->results, TN_PRODUCER);
    return status == 0 ? open_board(w) : status;
}

static void close_worker(struct worker *w)
{
    tn_tensor_unref(w->board);
    tn_object_close(w->results);
    tn_object_close(w->jobs);
    free(w->out);
    free(w);
}

/* ---- its waits --------------------------------------------------------------------------- */

/* Ask the program's hook, after a wait at a queue that did not ask (child.c, I7). */
static int ask(const struct worker *w)
{
    int asked = tni_interrupt_ask(tni_os_now_ns());
    return w->pid == tni_os_pid()
               ? asked
               : tni_fail(TN_ERR_FORKED, "process %d is a copy of worker %u of a pool",
                          tni_os_pid(), w->pass->worker);
}

/* Pop a job. TN_ERR_INVALID: the hook forked, and this process is the copy of the worker. */
static int take_job(struct worker *w, tn_message *ret_message, int *ret_lost)
{
    int status;
    do {
        bool deferred = tni_interrupt_defer(true);
        status = tni_queue_pop_bytes(w->jobs, TNI_FOREVER, ret_message, ret_lost);
        tni_interrupt_defer(deferred);
    } while (status == TN_ERR_INTERRUPTED && (status = ask(w)) == 0);
    return status;
}

static int give_result(struct worker *w, const tn_message *result)
{
    int status;
    do {
        bool deferred = tni_interrupt_defer(true);
        status = tn_queue_push(w->results, result, TN_PUSH_MOVE, TN_FOREVER);
        tni_interrupt_defer(deferred);
    } while (status == TN_ERR_INTERRUPTED && (status = ask(w)) == 0);
    return status;
}

/* ---- a job ------------------------------------------------------------------------------- */

static int reserve_out(struct worker *w, size_t size_bytes)
{
    if (size_bytes <= w->out_bytes)
        return 0;
    void *out = realloc(w->out, size_bytes);
    if (out == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for a result of %zu bytes",
                        size_bytes);
    w->out = out;
    w->out_bytes = size_bytes;
    return 0;
}

/* Push a result. On success the push consumes the tensors. */
static int push_result(struct worker *w, struct tni_pool_result_head *head,
                       const tn_message *result, const char *detail)
{
    head->detail_bytes = (uint32_t)strnlen(detail, DETAIL_BYTES - 1);
    uint64_t size_bytes;
    if (!tni_add_size(sizeof *head + head->detail_bytes, result->size_bytes, &size_bytes))
        return tni_fail(TN_ERR_INVALID, "a result cannot have %zu bytes", result->size_bytes);
    if (result->size_bytes > 0 && result->bytes == NULL)
        return tni_fail(TN_ERR_INVALID, "bytes of the result is NULL, but size_bytes is %zu",
                        result->size_bytes);
    int status = reserve_out(w, size_bytes);
    if (status != 0)
        return status;
    memcpy(w->out, head, sizeof *head);
    if (result->size_bytes > 0)
        memcpy(w->out + sizeof *head, result->bytes, result->size_bytes);
    memcpy(w->out + sizeof *head + result->size_bytes, detail, head->detail_bytes);
    tn_message m = {.bytes = w->out,
                    .size_bytes = size_bytes,
                    .tensors = result->tensors,
                    .tensor_count = result->tensor_count};
    return give_result(w, &m);
}

static bool is_over(int status)
{
    return status == TN_ERR_CLOSED || status == TN_ERR_PEER_DIED || status == TN_ERR_FORKED ||
           status == TN_ERR_STALE || status == TN_ERR_INTERRUPTED;
}

/* Send a result. If that fails, send a result without tensors that says why. */
static int send_result(struct worker *w, struct tni_pool_result_head *head,
                       const tn_message *result)
{
    static const tn_message nothing;
    char detail[DETAIL_BYTES] = "";
    if (head->status < 0)
        snprintf(detail, sizeof detail, "%s", tn_error_detail());
    int status = push_result(w, head, result, detail);
    if (status == 0)
        return 0;
    snprintf(detail, sizeof detail, "the result could not be sent: %s", tn_error_detail());
    for (uint32_t i = 0; result->tensors != NULL && i < result->tensor_count; i++)
        tn_tensor_unref(result->tensors[i]);
    if (is_over(status))
        return status;
    head->status = status;
    return push_result(w, head, &nothing, detail);
}

static int run_job(struct worker *w, tn_message *m, struct tni_pool_result_head *head)
{
    tn_message result = {0};
    tn_message inner = *m; /* without the head of the job; `m` keeps what it owns */
    inner.bytes = m->size_bytes > sizeof(struct tni_pool_job_head)
                      ? (const uint8_t *)m->bytes + sizeof(struct tni_pool_job_head)
                      : NULL;
    inner.size_bytes -= sizeof(struct tni_pool_job_head);
    tn_pool_job job = {.id = head->job,
                       .worker = w->pass->worker,
                       .attempt = head->attempt,
                       .message = &inner,
                       .room = w->room,
                       .room_bytes = sizeof w->room};
    (void)!tni_fail_plain(TN_ERR_INVALID,
                          ""); /* so that no earlier error becomes the detail of this job */
    struct running_job running = {.worker = w, .head = head}, *outer = current_job;
    current_job = &running;
    head->status = w->run(w->domain, &job, &result, w->context);
    current_job = outer;
    return send_result(w, head, &result);
}

bool tni_pool_runs_job(void)
{
    return current_job != NULL && current_job->worker->pid == tni_os_pid();
}

int tni_pool_secede(void)
{
    struct running_job *job = current_job;
    if (job->has_seceded)
        return 0;
    struct tni_pool_result_head head = *job->head;
    head.kind = TNI_POOL_SECEDED;
    const tn_message m = {.bytes = &head, .size_bytes = sizeof head};
    int status = give_result(job->worker, &m);
    job->has_seceded = status == 0;
    if (status == 0)
        TNI_KILL_POINT("pool_job_seceded");
    return status;
}

/* The tensors of a job are lost: push a result that says so (I5). */
static int send_lost(struct worker *w, struct tni_pool_result_head *head, int lost)
{
    static const tn_message nothing;
    char detail[DETAIL_BYTES];
    snprintf(detail, sizeof detail, "job %" PRIu64 " lost its tensors: %s", head->job,
             tn_error_detail());
    head->status = lost;
    return push_result(w, head, &nothing, detail);
}

/* Report a message that could not be read. The owner finds the lost job (I5). */
static int send_unread(struct worker *w)
{
    static const tn_message nothing;
    struct tni_pool_result_head head = {.pid = tni_os_pid(), .kind = TNI_POOL_UNREAD};
    return push_result(w, &head, &nothing, "");
}

static int answer(struct worker *w, tn_message *m, uint64_t job, int lost)
{
    static const tn_message nothing;
    struct tni_pool_result_head head = {.job = job,
                                        .pid = tni_os_pid(),
                                        .worker = w->pass->worker,
                                        .attempt = m->attempt + 1,
                                        .kind = TNI_POOL_DONE};
    if (m->attempt < w->pass->attempts)
        return lost == 0 ? run_job(w, m, &head) : send_lost(w, &head, lost);
    head.attempt = m->attempt;
    head.kind = TNI_POOL_EXHAUSTED;
    head.status = TN_ERR_CHILD_FAILED;
    return push_result(w, &head, &nothing, "");
}

static void note_begun(struct worker *w, uint64_t job)
{
    atomic_fetch_add_explicit(&w->row[TNI_POOL_ROW_BEGUN], 1, memory_order_relaxed);
    atomic_store_explicit(&w->row[TNI_POOL_ROW_JOB], job, memory_order_release);
    TNI_KILL_POINT("pool_job_noted");
}

static int work_one(struct worker *w, tn_message *m, int lost)
{
    struct tni_pool_job_head head;
    TNI_KILL_POINT("pool_job_taken");
    if (m->size_bytes < sizeof head || m->bytes == NULL) {
        int status = send_unread(w);
        return status == 0 && m->lease != 0 ? tn_message_ack(w->jobs, m) : status;
    }
    memcpy(&head, m->bytes, sizeof head);
    if (m->attempt < w->pass->attempts)
        note_begun(w, head.job);
    int status = answer(w, m, head.job, lost);
    if (status != 0)
        return status;
    TNI_KILL_POINT("pool_result_pushed");
    status = tn_message_ack(w->jobs, m);
    TNI_KILL_POINT("pool_job_acknowledged");
    atomic_store_explicit(&w->row[TNI_POOL_ROW_JOB], 0, memory_order_relaxed);
    return status;
}

static int work(struct worker *w)
{
    tn_message m;
    int status, lost;
    while ((status = take_job(w, &m, &lost)) == 0) {
        status = work_one(w, &m, lost);
        if (status != 0 && m.lease != 0)
            (void)!tn_message_return(w->jobs, &m); /* another worker may do the job */
        tn_message_fini(&m);
        if (status != 0)
            break;
    }
    return status == TN_ERR_CLOSED ? 0 : status;
}

int tni_pool_work(struct tn_domain *domain, const struct tni_pool_pass *pass, tn_pool_fn *run,
                  void *context)
{
    struct worker *w = calloc(1, sizeof *w);
    if (w == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for a worker");
    tni_interrupt_exempt(false); /* the thread that forked this worker may have been exempt */
    w->domain = domain;
    w->pid = tni_os_pid();
    w->pass = pass;
    w->run = run;
    w->context = context;
    int status = open_worker(w);
    if (status == 0)
        status = work(w);
    close_worker(w);
    return status;
}

int tn_pool_serve(tn_domain *domain, tn_pool_fn *run, void *context)
{
    struct tni_pool_pass pass;
    if (domain == NULL || run == NULL)
        return tni_fail_null(domain == NULL ? "the domain" : "run");
    int status = read_variable(&pass);
    return status == 0 ? tni_pool_work(domain, &pass, run, context) : status;
}
