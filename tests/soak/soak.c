/* SPDX-License-Identifier: Apache-2.0 */
/*
 * soak: the program. As the conductor it runs for some time and audits every few seconds; with
 * --part it is one of those that the conductor, or one of its crew, started by exec.
 *
 *   soak [--minutes M] [--seconds S] [--seed N] [--kills-per-second N] [-v]
 *
 * Output is TAP: one test for each promise, and the figures as comments.
 */
#include "soak.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EXIT_NO_SEAT = 3, KILLS_PER_SECOND = 140, ROUND_S = 10, END_S = 60 };

static struct {
    double seconds;
    bool is_verbose;
} options = {20, false};

static char program[4096];
static uint64_t begun_ns;

const char *const *soak_program(const char *part, uint32_t number)
{
    static char text[16];
    static const char *argv[] = {program, "--part", NULL, text, NULL};
    snprintf(text, sizeof text, "%u", number);
    argv[2] = part;
    return argv;
}

/* ---- a part ------------------------------------------------------------------------------ */

static bool is_refusal(int status)
{
    return status == TN_ERR_FULL || status == TN_ERR_PEER_DIED || status == TN_ERR_NOT_FOUND;
}

/* NOT_FOUND is right for an object after the conductor has ended. */
static bool inherit(void)
{
    int status = tn_domain_inherit(&me.domain);
    if (status == 0)
        status = soak_open_objects(me.domain);
    if (status != 0 && !is_refusal(status))
        soak_fail_status(SOAK_ON_LIVENESS, "tn_domain_inherit", status);
    return status == 0;
}

static int play_part(const char *part, const char *number)
{
    uint32_t which = (uint32_t)strtoul(number, NULL, 10);
    int code = 0, told = (int)which;
    if (!soak_ledger_open())
        return 1;
    soak_watch_crashes();
    if (strcmp(part, "visitor") == 0)
        return soak_play(&soak->slots[which]);
    if (!inherit())
        return EXIT_NO_SEAT;
    if (strcmp(part, "crew") == 0)
        code = soak_play(&soak->slots[which]);
    else if (strcmp(part, "child") == 0)
        code = soak_be_child(me.domain, &told);
    else
        soak_serve_pool();
    if (which % 2 == 0) /* or it ends without leaving the domain */
        soak_close_objects();
    tn_domain_close(me.domain);
    return code;
}

/* ---- the conductor ----------------------------------------------------------------------- */

static int remove_entry(const char *path, const struct stat *stat, int kind, struct FTW *place)
{
    (void)stat, (void)kind, (void)place;
    return remove(path);
}

static void remove_folder(const char *folder)
{
    if (folder[0] != '\0')
        nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static bool make_folder(char *folder, const char *pattern, const char *variable)
{
    strcpy(folder, pattern);
    if (mkdtemp(folder) == NULL) {
        folder[0] = '\0';
        return false;
    }
    return setenv(variable, folder, 1) == 0;
}

static bool make_folders(void)
{
    return make_folder(soak->runtime_folder, "/tmp/tenon-soak-XXXXXX", "TENON_RUNTIME_DIR") &&
           (make_folder(soak->shm_folder, "/dev/shm/soak-XXXXXX", "TENON_SHM_DIR") ||
            make_folder(soak->shm_folder, "/tmp/soak-shm-XXXXXX", "TENON_SHM_DIR"));
}

static const char *option_value(int argc, char **argv, int *at)
{
    if (*at + 1 >= argc) {
        fprintf(stderr, "soak: %s needs a value\n", argv[*at]);
        exit(2);
    }
    return argv[++*at];
}

static void read_options(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-v") == 0)
            options.is_verbose = true;
        else if (strcmp(argv[i], "--minutes") == 0)
            options.seconds = 60 * strtod(option_value(argc, argv, &i), NULL);
        else if (strcmp(argv[i], "--seconds") == 0)
            options.seconds = strtod(option_value(argc, argv, &i), NULL);
        else if (strcmp(argv[i], "--seed") == 0)
            soak->seed = strtoull(option_value(argc, argv, &i), NULL, 0);
        else if (strcmp(argv[i], "--kills-per-second") == 0)
            soak->kills_per_second = (uint32_t)strtoul(option_value(argc, argv, &i), NULL, 10);
        else {
            fprintf(stderr, "soak: unknown option %s\n", argv[i]);
            exit(2);
        }
    }
    if (options.seconds <= 0 || soak->kills_per_second == 0) {
        fprintf(stderr, "soak: a number is out of range\n");
        exit(2);
    }
}

/*
 * Run for the time that was asked for, and longer if no process of some role has been killed
 * yet.
 */
static bool all_were_killed(void)
{
    for (int i = 0; i < SOAK_ROLE_COUNT; i++)
        if (atomic_load(&soak->kills[i]) == 0)
            return false;
    return true;
}

static void run_round(double seconds)
{
    uint64_t end_ns = soak_now_ns() + (uint64_t)(seconds * 1e9), look_ns = 0;
    while (soak_now_ns() < end_ns &&
           atomic_load(&soak->messages) < SOAK_MESSAGES - 2 * SOAK_SLOTS) {
        soak_crew_fill(me.domain);
        soak_crew_collect();
        if (soak_now_ns() > look_ns) {
            soak_crew_watch();
            look_ns = soak_now_ns() + SOAK_S_NS;
        }
        soak_await_news();
    }
    soak_crew_park();
    soak_audit_round();
}

static double since_begin(void) { return (double)(soak_now_ns() - begun_ns) / 1e9; }

static void run_all(void)
{
    while (since_begin() < options.seconds || !all_were_killed()) {
        double left = options.seconds - since_begin();
        run_round(left > 0 && left < ROUND_S ? left : ROUND_S);
        if (options.is_verbose || isatty(STDERR_FILENO))
            soak_report_progress(since_begin());
        soak_crew_resume();
    }
    soak_crew_park();
    soak_audit_round();
    soak_checked(SOAK_ON_KILLS);
    soak_checked(SOAK_ON_LIVENESS);
}

/* Check that nothing is left: no process (tenond ends after its last domain) and no file. */
static void end_all(pid_t killer)
{
    pid_t tree[16];
    uint32_t count;
    soak_crew_end();
    kill(killer, SIGKILL);
    waitpid(killer, NULL, 0);
    soak_audit_end();
    uint64_t deadline_ns = soak_now_ns() + END_S * SOAK_S_NS;
    while ((count = soak_list_tree(getpid(), tree, 16)) != 0) {
        soak_crew_collect();
        if (soak_now_ns() > deadline_ns) {
            char name[32];
            soak_process_name(tree[0], name);
            soak_fail(SOAK_ON_END, "%u processes are left: %d '%s'", count, (int)tree[0], name);
        }
        soak_await_news();
    }
    if (soak_count_files(soak->shm_folder) != 0)
        soak_fail(SOAK_ON_END, "files are left in %s", soak->shm_folder);
    soak_checked(SOAK_ON_END);
}

void soak_finish(bool passed)
{
    uint32_t wrong = passed ? (uint32_t)SOAK_PROMISE_COUNT : atomic_load(&soak->promise);
    bool all = true;
    for (uint32_t i = 0; i < SOAK_PROMISE_COUNT; i++) {
        bool holds = i != wrong && atomic_load(&soak->checks[i]) > 0;
        printf("%sok %u - %s\n", holds ? "" : "not ", i + 1, soak_promise_names[i]);
        all = all && holds;
    }
    soak_report_figures(since_begin() / 60);
    printf("# %s\n", passed ? "no discrepancy" : soak->text);
    fflush(stdout);
    remove_folder(soak->shm_folder);
    remove_folder(soak->runtime_folder);
    _exit(all ? 0 : 1);
}

static int conduct(int argc, char **argv)
{
    if (!soak_ledger_make())
        return 2;
    if (getrandom(&soak->seed, sizeof soak->seed, 0) != (ssize_t)sizeof soak->seed)
        soak->seed = soak_now_ns();
    soak->kills_per_second = KILLS_PER_SECOND;
    read_options(argc, argv);
    if (!make_folders())
        return 2;
#if defined(SOAK_TENOND_PATH)
    setenv("TENON_TENOND", SOAK_TENOND_PATH, 0);
#endif
    unsetenv("TENON_DOMAIN");
    soak->conductor_pid = getpid();
    snprintf(soak->domain, sizeof soak->domain, "soak-%d", (int)getpid());
    begun_ns = soak_now_ns();
    soak_seed(soak->seed);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    soak_watch_crashes();
    soak_tell_of_children();
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("1..%d\n# seed %#llx\n", SOAK_PROMISE_COUNT, (unsigned long long)soak->seed);
    fflush(NULL);

    atomic_store(&soak->killer_rests, 1);
    pid_t killer = soak_killer_start();
    soak_audit_begin();
    atomic_store(&soak->killer_rests, 0);
    run_all();
    end_all(killer);
    soak_finish(true);
    return 0;
}

int main(int argc, char **argv)
{
    ssize_t size = readlink("/proc/self/exe", program, sizeof program - 1);
    if (size <= 0)
        return 2;
    if (argc == 4 && strcmp(argv[1], "--part") == 0)
        /* The part leaves the objects that it has open to tenon, on purpose. */
        _exit(play_part(argv[2], argv[3]));
    return conduct(argc, argv);
}
