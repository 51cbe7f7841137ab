/* SPDX-License-Identifier: Apache-2.0 */
/*
 * objects_60k: one event made, opened by its id, and closed twice, in a domain that has 60,000
 * other objects; baseline: the same in a domain that has 10.
 * objects_60k_name: one of these opened by its name, and closed; baseline: the same among 10.
 */
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"

enum { ROUNDS = 41, TURNS = 200, MANY = 60000, FEW = 10 };

static tn_domain *fill_domain(tn_event **events, uint32_t count)
{
    const tn_domain_options options = {.struct_size = sizeof options, .objects = 65536};
    tn_domain *d;
    bench_check(tn_domain_open(NULL, &options, 0, &d), "domain");
    for (uint32_t i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "event-%u", i);
        bench_check(tn_event_open(d, name, TN_OPEN_NEW, &events[i]), "event");
    }
    return d;
}

static double make_and_close(tn_domain *d)
{
    uint64_t since = bench_now_ns();
    for (int i = 0; i < TURNS; i++) {
        tn_event *event, *again;
        bench_check(tn_event_open(d, NULL, 0, &event), "event");
        bench_check(tn_object_open_id(d, TN_OBJECT_EVENT, tn_object_id(event), &again),
                    "event again");
        tn_object_close(again);
        tn_object_close(event);
    }
    return (double)(bench_now_ns() - since) / TURNS;
}

/* Names from all over the table, by a step that meets each once. */
static double open_by_name(tn_domain *d, uint32_t count)
{
    char name[TURNS][32];
    for (uint32_t i = 0; i < TURNS; i++)
        snprintf(name[i], sizeof name[i], "event-%u", i * 7919 % count);
    uint64_t since = bench_now_ns();
    for (int i = 0; i < TURNS; i++) {
        tn_event *event;
        bench_check(tn_event_open(d, name[i], TN_OPEN_EXISTING, &event), "event by name");
        tn_object_close(event);
    }
    return (double)(bench_now_ns() - since) / TURNS;
}

int main(void)
{
    struct bench_series ours = {0}, theirs = {0}, named = {0}, few_named = {0};
    tn_event **many = calloc(MANY, sizeof *many), *few[FEW];
    if (many == NULL)
        return 1;
    tn_domain *full = fill_domain(many, MANY), *empty = fill_domain(few, FEW);
    make_and_close(full);
    make_and_close(empty);
    open_by_name(full, MANY);
    open_by_name(empty, FEW);
    for (int round = 0; round < ROUNDS; round++) {
        bench_add(&ours, make_and_close(full));
        bench_add(&theirs, make_and_close(empty));
        bench_add(&named, open_by_name(full, MANY));
        bench_add(&few_named, open_by_name(empty, FEW));
    }
    bench_print("objects_60k", &ours, "us", &theirs, 1e-3);
    bench_print("objects_60k_name", &named, "us", &few_named, 1e-3);
    for (int i = 0; i < MANY; i++)
        tn_object_close(many[i]);
    for (int i = 0; i < FEW; i++)
        tn_object_close(few[i]);
    free(many);
    tn_domain_close(full);
    tn_domain_close(empty);
    return 0;
}
