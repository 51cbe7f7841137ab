/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events of the library for logging.getLogger("tenon").
 *
 * The library calls take() in any thread, without the GIL, and a thread that waited for the GIL
 * there could wait for ever: os.fork() has it, and waits for the threads of the library. So
 * take() puts the line on a list, and deliver() gives the list to logging: as a pending call in
 * the main thread, or in a thread that waits and asks for signals.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core.h"

enum { MOST_LINES = 1000 }; /* beyond them, lines are dropped until some were delivered */

struct line {
    struct line *older;
    pid_t pid; /* a forked child has its parent's list, and drops it */
    int level;
    char text[];
};

static struct line *_Atomic newest;
static _Atomic int line_count;
static _Atomic pid_t called_by; /* the process that has a pending call; 0: none has */

/* The logger, if the program uses logging. NULL: it does not, or an exception. */
static PyObject *find_logger(void)
{
    static bool is_quiet; /* without a handler of the program's, logging would print */
    PyObject *name = PyUnicode_FromString("logging");
    PyObject *logging = name != NULL ? PyImport_GetModule(name) : NULL;
    Py_XDECREF(name);
    if (logging == NULL)
        return NULL;
    PyObject *logger = PyObject_CallMethod(logging, "getLogger", "s", "tenon");
    if (logger != NULL && !is_quiet) {
        PyObject *handler = PyObject_CallMethod(logging, "NullHandler", NULL);
        PyObject *added =
            handler != NULL ? PyObject_CallMethod(logger, "addHandler", "O", handler) : NULL;
        is_quiet = added != NULL;
        Py_XDECREF(handler);
        Py_XDECREF(added);
    }
    Py_DECREF(logging);
    return logger;
}

static void give(PyObject *logger, const struct line *line)
{
    static const int levels[] = {40, 30, 20, 10}; /* ERROR, WARNING, INFO, DEBUG */
    int level = levels[line->level >= 0 && line->level < 4 ? line->level : 3];
    if (logger != NULL && line->pid == getpid())
        Py_XDECREF(PyObject_CallMethod(logger, "log", "is", level, line->text));
    if (PyErr_Occurred())
        PyErr_WriteUnraisable(logger);
}

void tnp_log_deliver(void)
{
    struct line *line = atomic_exchange(&newest, NULL), *oldest = NULL;
    if (line == NULL)
        return;
    while (line != NULL) {
        struct line *next = line->older;
        line->older = oldest;
        oldest = line;
        line = next;
    }
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *logger = find_logger();
    while (oldest != NULL) {
        struct line *next = oldest->older;
        give(logger, oldest);
        free(oldest);
        oldest = next;
        atomic_fetch_sub(&line_count, 1);
    }
    Py_XDECREF(logger);
    PyErr_Restore(type, value, trace);
}

static int deliver(void *unused)
{
    (void)unused;
    atomic_store(&called_by, 0); /* before the list is taken, so that no line is left there */
    tnp_log_deliver();
    return 0;
}

static void take(int level, const char *text, void *context)
{
    (void)context;
    size_t size = strlen(text) + 1;
    pid_t pid = getpid();
    if (!Py_IsInitialized() || atomic_load(&line_count) >= MOST_LINES)
        return;
    struct line *line = malloc(sizeof *line + size);
    if (line == NULL)
        return;
    line->pid = pid;
    line->level = level;
    memcpy(line->text, text, size);
    atomic_fetch_add(&line_count, 1);
    line->older = atomic_load(&newest);
    while (!atomic_compare_exchange_weak(&newest, &line->older, line)) {
    }
    if (atomic_exchange(&called_by, pid) != pid && Py_AddPendingCall(deliver, NULL) != 0)
        atomic_store(&called_by, 0); /* the table is full: the next line asks again */
}

/* TENON_LOG is for a person who debugs a program that logs elsewhere, or nowhere. */
int tnp_log_init(PyObject *module)
{
    const char *chosen = secure_getenv("TENON_LOG");
    (void)module;
    if (chosen == NULL || chosen[0] == '\0')
        tn_log_set(take, NULL);
    return 0;
}
