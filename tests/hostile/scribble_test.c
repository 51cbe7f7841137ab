/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A member that writes noise over the control segment, and over the tables in the arena, while
 * others work, and tenond and the tool read it.
 *
 * The workers get errors or go on; none crashes, none hangs, all can leave. tenond lives and
 * serves other domains; processes outside of the domain are not harmed; the memory is released.
 *
 *   TN_HOSTILE_SECONDS=n  for each test; default 0, which is one round, and 1 with TN_TEST_FULL
 *   TN_HOSTILE_GDB=1      show where a worker crashed or hung
 * A failure prints its seed: TN_TEST_SEED=n scribble_test NAME repeats the numbers, though not
 * the timing.
 */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/tensor.h"
#include "world.h"

/*
 * A process keeps one socket for ringing bells. It is made here, before a test counts
 * descriptors.
 */
__attribute__((constructor)) static void ring_once(void) { tni_os_bell_ring(1); }

#define MS_NS UINT64_C(1000000)
enum {
    ROUND_MS = 400,
    WROTE_MS = 15000, /* a round goes on until something was written, but no longer than this */
    TOOL_MS = 30000,
    LEAVE_MS = 60000,
    FREED_MS = 15000,
    SERVED_MS = 5000,
};

static uint64_t seconds(void)
{
    const char *text = getenv("TN_HOSTILE_SECONDS");
    return text != NULL ? strtoull(text, NULL, 10) : tnt_is_full();
}

/* ---- tenond, and processes of other domains ---------------------------------------------- */

/* Send a request that finds no domain. @return the pid of tenond */
static int32_t ask_tenond(void)
{
    struct tni_request request = {.magic = TNI_REQUEST_MAGIC,
                                  .version = TNI_REQUEST_VERSION,
                                  .verb = TNI_REQUEST_FIND,
                                  .name = "nobody"};
    struct tni_reply reply;
    uint32_t fd_count = 0;
    int fd;
    TN_CHECK_OK(tni_os_connect(TNI_MANAGER_SOCKET, &fd));
    TN_CHECK_OK(tni_os_send(fd, &request, sizeof request, NULL, 0));
    int got = tni_os_receive(fd, &(struct tni_os_buffer){&reply, sizeof reply, NULL, 0},
                             tnt_until_ns(SERVED_MS), &fd_count);
    TN_CHECK(got == (int)sizeof reply && reply.status == TN_ERR_NOT_FOUND);
    tni_os_close(fd);
    return reply.pid;
}

struct neighbours {
    tn_domain *domain; /* another domain of the same tenond */
    tn_tensor *file, *block;
    char path[256];
    pid_t bystander; /* a process in no domain */
    int32_t tenond;
};

static int stand_by(void *argument)
{
    (void)argument;
    pause();
    return 0;
}

static void move_in(struct neighbours *n)
{
    static const tn_domain_options options = {.struct_size = sizeof options,
                                              .quota_bytes = 16 << 20,
                                              .seats = 8,
                                              .blocks = 128,
                                              .objects = 8,
                                              .tickets = 8};
    const tn_tensor_options as_file = {.struct_size = sizeof as_file,
                                       .strategy = TN_STRATEGY_FILE_SYSTEM};
    const int64_t bytes = 1000;
    n->bystander = tnt_fork(stand_by, NULL);
    TN_CHECK_OK(tn_domain_open("neighbour", &options, TN_OPEN_NEW, &n->domain));
    TN_CHECK_OK(tn_tensor_create(n->domain, TN_UINT8, 1, &bytes, &as_file, &n->file));
    TN_CHECK_OK(tn_tensor_create(n->domain, TN_UINT8, 1, &bytes,
                                 TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED),
                                 &n->block));
    snprintf(n->path, sizeof n->path, "%s", tnt_info(n->file).path);
    n->tenond = ask_tenond();
}

static void expect_unharmed(struct neighbours *n)
{
    assert_int_equal(kill(n->bystander, 0), 0);
    assert_int_equal(waitpid(n->bystander, NULL, WNOHANG), 0);
    assert_int_equal(access(n->path, F_OK), 0);
    assert_int_equal(ask_tenond(), n->tenond);
    tn_domain *again;
    TN_CHECK_OK(tn_domain_open("neighbour", NULL, TN_OPEN_EXISTING, &again));
    tn_domain_close(again);
    TNT_AUDIT(n->domain);
}

static void move_out(struct neighbours *n)
{
    tnt_kill(n->bystander);
    tn_tensor_unref(n->file);
    tn_tensor_unref(n->block);
    tn_domain_close(n->domain);
}

/* ---- the tool ---------------------------------------------------------------------------- */

static pid_t start_tool(const char *verb, const char *name, bool is_silent)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (is_silent) {
            dup2(null_fd, STDOUT_FILENO);
            dup2(null_fd, STDERR_FILENO);
        }
        execl(TNT_TENON, "tenon", verb, strcmp(verb, "ls") == 0 ? NULL : name, (char *)NULL);
        _exit(127);
    }
    return pid;
}

/* Run one verb of the tool after the other; each must exit by itself. */
static int run_tools(void *argument)
{
    static const char *const verbs[] = {"ls", "stat", "blocks", "tickets", "doctor"};
    const struct board *board = argument;
    for (uint32_t i = 0; atomic_load(&board->stop) == 0; i++) {
        const char *verb = verbs[i % TNI_COUNT(verbs)];
        pid_t pid = start_tool(verb, board->name, true);
        int status, pid_fd;
        TN_CHECK_OK(tni_os_process_open(pid, &pid_fd));
        if (tni_os_poll(&pid_fd, 1, tnt_until_ns(TOOL_MS)) != 0) {
            printf("tenon %s hangs\n", verb);
            kill(pid, SIGKILL);
            return 1;
        }
        tni_os_close(pid_fd);
        status = tnt_wait(pid);
        if (!WIFEXITED(status) || WEXITSTATUS(status) == 127) {
            printf("tenon %s ended with status %#x\n", verb, status);
            return 1;
        }
    }
    return 0;
}

/* ---- the judge --------------------------------------------------------------------------- */

static void show_stack(pid_t pid)
{
    char command[128];
    snprintf(command, sizeof command, "gdb -p %d -batch -ex bt 2>&1 | grep '^#'", (int)pid);
    fflush(NULL);
    if (getenv("TN_HOSTILE_GDB") != NULL && system(command) != 0)
        printf("no gdb\n");
}

/*
 * If a call does not return in time, the test ends here, and the process stays in it for a
 * debugger.
 */
static void look_at_desks(struct board *board)
{
    for (uint32_t i = 0; i < WORKERS; i++) {
        struct desk *desk = &board->desks[i];
        const char *doing = atomic_load(&desk->doing);
        uint64_t since_ns = atomic_load(&desk->since_ns), now_ns = tni_os_now_ns();
        if (doing == NULL || now_ns <= atomic_load(&desk->limit_ns) + 1000 * MS_NS ||
            atomic_load(&desk->doing) != doing || atomic_load(&desk->since_ns) != since_ns)
            continue;
        show_stack((pid_t)atomic_load(&desk->pid));
        fail_msg("worker %u has been in %s for %llu ms", i, doing,
                 (unsigned long long)((now_ns - since_ns) / MS_NS));
    }
}

/* Check the desks until the process ends. */
static void await_end(struct board *board, pid_t pid, uint64_t deadline_ns)
{
    int pid_fd;
    TN_CHECK_OK(tni_os_process_open(pid, &pid_fd));
    while (tni_os_poll(&pid_fd, 1, tnt_until_ns(100)) == TN_ERR_TIMED_OUT) {
        look_at_desks(board);
        if (tni_os_now_ns() >= deadline_ns)
            fail_msg("process %d did not end", (int)pid);
    }
    tni_os_close(pid_fd);
    tnt_wait_ok(pid);
}

struct totals {
    uint64_t rounds, writes, calls, errors, longest_ns;
    const char *longest;
};

static void add_up(struct totals *totals, const struct board *board)
{
    totals->rounds++;
    totals->writes += atomic_load(&board->writes);
    for (uint32_t i = 0; i < WORKERS; i++) {
        totals->calls += atomic_load(&board->desks[i].calls);
        totals->errors += atomic_load(&board->desks[i].errors);
        if (atomic_load(&board->desks[i].longest_ns) > totals->longest_ns) {
            totals->longest_ns = atomic_load(&board->desks[i].longest_ns);
            totals->longest = atomic_load(&board->desks[i].longest);
        }
    }
}

static void run_round(struct board *board, enum section section, uint32_t number)
{
    *board = (struct board){.seed = tnt_random()};
    snprintf(board->name, sizeof board->name, "house%u", number);
    struct round rounds[WORKERS + 1];
    pid_t pids[WORKERS], scribbler, tools;
    struct tnt_signal ready = tnt_signal_open();
    for (uint32_t i = 0; i <= WORKERS; i++) {
        rounds[i] = (struct round){board, section, i, ready};
        if (i < WORKERS) {
            pids[i] = tnt_fork(i == 0 ? found : work, &rounds[i]);
            tnt_await(&ready);
        }
    }
    tools = tnt_fork(run_tools, board);
    scribbler = tnt_fork(scribble, &rounds[WORKERS]);
    tnt_await(&ready);
    int none = -1;
    uint64_t end_ns = tnt_until_ns(ROUND_MS), wrote_by_ns = tnt_until_ns(WROTE_MS);
    while (tni_os_now_ns() < end_ns ||
           (atomic_load(&board->writes) == 0 && tni_os_now_ns() < wrote_by_ns)) {
        tni_os_poll(&none, 1, tnt_until_ns(20));
        look_at_desks(board);
    }
    atomic_store(&board->stop, 1);
    await_end(board, scribbler, tnt_until_ns(LEAVE_MS));
    for (uint32_t i = 0; i < WORKERS; i++)
        await_end(board, pids[i], tnt_until_ns(LEAVE_MS));
    await_end(board, tools, tnt_until_ns(LEAVE_MS));
    tnt_signal_close(&ready);
}

/* Count the files of file_system storages, without those of the other domain. */
static unsigned count_files(const char *but_for)
{
    unsigned count = 0;
    DIR *folder = opendir(tnt_shm_folder());
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        count += entry->d_name[0] != '.' && strstr(but_for, entry->d_name) == NULL;
    closedir(folder);
    return count;
}

/* Whether a process has a domain of this test mapped, and which. */
static bool has_house(int32_t pid, char name[32])
{
    char path[64], line[512];
    bool has = false;
    snprintf(path, sizeof path, "/proc/%d/maps", pid);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL)
        if (strstr(line, "tenon-control:house") != NULL) {
            has = true;
            snprintf(name, 32, "%.31s", strstr(line, "house"));
            name[strcspn(name, " \n")] = 0;
        }
    fclose(file);
    return has;
}

static void await_freed(const struct neighbours *n)
{
    uint64_t deadline_ns = tnt_until_ns(FREED_MS);
    int none = -1;
    char name[32] = "no domain";
    while (has_house(n->tenond, name) || count_files(n->path) > 0) {
        if (tni_os_now_ns() >= deadline_ns) {
            tnt_wait(start_tool("stat", name, false));
            tnt_wait(start_tool("doctor", name, false));
            fail_msg("all have left; tenond still has %s, and %u files are left", name,
                     count_files(n->path));
        }
        tni_os_poll(&none, 1, tnt_until_ns(20));
    }
}

static void scribble_at(enum section section)
{
    struct neighbours neighbours;
    struct totals totals = {.longest = "none"};
    struct board *board =
        mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(board != MAP_FAILED);
    move_in(&neighbours);
    uint64_t end_ns = tnt_until_ns((unsigned)seconds() * 1000);
    for (uint32_t number = 0; number == 0 || tni_os_now_ns() < end_ns; number++) {
        run_round(board, section, number);
        add_up(&totals, board);
        expect_unharmed(&neighbours);
    }
    await_freed(&neighbours);
    move_out(&neighbours);
    tnt_note("%llu rounds, %llu writes, %llu calls, %llu errors; longest %llu ms: %.60s",
             (unsigned long long)totals.rounds, (unsigned long long)totals.writes,
             (unsigned long long)totals.calls, (unsigned long long)totals.errors,
             (unsigned long long)(totals.longest_ns / MS_NS), totals.longest);
    assert_true(totals.writes > 0 && totals.calls > 0);
    munmap(board, sizeof *board);
}

/* ---- section by section ------------------------------------------------------------------ */

#define SCRIBBLE_TEST(name, section)                                                           \
    TN_TEST_WITHIN(name, 86400) { scribble_at(section); }

SCRIBBLE_TEST(noise_in_the_header_crashes_and_hangs_no_process, SECTION_HEADER)
SCRIBBLE_TEST(noise_in_seats_crashes_and_hangs_no_process, SECTION_SEATS)
SCRIBBLE_TEST(noise_in_announces_crashes_and_hangs_no_process, SECTION_ANNOUNCES)
SCRIBBLE_TEST(noise_in_size_classes_crashes_and_hangs_no_process, SECTION_CLASSES)
SCRIBBLE_TEST(noise_in_block_words_crashes_and_hangs_no_process, SECTION_WORDS)
SCRIBBLE_TEST(noise_in_descriptions_crashes_and_hangs_no_process, SECTION_DESCS)
SCRIBBLE_TEST(noise_in_hints_crashes_and_hangs_no_process, SECTION_HINTS)
SCRIBBLE_TEST(noise_in_suspects_crashes_and_hangs_no_process, SECTION_SUSPECTS)
SCRIBBLE_TEST(noise_in_rows_crashes_and_hangs_no_process, SECTION_ROWS)
SCRIBBLE_TEST(noise_in_objects_crashes_and_hangs_no_process, SECTION_OBJECTS)
SCRIBBLE_TEST(noise_in_tickets_crashes_and_hangs_no_process, SECTION_TICKETS)
SCRIBBLE_TEST(noise_in_names_crashes_and_hangs_no_process, SECTION_NAMES)
SCRIBBLE_TEST(noise_in_rows_of_objects_crashes_and_hangs_no_process, SECTION_OPENS)
SCRIBBLE_TEST(noise_in_rings_crashes_and_hangs_no_process, SECTION_RINGS)
SCRIBBLE_TEST(noise_in_message_blocks_crashes_and_hangs_no_process, SECTION_MESSAGES)
SCRIBBLE_TEST(noise_everywhere_crashes_and_hangs_no_process, SECTION_COUNT)
