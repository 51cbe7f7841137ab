/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Failing allocations. The linker sends every call of an allocator from the library, which is
 * linked statically, to a wrapper here (--wrap): it counts, may fail, and knows what is live.
 * What libc allocates for itself is not seen, so functions of libc that allocate are wrapped as
 * if they were allocators.
 */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "faults.h"

#define WRAPPED(type, name, ...)                                                               \
    type __real_##name(__VA_ARGS__);                                                           \
    type __wrap_##name(__VA_ARGS__);
WRAPPED(void *, malloc, size_t size)
WRAPPED(void *, calloc, size_t count, size_t size)
WRAPPED(void *, realloc, void *old, size_t size)
WRAPPED(void *, reallocarray, void *old, size_t count, size_t size)
WRAPPED(void *, aligned_alloc, size_t alignment, size_t size)
WRAPPED(char *, strdup, const char *text)
WRAPPED(char *, strndup, const char *text, size_t size)
WRAPPED(void, free, void *memory)
WRAPPED(DIR *, opendir, const char *path)
WRAPPED(FILE *, fopen, const char *path, const char *mode)
WRAPPED(ssize_t, getline, char **line, size_t *size, FILE *file)
WRAPPED(int, pthread_atfork, void (*prepare)(void), void (*parent)(void), void (*child)(void))

/* ---- what is live ------------------------------------------------------------------------ */

extern const char __executable_start; /* the linker's */
enum { MOST_LIVE = 1 << 16 };
static struct {
    void *memory;
    const void *caller;
    uint64_t number;
} live[MOST_LIVE];
static uint32_t live_count;
static uint64_t number;

/* Of what is here: threads of the library allocate, too. It spins, as a mutex makes system
 * calls, which would be counted. */
static atomic_flag is_busy = ATOMIC_FLAG_INIT;
static void enter(void)
{
    while (atomic_flag_test_and_set_explicit(&is_busy, memory_order_acquire)) {
    }
}
static void leave(void) { atomic_flag_clear_explicit(&is_busy, memory_order_release); }

static void *note(void *memory, const void *caller)
{
    if (memory == NULL)
        return NULL;
    enter();
    if (live_count == MOST_LIVE)
        abort();
    live[live_count].memory = memory;
    live[live_count].caller = caller;
    live[live_count++].number = ++number;
    leave();
    return memory;
}

static void forget(const void *memory)
{
    enter();
    /* From the end: most are freed soon. */
    for (uint32_t i = live_count; memory != NULL && i-- > 0;)
        if (live[i].memory == memory) {
            memmove(&live[i], &live[i + 1], (live_count - i - 1) * sizeof live[0]);
            live_count--;
            break;
        }
    leave();
}

uint64_t faults_live_allocations(void) { return live_count; }

uint64_t faults_allocation_mark(void) { return number; }

void faults_print_allocations(uint64_t after)
{
    for (uint32_t i = 0; i < live_count; i++)
        if (live[i].number > after)
            printf("  allocated at %#tx (addr2line) and not freed\n",
                   (const char *)live[i].caller - &__executable_start);
}

/* ---- failing ----------------------------------------------------------------------------- */

static bool counts_here(const struct faults_control *c)
{
    if (c == NULL || !c->is_armed)
        return false;
    if (c->plan.kind == FAULTS_ALLOCATIONS)
        return getpid() == c->subject;
    return c->plan.kind == FAULTS_CHILD_ALLOCATIONS && getpid() != c->subject;
}

static bool fails(const char *name)
{
    struct faults_control *c = faults_control;
    if (!counts_here(c))
        return false;
    enter();
    bool is_it = ++c->count == c->plan.n;
    leave();
    if (!is_it)
        return false;
    c->was_injected = true;
    c->error = ENOMEM;
    c->variants = 1;
    snprintf(c->name, sizeof c->name, "%s", name);
    errno = ENOMEM;
    return true;
}

#define CALLER __builtin_return_address(0)

void *__wrap_malloc(size_t size)
{
    return fails("malloc") ? NULL : note(__real_malloc(size), CALLER);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails("calloc") ? NULL : note(__real_calloc(count, size), CALLER);
}

void *__wrap_realloc(void *old, size_t size)
{
    if (fails("realloc"))
        return NULL;
    void *memory = __real_realloc(old, size);
    if (memory != NULL)
        forget(old);
    return note(memory, CALLER);
}

void *__wrap_reallocarray(void *old, size_t count, size_t size)
{
    if (fails("reallocarray"))
        return NULL;
    void *memory = __real_reallocarray(old, count, size);
    if (memory != NULL)
        forget(old);
    return note(memory, CALLER);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return fails("aligned_alloc") ? NULL : note(__real_aligned_alloc(alignment, size), CALLER);
}

char *__wrap_strdup(const char *text)
{
    return fails("strdup") ? NULL : note(__real_strdup(text), CALLER);
}

char *__wrap_strndup(const char *text, size_t size)
{
    return fails("strndup") ? NULL : note(__real_strndup(text, size), CALLER);
}

void __wrap_free(void *memory)
{
    forget(memory);
    __real_free(memory);
}

DIR *__wrap_opendir(const char *path) { return fails("opendir") ? NULL : __real_opendir(path); }

FILE *__wrap_fopen(const char *path, const char *mode)
{
    return fails("fopen") ? NULL : __real_fopen(path, mode);
}

ssize_t __wrap_getline(char **line, size_t *size, FILE *file)
{
    return fails("getline") ? -1 : __real_getline(line, size, file);
}

int __wrap_pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
    return fails("pthread_atfork") ? ENOMEM : __real_pthread_atfork(prepare, parent, child);
}
