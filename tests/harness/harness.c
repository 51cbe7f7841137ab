/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runner forks one child for each test. The parent is the subreaper of every process that
 * a test starts, so it finds a process that outlives the test among its own children.
 *
 * The exit code of the child is the result of the test. Its output goes to a memory file,
 * which the parent prints as TAP comments when the test did not pass.
 */
#include "harness/harness.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/inside.h"

enum { MAX_TESTS = 512, EXIT_PASSED = 0, EXIT_FAILED = 1, EXIT_SKIPPED = 77 };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SLOWNESS = 4 };
#else
enum { SLOWNESS = 1 };
#endif

struct test {
    const char *name;
    tnt_test_fn *body;
    unsigned seconds;
};

static struct test tests[MAX_TESTS];
static unsigned test_count;
static uint64_t base_seed;
static unsigned default_seconds = 30;
static char folder[TNT_FOLDER_BYTES], shm_folder[TNT_FOLDER_BYTES];

/* In the child. */
static const struct test *current;
static bool body_returned;
static const int crash_signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGSYS};
static struct sigaction crash_actions[sizeof crash_signals / sizeof crash_signals[0]];

/* In the parent: the process group that is killed when the parent is told to end. */
static volatile sig_atomic_t running_group;

void tnt_register(const char *name, tnt_test_fn *body, unsigned seconds)
{
    if (test_count == MAX_TESTS) {
        fprintf(stderr, "more than %d tests in one program\n", MAX_TESTS);
        exit(EXIT_FAILED);
    }
    tests[test_count++] = (struct test){name, body, seconds};
}

const char *tnt_folder(void) { return folder; }

const char *tnt_shm_folder(void) { return shm_folder; }

const char *tnt_name(void) { return current->name; }

/* A note begins with the mark of a TAP comment, by which replay() finds it in the output. */
void tnt_note(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("# ");
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
}

/* Why the last test was skipped, or "". */
static char skip_reason[200];
#define SKIP_MARK "skipped: "

void tnt_skip(const char *reason)
{
    snprintf(skip_reason, sizeof skip_reason, "%s", reason);
    printf(SKIP_MARK "%s\n", reason);
    skip();
    abort(); /* skip() does not return */
}

/* ---- in the child ------------------------------------------------------------------------ */

/*
 * cmocka catches the signals of crashes. We keep the old handlers, so that a crash ends the
 * child with its signal, and a sanitizer prints its report.
 */
static void keep_crash_signals(void)
{
    for (size_t i = 0; i < sizeof crash_signals / sizeof crash_signals[0]; i++)
        sigaction(crash_signals[i], NULL, &crash_actions[i]);
}

static void restore_crash_signals(void)
{
    for (size_t i = 0; i < sizeof crash_signals / sizeof crash_signals[0]; i++)
        sigaction(crash_signals[i], &crash_actions[i], NULL);
}

static void run_body(void **state)
{
    (void)state;
    restore_crash_signals();
    struct tnt_traces before;
    tnt_traces_take(&before);
    current->body();
    if (tnt_traces_compare(&before) > 0)
        fail_msg("the test left something behind");
    body_returned = true;
}

static uint64_t hash_name(const char *name)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (; *name != '\0'; name++)
        hash = (hash ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return hash;
}

static int run_here(const struct test *test)
{
    current = test;
    body_returned = false;
    tnt_seed(base_seed ^ hash_name(test->name));
    keep_crash_signals();

    pid_t self = getpid();
    const struct CMUnitTest one[] = {{test->name, run_body, NULL, NULL, NULL}};
    int failures = cmocka_run_group_tests_name(test->name, one, NULL, NULL);
    fflush(NULL);
    if (getpid() != self) /* an assertion failed in a process that the test forked */
        _exit(EXIT_FAILED);
    if (failures != 0)
        return EXIT_FAILED;
    return body_returned ? EXIT_PASSED : EXIT_SKIPPED;
}

static void become_child(pid_t parent, int output_fd)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(EXIT_FAILED);
    dup2(output_fd, STDOUT_FILENO);
    dup2(output_fd, STDERR_FILENO);
    close(output_fd);
    signal(SIGTERM, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* ---- in the parent ----------------------------------------------------------------------- */

static bool is_traced(void)
{
    char line[256];
    bool traced = false;
    FILE *status = fopen("/proc/self/status", "re");
    while (status != NULL && fgets(line, sizeof line, status) != NULL) {
        if (strncmp(line, "TracerPid:", 10) == 0)
            traced = strtol(line + 10, NULL, 10) != 0;
    }
    if (status != NULL)
        fclose(status);
    return traced;
}

static uint64_t deadline_of(const struct test *test)
{
    unsigned seconds = test->seconds != 0 ? test->seconds : default_seconds;
    if (default_seconds == 0)
        return UINT64_MAX;
    return tnt_now_ns() + (uint64_t)seconds * SLOWNESS * UINT64_C(1000000000);
}

/* Print the whole output as TAP comments, or only the notes, which are comments already. */
static void replay(int fd, bool notes_only)
{
    char text[4096];
    bool at_start = true, is_note = false;
    lseek(fd, 0, SEEK_SET);
    for (ssize_t size; (size = read(fd, text, sizeof text)) > 0;) {
        for (ssize_t i = 0; i < size; i++) {
            if (at_start)
                is_note = text[i] == '#';
            if (at_start && !is_note && !notes_only)
                fputs("# ", stdout);
            if (is_note || !notes_only)
                putchar(text[i]);
            at_start = text[i] == '\n';
        }
    }
    if (!at_start)
        putchar('\n');
}

/* Read the reason that the child printed in tnt_skip(). */
static void read_skip_reason(int output_fd)
{
    char line[4096];
    FILE *output = fdopen(dup(output_fd), "r");
    if (output == NULL)
        return;
    rewind(output);
    while (fgets(line, sizeof line, output) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, SKIP_MARK, strlen(SKIP_MARK)) == 0)
            snprintf(skip_reason, sizeof skip_reason, "%.190s", line + strlen(SKIP_MARK));
    }
    fclose(output);
}

static int verdict_of(bool ended, int status, int output_fd)
{
    if (!ended)
        return EXIT_FAILED;
    if (WIFSIGNALED(status)) {
        dprintf(output_fd, "killed by signal %d (%s)\n", WTERMSIG(status),
                strsignal(WTERMSIG(status)));
        return EXIT_FAILED;
    }
    int code = WEXITSTATUS(status);
    if (code != EXIT_PASSED && code != EXIT_SKIPPED && code != EXIT_FAILED)
        dprintf(output_fd, "exited with %d\n", code);
    return code;
}

static int watch(const struct test *test, pid_t child, int output_fd)
{
    int status = 0;
    bool ended = tnt_collect(child, deadline_of(test), &status);
    if (!ended) {
        dprintf(output_fd, "timed out; what was running:\n");
        tnt_describe_group(child, output_fd);
        kill(-child, SIGKILL);
        tnt_collect(child, UINT64_MAX, &status);
    }
    int verdict = verdict_of(ended, status, output_fd);
    if (tnt_end_descendants(child, output_fd) > 0)
        verdict = EXIT_FAILED;
    return verdict;
}

static int run_in_child(const struct test *test)
{
    int output_fd = memfd_create("test-output", MFD_CLOEXEC);
    snprintf(folder, sizeof folder, "/tmp/tnt-XXXXXX");
    if (output_fd < 0 || mkdtemp(folder) == NULL || !tnt_shm_make(shm_folder)) {
        printf("# no place to run in: %s\n", strerror(errno));
        return EXIT_FAILED;
    }
    setenv("TENON_RUNTIME_DIR", folder, 1);
    setenv("TENON_SHM_DIR", shm_folder, 1);

    fflush(NULL);
    pid_t parent = getpid();
    pid_t child = fork();
    if (child == 0) {
        become_child(parent, output_fd);
        exit(run_here(test));
    }
    int verdict = EXIT_FAILED;
    if (child > 0) {
        setpgid(child, child);
        running_group = child;
        verdict = watch(test, child, output_fd);
        running_group = 0;
    }
    if (tnt_shm_list(shm_folder, output_fd) > 0)
        verdict = EXIT_FAILED;
    if (verdict == EXIT_SKIPPED)
        read_skip_reason(output_fd);
    replay(output_fd, verdict == EXIT_PASSED);
    close(output_fd);
    tnt_remove_folder(folder);
    tnt_remove_folder(shm_folder);
    return verdict;
}

static void end_with_group(int number)
{
    if (running_group != 0)
        kill(-(pid_t)running_group, SIGKILL);
    _exit(128 + number);
}

static bool is_wanted(const struct test *test, int argc, char **argv)
{
    bool wanted = argc < 2 || argv[1][0] == '!';
    for (int i = 1; i < argc; i++)
        if (strstr(test->name, argv[i] + (argv[i][0] == '!')) != NULL)
            wanted = argv[i][0] != '!';
    return wanted;
}

static void read_environment(void)
{
    const char *seed = getenv("TN_TEST_SEED");
    if (seed != NULL)
        base_seed = strtoull(seed, NULL, 0);
    else if (getrandom(&base_seed, sizeof base_seed, 0) != (ssize_t)sizeof base_seed)
        base_seed = tnt_now_ns();

    const char *seconds = getenv("TN_TEST_TIMEOUT");
    if (seconds != NULL)
        default_seconds = (unsigned)strtoul(seconds, NULL, 10);
    if (is_traced())
        default_seconds = 0;

#if defined(TNT_TENOND)
    setenv("TENON_TENOND", TNT_TENOND, 0);
#endif
    unsetenv("CMOCKA_MESSAGE_OUTPUT");
    unsetenv("TENON_DOMAIN");
    cmocka_set_message_output(CM_OUTPUT_STDOUT);
}

int main(int argc, char **argv)
{
    read_environment();
    const char *no_fork = getenv("TN_TEST_NO_FORK");
    bool forks = no_fork == NULL || no_fork[0] != '1';
    unsigned wanted_count = 0, number = 0, failures = 0;
    for (unsigned i = 0; i < test_count; i++)
        wanted_count += is_wanted(&tests[i], argc, argv);

    tnt_adopt();
    signal(SIGTERM, end_with_group);
    signal(SIGINT, end_with_group);
    printf("1..%u\n# TN_TEST_SEED=%#llx\n", wanted_count, (unsigned long long)base_seed);
    for (unsigned i = 0; i < test_count; i++) {
        if (!is_wanted(&tests[i], argc, argv))
            continue;
        skip_reason[0] = '\0';
        int verdict = forks ? run_in_child(&tests[i]) : run_here(&tests[i]);
        bool passed = verdict == EXIT_PASSED || verdict == EXIT_SKIPPED;
        failures += !passed;
        bool skipped = verdict == EXIT_SKIPPED;
        printf("%s %u - %s%s%s\n", passed ? "ok" : "not ok", ++number, tests[i].name,
               skipped ? " # SKIP " : "", skipped ? skip_reason : "");
        fflush(stdout);
    }
    return failures > 0 ? EXIT_FAILED : EXIT_PASSED;
}
