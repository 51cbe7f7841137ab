/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hogwild: processes train one small neural network together, and some of them are killed.
 *
 * Loaders make batches and push them through a queue; trainers pop them and update the
 * parameters, which lie in shared memory, in place and without a lock. The main process
 * measures the accuracy on samples that no process trains on. Half-way a loader and a trainer
 * get SIGKILL. The end accounts for every batch, every block and every process.
 *
 *   main.c      the course of events        worker.c    loaders and trainers
 *   killing.c   a kill, and what it left    board.c     the account of every batch
 *   report.c    progress and outcome        dataset.c, npy.c, augment.c, network.c
 */
#include "clock.h"
#include "failure.h"
#include "killing.h"
#include "report.h"
#include "worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    QUEUE_CAPACITY = 64,        /* batches */
    SAMPLES_A_SECOND = 10,      /* of the accuracy */
    FAST_SAMPLES_A_SECOND = 40, /* in the first second, in which most is learned */
    BATCHES_A_SECOND = 100000,  /* of one loader; what the account has room for */
    EVALUATION_ROWS = 64
};

/* The main process's own things. */
struct stage {
    struct run run;
    struct report report;
    tn_inspector *inspector;
    struct worker *workers; /* [worker_count], loaders first */
    int32_t worker_count;
    struct network_scratch scratch;
    uint64_t start_ns;
    tn_domain_stat before; /* the domain as it was when it was empty */
    bool *loader_died;     /* [loader lines] */
};

static void open_domain(struct stage *stage)
{
    char name[64];
    snprintf(name, sizeof(name), "hogwild-%d", (int)getpid());
    must(tn_domain_open(name, NULL, TN_OPEN_NEW, &stage->run.domain), "cannot make a domain");
    must(tn_inspector_open(name, &stage->inspector), "cannot look at the domain");
    stage->before.struct_size = sizeof(stage->before);
    must(tn_inspect_stat(stage->inspector, &stage->before), "cannot look at the domain");
    const char *tool = getenv("TENON_TOOL"); /* set when the demo runs from a build folder */
    printf("domain %s; watch it from another terminal: %s top %s\n", name,
           tool != NULL ? tool : "tenon", name);
}

static void make_parameters(struct run *run, int32_t classes)
{
    run->network = (struct network){run->data.features, run->options.hidden, classes};
    int64_t size = (int64_t)network_size(&run->network);
    must(tn_tensor_create(run->domain, TN_FLOAT32, 1, &size, NULL, &run->parameters),
         "no room for the parameters");
    network_init(&run->network, tn_tensor_data(run->parameters), run->options.seed);
}

static void make_shared_things(struct stage *stage, struct dataset_rows *rows)
{
    struct run *run = &stage->run;
    const struct options *options = &run->options;
    const tn_queue_options queue = {
        .struct_size = sizeof(queue), .capacity = QUEUE_CAPACITY, .policy = TN_QUEUE_LEASE};
    dataset_share(run->domain, rows, &run->data);
    make_parameters(run, rows->classes);
    must(tn_queue_open(run->domain, "batches", &queue, TN_OPEN_NEW, &run->batches),
         "cannot make a queue");
    board_create(run->domain, options->loaders + 1, options->trainers + 1,
                 (int64_t)(options->seconds * BATCHES_A_SECOND), &run->board);
    stage->loader_died = calloc((size_t)options->loaders + 1, sizeof(bool));
    stage->workers =
        calloc((size_t)(options->loaders + options->trainers), sizeof(struct worker));
    if (stage->loader_died == NULL || stage->workers == NULL ||
        network_scratch_init(&run->network, EVALUATION_ROWS, &stage->scratch) != 0)
        fail("no memory");
    printf("%lld samples of %d features, %d classes; %lld to train, %lld to test\n"
           "%d loaders, %d trainers, one network of %zu shared parameters, batches of %d\n",
           (long long)rows->samples, rows->features, rows->classes,
           (long long)run->data.train_count, (long long)run->data.test_count, options->loaders,
           options->trainers, network_size(&run->network), options->batch);
}

static void start_workers(struct stage *stage)
{
    const struct options *options = &stage->run.options;
    fflush(stdout); /* else each child has what is in the buffer, too */
    for (int32_t line = 0; line < options->loaders; ++line)
        worker_start(&stage->run, LOADER, line, &stage->workers[stage->worker_count++]);
    for (int32_t line = 0; line < options->trainers; ++line)
        worker_start(&stage->run, TRAINER, line, &stage->workers[stage->worker_count++]);
}

static double elapsed_s(const struct stage *stage)
{
    return (double)(clock_ns() - stage->start_ns) * 1e-9;
}

static double accuracy(struct stage *stage)
{
    const struct dataset *data = &stage->run.data;
    int64_t correct =
        network_correct(&stage->run.network, tn_tensor_data(stage->run.parameters),
                        tn_tensor_data(data->test_x), tn_tensor_data(data->test_y),
                        data->test_count, &stage->scratch);
    return (double)correct / (double)data->test_count;
}

/* The learning rate falls in a straight line to a twentieth. */
static void set_rate(struct stage *stage, double at_s)
{
    double left = 1.0 - at_s / stage->run.options.seconds;
    double rate = stage->run.options.rate * (left > 0.05 ? left : 0.05);
    atomic_store(&stage->run.board.control->rate_ppm, (int64_t)(rate * 1e6));
}

static void take_sample(struct stage *stage)
{
    struct sample sample = {.accuracy = accuracy(stage),
                            .batches = board_batches(&stage->run.board)};
    sample.at_s = elapsed_s(stage);
    set_rate(stage, sample.at_s);
    report_add(&stage->report, sample);
    report_progress(&stage->report, stage->run.options.seconds);
}

/*
 * Kill the first worker of a role, and start another one in its place, with a line of its own.
 */
static void kill_one(struct stage *stage, enum role role)
{
    struct report *report = &stage->report;
    int32_t loaders = stage->run.options.loaders;
    struct worker *worker = &stage->workers[role == LOADER ? 0 : loaders];
    struct killing *killing = &report->killings[report->killing_count];
    double at_s = elapsed_s(stage);
    killing_do(stage->inspector, worker, killing);
    killing->at_s = at_s;
    report->killing_count += 1;
    if (role == LOADER)
        stage->loader_died[worker->line] = true;
    fflush(stdout);
    worker_start(&stage->run, role, role == LOADER ? loaders : stage->run.options.trainers,
                 worker);
}

/* Sleep until it is time for the next sample; a worker that ends meanwhile ends the program. */
static void wait_for_sample(struct stage *stage)
{
    int rate = elapsed_s(stage) < 1 ? FAST_SAMPLES_A_SECOND : SAMPLES_A_SECOND;
    tn_deadline deadline = tn_deadline_after(TN_SECOND / (unsigned)rate);
    for (int32_t index = 1; index < stage->worker_count; ++index)
        worker_watch(&stage->workers[index], TN_NOW);
    worker_watch(&stage->workers[0], deadline);
}

/* The loader dies a little before half-time, the trainer a little after. */
static void train(struct stage *stage)
{
    double seconds = stage->run.options.seconds;
    bool is_peaceful = stage->run.options.is_peaceful;
    set_rate(stage, 0);
    stage->start_ns = clock_ns();
    start_workers(stage);
    take_sample(stage);
    while (elapsed_s(stage) < seconds) {
        wait_for_sample(stage);
        take_sample(stage);
        if (!is_peaceful && stage->report.killing_count == 0 &&
            elapsed_s(stage) > 0.47 * seconds)
            kill_one(stage, LOADER);
        if (!is_peaceful && stage->report.killing_count == 1 &&
            elapsed_s(stage) > 0.53 * seconds)
            kill_one(stage, TRAINER);
    }
}

/* Loaders end first; then the queue, whose rest the trainers take before they end, too. */
static void wind_up(struct stage *stage)
{
    int32_t loaders = stage->run.options.loaders;
    atomic_store(&stage->run.board.control->is_stopping, 1);
    for (int32_t index = 0; index < loaders; ++index)
        worker_end(&stage->workers[index]);
    must(tn_queue_end(stage->run.batches), "cannot end the queue");
    for (int32_t index = loaders; index < stage->worker_count; ++index)
        worker_end(&stage->workers[index]);
    stage->report.elapsed_s = elapsed_s(stage);
    stage->report.accuracy = accuracy(stage);
}

static int count_pushed(const tn_object_entry *object, void *context)
{
    struct stage *stage = context;
    if (object->id == tn_object_id(stage->run.batches))
        stage->report.queue_pushed = (int64_t)object->pushed;
    return 0;
}

static int print_discrepancy(const char *sentence, bool is_repaired, void *context)
{
    (void)is_repaired;
    (void)context;
    printf("\naudit: %s", sentence);
    return 0;
}

static void audit(struct stage *stage)
{
    stage->report.discrepancies +=
        must(tn_domain_audit(stage->run.domain, false, print_discrepancy, NULL, NULL),
             "cannot audit");
}

static void reclaim_account(struct stage *stage)
{
    struct report *report = &stage->report;
    board_reclaim(&stage->run.board, stage->loader_died, &report->account);
    report->handoffs = 2 * (report->account.acked + report->account.redelivered);
    must(tn_inspect_objects(stage->inspector, count_pushed, stage), "cannot look at the queue");
}

/* Give everything back; what the domain then has more than when it was empty was leaked. */
static void drop_everything(struct stage *stage)
{
    tn_domain_stat after = {.struct_size = sizeof after};
    stage->run.batches = tn_object_close(stage->run.batches);
    stage->run.parameters = tn_tensor_unref(stage->run.parameters);
    board_drop(&stage->run.board);
    dataset_drop(&stage->run.data);
    must(tn_inspect_stat(stage->inspector, &after), "cannot look at the domain");
    stage->report.leaked_blocks = (int64_t)(after.blocks_live - stage->before.blocks_live);
    stage->report.leaked_bytes = (int64_t)(after.live_bytes - stage->before.live_bytes);
}

static void close_stage(struct stage *stage)
{
    stage->inspector = tn_inspector_close(stage->inspector);
    stage->run.domain = tn_domain_close(stage->run.domain);
    network_scratch_fini(&stage->scratch);
    report_fini(&stage->report);
    free(stage->workers);
    free(stage->loader_died);
}

int main(int argc, char **argv)
{
    static struct stage stage;
    struct dataset_rows rows;
    options_parse(&stage.run.options, argc, argv);
    stage.report.options = &stage.run.options;
    dataset_read(stage.run.options.x_path, stage.run.options.y_path, &rows);
    open_domain(&stage);
    make_shared_things(&stage, &rows);
    train(&stage);
    wind_up(&stage);
    reclaim_account(&stage);
    audit(&stage);
    drop_everything(&stage);
    audit(&stage);
    bool is_good = report_print(&stage.report);
    if (stage.run.options.json_path != NULL)
        report_write(&stage.report, &stage.run, stage.run.options.json_path);
    close_stage(&stage);
    return is_good ? 0 : 1;
}
