/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program `sweep`: kill each operation at each of its instructions, several at a time.
 *
 * Each row of the table is a job: a process with its own runtime folder. Its output is shown
 * if a check failed. This file replaces the harness for these processes.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "harness/inside.h"
#include "os/os.h"
#include "sweep/sweep.h"

enum kind { SOLO, CHILD, REAPER, PAIR };
struct row {
    enum kind kind;
    const struct crash_op *op;
    const struct pair_op *victim, *peer;
    char name[96];
    bool is_done, is_good;
    const char *why_not; /* why is_good is false although nothing failed */
    off_t shown;         /* how much of its output was shown */
    uint64_t took_ns;
    struct sweep_row found;
};
enum { MOST_ROWS = 1024, MOST_JOBS = 64 };
static struct row *rows;
static unsigned row_count;

static struct {
    struct sweep_plan plan;
    const char *op;
    const char *table;
    bool wants_solo, wants_reaper, wants_pairs, has_most, has_scenes, only_walks;
    unsigned jobs, seconds;
} options = {.plan = {.at = -1, .pause = -1}, .jobs = 1};

/*
 * The default amounts: each boundary of an operation that has at most 10,000; of the others,
 * as many as two processors can sweep in half an hour.
 */
static const struct {
    uint32_t most, scenes;
} whole[] = {[SOLO] = {10000, 0}, [CHILD] = {10000, 0}, [REAPER] = {40, 0}, [PAIR] = {24, 6}};

/* ---- in place of the harness ------------------------------------------------------------- */

static char folder[TNT_FOLDER_BYTES], shm_folder[TNT_FOLDER_BYTES];
static const struct row *current;

void tnt_register(const char *name, tnt_test_fn *body, unsigned seconds)
{
    (void)name, (void)body, (void)seconds;
}

const char *tnt_folder(void) { return folder; }
const char *tnt_shm_folder(void) { return shm_folder; }
const char *tnt_name(void) { return current->name; }

void tnt_note(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
}

void tnt_skip(const char *reason)
{
    printf("skipped: %s\n", reason);
    fflush(NULL);
    _exit(1);
}

/* ---- what a row prints ------------------------------------------------------------------- */

/* The standard error of this process, before it became a row's. */
static int report_fd = STDERR_FILENO;

/* Show the part of a row's output that has not been shown yet. */
static void show(struct row *row, int fd)
{
    char text[4096];
    for (ssize_t size; (size = pread(fd, text, sizeof text, row->shown)) > 0;
         row->shown += size)
        if (write(report_fd, text, (size_t)size) < 0)
            return;
}

static void show_failure(void) { show(&rows[current - rows], STDOUT_FILENO); }

/* ---- one row ----------------------------------------------------------------------------- */

/* Not each of many rows has such a boundary or point; the end checks that one of them has. */
static bool is_one_place(void)
{
    return row_count > 1 &&
           (options.plan.at >= 0 || options.plan.pause >= 0 || options.plan.point != NULL);
}

static void judge(struct row *row)
{
    const struct sweep_row *found = &row->found;
    bool may_be_none = is_one_place() || (row->kind == REAPER && !sweep_has_points(row->op));
    if (found->failures > 0 || sweep_is_good(found) || (found->tried == 0 && may_be_none))
        return;
    row->is_good = false;
    row->why_not = found->swept == 0 ? "nothing was swept" : "more than 30 % strayed";
}

static void sweep_row(void **state)
{
    struct row *row = *state;
    struct sweep_plan plan = options.plan;
    if (!options.has_most)
        plan.most = whole[row->kind].most;
    if (!options.has_scenes)
        plan.scenes = whole[row->kind].scenes;
    struct scene scene = {.op = row->op, .in_child = row->kind == CHILD};
    snprintf(scene.name, sizeof scene.name, "%s", row->name);
    switch (row->kind) {
    case SOLO:
    case CHILD:
        sweep_scene(&scene, &plan, &row->found);
        break;
    case REAPER:
        sweep_reaper(row->op, &plan, &row->found);
        break;
    case PAIR:
        sweep_pair(row->victim, row->peer, &plan, &row->found);
        break;
    }
    row->is_good = row->found.failures == 0;
    judge(row);
}

static void run_row(struct row *row)
{
    pid_t self = getpid();
    const struct CMUnitTest one[] = {{row->name, sweep_row, NULL, NULL, row}};
    cmocka_run_group_tests_name(row->name, one, NULL, NULL);
    fflush(NULL);
    if (getpid() != self) /* an assertion failed in a forked process */
        _exit(1);
}

static void make_folders(void)
{
    snprintf(folder, sizeof folder, "/tmp/tnt-XXXXXX");
    if (mkdtemp(folder) == NULL || !tnt_shm_make(shm_folder)) {
        printf("no place to run in: %s\n", strerror(errno));
        _exit(1);
    }
    setenv("TENON_RUNTIME_DIR", folder, 1);
    setenv("TENON_SHM_DIR", shm_folder, 1);
}

/* The parent of each process that a row starts. It kills those that are left. */
static void run_job(struct row *row)
{
    int status = 0;
    tnt_adopt();
    make_folders();
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        current = row;
        tnt_seed(options.plan.seed);
        run_row(row);
        _exit(0);
    }
    setpgid(child, child);
    tnt_collect(child, UINT64_MAX, &status);
    bool is_good = status == 0 && tnt_end_descendants(child, STDOUT_FILENO) == 0;
    is_good = tnt_shm_list(shm_folder, STDOUT_FILENO) == 0 && is_good;
    tnt_remove_folder(folder);
    tnt_remove_folder(shm_folder);
    row->is_good = row->is_good && is_good;
}

/* ---- all rows ---------------------------------------------------------------------------- */

struct running {
    pid_t pid;
    int output_fd;
    unsigned row;
    uint64_t begun_ns;
};

static struct running start(unsigned number)
{
    struct running job = {.row = number, .begun_ns = tnt_now_ns()};
    job.output_fd = memfd_create("sweep-output", MFD_CLOEXEC);
    fflush(NULL);
    job.pid = fork();
    if (job.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setvbuf(stdout, NULL, _IOFBF, 1 << 16);
        dup2(job.output_fd, STDOUT_FILENO);
        dup2(job.output_fd, STDERR_FILENO);
        run_job(&rows[number]);
        fflush(NULL);
        _exit(0);
    }
    return job;
}

static void finish(const struct running *job)
{
    struct row *row = &rows[job->row];
    row->is_done = true;
    row->took_ns = tnt_now_ns() - job->begun_ns;
    const char *verdict = !row->is_good ? "not ok" : row->found.swept == 0 ? "none" : "ok";
    if (!row->is_good)
        show(row, job->output_fd);
    close(job->output_fd);
    fprintf(stderr, "%s %s: %u boundaries, %u swept, %u strayed, %u failures, %.1f s", verdict,
            row->name, row->found.boundaries, row->found.swept, row->found.strayed,
            row->found.failures, (double)row->took_ns / 1e9);
    if (row->found.cut_at != 0)
        fprintf(stderr, "; first %u of an operation", row->found.cut_at);
    if (row->found.is_late)
        fprintf(stderr, "; cut short by --seconds");
    fprintf(stderr, "%s%s\n", row->why_not != NULL ? "; " : "",
            row->why_not != NULL ? row->why_not : "");
}

static void run_all(void)
{
    struct running running[MOST_JOBS];
    unsigned next = 0, count = 0;
    uint64_t end_ns = options.plan.end_ns;
    while (next < row_count || count > 0) {
        while (count < options.jobs && next < row_count &&
               (end_ns == 0 || tnt_now_ns() < end_ns))
            running[count++] = start(next++);
        if (count == 0)
            return;
        int status;
        pid_t pid = waitpid(-1, &status, 0);
        for (unsigned i = 0; i < count; i++)
            if (running[i].pid == pid) {
                finish(&running[i]);
                running[i] = running[--count];
                break;
            }
    }
}

/* ---- the table --------------------------------------------------------------------------- */

struct sum {
    uint64_t boundaries, tried, swept, strayed, failures;
    uint32_t cut_at; /* the length at which a run of one of them was cut */
};

static void add_to(struct sum *sum, const struct row *row)
{
    sum->boundaries += row->found.boundaries;
    sum->tried += row->found.tried;
    sum->swept += row->found.swept;
    sum->strayed += row->found.strayed;
    sum->cut_at = TNI_MAX(sum->cut_at, row->found.cut_at);
    /* A failure outside of any boundary counts as one. */
    sum->failures += row->found.failures + (!row->is_good && row->found.failures == 0);
}

static void print_line(FILE *file, const char *name, const struct sum *sum)
{
    fprintf(file, "| %s", name);
    if (sum->cut_at != 0)
        fprintf(file, " (first %u of an operation)", sum->cut_at);
    fprintf(file, " | %llu | %llu | %llu | %llu |\n", (unsigned long long)sum->boundaries,
            (unsigned long long)sum->swept, (unsigned long long)sum->strayed,
            (unsigned long long)sum->failures);
}

static void print_head(FILE *file, const char *what)
{
    fprintf(file,
            "\n| %s | boundaries | killed there | strayed | failures |\n"
            "| --- | --- | --- | --- | --- |\n",
            what);
}

/* Pairs are summed up by victim, because a row for each pair would be too many to read. */
static void print_kind(FILE *file, enum kind kind, const char *what, struct sum *all)
{
    struct sum part = {0}, line = {0};
    bool has_head = false;
    for (unsigned i = 0; i < row_count; i++) {
        const struct row *row = &rows[i], *next = i + 1 < row_count ? &rows[i + 1] : NULL;
        if (!row->is_done || row->kind != kind)
            continue;
        if (!has_head)
            print_head(file, what);
        has_head = true;
        add_to(&line, row);
        add_to(&part, row);
        add_to(all, row);
        if (kind == PAIR && next != NULL && next->victim == row->victim && next->is_done)
            continue;
        print_line(file, kind == PAIR ? row->victim->name : row->name, &line);
        line = (struct sum){0};
    }
    if (has_head)
        print_line(file, "**together**", &part);
}

/* Name each row that is missing or incomplete. @return whether there is none */
static bool print_missing(FILE *file)
{
    unsigned not_begun = 0, late = 0;
    for (unsigned i = 0; i < row_count; i++) {
        not_begun += !rows[i].is_done;
        late += rows[i].found.is_late;
    }
    if (not_begun > 0)
        fprintf(file, "not begun: %u rows\n", not_begun);
    if (late > 0)
        fprintf(file, "cut short by --seconds: %u rows\n", late);
    return not_begun == 0 && late == 0;
}

/* @return whether the table was written */
static bool write_table(const char *path)
{
    struct sum all = {0};
    FILE *file = strcmp(path, "-") == 0 ? stdout : fopen(path, "we");
    if (file == NULL) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return false;
    }
    print_kind(file, SOLO, "operation", &all);
    print_kind(file, CHILD, "the process that an operation forks", &all);
    print_kind(file, REAPER, "who reclaims a death in", &all);
    print_kind(file, PAIR, "victim, beside each paused peer", &all);
    fprintf(
        file,
        "\n%llu deaths at machine instructions, %llu failures. %llu boundaries were tried and "
        "not met. Seed %llu.\n",
        (unsigned long long)all.swept + all.failures, (unsigned long long)all.failures,
        (unsigned long long)all.strayed, (unsigned long long)options.plan.seed);
    print_missing(file);
    return (file != stdout ? fclose(file) : fflush(file)) == 0;
}

/* ---- what is wanted ---------------------------------------------------------------------- */

/* A whole name, or the beginning of one that ends with *. */
static bool is_wanted(const char *name)
{
    size_t len = options.op == NULL ? 0 : strlen(options.op);
    if (options.op == NULL)
        return true;
    if (options.op[len - 1] == '*')
        return strncmp(options.op, name, len - 1) == 0;
    return strcmp(options.op, name) == 0;
}

static void add(struct row row)
{
    if (!is_wanted(row.name) || row_count == MOST_ROWS)
        return;
    rows[row_count++] = row;
}

static void add_operations(enum kind kind, const char *suffix)
{
    const struct crash_op *op;
    for (unsigned n = 0; (op = crash_nth(n)) != NULL; n++) {
        struct row row = {.kind = kind, .op = op};
        if (kind == CHILD && !sweep_has_child(op))
            continue;
        snprintf(row.name, sizeof row.name, "%s%s", op->name, suffix);
        add(row);
    }
}

static void add_pairs(void)
{
    for (unsigned v = 0; v < pair_op_count(); v++)
        for (unsigned p = 0; p < pair_op_count(); p++) {
            struct row row = {.kind = PAIR, .victim = &pair_ops[v], .peer = &pair_ops[p]};
            snprintf(row.name, sizeof row.name, "%s x %s", row.victim->name, row.peer->name);
            add(row);
        }
}

static int usage(void)
{
    fputs("usage: sweep [--solo] [--reaper] [--pairs] [--op NAME] [--every N] [--most N]\n"
          "             [--scenes N] [--seed N] [--jobs N] [--seconds N] [--table FILE]\n"
          "             [--at K] [--point NAME] [--pause K] [--walk]\n"
          "Kills operations at their machine instructions, and asks what the survivors find.\n"
          "With none of --solo, --reaper and --pairs it does all three; see "
          "tests/sweep/README.md.\n",
          stderr);
    return 2;
}

enum { OP = 1, AT, PAUSE, POINT, EVERY, MOST, SCENES, SEED, JOBS, SECONDS, TABLE };
static const struct option known[] = {{"op", 1, NULL, OP},           {"at", 1, NULL, AT},
                                      {"pause", 1, NULL, PAUSE},     {"point", 1, NULL, POINT},
                                      {"every", 1, NULL, EVERY},     {"most", 1, NULL, MOST},
                                      {"scenes", 1, NULL, SCENES},   {"seed", 1, NULL, SEED},
                                      {"jobs", 1, NULL, JOBS},       {"table", 1, NULL, TABLE},
                                      {"seconds", 1, NULL, SECONDS}, {"solo", 0, NULL, 'l'},
                                      {"walk", 0, NULL, 'w'},        {"reaper", 0, NULL, 'r'},
                                      {"pairs", 0, NULL, 'p'},       {0}};

/* @return whether there is such an option */
static bool take_option(int which, const char *text)
{
    struct sweep_plan *plan = &options.plan;
    uint64_t number = text != NULL ? strtoull(text, NULL, 0) : 0;
    switch (which) {
    case OP:
        options.op = text;
        break;
    case AT:
        plan->at = (int64_t)number;
        break;
    case PAUSE:
        plan->pause = (int64_t)number;
        break;
    case POINT:
        plan->point = text;
        break;
    case EVERY:
        plan->every = (uint32_t)number;
        break;
    case MOST:
        plan->most = (uint32_t)number;
        options.has_most = true;
        break;
    case SCENES:
        plan->scenes = (uint32_t)number;
        options.has_scenes = true;
        break;
    case SEED:
        plan->seed = number;
        break;
    case JOBS:
        options.jobs = (unsigned)TNI_MIN(number, (uint64_t)MOST_JOBS);
        break;
    case SECONDS:
        options.seconds = (unsigned)number;
        break;
    case TABLE:
        options.table = text;
        break;
    case 'l':
        options.wants_solo = true;
        break;
    case 'r':
        options.wants_reaper = true;
        break;
    case 'w':
        options.only_walks = true;
        break;
    case 'p':
        options.wants_pairs = true;
        break;
    default:
        return false;
    }
    return true;
}

static int read_options(int argc, char **argv)
{
    for (int which; (which = getopt_long(argc, argv, "", known, NULL)) != -1;)
        if (!take_option(which, optarg))
            return usage();
    if (optind < argc || options.jobs == 0)
        return usage();
    if (!options.wants_pairs && !options.wants_reaper && !options.wants_solo)
        options.wants_pairs = options.wants_reaper = options.wants_solo = true;
    if (options.seconds != 0)
        options.plan.end_ns = tnt_now_ns() + options.seconds * UINT64_C(1000000000);
    return 0;
}

/* Whether every row was done without a failure, and some boundary was swept. */
static bool is_all_good(void)
{
    uint64_t swept = 0;
    bool is_good = print_missing(stderr);
    for (unsigned i = 0; i < row_count; i++) {
        swept += rows[i].found.swept;
        is_good = is_good && rows[i].is_good;
    }
    if (swept == 0)
        fprintf(stderr, "nothing was swept\n");
    return is_good && swept > 0;
}

/* So that the next run has the same addresses, and the same boundaries. */
static void run_without_randomization(char **argv)
{
    char path[4096] = "";
    int persona = personality(0xffffffff);
    if ((persona & ADDR_NO_RANDOMIZE) == 0 &&
        readlink("/proc/self/exe", path, sizeof path - 1) > 0 &&
        personality((unsigned long)(ADDR_NO_RANDOMIZE | persona)) != -1)
        execv(path, argv);
}

int main(int argc, char **argv)
{
    run_without_randomization(argv);
    int status = read_options(argc, argv);
    const char *why_not = tracer_why_not();
    if (status != 0)
        return status;
    if (why_not != NULL) {
        printf("nothing is swept: %s\n", why_not);
        return 77;
    }
    if (options.only_walks)
        tracer_only_walk();
#if defined(TNT_TENOND)
    setenv("TENON_TENOND", TNT_TENOND, 0);
#endif
    unsetenv("TENON_DOMAIN");
    cmocka_set_message_output(CM_OUTPUT_STDOUT);
    tni_os_bell_ring(1); /* makes the socket for bells before descriptors are counted */
    rows = sweep_share(MOST_ROWS * sizeof *rows);
    if (options.wants_solo) {
        add_operations(SOLO, "");
        add_operations(CHILD, ":child");
    }
    if (options.wants_reaper)
        add_operations(REAPER, ":reaper");
    if (options.wants_pairs)
        add_pairs();
    report_fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
    sweep_on_failure = show_failure;
    run_all();
    bool is_written = options.table == NULL || write_table(options.table);
    return is_all_good() && is_written ? 0 : 1;
}
