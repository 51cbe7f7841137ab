/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_facts [--small | --quick] list | driver | universe | NUMBER: list the questions; describe
 * the driver and the device, and exit with 1 if there is none; make the devices of the fake
 * driver; or ask one question.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/facts/facts.h"

/* ---- questions that fail on purpose: a test sees whether dev/check-gpu records them
 * ---------- */

static void hang(int unused)
{
    (void)unused;
    say("it hangs");
    for (;;)
        pause();
}

static void die(int unused)
{
    (void)unused;
    raise(SIGKILL);
}

static void leave(int unused)
{
    (void)unused;
    _exit(0);
}

const struct question faulty_questions[] = {
    {"X1", "A question that hangs", "", hang, 0},
    {"X2", "A question that is killed", "", die, 0},
    {"X3", "A question that says nothing", "", leave, 0},
    {0}};

/* ---- all --------------------------------------------------------------------------------- */

static const struct question *const groups[] = {
    driver_questions, handle_questions, opening_questions, death_questions, event_questions,
    memory_questions, value_questions,  row_questions,     call_figures,    copy_figures};
enum { GROUPS = sizeof groups / sizeof groups[0] };

static int list(void)
{
    for (int g = 0; g < GROUPS; g++)
        for (const struct question *q = groups[g]; q->number != NULL; q++)
            printf("%s\t%s\t%s\n", q->number, q->text, q->assumption);
    return 0;
}

static const struct question *find(const struct question *q, const char *number)
{
    while (q->number != NULL && strcmp(q->number, number) != 0)
        q++;
    return q->number != NULL ? q : NULL;
}

static int ask(const char *number)
{
    const struct question *found = find(faulty_questions, number);
    for (int g = 0; g < GROUPS && found == NULL; g++)
        found = find(groups[g], number);
    if (found == NULL) {
        fprintf(stderr, "gpu_facts: there is no question %s\n", number);
        return 2;
    }
    found->run(found->argument);
    _exit(0); /* what the driver does at exit is not asked */
}

/* Key and value, a line each. */
static int describe_driver(void)
{
    int version = 0, count = 0;
    char name[100] = "";
    CUresult code = cu.cuInit(0);
    if (code == 0)
        code = CODE(cuDeviceGetCount, &count);
    if (code == 0 && count == 0)
        code = CUDA_ERROR_NO_DEVICE;
    if (code != 0) {
        fprintf(stderr, "there is no CUDA device: cuInit() or cuDeviceGetCount(): %s\n",
                driver_text(code));
        return 1;
    }
    CALL(cuDriverGetVersion, &version);
    CALL(cuDeviceGetName, name, sizeof name, 0);
    printf("name\t%s\ncount\t%d\napi\t%d.%d\nfake\t%s\n", name, count, version / 1000,
           version % 1000 / 10, driver_is_fake() ? "yes" : "no");
    return 0;
}

int main(int argc, char **argv)
{
    int at = sizes_read(argc, argv);
    if (argc != at + 1) {
        fprintf(stderr,
                "usage: gpu_facts [--small | --quick] list | driver | universe | NUMBER\n");
        return 2;
    }
    if (strcmp(argv[at], "list") == 0)
        return list();
    const char *problem = driver_load();
    if (problem != NULL) {
        fprintf(stderr, "there is no CUDA driver: %s\n", problem);
        return 1;
    }
    if (strcmp(argv[at], "universe") == 0)
        return driver_make_universe();
    return strcmp(argv[at], "driver") == 0 ? describe_driver() : ask(argv[at]);
}
