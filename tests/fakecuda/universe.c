/* SPDX-License-Identifier: Apache-2.0 */
/* The file that all processes of a test map: its making, its lock, and its end. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fakecuda/state.h"

struct universe *_Atomic universe;

static uint64_t header_bytes(void)
{
    return (sizeof(struct universe) + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
}

static uint64_t space_of(const struct fake_options *options)
{
    return options->memory_bytes * SPACE_FACTOR;
}

static uint64_t pages_bytes(const struct fake_options *options)
{
    uint64_t bytes = space_of(options) / PAGE * sizeof(struct page);
    return (bytes + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
}

#ifdef FAKE_HIP
enum { NEWEST = 71300000 };
#else
enum { NEWEST = 13000 };
#endif

static void fill_in(struct fake_options *options)
{
    options->device_count = options->device_count ? options->device_count : 1;
    options->memory_bytes = options->memory_bytes ? options->memory_bytes : (uint64_t)1 << 30;
    options->granularity = options->granularity ? options->granularity : BLOCK_BYTES;
    options->seed = options->seed ? options->seed : 1;
    options->driver_version = options->driver_version ? options->driver_version : NEWEST;
    options->max_events = options->max_events ? options->max_events : 1000;
}

static void init_lock(pthread_mutex_t *lock)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

static int fill_file(int fd, const struct fake_options *options)
{
    uint64_t bytes =
        header_bytes() + options->device_count * (pages_bytes(options) + space_of(options));
    if (ftruncate(fd, (off_t)bytes) != 0)
        return errno;
    struct universe *made = mmap(NULL, sizeof *made, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (made == MAP_FAILED)
        return errno;
    made->file_bytes = bytes;
    made->options = *options;
    made->random = options->seed;
    made->next_id = 1;
    init_lock(&made->lock);
    made->magic = MAGIC;
    munmap(made, sizeof *made);
    return 0;
}

int fake_make(const char *path, const struct fake_options *options)
{
    struct fake_options full = {0};
    if (options)
        full = *options;
    fill_in(&full);
    if (full.device_count > MAX_DEVICES || full.memory_bytes % BLOCK_BYTES != 0 ||
        full.granularity % PAGE != 0 || (full.granularity & (full.granularity - 1)) != 0)
        return EINVAL;
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno;
    int error = fill_file(fd, &full);
    close(fd);
    if (error)
        unlink(path);
    return error;
}

static struct universe *map_file(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    struct stat status;
    struct universe *mapped = MAP_FAILED;
    if (fstat(fd, &status) == 0 && (uint64_t)status.st_size >= header_bytes())
        mapped = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_NORESERVE, fd, 0);
    close(fd);
    if (mapped == MAP_FAILED)
        return NULL;
    if (mapped->magic == MAGIC)
        return mapped;
    munmap(mapped, (size_t)status.st_size);
    return NULL;
}

bool universe_open(void)
{
    if (universe)
        return true;
    pthread_mutex_lock(&local.lock);
    const char *path = getenv("TENON_FAKECUDA");
    if (!universe && path && *path)
        universe = map_file(path);
    bool is_open = universe != NULL;
    pthread_mutex_unlock(&local.lock);
    return is_open;
}

void universe_close(void)
{
    contexts_reset();
    addresses_reset();
    events_reset();
    memset(local.registered, 0, sizeof local.registered);
    pthread_mutex_lock(&local.lock);
    if (universe)
        munmap(universe, universe->file_bytes);
    universe = NULL;
    local.pid = 0;
    local.is_detached = false;
    memset(local.faults, 0, sizeof local.faults);
    local.kill_left = 0;
    for (unsigned i = 0; i < FN_COUNT; i++)
        atomic_store(&local.calls[i], 0);
    pthread_mutex_unlock(&local.lock);
}

void universe_lock(void)
{
    if (pthread_mutex_lock(&universe->lock) == EOWNERDEAD) {
        pthread_mutex_consistent(&universe->lock);
        allocations_recount();
        processes_sweep();
    }
}

void universe_unlock(void) { pthread_mutex_unlock(&universe->lock); }

uint64_t universe_id(void) { return universe->next_id++; }

/* Source: splitmix64, Sebastiano Vigna, 2015. */
uint64_t universe_random(uint64_t below)
{
    uint64_t x = universe->random += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    x ^= x >> 31;
    return below ? x % below : x;
}

struct process *me(void) { return &universe->processes[local.process]; }

uint64_t device_space(void) { return space_of(&universe->options); }

static char *device_base(int device)
{
    const struct fake_options *options = &universe->options;
    return (char *)atomic_load(&universe) + header_bytes() +
           (uint64_t)device * (pages_bytes(options) + space_of(options));
}

struct page *device_pages(int device) { return (struct page *)(void *)device_base(device); }

char *device_memory(int device)
{
    return device_base(device) + pages_bytes(&universe->options);
}

/* ---- the report -------------------------------------------------------------------------- */

struct report {
    char *text;
    size_t size;
    size_t length;
    int count;
};

__attribute__((format(printf, 2, 3))) static void complain(struct report *report,
                                                           const char *format, ...)
{
    report->count++;
    if (report->length >= report->size)
        return;
    va_list values;
    va_start(values, format);
    int length =
        vsnprintf(report->text + report->length, report->size - report->length, format, values);
    va_end(values);
    report->length += length > 0 ? (size_t)length : 0;
}

static void report_violations(struct report *report)
{
    for (uint32_t i = universe->forgiven; i < universe->violation_count; i++) {
        if (i >= MAX_VIOLATIONS) {
            complain(report, "there are %u violations\n", universe->violation_count);
            return;
        }
        const struct violation *v = &universe->violations[i];
        complain(report, "process %d, %s, %s: %s%s%s\n", v->pid, v->function, v->rule, v->text,
                 *v->trace ? "; called from" : "", v->trace);
    }
}

static void report_processes(struct report *report)
{
    for (int i = 0; i < MAX_PROCESSES; i++)
        if (universe->processes[i].state == PROCESS_LIVE)
            complain(report, "process %d is still attached\n", universe->processes[i].pid);
}

static void report_memory(struct report *report)
{
    for (int i = 0; i < MAX_ALLOCATIONS; i++) {
        const struct allocation *a = &universe->allocations[i];
        if (a->kind != ALLOCATION_NONE)
            complain(report,
                     "%llu bytes of device %u are still used: %u handles, %u mappings, "
                     "%u descriptors\n",
                     (unsigned long long)a->bytes, a->device, a->handle_count, a->mapping_count,
                     a->export_count);
    }
}

int fake_violations(char *buffer, size_t size)
{
    struct report report = {.text = buffer, .size = size};
    if (size)
        *buffer = 0;
    if (!universe_open())
        return 0;
    universe_lock();
    report_violations(&report);
    universe_unlock();
    return report.count;
}

int fake_forgive(void)
{
    if (!universe_open())
        return 0;
    universe_lock();
    int count = (int)(universe->violation_count - universe->forgiven);
    universe->forgiven = universe->violation_count;
    universe_unlock();
    return count;
}

uint64_t fake_mem_used(int device)
{
    if (!universe_open() || device < 0 || device >= MAX_DEVICES)
        return 0;
    universe_lock();
    processes_sweep();
    allocations_sweep();
    uint64_t used = device_used(device);
    universe_unlock();
    return used;
}

int fake_end(const char *path, char *report, size_t size)
{
    struct report ending = {.text = report, .size = size};
    if (size)
        *report = 0;
    fake_detach();
    if (!universe_open()) {
        complain(&ending, "there is no universe at %s\n", path);
        return ending.count;
    }
    universe_lock();
    processes_sweep();
    for (unsigned i = 0; i < universe->options.device_count; i++)
        orphans_finish((int)i, UINT64_MAX, NULL);
    allocations_sweep();
    report_violations(&ending);
    report_processes(&ending);
    report_memory(&ending);
    universe_unlock();
    universe_close();
    unlink(path);
    return ending.count;
}
