/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a process of another user, which is not root, can see and reach of a domain.
 * bad_input_test and outside_path_test show that it cannot join a domain by its descriptors,
 * nor open the file of a storage.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/harness.h"
#include "harness/tensor.h"
#include "reaper/reaper.h"

enum { NOBODY = 65534, OWNER = 65533 };

/*
 * The programs that other users run are copies, because the folder of the build may be closed
 * to them.
 */
static char programs[64], copied_tool[128];

__attribute__((constructor)) static void ring_once(void) { tni_os_bell_ring(1); }

struct house {
    char folder[256]; /* runtime folder of the owner */
    char shm_folder[256];
    char file[256]; /* of a file_system storage */
    uint8_t handle[1024];
    size_t handle_bytes;
    int32_t tenond, owner;
    int control_fd, arena_fd; /* numbers in the owner */
    struct tnt_signal is_ready, may_end;
};

static void become(uid_t uid)
{
    TN_CHECK(setgroups(0, NULL) == 0);
    TN_CHECK(setgid(uid) == 0 && setuid(uid) == 0);
    TN_CHECK(getuid() == uid && geteuid() == uid);
}

/* ---- the user of the domain, who is not root --------------------------------------------- */

static int live(void *argument)
{
    struct house *house = argument;
    const tn_tensor_options options = {.struct_size = sizeof options,
                                       .strategy = TN_STRATEGY_FILE_SYSTEM};
    const int64_t bytes = 100;
    tn_domain *d;
    tn_tensor *file, *block;
    become(OWNER);
    setenv("TENON_RUNTIME_DIR", house->folder, 1);
    setenv("TENON_SHM_DIR", house->shm_folder, 1);
    TN_CHECK_OK(tn_domain_open("secret-house", NULL, TN_OPEN_NEW, &d));
    TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, &bytes, &options, &file));
    TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, &bytes,
                                 TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED),
                                 &block));
    snprintf(house->file, sizeof house->file, "%s", tnt_info(file).path);
    TN_CHECK_OK(tn_handle_export(block, NULL, house->handle, sizeof house->handle,
                                 &house->handle_bytes));
    uint64_t who = atomic_load(&d->segment.header->manager);
    house->tenond = atomic_load(&tni_seat_at(&d->segment, tni_who_seat(who))->pid);
    house->owner = getpid();
    house->control_fd = d->segment.control_fd;
    house->arena_fd = d->segment.arena_fd;
    tnt_signal(&house->is_ready);
    tnt_await(&house->may_end);
    /* Check that nothing of what the other user tried had an effect. */
    TNT_AUDIT(d);
    assert_int_equal(tni_process_count(&d->segment), 1);
    assert_int_equal(((const uint8_t *)tn_tensor_data(block))[0], 0);
    tn_tensor_unref(file);
    tn_tensor_unref(block);
    tn_domain_close(d);
    return 0;
}

/* ---- the other one ----------------------------------------------------------------------- */

static int fail_if_found(const tn_domain_entry *domain, void *context)
{
    (void)context;
    printf("it sees the domain '%s'\n", domain->name);
    return 1;
}

/* Try to find the domain by name and by id, in the owner's folder and in its own. */
static void try_to_join(const struct house *house)
{
    tn_domain *d = NULL;
    tn_inspector *inspector = NULL;
    for (int i = 0; i < 2; i++) {
        if (i == 0)
            setenv("TENON_RUNTIME_DIR", house->folder, 1);
        else
            unsetenv("TENON_RUNTIME_DIR");
        int status = tn_domain_open("secret-house", NULL, TN_OPEN_EXISTING, &d);
        printf("join: %s: %s\n", tn_status_name(status), tn_error_detail());
        TN_CHECK(status == TN_ERR_DENIED || status == TN_ERR_NOT_FOUND);
        TN_CHECK(tn_error_detail()[0] != 0);
        status = tn_inspector_open("secret-house", &inspector);
        TN_CHECK(status == TN_ERR_DENIED || status == TN_ERR_NOT_FOUND);
        TN_CHECK(tn_inspect_domains(fail_if_found, NULL) <= 0);
    }
}

static void expect_denied(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC);
    if (fd >= 0 || (errno != EACCES && errno != EPERM)) {
        printf("open(%s): %s\n", path, fd >= 0 ? "it can" : strerror(errno));
        bool is_denied = false;
        TN_CHECK(is_denied);
    }
}

/* /proc shows that the owner and tenond run, and no more. */
static void look_into(int32_t pid, const struct house *house)
{
    const int numbers[] = {house->control_fd, house->arena_fd};
    char path[128], target[256];
    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    TN_CHECK(opendir(path) == NULL && errno == EACCES);
    for (size_t i = 0; i < TNI_COUNT(numbers); i++) {
        snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, numbers[i]);
        expect_denied(path, O_RDWR);
        expect_denied(path, O_RDONLY);
        TN_CHECK(readlink(path, target, sizeof target) < 0 && errno == EACCES);
    }
    snprintf(path, sizeof path, "/proc/%d/maps", pid);
    expect_denied(path, O_RDONLY);
    snprintf(path, sizeof path, "/proc/%d/mem", pid);
    expect_denied(path, O_RDONLY);
    snprintf(path, sizeof path, "/proc/%d/map_files", pid);
    TN_CHECK(opendir(path) == NULL && (errno == EACCES || errno == EPERM));
}

static void look_into_folder(const struct house *house)
{
    char path[512];
    TN_CHECK(opendir(house->folder) == NULL && errno == EACCES);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%.80s/" TNI_MANAGER_SOCKET,
             house->folder);
    TN_CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) != 0 && errno == EACCES);
    close(fd);
    snprintf(path, sizeof path, "%s/" TNI_MANAGER_LOCK, house->folder);
    expect_denied(path, O_RDWR);
}

static void open_storage(const struct house *house)
{
    tn_tensor *t;
    expect_denied(house->file, O_RDONLY);
    expect_denied(house->file, O_RDWR);
    TN_CHECK(tn_tensor_open_path(house->file, &t) == TN_ERR_DENIED);
    TN_CHECK(tn_error_detail()[0] != 0);
    TN_CHECK(unlink(house->file) != 0);
}

/* Work in a domain of its own. */
static void import_handle(const struct house *house)
{
    static const tn_domain_options options = {.struct_size = sizeof options,
                                              .quota_bytes = 1 << 20,
                                              .seats = 4,
                                              .blocks = 64,
                                              .objects = 4,
                                              .tickets = 4,
                                              .flags = TN_DOMAIN_NO_MANAGER};
    tn_domain *own;
    tn_tensor *t;
    TN_CHECK_OK(tn_domain_open(NULL, &options, 0, &own));
    TN_CHECK(tn_handle_import(own, house->handle, house->handle_bytes, &t) < 0);
    tn_domain_close(own);
}

/* Run the tool, and search its output for the name. */
static void run_tool(const char *verb, const char *argument)
{
    char text[4096];
    int ends[2], status;
    TN_CHECK(pipe(ends) == 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        execl(copied_tool, "tenon", verb, argument, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    size_t used = 0;
    for (ssize_t got; used < sizeof text - 1 &&
                      (got = read(ends[0], text + used, sizeof text - 1 - used)) > 0;)
        used += (size_t)got;
    text[used] = 0;
    close(ends[0]);
    TN_CHECK(waitpid(pid, &status, 0) == pid);
    printf("tenon %s: %s\n", verb, text);
    TN_CHECK(WIFEXITED(status) && WEXITSTATUS(status) != 127);
    if (argument == NULL)
        TN_CHECK(strstr(text, "secret") == NULL);
    else
        TN_CHECK(WEXITSTATUS(status) != 0 && used > 0);
}

static int pry(void *argument)
{
    const struct house *house = argument;
    become(NOBODY);
    setenv("TENON_SHM_DIR", house->shm_folder, 1);
    try_to_join(house);
    look_into(house->owner, house);
    look_into(house->tenond, house);
    look_into_folder(house);
    open_storage(house);
    import_handle(house);
    unsetenv("TENON_RUNTIME_DIR");
    run_tool("ls", NULL);
    run_tool("stat", "secret-house");
    run_tool("doctor", "secret-house");
    return 0;
}

static void make_folder(char *path, size_t size_bytes, const char *what)
{
    snprintf(path, size_bytes, "/tmp/tnt-%s-XXXXXX", what);
    TN_CHECK(mkdtemp(path) != NULL && chown(path, OWNER, OWNER) == 0);
}

/* Remove the folder with everything that is left in it. */
static void remove_folder(const char *path)
{
    char name[512];
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        snprintf(name, sizeof name, "%.200s/%.200s", path, entry->d_name);
        unlink(name);
    }
    if (folder != NULL)
        closedir(folder);
    rmdir(path);
}

static void copy_program(const char *from, const char *name, char *ret_to, size_t size_bytes)
{
    char bytes[1 << 16];
    snprintf(ret_to, size_bytes, "%s/%s", programs, name);
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = open(ret_to, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
    TN_CHECK(in >= 0 && out >= 0 && fchmod(out, 0755) == 0);
    for (ssize_t got; (got = read(in, bytes, sizeof bytes)) != 0;)
        TN_CHECK(got > 0 && write(out, bytes, (size_t)got) == got);
    close(in);
    close(out);
}

static void copy_programs(void)
{
    char path[128];
    snprintf(programs, sizeof programs, "/tmp/tnt-programs-XXXXXX");
    TN_CHECK(mkdtemp(programs) != NULL && chmod(programs, 0755) == 0);
    copy_program(TNT_LIBTENON, "libtenon.so.1", path, sizeof path);
    copy_program(TNT_TENON, "tenon", copied_tool, sizeof copied_tool);
    copy_program(getenv("TENON_TENOND"), "tenond", path, sizeof path);
    setenv("TENON_TENOND", path, 1);
    setenv("LD_LIBRARY_PATH", programs, 1);
}

/* ---- a setuid program of the owner, which another user starts -----------------------------
 */

enum { HAS_NO_MORE_RIGHTS = 77 };

/* Run this in the setuid copy of this program. @return its exit status */
static int be_privileged(void)
{
    tn_domain *d = NULL;
    if (getauxval(AT_SECURE) == 0)
        return HAS_NO_MORE_RIGHTS;
    if (tn_strategy_get() != TN_STRATEGY_ARENA)
        return 2;
    if (tn_domain_inherit(&d) != TN_ERR_NOT_FOUND)
        return 3;
    /* Making a domain fails where no tenond is installed. */
    tn_domain_close(tn_domain_open("privileged", NULL, 0, &d) == 0 ? d : NULL);
    return 0;
}

__attribute__((constructor)) static void be_privileged_if_asked(void)
{
    if (getenv("OTHER_USER_TEST_IS_PRIVILEGED") != NULL)
        _exit(be_privileged());
}

static int start_privileged(void *argument)
{
    const char *program = argument;
    char path[128];
    become(NOBODY);
    snprintf(path, sizeof path, "%s/chosen", programs);
    setenv("TENON_TENOND", path, 1);
    setenv("TENON_STRATEGY", "file_system", 1);
    setenv("TENON_DOMAIN", "no descriptors", 1);
    setenv("OTHER_USER_TEST_IS_PRIVILEGED", "1", 1);
    execl(program, program, (char *)NULL);
    return 1;
}

TN_TEST_WITHIN(a_setuid_program_ignores_what_its_user_names, 60)
{
    char program[128], chosen[128], mark[128];
    if (geteuid() != 0)
        tnt_skip("only root can make a setuid program of another user");
    snprintf(programs, sizeof programs, "/tmp/tnt-programs-XXXXXX");
    TN_CHECK(mkdtemp(programs) != NULL && chmod(programs, 01777) == 0);
    copy_program("/proc/self/exe", "privileged", program, sizeof program);
    TN_CHECK(chown(program, OWNER, OWNER) == 0 && chmod(program, 04755) == 0);
    /*
     * The program that the user names in the environment would leave a mark if it were
     * started.
     */
    snprintf(chosen, sizeof chosen, "%s/chosen", programs);
    snprintf(mark, sizeof mark, "%s/mark", programs);
    FILE *script = fopen(chosen, "we");
    TN_CHECK(script != NULL);
    TN_CHECK(fprintf(script, "#!/bin/sh\ntouch %s\nexit 1\n", mark) > 0);
    TN_CHECK(fclose(script) == 0 && chmod(chosen, 0755) == 0);

    int status = -1;
    pid_t pid = tnt_fork(start_privileged, program);
    TN_CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    bool has_mark = access(mark, F_OK) == 0;
    rmdir("/tmp/tenon-65533"); /* the runtime folder of OWNER, if it is empty */
    remove_folder(programs);
    if (WEXITSTATUS(status) == HAS_NO_MORE_RIGHTS)
        tnt_skip("the file system of /tmp has no setuid programs");
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_false(has_mark);
}

TN_TEST_WITHIN(another_user_cannot_join_read_or_see_a_domain, 60)
{
    if (geteuid() != 0)
        tnt_skip("only root can become another user");
    copy_programs();
    struct house *house =
        mmap(NULL, sizeof *house, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(house != MAP_FAILED);
    make_folder(house->folder, sizeof house->folder, "run");
    make_folder(house->shm_folder, sizeof house->shm_folder, "shm");
    TN_CHECK(chmod(house->shm_folder, 01777) == 0);
    house->is_ready = tnt_signal_open();
    house->may_end = tnt_signal_open();
    pid_t owner = tnt_fork(live, house);
    tnt_await(&house->is_ready);
    tnt_wait_ok(tnt_fork(pry, house));
    tnt_signal(&house->may_end);
    tnt_wait_ok(owner);
    tnt_signal_close(&house->is_ready);
    tnt_signal_close(&house->may_end);
    remove_folder(house->folder);
    remove_folder(house->shm_folder);
    remove_folder(programs);
    munmap(house, sizeof *house);
}
