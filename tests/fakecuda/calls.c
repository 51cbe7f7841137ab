/* SPDX-License-Identifier: Apache-2.0 */
/* What each call of the driver begins and ends with: counts, faults, states, violations. */
#include <execinfo.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "fakecuda/state.h"

struct local local = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static _Thread_local int current_function = FN_NONE;
static _Thread_local bool dies_after;
static _Thread_local bool has_lock;

#define FN_NAMES(group, name, symbol, version, parameters) {#name, #symbol},
static const struct {
    const char *name;
    const char *symbol;
} names[] = {TNI_CUDA_FUNCTIONS(FN_NAMES) TNI_CUDA_OLD_UUID(FN_NAMES)};

const char *function_name(int function)
{
    return function >= 0 && function < FN_COUNT ? names[function].symbol : "the fake";
}

static bool has_name(int function, const char *name)
{
    return strcmp(names[function].name, name) == 0 || strcmp(names[function].symbol, name) == 0;
}

static int function_of(const char *name)
{
    for (int i = 0; i < FN_COUNT; i++)
        if (strcmp(names[i].symbol, name) == 0)
            return i;
    for (int i = 0; i < FN_COUNT; i++)
        if (has_name(i, name))
            return i;
    return FN_NONE;
}

/* ---- violations -------------------------------------------------------------------------- */

static void write_trace(char *text, size_t size)
{
    void *frames[10];
    int count = backtrace(frames, 10);
    char **lines = backtrace_symbols(frames, count);
    size_t length = 0;
    *text = 0;
    for (int i = 2; lines && i < count && length + 1 < size; i++) {
        const char *name = strrchr(lines[i], '/');
        int written = snprintf(text + length, size - length, " %s", name ? name + 1 : lines[i]);
        length += written > 0 ? (size_t)written : 0;
    }
    free(lines);
}

void violation(const char *rule, const char *format, ...)
{
    struct violation record = {.pid = getpid()};
    va_list values;
    va_start(values, format);
    vsnprintf(record.text, sizeof record.text, format, values);
    va_end(values);
    snprintf(record.function, sizeof record.function, "%s", function_name(current_function));
    snprintf(record.rule, sizeof record.rule, "%s", rule);
    write_trace(record.trace, sizeof record.trace);
    if (universe) {
        if (universe->violation_count < MAX_VIOLATIONS)
            universe->violations[universe->violation_count] = record;
        universe->violation_count++;
    }
    const char *aborts = getenv("TENON_FAKECUDA_ABORT");
    if (aborts && *aborts == '1') {
        fprintf(stderr, "fakecuda: %s, %s: %s; called from%s\n", record.function, record.rule,
                record.text, record.trace);
        abort();
    }
}

/* ---- faults ------------------------------------------------------------------------------ */

static void add_fault(int function, unsigned n, CUresult code)
{
    for (unsigned i = 0; i < sizeof local.faults / sizeof local.faults[0]; i++) {
        struct fault *fault = &local.faults[i];
        if (fault->left == 0) {
            *fault = (struct fault){.function = function, .left = n, .code = code};
            return;
        }
    }
    abort();
}

void fake_fail_nth(const char *function, unsigned n, CUresult code)
{
    int number = function ? function_of(function) : FN_ANY;
    if (number == FN_NONE || n == 0)
        abort();
    pthread_mutex_lock(&local.lock);
    add_fault(number, n, code);
    pthread_mutex_unlock(&local.lock);
}

void fake_kill_nth(unsigned n, const char *when)
{
    pthread_mutex_lock(&local.lock);
    local.kill_left = n;
    local.kills_after = strcmp(when, "after") == 0;
    pthread_mutex_unlock(&local.lock);
}

static void fail_from(const char *text)
{
    char function[64];
    unsigned n;
    int code;
    if (sscanf(text, "%63[^:]:%u:%d", function, &n, &code) == 3)
        fake_fail_nth(strcmp(function, "*") == 0 ? NULL : function, n, code);
}

static void read_environment(void)
{
    const char *kill = getenv("TENON_FAKECUDA_KILL");
    char when[16];
    unsigned n;
    if (kill && sscanf(kill, "%u:%15s", &n, when) == 2)
        fake_kill_nth(n, when);
    const char *fail = getenv("TENON_FAKECUDA_FAIL");
    if (fail)
        fail_from(fail);
}

/* At the first call, so that a program's own process sees them, and not the one that made it.
 */
static void faults_from_environment(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_environment);
}

static CUresult due_fault(int function)
{
    CUresult code = CUDA_SUCCESS;
    for (unsigned i = 0; i < sizeof local.faults / sizeof local.faults[0]; i++) {
        struct fault *fault = &local.faults[i];
        if (fault->left == 0 || (fault->function != FN_ANY && fault->function != function))
            continue;
        if (--fault->left == 0 && code == CUDA_SUCCESS)
            code = fault->code;
    }
    return code;
}

/* ---- calls ------------------------------------------------------------------------------- */

static CUresult count_call(int function)
{
    atomic_fetch_add(&local.calls[function], 1);
    if (universe)
        atomic_fetch_add(&universe->calls[function], 1);
    pthread_mutex_lock(&local.lock);
    dies_after = false;
    if (local.kill_left > 0 && --local.kill_left == 0) {
        if (!local.kills_after)
            raise(SIGKILL);
        dies_after = true;
    }
    CUresult code = due_fault(function);
    pthread_mutex_unlock(&local.lock);
    return code;
}

/*
 * R2: nothing of the driver works in a child of a process that has initialised it. The child
 * may not take local.lock: another thread of its parent may have held it.
 */
static CUresult check_fork(void)
{
    if (local.pid == 0 || local.pid == getpid())
        return CUDA_SUCCESS;
    universe_lock();
    violation("R2", "a child of fork() calls the driver that its parent has initialised");
    universe_unlock();
    return CUDA_ERROR_NOT_INITIALIZED;
}

static CUresult check_context(enum needs needs)
{
    CUcontext context = context_current();
    if (context && context->fault && needs >= NEEDS_NO_FAULT)
        return context->fault;
    if (needs != NEEDS_CONTEXT)
        return CUDA_SUCCESS;
    return context && context_is_used(context) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult check_needs(enum needs needs)
{
    if (needs == NEEDS_NOTHING)
        return CUDA_SUCCESS;
    if (local.is_detached)
        return CUDA_ERROR_DEINITIALIZED;
    return local.pid == 0 ? CUDA_ERROR_NOT_INITIALIZED : CUDA_SUCCESS;
}

CUresult call_enter_quiet(enum needs needs)
{
    CUresult code = check_fork();
    code = code ? code : check_needs(needs);
    if (code)
        return code;
    has_lock = universe != NULL;
    if (has_lock)
        universe_lock();
    code = check_context(needs);
    if (code && has_lock)
        universe_unlock();
    return code;
}

CUresult call_enter(int function, enum needs needs)
{
    current_function = function;
    CUresult code = check_fork();
    if (code)
        return code;
    faults_from_environment();
    code = count_call(function);
    if (code == CUDA_SUCCESS && function_is_missing(function))
        code = CUDA_ERROR_NOT_SUPPORTED;
    code = code ? code : call_enter_quiet(needs);
    if (code && dies_after)
        raise(SIGKILL);
    return code;
}

CUresult call_leave(CUresult result)
{
    if (has_lock)
        universe_unlock();
    if (dies_after)
        raise(SIGKILL);
    current_function = FN_NONE;
    return result;
}

/* ---- counts ------------------------------------------------------------------------------ */

static uint64_t sum(const _Atomic uint64_t *calls, const char *function)
{
    uint64_t count = 0;
    for (int i = 0; i < FN_COUNT; i++)
        if (!function || has_name(i, function))
            count += atomic_load(&calls[i]);
    return count;
}

uint64_t fake_calls(const char *function) { return sum(local.calls, function); }

uint64_t fake_calls_total(const char *function)
{
    return universe_open() ? sum(universe->calls, function) : 0;
}
