/* SPDX-License-Identifier: Apache-2.0 */
/*
 * path_instructions: instructions of the hot path: a tensor is made, pushed (moved), popped and
 * dropped. path_alloc_free: made and dropped. path_poll_miss (and path_poll_miss_tensor),
 * path_push_miss: a pop that finds nothing, a push that finds no room; path_count:
 * tn_queue_count() of an empty queue.
 *
 * Counted by valgrind's callgrind, so that no noise can hide them, within the one function that
 * a path names: this program runs itself under callgrind with two numbers of rounds, and the
 * difference is what the rounds are.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"

enum { FEW = 20000, MANY = 40000, NOT_THERE = 77 };

static tn_domain *d;
static tn_queue *q;

static tn_tensor *make(void)
{
    tn_tensor *t;
    int64_t shape = 1024;
    bench_check(tn_tensor_create(d, TN_FLOAT32, 1, &shape, NULL, &t), "empty");
    return t;
}

__attribute__((noinline)) static void pass_one(void)
{
    tn_tensor *t;
    bench_check(tn_queue_push_tensor(q, make(), TN_PUSH_MOVE, TN_NOW), "push");
    bench_check(tn_queue_pop_tensor(q, TN_NOW, &t), "pop");
    tn_tensor_unref(t);
}

__attribute__((noinline)) static void make_and_drop(void) { tn_tensor_unref(make()); }

static void pop_nothing(void)
{
    tn_message m;
    if (tn_queue_pop(q, TN_NOW, &m) != TN_ERR_TIMED_OUT)
        abort();
}

static void pop_no_tensor(void)
{
    tn_tensor *t;
    if (tn_queue_pop_tensor(q, TN_NOW, &t) != TN_ERR_TIMED_OUT)
        abort();
}

static void push_in_vain(void)
{
    tn_message m = {.bytes = "x", .size_bytes = 1};
    if (tn_queue_push(q, &m, 0, TN_NOW) != TN_ERR_TIMED_OUT)
        abort();
}

static void count_nothing(void)
{
    if (tn_queue_count(q) != 0)
        abort();
}

static void fill(void)
{
    tn_message m = {.bytes = "x", .size_bytes = 1};
    while (tn_queue_push(q, &m, 0, TN_NOW) == 0)
        ;
}

static const struct path {
    const char *name, *counted; /* the function in which instructions are counted */
    void (*run)(void), (*prepare)(void);
} paths[] = {
    {"path_instructions", "pass_one", pass_one, NULL},
    {"path_alloc_free", "make_and_drop", make_and_drop, NULL},
    {"path_poll_miss", "tn_queue_pop", pop_nothing, NULL},
    {"path_poll_miss_tensor", "tn_queue_pop_tensor", pop_no_tensor, NULL},
    {"path_push_miss", "tn_queue_push", push_in_vain, fill},
    {"path_count", "tn_queue_count", count_nothing, NULL},
};
enum { PATHS = sizeof paths / sizeof *paths };

static int run(const char *name, uint32_t rounds)
{
    const struct path *path = NULL;
    for (uint32_t i = 0; i < PATHS; i++)
        if (strcmp(paths[i].name, name) == 0)
            path = &paths[i];
    if (path == NULL)
        return 2;
    tn_domain_options options = {
        .struct_size = sizeof options, .quota_bytes = 64 << 20, .flags = TN_DOMAIN_NO_MANAGER};
    bench_check(tn_domain_open(NULL, &options, 0, &d), "domain");
    bench_check(tn_queue_open(d, NULL, NULL, 0, &q), "queue");
    if (path->prepare != NULL)
        path->prepare();
    for (uint32_t i = 0; i < rounds; i++)
        path->run();
    tn_object_close(q);
    tn_domain_close(d);
    return 0;
}

/* Of a whole run under callgrind. */
static double count_instructions(const char *self, const struct path *path, int rounds)
{
    char command[1024], line[512];
    uint64_t count = 0;
    snprintf(command, sizeof command,
             "valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect=%s "
             "'%s' %s %d 2>&1",
             path->counted, self, path->name, rounds);
    FILE *output = popen(command, "r");
    if (output == NULL)
        abort();
    while (fgets(line, sizeof line, output) != NULL) {
        const char *at = strstr(line, "Collected : ");
        if (at == NULL || sscanf(at, "Collected : %" SCNu64, &count) != 1)
            continue;
    }
    if (pclose(output) != 0 || count == 0) {
        fprintf(stderr, "bench: `%s` counted nothing\n", command);
        exit(1);
    }
    return (double)count;
}

int main(int argc, char **argv)
{
    if (argc == 3)
        return run(argv[1], (uint32_t)strtoul(argv[2], NULL, 10));
    if (system("valgrind --version >/dev/null 2>&1") != 0) {
        fprintf(stderr, "bench: path: instructions are not counted: there is no valgrind\n");
        return NOT_THERE;
    }
    for (uint32_t i = 0; i < PATHS; i++) {
        struct bench_series series = {0};
        double few = count_instructions(argv[0], &paths[i], FEW);
        double many = count_instructions(argv[0], &paths[i], MANY);
        bench_add(&series, (many - few) / (MANY - FEW));
        bench_print(paths[i].name, &series, "instructions", NULL, 1);
    }
    return 0;
}
