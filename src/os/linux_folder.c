/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Candidates for the runtime folder. What $TENON_RUNTIME_DIR names is used or refused. Without
 * that, the runtime folder is the first usable one of
 *
 *     $XDG_RUNTIME_DIR/tenon    unless it is another user's, as after `sudo -E`
 *     /run/user/UID/tenon       where cron jobs and services find the folder of a login session
 *     /tmp/tenon-UID
 *     /dev/shm/tenon-UID        another user may have made the one in /tmp
 *     /tmp/tenon-UID-1 to -9
 *
 * Other users can make and remove the last three kinds. There, a folder of this user that
 * exists comes before one that could be made, so that processes that start at different times
 * find each other.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <unistd.h>

#include "os/linux.h"

enum { LAST_SPARE = 9 };

const char *tni_linux_root = "";

/* ---- checking a folder ------------------------------------------------------------------- */

int tni_linux_check_folder_name(const char *folder)
{
    /* A socket's address has little room, so its length is checked before anything is made. */
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

/* For root, access() may succeed even on a read-only file system, so that is checked first. */
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

/* Refuse a folder that another user could have prepared, above all a symbolic link. */
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

bool tni_linux_candidate(unsigned number, struct tni_linux_folder *ret)
{
    const char *of_session = tni_os_environment("XDG_RUNTIME_DIR");
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

static int check_above(const struct tni_linux_folder *c)
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

int tni_linux_judge_folder(const struct tni_linux_folder *c)
{
    struct stat status;
    int failure = tni_linux_check_folder_name(c->path);
    if (failure != 0)
        return failure;
    if (c->is_private && (failure = check_above(c)) != 0)
        return failure;
    if (lstat(c->path, &status) == 0)
        return check_folder(c->path);
    return (failure = check_above(c)) != 0 ? failure : TNI_LINUX_CAN_BE_MADE;
}

int tni_linux_choose_folder(struct tni_linux_folder *ret, char *ret_why, size_t why_bytes)
{
    struct tni_linux_folder c;
    int makeable = -1, first_status = 0;
    ret_why[0] = '\0';
    for (unsigned number = 0; tni_linux_candidate(number, &c); number++) {
        int status = tni_linux_judge_folder(&c);
        if (status == TNI_LINUX_EXISTS || (status == TNI_LINUX_CAN_BE_MADE && c.is_private)) {
            *ret = c;
            return 0;
        }
        if (status == TNI_LINUX_CAN_BE_MADE && makeable < 0)
            makeable = (int)number;
        if (status < 0 && number == 0) {
            first_status = status;
            snprintf(ret_why, why_bytes, "%s", tn_error_detail());
        }
    }
    tni_linux_candidate(makeable < 0 ? 0 : (unsigned)makeable, ret);
    return makeable < 0 ? tni_fail(first_status, "%s, and no other folder can be used", ret_why)
                        : 0;
}

int tni_linux_prepare_folder(const char *folder)
{
    int status = tni_linux_check_folder_name(folder);
    if (status == 0)
        status = make_folder(folder);
    return status == 0 ? check_folder(folder) : status;
}
