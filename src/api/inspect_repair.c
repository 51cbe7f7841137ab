/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inspect_repair: the parts that write: the audit with repairs, and gc. Both join a domain,
 * work as a member, and leave again (inspect.c, I3).
 */
#include "api/inspect.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reaper/reaper.h"

/*
 * I3. Join by the id: another domain may have the name by now, and some domains have no name.
 */
static int join(const struct tni_segment *s, tn_domain **ret_domain)
{
    char id[TNI_HEX_ID_BYTES];
    tni_inspect_hex_id(s, id);
    return tn_domain_open(id, NULL, TN_OPEN_EXISTING, ret_domain);
}

int tn_inspect_audit(tn_inspector *inspector, bool repair, tn_audit_fn *each, void *context,
                     uint32_t *ret_unchecked)
{
    tn_domain *domain;

    if (inspector == NULL)
        return tni_fail_null("the inspector");
    if (!repair) {
        struct tni_audit_report report = {.each = each, .context = context};
        int found = tni_audit(&inspector->segment, NULL, false, &report);
        if (found >= 0 && ret_unchecked != NULL)
            *ret_unchecked = report.unchecked;
        return found;
    }
    int status = join(&inspector->segment, &domain);
    if (status != 0)
        return status;
    status = tn_domain_audit(domain, true, each, context, ret_unchecked);
    tn_domain_close(domain);
    return status;
}

struct gc {
    tn_audit_fn *each; /* may be NULL */
    void *context;
    uint32_t reclaimed;
    int stop; /* the last result of `each` */
};

static int __attribute__((format(printf, 3, 4)))
say(const struct gc *gc, bool is_done, const char *format, ...)
{
    char sentence[512];
    va_list arguments;

    if (gc->each == NULL)
        return 0;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    tni_text_clean(sentence);
    return gc->each(sentence, is_done, gc->context);
}

static int clean_domain(struct gc *gc, tn_domain *domain, const char *label)
{
    uint64_t freed = 0, watermark = atomic_load(&domain->segment.header->watermark_bytes);
    uint32_t reclaimed = 0;
    int stop = 0;
    int status = tn_domain_reap(domain, &reclaimed);

    gc->reclaimed += reclaimed;
    if (reclaimed > 0)
        stop = say(gc, true, "domain %s: %u dead %s reclaimed", label, reclaimed,
                   reclaimed == 1 ? "seat" : "seats");
    if (stop == 0 && status < 0)
        stop = say(gc, false, "domain %s: %s", label, tn_error_detail());
    if (stop == 0 && tn_domain_trim(domain, watermark, &freed) < 0)
        stop = say(gc, false, "domain %s: %s", label, tn_error_detail());
    if (stop == 0 && freed > 0)
        stop = say(gc, true, "domain %s: %llu bytes given back to the system", label,
                   (unsigned long long)freed);
    return stop;
}

static void say_let_go(const char *path, int status, void *context)
{
    struct gc *gc = context;

    if (gc->stop != 0)
        return;
    if (status == 0)
        gc->stop = say(gc, true, "removed %s: its domain let it go", path);
    else
        gc->stop =
            say(gc, false, "left %s, which its domain let go: %s", path, tn_error_detail());
}

/* Called after dead processes were reclaimed: one of them may have held such a file. */
static int remove_let_go(struct gc *gc, const struct tni_segment *s, const char *label)
{
    int status = tni_files_let_go(s, false, say_let_go, gc);

    if (status < 0 && status != TN_ERR_NOT_FOUND)
        return say(gc, false, "the files of domain %s could not be checked: %s", label,
                   tn_error_detail());
    return gc->stop;
}

static int gc_segment(const struct tni_segment *s, void *context)
{
    struct gc *gc = context;
    tn_domain_entry info;
    char id[TNI_HEX_ID_BYTES];
    tn_domain *domain;

    tni_inspect_domain_info(s, &info);
    tni_inspect_hex_id(s, id);
    const char *label = info.name[0] != '\0' ? info.name : id;
    int status = join(s, &domain);
    if (status == TN_ERR_NOT_FOUND && tni_process_count(s) == 0)
        return 0; /* the domain ended meanwhile */
    if (status != 0)
        return say(gc, false, "domain %s: %s", label, tn_error_detail());
    int stop = clean_domain(gc, domain, label);
    if (stop == 0)
        stop = remove_let_go(gc, s, label);
    tn_domain_close(domain);
    return stop;
}

enum { FILE_NAME_BYTES = 64 };

struct version {
    unsigned layout, requests;
    char socket[FILE_NAME_BYTES], lock[FILE_NAME_BYTES], vault[FILE_NAME_BYTES];
};

struct versions {
    struct version *at; /* [capacity] */
    uint32_t count, capacity;
};

/* @return false: tenond gives no file such a name */
static bool read_version(const char *name, struct version *ret)
{
    if (sscanf(name, TNI_MANAGER_PREFIX "%u.%u", &ret->layout, &ret->requests) != 2 &&
        sscanf(name, TNI_VAULT_PREFIX "%u.%u", &ret->layout, &ret->requests) != 2)
        return false;
    unsigned layout = ret->layout, requests = ret->requests;
    snprintf(ret->socket, FILE_NAME_BYTES, TNI_MANAGER_PREFIX "%u.%u.sock", layout, requests);
    snprintf(ret->lock, FILE_NAME_BYTES, TNI_MANAGER_PREFIX "%u.%u.lock", layout, requests);
    snprintf(ret->vault, FILE_NAME_BYTES, TNI_VAULT_PREFIX "%u.%u.sock", layout, requests);
    return strcmp(name, ret->socket) == 0 || strcmp(name, ret->lock) == 0 ||
           strcmp(name, ret->vault) == 0;
}

static int reserve_version(struct versions *versions)
{
    uint32_t capacity = 2 * versions->capacity + 1;
    if (versions->count < versions->capacity)
        return 0;
    struct version *at = realloc(versions->at, capacity * sizeof *at);
    if (at == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for %u versions of tenond",
                        capacity);
    versions->at = at;
    versions->capacity = capacity;
    return 0;
}

/*
 * Collect all versions first: taking a lock makes a file, which a scan of the folder that is
 * under way may return once more.
 */
static int add_version(const char *name, void *context)
{
    struct versions *versions = context;
    struct version version;
    if (!read_version(name, &version))
        return 0;
    for (uint32_t i = 0; i < versions->count; i++)
        if (strcmp(versions->at[i].lock, version.lock) == 0)
            return 0;
    int status = reserve_version(versions);
    if (status == 0)
        versions->at[versions->count++] = version;
    return status;
}

/*
 * pre: this process has the lock of that version, so no tenond of that version lives. The file
 * of the lock is removed last, while this process has the lock.
 */
static int remove_version(const struct gc *gc, const struct version *version)
{
    int fd, vault_fd = -1, stop = 0;

    if (tni_os_file_lock(version->lock, 0, &fd) != 0)
        return 0; /* a tenond lives */
    if (tni_os_file_remove(version->socket) == 0)
        stop = say(gc, true, "removed %s/%s: no tenond lives", tni_os_runtime_folder(),
                   version->socket);
    if (stop == 0 && tni_os_connect(version->vault, &vault_fd) == TN_ERR_NOT_FOUND &&
        tni_os_file_remove(version->vault) == 0)
        stop = say(gc, true, "removed %s/%s: no vault lives", tni_os_runtime_folder(),
                   version->vault);
    tni_os_close(vault_fd);
    (void)tni_os_file_remove(version->lock);
    tni_os_close(fd);
    return stop;
}

static int remove_stale_files(const struct gc *gc)
{
    struct versions versions = {.at = NULL};
    int stop = tni_os_file_for_each("", add_version, &versions);
    for (uint32_t i = 0; stop == 0 && i < versions.count; i++)
        stop = remove_version(gc, &versions.at[i]);
    free(versions.at);
    return stop;
}

static void say_file(const char *path, int status, void *context)
{
    struct gc *gc = context;

    if (gc->stop != 0)
        return;
    if (status == 0)
        gc->stop = say(gc, true, "removed %s: its domain has ended", path);
    else
        gc->stop =
            say(gc, false, "left %s, whose domain has ended: %s", path, tn_error_detail());
}

/*
 * Remove files of storages that ended domains left. If the folder does not exist, there are
 * none.
 */
static int remove_storages(struct gc *gc)
{
    int status = tni_files_collect(tni_manager_living, say_file, gc);

    if (status == TN_ERR_NOT_FOUND)
        return 0;
    if (status < 0)
        return say(gc, false, "the storages in files could not be checked: %s",
                   tn_error_detail());
    return gc->stop;
}

int tn_inspect_gc(tn_audit_fn *each, void *context)
{
    struct gc gc = {.each = each, .context = context};
    int status = tni_inspect_for_each_segment(gc_segment, NULL, &gc);

    if (status == 0)
        status = remove_storages(&gc);
    if (status == 0)
        status = remove_stale_files(&gc);
    return status != 0 ? status : (int)gc.reclaimed;
}
