/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: a process that is killed, at any kill point, leaves nothing that a survivor does not
 * reclaim.
 * crash_runner.c kills processes, and crash_*_ops.c have the operations in which they are
 * killed. Each operation has two tests; in the second one the process that reclaims the dead
 * one is killed too.
 */
#include <dirent.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "os/os.h"
#include "process/crash.h"

/*
 * A process keeps one socket for ringing bells. It is made here, before a test counts
 * descriptors.
 */
__attribute__((constructor)) static void ring_once(void) { tni_os_bell_ring(1); }

/* ---- a test an operation, made of the tables --------------------------------------------- */

static const struct crash_op *op_of_test(void)
{
    const char *name = strstr(tnt_name(), "_in_") + strlen("_in_");
    const struct crash_op *op;
    for (unsigned n = 0; (op = crash_nth(n)) != NULL; n++) {
        size_t len = strlen(op->name);
        if (strncmp(op->name, name, len) == 0 && strcmp(name + len, "_is_reclaimed") == 0)
            return op;
    }
    fail_msg("no operation is called %s", name);
    return NULL;
}

static void die(void) { crash_run(op_of_test()); }

static void die_while_reclaiming(void) { crash_run_reaper(op_of_test()); }
static void die_at_calls(void) { crash_run_driver(op_of_test()); }

enum { MOST_OPERATIONS = 192 };
__attribute__((constructor)) static void register_operations(void)
{
    static char names[3][MOST_OPERATIONS][96];
    const struct crash_op *op;
    for (unsigned n = 0; n < MOST_OPERATIONS && (op = crash_nth(n)) != NULL; n++) {
        snprintf(names[0][n], sizeof names[0][n], "a_death_in_%s_is_reclaimed", op->name);
        tnt_register(names[0][n], die, 60);
        snprintf(names[1][n], sizeof names[1][n],
                 "a_second_death_while_reclaiming_one_in_%s_is_reclaimed", op->name);
        tnt_register(names[1][n], die_while_reclaiming, 60);
        if (!op->is_on_device)
            continue;
        snprintf(names[2][n], sizeof names[2][n],
                 "a_death_at_a_call_of_the_driver_in_%s_is_reclaimed", op->name);
        tnt_register(names[2][n], die_at_calls, 60);
    }
}

/* ---- nothing is left out ----------------------------------------------------------------- */

/* Points that no single process can reach, and why. */
static const char *const unreachable[] = {
    "tenond_window_mapped", /* only in tenond: vault_test kills there */
    "queue_looking",        /* only beside a sleeper: queue_wake_test kills there */
    "ticket_unpinned", /* only if another process uses the ticket between two instructions */
};

static bool is_among(const struct crash_points *points, const char *name)
{
    for (unsigned i = 0; i < points->count; i++)
        if (strcmp(points->point[i].name, name) == 0)
            return true;
    return false;
}

/* Add the points that a source file has, but for those that are unreachable. */
static void read_file(const char *path, struct crash_points *wanted)
{
    static const char mark[] = "TNI_KILL_POINT(\"";
    char line[512], name[64];
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        const char *at = strstr(line, mark);
        if (at == NULL || sscanf(at + strlen(mark), "%63[a-z0-9_]", name) != 1)
            continue;
        bool is_left_out = strcmp(name, "room_where") == 0 || is_among(wanted, name);
        for (unsigned i = 0; i < sizeof unreachable / sizeof unreachable[0]; i++)
            is_left_out = is_left_out || strcmp(unreachable[i], name) == 0;
        if (is_left_out)
            continue;
        assert_true(wanted->count < CRASH_MAX_POINTS);
        snprintf(wanted->point[wanted->count++].name, sizeof name, "%s", name);
    }
    fclose(file);
}

static void read_folder(const char *folder, struct crash_points *wanted)
{
    char path[512];
    DIR *list = opendir(folder);
    assert_non_null(list);
    for (struct dirent *entry; (entry = readdir(list)) != NULL;) {
        size_t len = strlen(entry->d_name);
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (entry->d_type == DT_DIR && entry->d_name[0] != '.')
            read_folder(path, wanted);
        else if (len > 2 && (strcmp(entry->d_name + len - 2, ".c") == 0 ||
                             strcmp(entry->d_name + len - 2, ".h") == 0))
            read_file(path, wanted);
    }
    closedir(list);
}

/* @return how many points no operation passes. Prints them if `is_loud`. */
static unsigned count_missing(const struct crash_points *wanted,
                              const struct crash_points *passed, bool prints)
{
    unsigned missing = 0;
    for (unsigned i = 0; i < wanted->count; i++) {
        bool is_missing = !is_among(passed, wanted->point[i].name);
        if (is_missing && prints)
            printf("no operation passes %s\n", wanted->point[i].name);
        missing += is_missing;
    }
    return missing;
}

/*
 * Some kill points are passed only by a process that reclaims a dead one, so it is watched
 * too: first after the operations of which it was seen to pass them, which takes a tenth of
 * the time, and then after the others, if a point is missing.
 */
static bool is_first(const struct crash_op *op)
{
    static const char *const first[] = {"empty_small_fresh",   "queue_create",
                                        "handle_export_bound", "semaphore_acquire_owned",
                                        "device_copy",         "device_pop_foreign"};
    for (unsigned i = 0; i < sizeof first / sizeof first[0]; i++)
        if (strcmp(first[i], op->name) == 0)
            return true;
    return false;
}

static void learn_reapers(const struct crash_points *wanted, struct crash_points *passed,
                          bool of_first)
{
    const struct crash_op *op;
    for (unsigned n = 0; (op = crash_nth(n)) != NULL; n++)
        if (is_first(op) == of_first && count_missing(wanted, passed, false) > 0)
            crash_learn_reaper(op, passed);
}

TN_TEST_WITHIN(every_kill_point_of_the_sources_is_passed_by_an_operation, 300)
{
    static struct crash_points wanted, passed;
    const struct crash_op *op;
    read_folder(TNT_SOURCE, &wanted);
    assert_true(wanted.count > 50);
    for (unsigned n = 0; (op = crash_nth(n)) != NULL; n++)
        crash_learn(op, &passed);
    learn_reapers(&wanted, &passed, true);
    learn_reapers(&wanted, &passed, false);
    tnt_note("%u kill points to be passed in the sources, %u passed", wanted.count,
             passed.count);
    assert_int_equal(count_missing(&wanted, &passed, true), 0);
}

/* ---- in the middle of a system call ------------------------------------------------------ */

enum { WRITTEN_BYTES = 16 << 20 };

static int write_and_wait(void *world)
{
    static uint8_t bytes[WRITTEN_BYTES];
    const struct crash_world *w = world;
    int64_t size = WRITTEN_BYTES;
    tn_tensor *tensor;
    crash_fill(bytes, sizeof bytes);
    TN_CHECK_OK(tn_tensor_create(
        w->domain, TN_UINT8, 1, &size,
        TN_OPTIONS(tn_tensor_options, .source = bytes, .source_bytes = sizeof bytes), &tensor));
    pause();
    return 0;
}

static uint64_t memory_of(const struct crash_world *w)
{
    uint64_t bytes = 0;
    TN_CHECK_OK(tni_os_memory_committed(w->domain->segment.arena_fd, &bytes));
    return bytes;
}

TN_TEST(a_kill_inside_a_kernel_write_leaves_new_zeros_zero)
{
    enum { DEATHS = 10, GROWN_BYTES = 1 << 20 };
    static const struct crash_op op = {.name = "write_and_wait"};
    struct crash_world w;
    int64_t size = WRITTEN_BYTES;
    for (int death = 0; death < DEATHS; death++) {
        tn_tensor *zeros;
        crash_make_world(&w, &op);
        uint64_t before = memory_of(&w);
        pid_t pid = tnt_fork(write_and_wait, &w);
        while (memory_of(&w) < before + GROWN_BYTES)
            sched_yield();
        tnt_kill(pid);
        crash_reclaim(&w);
        TN_CHECK_OK(tn_tensor_create(w.domain, TN_UINT8, 1, &size,
                                     TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED),
                                     &zeros));
        const uint8_t *bytes = tn_tensor_data(zeros);
        assert_int_equal(bytes[0], 0);
        assert_memory_equal(bytes, bytes + 1, WRITTEN_BYTES - 1);
        tn_tensor_unref(zeros);
        crash_judge(&w);
    }
}
