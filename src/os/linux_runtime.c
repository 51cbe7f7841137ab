/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runtime folder that this process keeps to.
 *
 * I1  A process keeps to the folder that it prepared, or in which it joined a domain, because
 *     folders come and go with login sessions, and a program may change its environment. Its
 *     forked children, its tenond, and what tenond starts keep to the folder too. If no
 *     variable named the folder, the process keeps to another one once the folder cannot be
 *     used any more, or once the tenond of a domain went on in the other one.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/linux.h"

#define NAMED "TENON_RUNTIME_DIR"
#define KEPT  "TENON_RUNTIME_KEPT" /* set for a tenond or vault: its starter's folder */

/* The value of TENON_RUNTIME_DIR; NULL: not set, or empty. */
static const char *named_folder(void)
{
    const char *named = tni_os_environment(NAMED);
    return named != NULL && named[0] != '\0' ? named : NULL;
}

/* A path that does not fit becomes "", which tni_os_runtime_prepare() refuses. */
static void read_folder(const char *text, struct tni_linux_folder *ret)
{
    size_t len = strlen(text);
    *ret = (struct tni_linux_folder){.path = ""};
    if (len < sizeof ret->path)
        memcpy(ret->path, text, len + 1);
    /* Remove slashes at the end: with them, lstat() would follow a symbolic link. */
    for (len = strlen(ret->path); len > 1 && ret->path[len - 1] == '/'; len--)
        ret->path[len - 1] = '\0';
}

/* ---- keeping ----------------------------------------------------------------------------- */

/*
 * A folder that the process keeps or kept to (I1). It is never freed, since another thread may
 * use its path, and the process may return to the folder.
 */
struct kept {
    struct tni_linux_folder folder;
    bool is_named; /* by TENON_RUNTIME_DIR */
    uint32_t uid;  /* a process that changes its user chooses again */
    const struct kept *before;
};
static const struct kept *_Atomic newest;  /* the list of all of them */
static const struct kept *_Atomic current; /* the one that the process keeps to */

/* NULL: the process keeps to none. */
static const struct kept *find_kept(void)
{
    const struct kept *k = atomic_load(&current);
    return k != NULL && k->uid == tni_os_uid() ? k : NULL;
}

/* NULL: the process never kept to this folder. */
static const struct kept *find_same(const struct tni_linux_folder *c, bool is_named)
{
    const struct kept *k = atomic_load(&newest);
    while (k != NULL && (k->uid != tni_os_uid() || k->is_named != is_named ||
                         strcmp(k->folder.path, c->path) != 0))
        k = k->before;
    return k;
}

/* NULL: no memory. Two threads may add the same folder, which is harmless. */
static const struct kept *add_kept(const struct tni_linux_folder *c, bool is_named)
{
    static struct kept first; /* most processes have only one */
    static _Atomic bool is_first_taken;
    const struct kept *before = atomic_load(&newest);
    struct kept *next = atomic_exchange(&is_first_taken, true) ? malloc(sizeof *next) : &first;
    if (next == NULL)
        return NULL;
    *next = (struct kept){.folder = *c, .is_named = is_named, .uid = tni_os_uid()};
    do
        next->before = before;
    while (!atomic_compare_exchange_weak(&newest, &before, next));
    return next;
}

/* If another thread is faster, the process keeps to the folder of that thread. */
static int keep(const struct tni_linux_folder *c, bool is_named)
{
    const struct kept *before = atomic_load(&current), *next = find_same(c, is_named);
    if (next == NULL && (next = add_kept(c, is_named)) == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for the path of a folder");
    atomic_compare_exchange_strong(&current, &before, next);
    return 0;
}

void tni_linux_forget_folder(void)
{
    atomic_store(&current, NULL);
    atomic_store(&newest, NULL);
}

static bool was_kept(tni_os_name_fn *is_it, void *context)
{
    for (const struct kept *k = atomic_load(&newest); k != NULL; k = k->before)
        if (k->uid == tni_os_uid() && is_it(k->folder.path, context) != 0)
            return true;
    return false;
}

struct wanted {
    tni_os_name_fn *is_it;
    void *context;
    int most; /* TNI_LINUX_CAN_BE_MADE, or TNI_LINUX_EXISTS: it must exist */
};

static bool is_wanted(const struct wanted *wanted, const struct tni_linux_folder *c)
{
    int status = wanted->is_it(c->path, wanted->context) != 0 ? tni_linux_judge_folder(c)
                                                              : TN_ERR_NOT_FOUND;
    return status >= 0 && status <= wanted->most;
}

/* Keep to the wanted folder, if it is a candidate or was kept before, and can be used. */
static bool keep_wanted(const struct wanted *wanted)
{
    struct tni_linux_folder c;
    for (unsigned number = 0; tni_linux_candidate(number, &c); number++)
        if (is_wanted(wanted, &c))
            return keep(&c, false) == 0;
    /* It may have been a candidate before the environment changed. */
    for (const struct kept *k = atomic_load(&newest); k != NULL; k = k->before)
        if (k->uid == tni_os_uid() && is_wanted(wanted, &k->folder))
            return keep(&k->folder, false) == 0;
    return false;
}

bool tni_os_runtime_keep(tni_os_name_fn *is_it, void *context)
{
    const struct kept *k = find_kept();
    struct tni_linux_folder c;
    if (was_kept(is_it, context))
        return true;
    if (k != NULL && (k->is_named || tni_linux_judge_folder(&k->folder) >= 0))
        return false;
    if (k != NULL || named_folder() == NULL)
        return keep_wanted(&(struct wanted){is_it, context, TNI_LINUX_CAN_BE_MADE});
    read_folder(named_folder(), &c);
    return is_it(c.path, context) != 0 && keep(&c, true) == 0;
}

bool tni_os_runtime_follow(tni_os_name_fn *is_it, void *context)
{
    const struct kept *k = find_kept();
    if (k == NULL)
        return tni_os_runtime_keep(is_it, context);
    if (is_it(k->folder.path, context) != 0)
        return true;
    return !k->is_named && keep_wanted(&(struct wanted){is_it, context, TNI_LINUX_EXISTS});
}

int tni_linux_pass_folder(struct tni_linux_folder_pass *ret)
{
    const struct kept *k = find_kept();
    ret->variables[0] = NULL;
    if (k == NULL)
        return 0;
    snprintf(ret->named, sizeof ret->named, NAMED "=%s", k->is_named ? k->folder.path : "");
    snprintf(ret->kept, sizeof ret->kept, KEPT "=%s", k->is_named ? "" : k->folder.path);
    ret->variables[0] = ret->named;
    ret->variables[1] = ret->kept;
    ret->variables[2] = NULL;
    return 2;
}

/* ---- the folder -------------------------------------------------------------------------- */

bool tni_os_runtime_is_chosen(void)
{
    const struct kept *k = find_kept();
    return k != NULL ? k->is_named : named_folder() != NULL;
}

/* Read the folder that the environment names. @return false: it names none */
static bool read_environment(struct tni_linux_folder *ret)
{
    const char *kept = tni_os_environment(KEPT);
    const char *told = named_folder() != NULL ? named_folder() : kept;
    if (told == NULL || told[0] == '\0')
        return false;
    read_folder(told, ret);
    return true;
}

/* A folder that was told to a caller, who may use its path for ever. */
struct told {
    struct tni_linux_folder folder;
    const struct told *before;
};

/* Find the folder among those that were told, or add it. "": there is no memory. */
static const char *tell(const struct tni_linux_folder *c)
{
    static const struct told *_Atomic last;
    static struct told first; /* most processes have only one */
    static _Atomic bool is_first_taken;
    const struct told *before = atomic_load(&last), *t = before;
    while (t != NULL && strcmp(t->folder.path, c->path) != 0)
        t = t->before;
    if (t != NULL)
        return t->folder.path;
    struct told *next = atomic_exchange(&is_first_taken, true) ? malloc(sizeof *next) : &first;
    if (next == NULL)
        return "";
    *next = (struct told){.folder = *c};
    do
        next->before = before;
    while (!atomic_compare_exchange_weak(&last, &before, next));
    return next->folder.path;
}

/* "" if the path does not fit, which tni_os_runtime_prepare() refuses. */
const char *tni_os_runtime_folder(void)
{
    struct tni_linux_folder chosen;
    char why[TNI_LINUX_PATH_BYTES];
    const struct kept *k = find_kept();
    if (k != NULL)
        return k->folder.path;
    if (!read_environment(&chosen))
        (void)!tni_linux_choose_folder(&chosen, why, sizeof why);
    return tell(&chosen);
}

/* Log, once, that the folder of $XDG_RUNTIME_DIR is not used. */
static void log_replacement(const char *why, const char *folder)
{
    static _Atomic bool was_logged;
    const char *of_session = tni_os_environment("XDG_RUNTIME_DIR");
    if (of_session != NULL && of_session[0] != '\0' && !atomic_exchange(&was_logged, true))
        tni_log(TNI_LOG_WARNING, "%s: %s is used instead", why, folder);
}

/* Log, once, that TENON_RUNTIME_DIR has changed and the change has no effect. */
static void log_ignored_change(const struct kept *k)
{
    static _Atomic bool was_logged;
    struct tni_linux_folder c;
    const char *named = named_folder();
    if (named == NULL)
        return;
    read_folder(named, &c);
    if (strcmp(c.path, k->folder.path) != 0 && !atomic_exchange(&was_logged, true))
        tni_log(TNI_LOG_WARNING,
                "TENON_RUNTIME_DIR was changed to %s after the first domain: this process "
                "keeps to %s",
                c.path, k->folder.path);
}

static int prepare_chosen(struct tni_linux_folder *ret)
{
    char why[TNI_LINUX_PATH_BYTES];
    int status = TN_ERR_DENIED;
    /* Retry if another user made the folder first: the next candidate is chosen then. */
    for (int tries = 0; tries < 3 && status != 0; tries++) {
        if ((status = tni_linux_choose_folder(ret, why, sizeof why)) != 0)
            return status;
        status = tni_linux_prepare_folder(ret->path);
    }
    if (status == 0 && why[0] != '\0')
        log_replacement(why, ret->path);
    return status;
}

/* The folder of the process that started this one may not exist any more: choose again then. */
static int prepare_first(void)
{
    struct tni_linux_folder c;
    bool is_named = named_folder() != NULL;
    int status = read_environment(&c) ? tni_linux_prepare_folder(c.path) : TN_ERR_NOT_FOUND;
    if (status != 0 && !is_named)
        status = prepare_chosen(&c);
    return status == 0 ? keep(&c, is_named) : status;
}

int tni_os_runtime_prepare(void)
{
    const struct kept *k = find_kept();
    struct tni_linux_folder c;
    if (k == NULL)
        return prepare_first();
    int status = tni_linux_prepare_folder(k->folder.path);
    if (status == 0)
        log_ignored_change(k);
    if (status == 0 || k->is_named)
        return status;
    char why[TNI_LINUX_PATH_BYTES];
    snprintf(why, sizeof why, "%s", tn_error_detail());
    if ((status = prepare_chosen(&c)) != 0)
        return status;
    tni_log(TNI_LOG_WARNING, "%s: %s is used from now on", why, c.path);
    return keep(&c, false);
}

int tni_linux_runtime_path(const char *name, char *path, size_t size_bytes)
{
    const char *folder = tni_os_runtime_folder();
    int status = tni_linux_check_folder_name(folder);
    if (status == 0)
        status = tni_check_name("file", name, TNI_LINUX_NAME_BYTES);
    if (status != 0)
        return status;
    int wanted = snprintf(path, size_bytes, "%s/%s", folder, name);
    if (wanted < 0 || (size_t)wanted >= size_bytes)
        return tni_fail(TN_ERR_INVALID, "the path %s/%s is longer than %zu bytes", folder, name,
                        size_bytes - 1);
    return 0;
}
