/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Closed standard streams: no function of the room os returns a descriptor of their numbers, to
 * which the program may still write; and the environment of a program with more rights than its
 * user.
 */
#include "os_test.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

enum { LIMIT = 24 };

static int fds[8];

/* Close 0, 1 and 2, so that the kernel gives out these numbers next. */
static void close_streams(void)
{
    for (int fd = 0; fd <= 2; fd++)
        close(fd);
}

static void check_above(int fd)
{
    CHECK(fd > 2 && (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    for (int low = 0; low <= 2; low++)
        CHECK(fcntl(low, F_GETFD) < 0);
}

static size_t one_byte(const void *head)
{
    (void)head;
    return 1;
}

static void memory_body(void)
{
    int fd, again;
    close_streams();
    CHECK(tni_os_memory_create("t", PAGE, &fd) == 0);
    check_above(fd);
    CHECK(tni_os_memory_reopen(fd, true, &again) == 0);
    check_above(again);
    CHECK(tni_os_memory_open(tni_os_pid(), fd, false, &again) == 0);
    check_above(again);
    CHECK(tni_os_duplicate(fd, &again) == 0);
    check_above(again);
    CHECK(tni_os_watch_create(fd, &again) == 0);
    check_above(again);
    CHECK(tni_os_memory_create_sealable("t", PAGE, &fd) == 0);
    check_above(fd);

    char path[128];
    snprintf(path, sizeof path, "%s/shm", test_folder);
    CHECK(tni_os_shm_create(path, PAGE, &fd) == 0);
    check_above(fd);
    CHECK(tni_os_shm_open(path, &fd) == 0);
    check_above(fd);
    CHECK(tni_os_shm_open_read_only(path, &fd) == 0);
    check_above(fd);
    CHECK(tni_os_shm_remove(path) == 0);
}

static void memory_is_never_a_standard_stream(void **state)
{
    (void)state;
    run_in_child(memory_body);
}

static void channels_body(void)
{
    int listening, there, here, ends[2], pair[2], fd;
    uint32_t count = 0;
    char byte = 0;
    close_streams();
    CHECK(tni_os_pipe(ends) == 0);
    check_above(ends[0]);
    check_above(ends[1]);
    CHECK(tni_os_pair(pair) == 0);
    check_above(pair[0]);
    check_above(pair[1]);
    CHECK(tni_os_listen("streams", &listening) == 0);
    check_above(listening);
    CHECK(tni_os_connect("streams", &there) == 0);
    check_above(there);
    CHECK(tni_os_accept(listening, &here) == 0);
    check_above(here);
    CHECK(tni_os_send(pair[0], "a", 1, ends, 2) == 0);
    CHECK(tni_os_receive(pair[1], &(struct tni_os_buffer){&byte, 1, fds, 8}, soon(), &count) ==
          1);
    CHECK(count == 2);
    check_above(fds[0]);
    check_above(fds[1]);
    CHECK(tni_os_socket_send(pair[0], &(struct tni_os_message){"a", 1, ends, 1}, soon()) == 0);
    CHECK(tni_os_socket_receive(pair[1], &(struct tni_os_packet){&byte, 1, 1, one_byte}, soon(),
                                &fd) == 1);
    check_above(fd);
    CHECK(tni_os_bell_create(UINT64_C(77) << 32 | (uint32_t)getpid(), &fd) == 0);
    check_above(fd);
    CHECK(tni_os_timer_create(0, &fd) == 0);
    check_above(fd);
    CHECK(tni_os_loop_create(&fd) == 0);
    check_above(fd);
    CHECK(tni_os_file_lock("streams.lock", 0, &fd) == 0);
    check_above(fd);
    CHECK(tni_os_process_open(tni_os_pid(), &fd) == 0);
    check_above(fd);
    CHECK(tni_os_file_remove("streams") == 0 && tni_os_file_remove("streams.lock") == 0);
}

static void channels_are_never_a_standard_stream(void **state)
{
    (void)state;
    run_in_child(channels_body);
}

static int note_descriptors(int32_t pid, int fd, const char *name, uint64_t inode,
                            void *context)
{
    (void)pid, (void)fd, (void)name, (void)inode, (void)context;
    CHECK(fcntl(0, F_GETFD) < 0); /* the folder that is read */
    return 1;
}

static void folders_body(void)
{
    int fd;
    CHECK(tni_os_memory_create("tenon-streams", PAGE, &fd) == 0);
    close_streams();
    CHECK(tni_os_memory_for_each("tenon-streams", note_descriptors, NULL) == 1);
}

static void a_folder_that_is_read_is_never_a_standard_stream(void **state)
{
    (void)state;
    run_in_child(folders_body);
}

/* The table is full but for the number 0. */
static void full_body(void)
{
    const struct rlimit limit = {.rlim_cur = LIMIT, .rlim_max = LIMIT};
    int memory, pair[2], got, fd = -1, two[2];
    uint32_t count = 0;
    char byte = 0;
    CHECK(tni_os_memory_create("t", PAGE, &memory) == 0);
    CHECK(tni_os_pair(pair) == 0);
    CHECK(tni_os_send(pair[0], "a", 1, &memory, 1) == 0);
    CHECK(tni_os_socket_send(pair[0], &(struct tni_os_message){"b", 1, &memory, 1}, soon()) ==
          0);
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    while ((got = dup(memory)) >= 0) {
    }
    CHECK(errno == EMFILE);
    close(0);

    CHECK(tni_os_memory_create("t", PAGE, &fd) == TN_ERR_SYSTEM);
    CHECK(strstr(tn_error_detail(), "no descriptors left") != NULL);
    CHECK(tni_os_duplicate(memory, &fd) == TN_ERR_SYSTEM);
    CHECK(tni_os_memory_reopen(memory, true, &fd) == TN_ERR_SYSTEM);
    CHECK(tni_os_loop_create(&fd) == TN_ERR_SYSTEM);
    CHECK(tni_os_pipe(two) == TN_ERR_SYSTEM);
    CHECK(strstr(tn_error_detail(), "no descriptors left") != NULL);
    CHECK(!tni_os_has_descriptor_left());
    CHECK(tni_os_receive(pair[1], &(struct tni_os_buffer){&byte, 1, fds, 8}, 0, &count) ==
          TN_ERR_SYSTEM);
    CHECK(strstr(tn_error_detail(), "no descriptors left") != NULL);
    CHECK(tni_os_socket_receive(pair[1], &(struct tni_os_packet){&byte, 1, 1, one_byte}, 0,
                                &fd) == TN_ERR_SYSTEM);
    CHECK(fd == -1 && fcntl(0, F_GETFD) < 0); /* the low one was closed */

    close(LIMIT - 1); /* one is enough for a low one to be moved */
    CHECK(tni_os_socket_receive(pair[1], &(struct tni_os_packet){&byte, 1, 1, one_byte}, 0,
                                &fd) == 1);
    CHECK(fd == LIMIT - 1 && byte == 'b');
}

static void a_low_descriptor_that_cannot_be_moved_is_closed(void **state)
{
    (void)state;
    run_in_child(full_body);
}

/* ---- the environment --------------------------------------------------------------------- */

static void environment_body(void)
{
    setenv("TENON_STREAMS_TEST", "value", 1);
    CHECK(strcmp(tni_os_environment("TENON_STREAMS_TEST"), "value") == 0);
    CHECK(tni_os_environment("TENON_STREAMS_TEST_NONE") == NULL);
}

static void the_environment_is_read(void **state)
{
    (void)state;
    run_in_child(environment_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_never_a_standard_stream),
        cmocka_unit_test(channels_are_never_a_standard_stream),
        cmocka_unit_test(a_folder_that_is_read_is_never_a_standard_stream),
        cmocka_unit_test(a_low_descriptor_that_cannot_be_moved_is_closed),
        cmocka_unit_test(the_environment_is_read),
    };
    return cmocka_run_group_tests_name("os_streams", tests, make_test_folder,
                                       remove_test_folder);
}
