/* SPDX-License-Identifier: Apache-2.0 */
/* Pool owners, and the work of their workers. */
#include "soak.h"

#include <string.h>
#include <unistd.h>

enum { JOBS = 64, ATTEMPTS = 40, CLOSE_MS = 200 };

/* The bytes of a job, and of its result. */
struct order {
    uint64_t number;
    uint32_t has_tensor;
    struct soak_part part;
};

static struct {
    tn_pool *pool;
    tn_forkserver *server;
    uint64_t first, submitted, fetched;
    uint64_t numbers[JOBS];
    bool has_result[JOBS];
} own;

/* ---- in a worker ------------------------------------------------------------------------- */

static void be_worker(void)
{
    static pid_t enlisted;
    if (enlisted == getpid())
        return;
    soak_enlist(SOAK_WORKER);
    enlisted = getpid();
}

static int do_job(tn_domain *domain, const tn_pool_job *job, tn_message *result, void *context)
{
    struct {
        struct order order;
        tn_tensor *tensor;
    } *room = job->room;
    struct order order;
    (void)context;
    me.domain = domain;
    be_worker();
    soak_do(SOAK_IN_JOB);
    if (job->message->size_bytes != sizeof order)
        soak_fail(SOAK_ON_JOBS, "a job of %zu bytes", job->message->size_bytes);
    memcpy(&order, job->message->bytes, sizeof order);
    if (order.has_tensor != job->message->tensor_count)
        soak_fail(SOAK_ON_JOBS, "a job with %u tensors", job->message->tensor_count);
    if (order.has_tensor != 0)
        soak_check_tensor(job->message->tensors[0], &order.part, "a job's tensor");
    if (job->attempt > 1)
        soak_count(SOAK_N_RESTARTED, 1);
    if (soak_chance(30))
        usleep(soak_below(2000));

    memset(room, 0, sizeof *room);
    room->order.number = order.number * 3 + 1;
    if (soak_chance(50) && soak_make_tensor(&room->order.part, &room->tensor)) {
        room->order.has_tensor = 1;
        result->tensors = &room->tensor;
        result->tensor_count = 1;
    }
    result->bytes = &room->order;
    result->size_bytes = sizeof room->order;
    soak_do(SOAK_NOTHING);
    return 0;
}

void soak_serve_pool(void)
{
    int status = tn_pool_serve(me.domain, do_job, NULL);
    /*
     * TN_ERR_MANAGER: tenond died while it was asked for a job's descriptor; another worker
     * takes the job.
     */
    if (status != 0 && status != TN_ERR_PEER_DIED && status != TN_ERR_NOT_FOUND &&
        status != TN_ERR_MANAGER)
        soak_fail_status(SOAK_ON_JOBS, "tn_pool_serve", status);
}

/* ---- its owner --------------------------------------------------------------------------- */

/* Whether a kill has made the pool unusable. */
static bool is_pool_end(int status)
{
    return status == TN_ERR_CHILD_FAILED || status == TN_ERR_FULL ||
           status == TN_ERR_NO_MEMORY || status == TN_ERR_PEER_DIED ||
           (status == TN_ERR_SYSTEM &&
            strstr(tn_error_detail(), "before it could start") != NULL);
}

static bool open_pool(void)
{
    tn_pool_options options = {.struct_size = sizeof options,
                               .workers = 1 + soak_below(2),
                               .start = soak_below(3),
                               .attempts = ATTEMPTS,
                               .capacity = 16};
    int status = 0;
    memset(&own, 0, sizeof own);
    soak_do(SOAK_MAKING_POOL);
    if (options.start == TN_START_FORKSERVER)
        status = tn_forkserver_start(me.domain, &own.server);
    options.server = own.server;
    if (options.start == TN_START_SPAWN)
        options.argv = soak_program("worker", 0);
    if (status == 0)
        status =
            tn_pool_create(me.domain, &options, options.start == TN_START_SPAWN ? NULL : do_job,
                           NULL, &own.pool);
    if (status != 0 && !is_pool_end(status))
        soak_fail_status(SOAK_ON_JOBS, "making a pool", status);
    if (status == 0)
        soak_count(SOAK_N_POOLS, 1);
    return status == 0;
}

static int submit_one(void)
{
    struct order order = {.number = soak_random() >> 2};
    tn_tensor *tensor = NULL;
    uint64_t job = 0;
    if (soak_chance(50))
        order.has_tensor = soak_make_tensor(&order.part, &tensor);
    tn_message message = {.bytes = &order,
                          .size_bytes = sizeof order,
                          .tensors = &tensor,
                          .tensor_count = order.has_tensor};
    soak_do(SOAK_SUBMITTING);
    int status = tn_pool_submit(own.pool, &message, 0, soak_deadline(100), &job);
    tn_tensor_unref(tensor);
    if (status != 0)
        return status;
    if (job != own.submitted + 1)
        soak_fail(SOAK_ON_JOBS, "job %llu after %llu", (unsigned long long)job,
                  (unsigned long long)own.submitted);
    own.numbers[own.submitted++] = order.number;
    return 0;
}

static void check_result(const tn_pool_result *result)
{
    struct order order;
    if (result->job == 0 || result->job > own.submitted || own.has_result[result->job - 1])
        soak_fail(SOAK_ON_JOBS, "a result of job %llu, which has one or was not submitted",
                  (unsigned long long)result->job);
    own.has_result[result->job - 1] = true;
    own.fetched++;
    soak_checked(SOAK_ON_JOBS);
    /*
     * The memory object of its tensor was lost with its holders, or there is no room for the
     * result.
     */
    if (result->status == TN_ERR_NOT_FOUND || result->status == TN_ERR_NO_MEMORY ||
        result->status == TN_ERR_FULL ||
        (result->status == TN_ERR_CHILD_FAILED && result->attempt >= ATTEMPTS))
        return;
    if (result->status != 0)
        soak_fail(SOAK_ON_JOBS, "job %llu: %s: %s (attempt %u)",
                  (unsigned long long)result->job, tn_status_name(result->status),
                  result->detail, result->attempt);
    if (result->message.size_bytes != sizeof order)
        soak_fail(SOAK_ON_JOBS, "a result of %zu bytes", result->message.size_bytes);
    memcpy(&order, result->message.bytes, sizeof order);
    if (order.number != own.numbers[result->job - 1] * 3 + 1 ||
        order.has_tensor != result->message.tensor_count)
        soak_fail(SOAK_ON_JOBS, "job %llu has the result of another",
                  (unsigned long long)result->job);
    if (order.has_tensor != 0)
        soak_check_tensor(result->message.tensors[0], &order.part, "a result's tensor");
    soak_count(SOAK_N_JOBS, 1);
}

static uint64_t oldest_without_result(void)
{
    for (uint64_t i = 0; i < own.submitted; i++)
        if (!own.has_result[i])
            return i + 1;
    return own.submitted;
}

static int fetch_one(tn_deadline deadline)
{
    tn_pool_result result = {.struct_size = sizeof result};
    uint32_t dice = soak_below(3);
    soak_do(SOAK_FETCHING);
    int status = tn_pool_fetch(own.pool, dice == 0 ? TN_POOL_ANY_JOB : oldest_without_result(),
                               deadline, &result);
    if (status != 0)
        return status;
    check_result(&result);
    tn_pool_result_fini(&result);
    return 0;
}

/* @return false: the pool has ended */
static bool goes_on(const char *call, int status)
{
    if (status == 0 || status == TN_ERR_TIMED_OUT || status == TN_ERR_NOT_FOUND ||
        status == TN_ERR_NO_MEMORY || status == TN_ERR_MANAGER)
        return true;
    if (!is_pool_end(status))
        soak_fail_status(SOAK_ON_JOBS, call, status);
    return false;
}

/* Each job of a live pool has its result in the end. */
static void fetch_rest(void)
{
    while (own.fetched < own.submitted && soak_goes_on()) {
        int status = fetch_one(soak_deadline(500));
        if (status == TN_ERR_NOT_FOUND)
            soak_fail(SOAK_ON_JOBS, "%llu of %llu jobs have no result",
                      (unsigned long long)(own.submitted - own.fetched),
                      (unsigned long long)own.submitted);
        if (!goes_on("fetching a result", status))
            return;
    }
}

static void close_pool(void)
{
    soak_do(SOAK_CLOSING_POOL);
    int status = 0;
    if (soak_chance(40) && (status = tn_pool_end(own.pool)) == 0)
        status = tn_pool_join(own.pool, soak_deadline(CLOSE_MS));
    else if (soak_chance(50))
        status = tn_pool_terminate(own.pool, soak_deadline(CLOSE_MS));
    goes_on("ending a pool", status);
    tn_pool_close(own.pool);
}

void soak_own_pool(uint32_t turns)
{
    bool lives = open_pool();
    for (uint32_t i = 0; i < turns && own.submitted < JOBS && lives && soak_goes_on(); i++) {
        if (soak_chance(60))
            lives = goes_on("tn_pool_submit", submit_one());
        else if (own.fetched < own.submitted)
            lives = goes_on("fetching a result", fetch_one(soak_deadline(50)));
    }
    if (lives && soak_chance(80))
        fetch_rest();
    if (own.pool != NULL)
        close_pool();
    soak_do(SOAK_CLOSING_POOL);
    own.server = tn_forkserver_close(own.server);
}
