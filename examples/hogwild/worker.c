/* SPDX-License-Identifier: Apache-2.0 */
/*
 * worker: the two kinds of processes. A loader makes batches and pushes them, each two tensors
 * in shared memory; a trainer pops them and updates the parameters, which all trainers share.
 *
 * The queue leases: a batch whose trainer died before it acknowledged is delivered again. The
 * update may have been applied by then, so a batch counts at least once, not exactly once.
 */
#include "worker.h"
#include "augment.h"
#include "failure.h"
#include "random.h"

#include <stdio.h>
#include <stdlib.h>

/* The bytes that travel with each batch. */
struct batch_name {
    int64_t loader;
    int64_t sequence;
};

const char *role_name(enum role role) { return role == LOADER ? "loader" : "trainer"; }

struct board_line *worker_line(const struct worker *worker)
{
    struct board *board = &worker->run->board;
    return (worker->role == LOADER ? board->loaders : board->trainers) + worker->line;
}

/* Fill two new shared tensors, x [batch, features] and y [batch]. */
static void make_batch(struct run *run, uint64_t *random, tn_tensor *ret_pair[2])
{
    const struct dataset *data = &run->data;
    int64_t shape[2] = {run->options.batch, data->features};
    must(tn_tensor_create(run->domain, TN_FLOAT32, 2, shape,
                          TN_OPTIONS(tn_tensor_options, .deadline = TN_FOREVER), &ret_pair[0]),
         "no room for a batch");
    must(tn_tensor_create(run->domain, TN_INT64, 1, shape,
                          TN_OPTIONS(tn_tensor_options, .deadline = TN_FOREVER), &ret_pair[1]),
         "no room for labels");
    const float *from_x = tn_tensor_data(data->train_x);
    const int64_t *from_y = tn_tensor_data(data->train_y);
    float *x = tn_tensor_data(ret_pair[0]);
    int64_t *y = tn_tensor_data(ret_pair[1]);
    int32_t side = augment_side(data->features);
    for (int32_t row = 0; row < run->options.batch; ++row) {
        int64_t sample = random_below(random, (uint32_t)data->train_count);
        augment(x + (int64_t)row * data->features, from_x + sample * data->features,
                data->features, side, random);
        y[row] = from_y[sample];
    }
}

/*
 * Push, giving the tensors away. That all trainers died is no end: the main process starts
 * others.
 */
static void push_batch(struct run *run, const struct batch_name *name, tn_tensor *pair[2])
{
    const tn_message message = {
        .bytes = name, .size_bytes = sizeof(*name), .tensors = pair, .tensor_count = 2};
    int status;
    do {
        status = tn_queue_push(run->batches, &message, TN_PUSH_MOVE, TN_FOREVER);
    } while (status == TN_ERR_PEER_DIED);
    must(status, "cannot push a batch");
}

static int run_loader(tn_domain *domain, void *argument)
{
    struct worker *self = argument;
    struct run *run = self->run;
    struct board_line *line = worker_line(self);
    struct batch_name name = {.loader = self->line};
    uint64_t random = run->options.seed << 16 ^ (uint64_t)self->line << 8;
    failure_in_worker();
    (void)domain; /* the one that was inherited, too: run->domain */
    while (!atomic_load(&run->board.control->is_stopping)) {
        tn_tensor *pair[2];
        if (name.sequence == run->board.capacity)
            fail("the account has room for %lld batches: choose a larger --batch",
                 (long long)run->board.capacity);
        make_batch(run, &random, pair);
        atomic_store(&line->is_holding, 1);
        push_batch(run, &name, pair);
        atomic_store(&line->is_holding, 0);
        atomic_store(&line->batches, ++name.sequence);
    }
    return 0;
}

/* What a trainer works with. */
struct trainer {
    struct run *run;
    struct board_line *line;
    struct network_scratch scratch;
    float *gradient;
    size_t size; /* of the parameters */
};

static const struct batch_name *check_batch(const struct run *run, const tn_message *message)
{
    const int64_t *shape;
    if (message->size_bytes != sizeof(struct batch_name) || message->tensor_count != 2)
        fail("a message of %zu bytes and %u tensors is no batch", message->size_bytes,
             message->tensor_count);
    shape = tn_tensor_shape(message->tensors[0]);
    if (tn_tensor_ndim(message->tensors[0]) != 2 || shape[0] != run->options.batch ||
        shape[1] != run->data.features || tn_tensor_count(message->tensors[1]) != shape[0])
        fail("a batch of another shape came");
    return message->bytes;
}

/*
 * Compute the gradient of a batch and take a step, while others do the same.
 *
 * Source: Niu, Recht, Re, Wright, "Hogwild!: A Lock-Free Approach to Parallelizing Stochastic
 * Gradient Descent", NIPS 2011, Algorithm 1. Ours takes small dense batches where theirs takes
 * one sparse sample, so that updates do collide; a lost one is noise. Floats are written whole
 * on every machine that this runs on.
 */
static void train(struct trainer *trainer, const tn_message *message)
{
    struct run *run = trainer->run;
    float *parameters = tn_tensor_data(run->parameters);
    float rate = (float)atomic_load(&run->board.control->rate_ppm) * 1e-6f;
    network_gradient(&run->network, parameters, tn_tensor_data(message->tensors[0]),
                     tn_tensor_data(message->tensors[1]), run->options.batch, &trainer->scratch,
                     trainer->gradient);
    network_step(parameters, trainer->gradient, trainer->size, rate);
}

/*
 * Train on one message. is_holding is true while the main process would have to repair the
 * loss of the batch.
 */
static void train_on(struct trainer *trainer, tn_message *message)
{
    struct run *run = trainer->run;
    struct batch_name name = *check_batch(run, message);
    if (!board_count_popped(&run->board, name.loader, name.sequence))
        fail("a batch with an impossible name came");
    if (message->attempt > 0)
        atomic_fetch_add(&trainer->line->again, 1);
    atomic_store(&trainer->line->is_holding, 1);
    train(trainer, message);
    atomic_store(&trainer->line->is_holding, 0);
    must(tn_message_ack(run->batches, message), "cannot acknowledge a batch");
    board_count_acked(&run->board, name.loader, name.sequence);
    atomic_fetch_add(&trainer->line->batches, 1);
    tn_message_fini(message);
}

static int run_trainer(tn_domain *domain, void *argument)
{
    struct worker *self = argument;
    struct run *run = self->run;
    struct trainer trainer = {.run = run, .line = worker_line(self)};
    failure_in_worker();
    (void)domain;
    trainer.size = network_size(&run->network);
    trainer.gradient = malloc(trainer.size * sizeof(float));
    if (trainer.gradient == NULL ||
        network_scratch_init(&run->network, run->options.batch, &trainer.scratch) != 0)
        fail("no memory for a trainer");
    for (;;) {
        tn_message message;
        int status = tn_queue_pop(run->batches, TN_FOREVER, &message);
        if (status == TN_ERR_CLOSED)
            break;
        if (status == TN_ERR_PEER_DIED) /* the last loader; another one follows */
            continue;
        must(status, "cannot pop a batch");
        train_on(&trainer, &message);
    }
    network_scratch_fini(&trainer.scratch);
    free(trainer.gradient);
    return 0;
}

void worker_start(struct run *run, enum role role, int32_t line, struct worker *worker)
{
    *worker = (struct worker){.run = run, .role = role, .line = line};
    must(tn_process_fork(run->domain, role == LOADER ? run_loader : run_trainer, worker, 0,
                         &worker->process),
         "cannot start a worker");
}

static void check_end(const struct worker *worker, const tn_process_status *end)
{
    if (end->signal != 0)
        fail("%s %d was killed by signal %d", role_name(worker->role), end->pid, end->signal);
    if (end->exit_code != 0)
        fail("%s %d failed: %s", role_name(worker->role), end->pid, end->message);
}

void worker_watch(struct worker *worker, tn_deadline deadline)
{
    tn_process_status end = {.struct_size = sizeof end};
    int status = tn_process_wait(worker->process, deadline, &end);
    if (status == TN_ERR_TIMED_OUT)
        return;
    must(status, "cannot watch a worker");
    check_end(worker, &end);
    fail("%s %d ended before it was told to", role_name(worker->role), end.pid);
}

void worker_end(struct worker *worker)
{
    tn_process_status end = {.struct_size = sizeof end};
    must(tn_process_wait(worker->process, TN_FOREVER, &end), "cannot wait for a worker");
    check_end(worker, &end);
    worker->process = tn_process_close(worker->process);
}
