/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runtime folder. What $TENON_RUNTIME_DIR names is used or refused. Without that, it is the
 * first that can be used of
 *
 *     $XDG_RUNTIME_DIR/tenon    unless it belongs to somebody else, as after `sudo -E`
 *     /run/user/UID/tenon       where cron and services find what a session's shell made
 *     /tmp/tenon-UID
 *     /dev/shm/tenon-UID        another user may have made the one in /tmp
 *     /tmp/tenon-UID-1 to -9
 *
 * Another user can make, and take away, what is in the last three lines. There a folder of ours
 * that exists comes before one that could be made, so that processes that begin at different
 * times find each other.
 *
 * I1  A process keeps to the folder that it prepared, or in which it joined a domain, and so do
 *     its forked children, its tenond, and what that starts: folders come and go with sessions,
 *     and a program may change its environment. Another folder is kept from then on where
 *     nobody named the one before, and either that one cannot be used any more, or the tenond
 *     of a domain went on in the other folder.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <unistd.h>

#include "os/linux.h"

#define NAMED "TENON_RUNTIME_DIR"
#define KEPT                                                                                   \
    "TENON_RUNTIME_KEPT" /* of a tenond or vault: that of the process that started it */
enum { LAST_SPARE = 9 };
enum { IS_THERE = 0, CAN_BE_MADE = 1 };

const char *tni_linux_root = "";

/* ---- what a folder is like --------------------------------------------------------------- */

static int check_folder_name(const char *folder)
{
    /* A socket's address has little room; said here, before anything is made. */
    struct sockaddr_un address;
    size_t room = sizeof address.sun_path - sizeof "/tenond-999.999.sock";
    if (strlen(folder) > room)
        return tni_fail(TN_ERR_INVALID,
                        "the runtime folder %s is %zu bytes long; a socket in it allows %zu",
                        folder, strlen(folder), room);
    if (folder[0] == '/')
        return 0;
    if (folder[0] == '\0')
        return tni_fail(TN_ERR_INVALID, "the runtime folder's path is longer than %d bytes",
                        TNI_LINUX_FOLDER_BYTES - 1);
    return tni_fail(TN_ERR_INVALID, "the runtime folder %s is not an absolute path", folder);
}

/* access() allows root everything but a read-only file system, and not always that. */
static int check_writable(const char *folder)
{
    struct statvfs system;
    bool is_read_only = statvfs(folder, &system) == 0 && (system.f_flag & ST_RDONLY) != 0;
    if (is_read_only)
        return tni_fail(TN_ERR_DENIED, "the runtime folder %s is on a read-only file system",
                        folder);
    if (faccessat(AT_FDCWD, folder, W_OK | X_OK, AT_EACCESS) != 0)
        return tni_linux_fail(TN_ERR_DENIED, errno, "the runtime folder %s is not writable",
                              folder);
    return 0;
}

static int make_folder(const char *folder)
{
    if (mkdir(folder, 0700) == 0 || errno == EEXIST)
        return 0;
    if (errno == ENOENT)
        return tni_fail(
            TN_ERR_NOT_FOUND,
            "the runtime folder %s cannot be made: the folder above it is not there", folder);
    return tni_linux_fail(tni_linux_status(errno), errno,
                          "making the runtime folder %s (TENON_RUNTIME_DIR names another)",
                          folder);
}

/* Everything another user could have prepared for us is refused, a link above all. */
static int check_folder(const char *folder)
{
    struct stat status;
    if (lstat(folder, &status) != 0)
        return tni_linux_fail(tni_linux_status(errno), errno, "the runtime folder %s", folder);
    if (!S_ISDIR(status.st_mode))
        return tni_fail(TN_ERR_DENIED, "the runtime folder %s is not a folder", folder);
    if (status.st_uid != tni_os_uid())
        return tni_fail(TN_ERR_DENIED,
                        "the runtime folder %s belongs to uid %u, not to %" PRIu32, folder,
                        (unsigned)status.st_uid, tni_os_uid());
    if ((status.st_mode & 077) != 0)
        return tni_fail(TN_ERR_DENIED, "the runtime folder %s has mode %04o, not 0700", folder,
                        (unsigned)status.st_mode & 07777);
    return check_writable(folder);
}

/* ---- choosing ---------------------------------------------------------------------------- */

struct candidate {
    char path[TNI_LINUX_FOLDER_BYTES];
    bool is_private; /* the folder above it has to be ours, too */
};

/* False: there is none of this number. One that does not fit gets the path "". */
static bool get_candidate(unsigned number, struct candidate *ret)
{
    const char *of_session = secure_getenv("XDG_RUNTIME_DIR");
    uint32_t uid = tni_os_uid();
    int wanted = 0;
    ret->path[0] = '\0';
    ret->is_private = number < 2;
    if (number == 0 && of_session != NULL && of_session[0] != '\0')
        wanted = snprintf(ret->path, sizeof ret->path, "%s/tenon", of_session);
    else if (number <= 1)
        wanted = snprintf(ret->path, sizeof ret->path, "%s/run/user/%" PRIu32 "/tenon",
                          tni_linux_root, uid);
    else if (number == 2)
        wanted =
            snprintf(ret->path, sizeof ret->path, "%s/tmp/tenon-%" PRIu32, tni_linux_root, uid);
    else if (number == 3)
        wanted = snprintf(ret->path, sizeof ret->path, "%s/dev/shm/tenon-%" PRIu32,
                          tni_linux_root, uid);
    else
        wanted = snprintf(ret->path, sizeof ret->path, "%s/tmp/tenon-%" PRIu32 "-%u",
                          tni_linux_root, uid, number - 3);
    if (wanted < 0 || (size_t)wanted >= sizeof ret->path)
        ret->path[0] = '\0';
    return number <= 3 + LAST_SPARE;
}

static int check_above(const struct candidate *c)
{
    struct stat status;
    char above[TNI_LINUX_FOLDER_BYTES];
    snprintf(above, sizeof above, "%s", c->path);
    *strrchr(above, '/') = '\0';
    if (stat(above, &status) != 0 || !S_ISDIR(status.st_mode))
        return tni_fail(
            TN_ERR_NOT_FOUND,
            "the runtime folder %s cannot be made: the folder above it is not there", c->path);
    if (c->is_private && status.st_uid != tni_os_uid())
        return tni_fail(TN_ERR_DENIED, "%s belongs to uid %u, not to %" PRIu32, above,
                        (unsigned)status.st_uid, tni_os_uid());
    return check_writable(above);
}

/* @return IS_THERE, CAN_BE_MADE, or an error: it cannot be used, and why */
static int judge(const struct candidate *c)
{
    struct stat status;
    int failure = check_folder_name(c->path);
    if (failure != 0)
        return failure;
    if (c->is_private && (failure = check_above(c)) != 0)
        return failure;
    if (lstat(c->path, &status) == 0)
        return check_folder(c->path);
    return (failure = check_above(c)) != 0 ? failure : CAN_BE_MADE;
}

/*
 * @param ret_why  why the first could not be used; "" if it is the one
 * @return 0, or the error of the first: none can be used, and it is what is named
 */
static int choose(struct candidate *ret, char *ret_why, size_t why_bytes)
{
    struct candidate c;
    int makeable = -1, first_status = 0;
    ret_why[0] = '\0';
    for (unsigned number = 0; get_candidate(number, &c); number++) {
        int status = judge(&c);
        if (status == IS_THERE || (status == CAN_BE_MADE && c.is_private)) {
            *ret = c;
            return 0;
        }
        if (status == CAN_BE_MADE && makeable < 0)
            makeable = (int)number;
        if (status < 0 && number == 0) {
            first_status = status;
            snprintf(ret_why, why_bytes, "%s", tn_error_detail());
        }
    }
    get_candidate(makeable < 0 ? 0 : (unsigned)makeable, ret);
    return makeable < 0 ? tni_fail(first_status, "%s, and no other folder can be used", ret_why)
                        : 0;
}

/* NULL: it is chosen by ourselves. */
static const char *named_folder(void)
{
    const char *named = secure_getenv(NAMED);
    return named != NULL && named[0] != '\0' ? named : NULL;
}

/* "" when it does not fit, which tni_os_runtime_prepare() refuses. */
static void read_folder(const char *text, struct candidate *ret)
{
    size_t len = strlen(text);
    *ret = (struct candidate){.path = ""};
    if (len < sizeof ret->path)
        memcpy(ret->path, text, len + 1);
    /* lstat() would follow a link that ends in a slash. */
    for (len = strlen(ret->path); len > 1 && ret->path[len - 1] == '/'; len--)
        ret->path[len - 1] = '\0';
}

/* ---- keeping ----------------------------------------------------------------------------- */

/*
 * I1. There is one for each folder, and it stays in memory: another thread may have its path,
 * and the process may come back to the folder.
 */
struct kept {
    struct candidate folder;
    bool is_named; /* by TENON_RUNTIME_DIR */
    uint32_t uid;  /* a process that becomes another user chooses anew */
    const struct kept *before;
};
static const struct kept *_Atomic newest;  /* of all that this process ever kept to */
static const struct kept *_Atomic current; /* what it keeps to */

/* NULL: none. */
static const struct kept *find_kept(void)
{
    const struct kept *k = atomic_load(&current);
    return k != NULL && k->uid == tni_os_uid() ? k : NULL;
}

/* NULL: it was never kept. */
static const struct kept *find_same(const struct candidate *c, bool is_named)
{
    const struct kept *k = atomic_load(&newest);
    while (k != NULL && (k->uid != tni_os_uid() || k->is_named != is_named ||
                         strcmp(k->folder.path, c->path) != 0))
        k = k->before;
    return k;
}

/* NULL: no memory. Two threads may add one folder twice, once each. */
static const struct kept *add_kept(const struct candidate *c, bool is_named)
{
    static struct kept first; /* next to every process has one only */
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

/* Where another thread is faster, its folder is kept. */
static int keep(const struct candidate *c, bool is_named)
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
    int most; /* CAN_BE_MADE, or IS_THERE: one that has to be made is not it */
};

static bool is_wanted(const struct wanted *wanted, const struct candidate *c)
{
    int status = wanted->is_it(c->path, wanted->context) != 0 ? judge(c) : TN_ERR_NOT_FOUND;
    return status >= 0 && status <= wanted->most;
}

/* The wanted folder, unless nobody could choose it, or it cannot be used. */
static bool keep_wanted(const struct wanted *wanted)
{
    struct candidate c;
    for (unsigned number = 0; get_candidate(number, &c); number++)
        if (is_wanted(wanted, &c))
            return keep(&c, false) == 0;
    /* The environment may have changed since we could choose it. */
    for (const struct kept *k = atomic_load(&newest); k != NULL; k = k->before)
        if (k->uid == tni_os_uid() && is_wanted(wanted, &k->folder))
            return keep(&k->folder, false) == 0;
    return false;
}

bool tni_os_runtime_keep(tni_os_name_fn *is_it, void *context)
{
    const struct kept *k = find_kept();
    struct candidate c;
    if (was_kept(is_it, context))
        return true;
    if (k != NULL && (k->is_named || judge(&k->folder) >= 0))
        return false;
    if (k != NULL || named_folder() == NULL)
        return keep_wanted(&(struct wanted){is_it, context, CAN_BE_MADE});
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
    return !k->is_named && keep_wanted(&(struct wanted){is_it, context, IS_THERE});
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

/* What it is as long as none is kept. False: it has to be chosen. */
static bool is_told(struct candidate *ret)
{
    const char *kept = secure_getenv(KEPT);
    const char *told = named_folder() != NULL ? named_folder() : kept;
    if (told == NULL || told[0] == '\0')
        return false;
    read_folder(told, ret);
    return true;
}

/* "" when it does not fit, which tni_os_runtime_prepare() refuses. */
const char *tni_os_runtime_folder(void)
{
    static _Thread_local struct candidate chosen;
    char why[TNI_LINUX_PATH_BYTES];
    const struct kept *k = find_kept();
    if (k != NULL)
        return k->folder.path;
    if (!is_told(&chosen))
        (void)!choose(&chosen, why, sizeof why);
    return chosen.path;
}

/* Once a process: who set the variable is to know. */
static void tell_of_replacement(const char *why, const char *folder)
{
    static _Atomic bool was_told;
    const char *of_session = secure_getenv("XDG_RUNTIME_DIR");
    if (of_session != NULL && of_session[0] != '\0' && !atomic_exchange(&was_told, true))
        tni_log(TNI_LOG_WARNING, "%s: %s is used instead", why, folder);
}

/* Once a process, too. */
static void tell_of_keeping(const struct kept *k)
{
    static _Atomic bool was_told;
    struct candidate c;
    const char *named = named_folder();
    if (named == NULL)
        return;
    read_folder(named, &c);
    if (strcmp(c.path, k->folder.path) != 0 && !atomic_exchange(&was_told, true))
        tni_log(TNI_LOG_WARNING,
                "TENON_RUNTIME_DIR was changed to %s after the first domain: this process "
                "keeps to %s",
                c.path, k->folder.path);
}

static int prepare_folder(const char *folder)
{
    int status = check_folder_name(folder);
    if (status == 0)
        status = make_folder(folder);
    return status == 0 ? check_folder(folder) : status;
}

static int prepare_chosen(struct candidate *ret)
{
    char why[TNI_LINUX_PATH_BYTES];
    int status = TN_ERR_DENIED;
    /* Again where somebody was faster: then the next one is chosen. */
    for (int tries = 0; tries < 3 && status != 0; tries++) {
        if ((status = choose(ret, why, sizeof why)) != 0)
            return status;
        status = prepare_folder(ret->path);
    }
    if (status == 0 && why[0] != '\0')
        tell_of_replacement(why, ret->path);
    return status;
}

/* Of whoever started us, the folder may be gone meanwhile: then we choose. */
static int prepare_first(void)
{
    struct candidate c;
    bool is_named = named_folder() != NULL;
    int status = is_told(&c) ? prepare_folder(c.path) : TN_ERR_NOT_FOUND;
    if (status != 0 && !is_named)
        status = prepare_chosen(&c);
    return status == 0 ? keep(&c, is_named) : status;
}

int tni_os_runtime_prepare(void)
{
    const struct kept *k = find_kept();
    struct candidate c;
    if (k == NULL)
        return prepare_first();
    int status = prepare_folder(k->folder.path);
    if (status == 0)
        tell_of_keeping(k);
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
    int status = check_folder_name(folder);
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
