/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of storages outside of the arena: make such storages, and find what is left of
 * them.
 */
#ifndef TENON_TESTS_BACKING_H
#define TENON_TESTS_BACKING_H

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "harness/harness.h"
#include "reaper/reaper.h"

enum { BACKING_MS = 20000, BACKING_COUNT = 1000 };

/*
 * From its first ring on, a process keeps a socket with which it rings bells. So it rings once
 * before a test counts its descriptors.
 */
__attribute__((constructor)) static void ring_once(void) { tni_os_bell_ring(1); }

/* ---- tensors ----------------------------------------------------------------------------- */

/** Float32 tensor [BACKING_COUNT] of first, first + 1, ... */
static inline tn_tensor *make_as(tn_domain *d, uint32_t strategy, float first)
{
    const tn_tensor_options options = {.struct_size = sizeof options, .strategy = strategy};
    tn_tensor *t = NULL;
    TN_CHECK_OK(tn_tensor_create(d, TN_FLOAT32, 1, (int64_t[]){BACKING_COUNT}, &options, &t));
    for (int i = 0; i < BACKING_COUNT; i++)
        ((float *)tn_tensor_data(t))[i] = first + (float)i;
    return t;
}

static inline void expect_numbers(const tn_tensor *t, float first)
{
    const float *is = tn_tensor_data(t);
    for (int i = 0; i < BACKING_COUNT; i++) {
        float wanted = first + (float)i;
        TN_CHECK(memcmp(&is[i], &wanted, sizeof wanted) == 0);
    }
}

static inline tn_queue *open_queue(tn_domain *d)
{
    const tn_queue_options options = {.struct_size = sizeof options, .capacity = 16};
    tn_queue *queue = NULL;
    TN_CHECK_OK(tn_queue_open(d, NULL, &options, 0, &queue));
    return queue;
}

static inline void push(tn_queue *queue, tn_tensor *t, uint32_t flags)
{
    TN_CHECK_OK(tn_queue_push_tensor(queue, t, flags, tnt_deadline(BACKING_MS)));
}

static inline tn_tensor *pop(tn_queue *queue)
{
    tn_tensor *t = NULL;
    TN_CHECK_OK(tn_queue_pop_tensor(queue, tnt_deadline(BACKING_MS), &t));
    return t;
}

/* ---- tenond ------------------------------------------------------------------------------ */

/** The pid of the tenond that manages the domain; 0: there is none. */
static inline int32_t manager_pid(const tn_domain *d)
{
    uint64_t who = atomic_load(&d->segment.header->manager);
    return who == 0 ? 0 : atomic_load(&tni_seat_at(&d->segment, tni_who_seat(who))->pid);
}

static inline void kill_and_await(int32_t pid, int signal_number)
{
    int fd = -1;
    TN_CHECK_OK(tni_os_process_open(pid, &fd));
    TN_CHECK(kill(pid, signal_number) == 0);
    TN_CHECK_OK(tni_os_poll(&fd, 1, tnt_until_ns(BACKING_MS)));
    tni_os_close(fd);
}

/**
 * Count the descriptors of a process whose target starts with `prefix`; 0 if the process has
 * ended.
 */
static inline unsigned count_open(int32_t pid, const char *prefix)
{
    char path[64], target[320];
    unsigned count = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    DIR *list = opendir(path);
    for (struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;) {
        ssize_t size = readlinkat(dirfd(list), entry->d_name, target, sizeof target - 1);
        target[size > 0 ? size : 0] = 0;
        count += strncmp(target, prefix, strlen(prefix)) == 0;
    }
    if (list != NULL)
        closedir(list);
    return count;
}

/** Count them in all processes of this machine. */
static inline unsigned count_open_anywhere(const char *prefix)
{
    unsigned count = 0;
    DIR *all = opendir("/proc");
    for (struct dirent *entry; all != NULL && (entry = readdir(all)) != NULL;)
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
            count += count_open((int32_t)strtol(entry->d_name, NULL, 10), prefix);
    if (all != NULL)
        closedir(all);
    return count;
}

#define STORAGE_TARGET "/memfd:" TNI_STORAGE_PREFIX

/**
 * Poll until a process has exactly this many descriptors of storages; no event announces that.
 * @return how long it took, ms
 */
static inline uint64_t await_storages(int32_t pid, unsigned wanted)
{
    uint64_t begun_ns = tni_os_now_ns(), deadline_ns = tnt_until_ns(BACKING_MS);
    while (count_open(pid, STORAGE_TARGET) != wanted) {
        TN_CHECK(tni_os_now_ns() < deadline_ns);
        tni_os_yield();
    }
    return (tni_os_now_ns() - begun_ns) / 1000000;
}

/** Wait, as a survivor waits, until a tenond other than `old` manages the domain. */
static inline int32_t await_successor(tn_domain *d, int32_t old)
{
    _Atomic uint32_t word = 0;
    uint64_t deadline_ns = tnt_until_ns(BACKING_MS);
    while (manager_pid(d) == 0 || manager_pid(d) == old) {
        TN_CHECK(tni_os_now_ns() < deadline_ns);
        tni_process_sleep(d, &word, 0, &(struct tni_wait){.deadline_ns = tnt_until_ns(120)});
    }
    return manager_pid(d);
}

/** Wait, as a survivor waits, until tenond has exactly this many descriptors. */
static inline void survive_until(tn_domain *d, unsigned wanted)
{
    _Atomic uint32_t word = 0;
    uint64_t deadline_ns = tnt_until_ns(BACKING_MS);
    while (manager_pid(d) == 0 || count_open(manager_pid(d), STORAGE_TARGET) != wanted) {
        TN_CHECK(tni_os_now_ns() < deadline_ns);
        tni_process_sleep(d, &word, 0, &(struct tni_wait){.deadline_ns = tnt_until_ns(120)});
    }
}

/* ---- the vault --------------------------------------------------------------------------- */

static inline bool is_in(const char *text, size_t size, const char *wanted)
{
    return memmem(text, size, wanted, strlen(wanted)) != NULL;
}

static inline size_t read_file_of(int32_t pid, const char *name, char *text, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    FILE *file = fopen(path, "re");
    size_t got = file != NULL ? fread(text, 1, size, file) : 0;
    if (file != NULL)
        fclose(file);
    return got;
}

/**
 * The pid of the vault of this test's runtime folder, unless that is `old`; 0: there is none.
 */
static inline int32_t find_vault(int32_t old)
{
    static char text[1 << 16];
    char wanted[128];
    int32_t found = 0;
    snprintf(wanted, sizeof wanted, "=%s", tnt_folder()); /* or a folder in it */
    DIR *all = opendir("/proc");
    for (struct dirent *entry; all != NULL && found == 0 && (entry = readdir(all)) != NULL;) {
        int32_t pid = (int32_t)strtol(entry->d_name, NULL, 10);
        size_t size = pid > 0 && pid != old ? read_file_of(pid, "comm", text, sizeof text) : 0;
        if (!is_in(text, size, "tenond-vault"))
            continue;
        size = read_file_of(pid, "environ", text, sizeof text);
        if (is_in(text, size, wanted))
            found = pid;
    }
    if (all != NULL)
        closedir(all);
    return found;
}

static inline int32_t vault_pid(void) { return find_vault(0); }

/**
 * Poll until there is a vault other than `old` that has exactly this many storages; no event
 * announces that.
 */
static inline int32_t await_vault(int32_t old, unsigned wanted)
{
    uint64_t deadline_ns = tnt_until_ns(BACKING_MS);
    for (;;) {
        int32_t pid = find_vault(old);
        if (pid != 0 && count_open(pid, STORAGE_TARGET) == wanted)
            return pid;
        TN_CHECK(tni_os_now_ns() < deadline_ns);
        tni_os_yield();
    }
}

/** Begin with a tenond that dies when it passes the point for the nth time, as its vault does.
 */
static inline void begin_armed(const char *point, unsigned nth, void (*begin)(void))
{
    char armed[64];
    snprintf(armed, sizeof armed, "%s:%u", point, nth);
    setenv("TENON_KILL_POINT", armed, 1);
    begin();
    unsetenv("TENON_KILL_POINT");
}

/** Wait until the vault has no storage, or has ended: tenond starts none for nothing. */
static inline void await_empty_vault(void)
{
    uint64_t deadline_ns = tnt_until_ns(BACKING_MS);
    while (count_open(vault_pid(), STORAGE_TARGET) > 0) {
        TN_CHECK(tni_os_now_ns() < deadline_ns);
        tni_os_yield();
    }
}

/**
 * Kill tenond and its vault together, so that neither starts the other again. A storage that
 * no other process has open is lost.
 */
static inline void kill_tenond_and_vault(int32_t tenond)
{
    TN_CHECK(kill(tenond, SIGSTOP) == 0);
    int32_t vault = find_vault(0);
    if (vault != 0)
        kill_and_await(vault, SIGKILL);
    kill_and_await(tenond, SIGKILL);
}

/** Wait for a tenond that answers: it has asked the vault for everything by then. */
static inline int32_t await_tenond(void)
{
    struct ucred of = {0};
    socklen_t size = sizeof of;
    uint64_t deadline_ns = tnt_until_ns(BACKING_MS);
    int fd = -1;
    while (tni_os_connect(TNI_MANAGER_SOCKET, &fd) != 0) {
        TN_CHECK(tni_os_now_ns() < deadline_ns);
        tni_os_yield();
    }
    TN_CHECK(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &of, &size) == 0);
    tni_os_close(fd);
    return of.pid;
}

/**
 * Kill tenond, and start one with a limit of descriptors in its place, which manages the domain
 * on return.
 */
static inline int32_t replace_by_limited(tn_domain *d, int32_t vault, int limit)
{
    char command[512];
    int32_t old = manager_pid(d);
    snprintf(command, sizeof command, "ulimit -n %d; exec '%s'", limit, getenv("TENON_TENOND"));
    const char *const argv[] = {"sh", "-c", command, NULL};
    TN_CHECK(kill(vault, SIGSTOP) == 0); /* so that the vault starts no tenond */
    kill_and_await(old, SIGKILL);
    TN_CHECK_OK(tni_os_start_detached("/bin/sh", argv));
    uint64_t deadline_ns = tnt_until_ns(BACKING_MS);
    while (manager_pid(d) == old) {
        TN_CHECK(tni_os_now_ns() < deadline_ns);
        tni_os_yield();
    }
    TN_CHECK(kill(vault, SIGCONT) == 0);
    TN_CHECK(await_tenond() == manager_pid(d));
    return manager_pid(d);
}

struct storages_for {
    tn_domain *domain;
    tn_queue *queue;
    uint32_t count;
};

static inline int push_storages(void *argument)
{
    const struct storages_for *to = argument;
    for (uint32_t i = 0; i < to->count; i++)
        push(to->queue, make_as(to->domain, TN_STRATEGY_FILE_DESCRIPTOR, (float)i),
             TN_PUSH_MOVE);
    return 0;
}

/**
 * Push this many storages from a process that then ends, so that only the queue names them.
 */
static inline void leave_storages(tn_domain *domain, tn_queue *queue, uint32_t count)
{
    struct storages_for to = {domain, queue, count};
    tnt_wait_ok(tnt_fork(push_storages, &to));
}

#endif
