/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of tensors that a scheduler evicts from the host to a file. */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tenon/attribute.h>
#include <tenon/tenon.h>

#include "harness/harness.h"

/* A piece takes a block of this size; there is room for two. */
enum { PIECES = 6, NUMBERS = 8192, PIECE_BYTES = NUMBERS * 8 };

static tn_domain *domain;
static tn_sched *sched;
static tn_graph *graph;
static tn_data *pieces[PIECES];
static char folder[] = "/tmp/tenon-spill-XXXXXX";

static void make_pieces(void)
{
    static const int64_t shape[] = {NUMBERS};
    tn_tensor *like;
    TN_CHECK_OK(tn_tensor_create_private(TN_INT64, 1, shape, &like));
    for (int i = 0; i < PIECES; i++)
        TN_CHECK_OK(tn_data_create(
            sched, TN_OPTIONS(tn_data_options, .tensor = like, .flags = TN_DATA_LIKE),
            &pieces[i]));
    tn_tensor_unref(like);
}

static void begin(void)
{
    memcpy(folder + sizeof folder - 7, "XXXXXX", 6);
    assert_non_null(mkdtemp(folder));
    domain = tnt_domain(TN_OPTIONS(tn_domain_options, .flags = TN_DOMAIN_NO_MANAGER));
    TN_CHECK_OK(tn_sched_create(TN_OPTIONS(tn_sched_options, .resources = "CPU=2",
                                           .memories = "HOST=140000", .spill = folder,
                                           .domain = domain),
                                &sched));
    TN_CHECK_OK(tn_graph_create(sched, &graph));
    make_pieces();
}

static void end(void)
{
    tn_sched_close(sched);
    TNT_AUDIT(domain);
    tn_domain_close(domain);
    assert_int_equal(rmdir(folder), 0); /* so it is empty */
}

static uint64_t used(const char *resource)
{
    tn_memory_info info = {.struct_size = sizeof info};
    TN_CHECK_OK(tn_memory_get_info(sched, &(tn_memory){.resource = resource}, &info));
    return info.used;
}

/* Write i to each number of piece i, or find it there. */
static int fill(const tn_task_call *call)
{
    int at = *(const int *)call->context;
    tn_tensor *tensor = tn_data_tensor(pieces[at]);
    int64_t *numbers = tn_tensor_data(tensor);
    for (int i = 0; i < NUMBERS; i++)
        numbers[i] = at;
    return tn_tensor_set_metadata(tensor, "piece", &at, sizeof at);
}

static int look(const tn_task_call *call)
{
    int at = *(const int *)call->context;
    size_t size = 0;
    const tn_tensor *tensor = tn_data_tensor(pieces[at]);
    const int64_t *numbers = tn_tensor_data(tensor);
    const void *piece = tn_tensor_metadata(tensor, "piece", &size);
    for (int i = 0; i < NUMBERS; i++)
        TN_CHECK(numbers[i] == at);
    TN_CHECK(piece != NULL && size == sizeof at && memcmp(piece, &at, size) == 0);
    return 0;
}

static int run(tn_task_fn *function, uint32_t mode, int at)
{
    static int numbers[PIECES];
    numbers[at] = at;
    tn_kind *kind;
    const tn_variant variant = {.run = function};
    TN_CHECK_OK(tn_kind_create(
        sched, TN_OPTIONS(tn_kind_options, .variants = &variant, .variant_count = 1), &kind));
    const tn_task task = {.kind = kind, .context = &numbers[at]};
    const tn_access access = {.data = pieces[at], .mode = mode};
    const uint64_t no_inputs = 0, access_ends = 1;
    TN_CHECK_OK(tn_graph_add(graph,
                             TN_OPTIONS(tn_task_list, .tasks = &task, .count = 1,
                                        .input_ends = &no_inputs, .access_ends = &access_ends,
                                        .accesses = &access),
                             NULL));
    return tn_graph_wait(graph, tnt_deadline(10000));
}

static bool is_folder_empty(void)
{
    DIR *open = opendir(folder);
    int entries = 0;
    while (readdir(open) != NULL)
        entries++;
    closedir(open);
    return entries == 2; /* "." and ".." */
}

static int spill_and_look(void *unused)
{
    (void)unused;
    begin();
    for (int i = 0; i < PIECES; i++)
        TN_CHECK_OK(run(fill, TN_WRITE, i));
    assert_int_equal(used(NULL), 2 * PIECE_BYTES);
    assert_int_equal(used(TN_MEMORY_DISK), 4 * PIECE_BYTES);
    assert_true(is_folder_empty());
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < PIECES; i++)
            TN_CHECK_OK(run(look, TN_READ, i));
    end();
    return 0;
}

TN_TEST(tensors_come_back_from_the_disk_with_their_attributes) { spill_and_look(NULL); }

TN_TEST(tensors_go_to_a_disk_that_knows_no_file_without_a_name)
{
    setenv("TENON_FORCE_FALLBACK", "tmpfile", 1);
    pid_t pid = tnt_fork(spill_and_look, NULL);
    unsetenv("TENON_FORCE_FALLBACK");
    tnt_wait_ok(pid);
}

TN_TEST(the_program_fetches_what_is_on_the_disk)
{
    begin();
    for (int i = 0; i < PIECES; i++)
        TN_CHECK_OK(run(fill, TN_WRITE, i));
    for (int i = 0; i < PIECES; i++) {
        TN_CHECK_OK(tn_data_fetch(pieces[i], TN_NOW));
        const int64_t *numbers = tn_tensor_data(tn_data_tensor(pieces[i]));
        assert_int_equal(numbers[0], i);
        assert_int_equal(numbers[NUMBERS - 1], i);
    }
    end();
}

/* The size of the scheduler's file, which is open here without a name in the folder. */
static uint64_t file_bytes(void)
{
    char link[64], target[256];
    struct stat file;
    for (int fd = 3; fd < 256; fd++) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, target, sizeof target - 1);
        if (length > 0 && strncmp(target, folder, strlen(folder)) == 0) {
            assert_int_equal(fstat(fd, &file), 0);
            return (uint64_t)file.st_size;
        }
    }
    fail_msg("no file in %s is open", folder);
    return 0;
}

/* What is closed gives its part of the file back, and others take it. */
TN_TEST(the_file_is_no_longer_than_what_it_had_at_once)
{
    begin();
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < PIECES; i++)
            TN_CHECK_OK(run(fill, TN_WRITE, i));
        assert_int_equal(used(TN_MEMORY_DISK), 4 * PIECE_BYTES);
        assert_int_equal(file_bytes(), 4 * PIECE_BYTES);
        for (int i = 0; i < PIECES; i++)
            pieces[i * 5 % PIECES] = tn_data_close(pieces[i * 5 % PIECES]);
        assert_int_equal(used(TN_MEMORY_DISK), 0);
        make_pieces();
    }
    end();
}

/* A limit of the size of files stands for a disk that fails. */
TN_TEST(a_disk_that_fails_fails_the_task_and_loses_nothing)
{
    struct rlimit old, none;
    begin();
    TN_CHECK_OK(run(fill, TN_WRITE, 0));
    TN_CHECK_OK(run(fill, TN_WRITE, 1));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    none = (struct rlimit){.rlim_cur = 4096, .rlim_max = old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    assert_int_equal(run(fill, TN_WRITE, 2), TN_ERR_SYSTEM);
    assert_non_null(strstr(tn_error_detail(), "ulimit -f"));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    graph = tn_graph_close(graph);
    TN_CHECK_OK(tn_graph_create(sched, &graph));
    for (int i = 0; i < 2; i++)
        TN_CHECK_OK(run(look, TN_READ, i));
    TN_CHECK_OK(run(fill, TN_WRITE, 2));
    for (int i = 0; i < 3; i++)
        TN_CHECK_OK(run(look, TN_READ, i));
    end();
}

static int die_with_a_file(void *unused)
{
    (void)unused;
    begin();
    for (int i = 0; i < PIECES; i++)
        TN_CHECK_OK(run(fill, TN_WRITE, i));
    assert_true(is_folder_empty());
    assert_int_equal(rmdir(folder), 0);
    raise(SIGKILL);
    return 0;
}

TN_TEST(a_process_that_is_killed_leaves_no_file)
{
    int status = tnt_wait(tnt_fork(die_with_a_file, NULL));
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

TN_TEST(a_tensor_needs_a_folder_for_a_host_with_an_end)
{
    tn_tensor *like;
    tn_data *none = NULL;
    domain = tnt_domain(TN_OPTIONS(tn_domain_options, .flags = TN_DOMAIN_NO_MANAGER));
    TN_CHECK_OK(tn_sched_create(TN_OPTIONS(tn_sched_options, .resources = "CPU=2",
                                           .memories = "HOST=140000", .domain = domain),
                                &sched));
    TN_CHECK_OK(tn_tensor_create_private(TN_INT64, 0, NULL, &like));
    assert_int_equal(
        tn_data_create(
            sched, TN_OPTIONS(tn_data_options, .tensor = like, .flags = TN_DATA_LIKE), &none),
        TN_ERR_INVALID);
    assert_non_null(strstr(tn_error_detail(), "tn_sched_options.spill names no folder"));
    tn_tensor_unref(like);
    tn_sched_close(sched);
    tn_domain_close(domain);
}
