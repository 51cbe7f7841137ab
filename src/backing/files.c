/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files: names of FILE_SYSTEM storages, and those that were left behind.
 *
 * A name is tenon-UID-SPACE-DOMAIN-NUMBER: the user, the pid namespace (its inode), the first
 * 8 bytes of the domain's id, and 8 random bytes, the last three in hexadecimal digits. So no
 * reused pid and no other container that sees the same files comes to the same name, and whose
 * it is can be told of a file that a death left without a header.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backing/backing.h"

#define NAME_PREFIX "tenon-"

struct file_name {
    uint32_t uid;
    uint64_t space, domain, number;
};

static uint64_t domain_part(const uint8_t id[16])
{
    uint64_t part = 0;
    for (size_t i = 0; i < sizeof part; i++)
        part = part << 8 | id[i];
    return part;
}

static void write_name(const struct file_name *name, char *text, size_t size_bytes)
{
    snprintf(text, size_bytes, NAME_PREFIX "%" PRIu32 "-%" PRIx64 "-%016" PRIx64 "-%016" PRIx64,
             name->uid, name->space, name->domain, name->number);
}

/* Only what write_name() writes: read, written again and compared. */
static bool parse_name(const char *text, struct file_name *ret_name)
{
    struct file_name name;
    char again[96];
    if (sscanf(text, NAME_PREFIX "%" SCNu32 "-%" SCNx64 "-%" SCNx64 "-%" SCNx64, &name.uid,
               &name.space, &name.domain, &name.number) != 4)
        return false;
    write_name(&name, again, sizeof again);
    if (strcmp(text, again) != 0)
        return false;
    *ret_name = name;
    return true;
}

int tni_files_name(const struct tn_domain *d, char path[TNI_PATH_BYTES])
{
    struct file_name name = {.uid = tni_os_uid(),
                             .space = d->me->pid_space,
                             .domain = domain_part(d->segment.header->id)};
    char text[96];
    int status = tni_os_random(&name.number, sizeof name.number);
    if (status != 0)
        return status;
    write_name(&name, text, sizeof text);
    int used = snprintf(path, TNI_PATH_BYTES, "%s/%s", tni_os_shm_folder(), text);
    if (used >= TNI_PATH_BYTES)
        return tni_fail(TN_ERR_INVALID, "the folder for named memory has a path of %zu bytes",
                        strlen(tni_os_shm_folder()));
    return 0;
}

bool tni_files_is_ours(const struct tni_segment *s, const char *path)
{
    struct file_name name;
    const char *last = strrchr(path, '/');
    return last != NULL && parse_name(last + 1, &name) && name.uid == tni_os_uid() &&
           name.domain == domain_part(s->header->id);
}

/* ---- left behind ------------------------------------------------------------------------- */

struct candidate {
    char *path; /* owned */
    uint64_t domain;
};

struct collection {
    struct candidate *files; /* [room] */
    size_t count, room;
    uint64_t space;
    uint64_t only_domain; /* with `is_ending` */
    bool is_ending;       /* just the files of one domain, which has ended */
    bool is_look_only;
    tni_files_fn *each;
    void *context;
    int removed;
};

static int add_file(const char *path, const char *text, void *context)
{
    struct collection *c = context;
    struct file_name name;
    if (!parse_name(text, &name) || name.uid != tni_os_uid() || name.space != c->space ||
        (c->is_ending && name.domain != c->only_domain))
        return 0;
    if (c->count == c->room) {
        size_t room = 2 * c->room + 16;
        struct candidate *grown = reallocarray(c->files, room, sizeof *grown);
        if (grown == NULL)
            return tni_fail(TN_ERR_NO_MEMORY, "no private memory for %zu files", room);
        c->files = grown;
        c->room = room;
    }
    struct candidate *file = &c->files[c->count];
    *file = (struct candidate){.path = strdup(path), .domain = name.domain};
    if (file->path == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for a path");
    c->count++;
    return 0;
}

static int list_files(struct collection *c)
{
    struct tni_os_process self;
    int status = tni_os_self(&self);
    if (status != 0)
        return status;
    c->space = self.pid_space;
    return tni_os_shm_for_each(tni_os_shm_folder(), NAME_PREFIX, add_file, c);
}

/*
 * One without a header was being made by somebody who is dead: nobody can hold it. What cannot
 * be looked into now, or only by a later version, may be held. Who holds it removes it in the
 * end, if the domain lets it go first.
 */
static bool is_held(const struct collection *c, const char *path)
{
    struct tni_mapping m;
    int fd;
    int status = tni_os_shm_open(path, &fd);
    if (status != 0)
        return status == TN_ERR_SYSTEM;
    status = tni_store_map(fd, true, c->is_look_only, &m);
    bool is_held =
        status == TN_ERR_SYSTEM || status == TN_ERR_NO_MEMORY || status == TN_ERR_VERSION;
    if (status == 0) {
        tn_storage_header *header = (tn_storage_header *)(void *)m.address;
        if (!c->is_look_only)
            __atomic_store_n(&header->holders[0], 0, __ATOMIC_SEQ_CST);
        is_held = tni_store_is_held(header);
        tni_os_unmap(m.address, m.object_bytes);
    }
    tni_os_close(fd);
    return is_held;
}

static void remove_file(struct collection *c, const char *path)
{
    if (is_held(c, path))
        return;
    int status = c->is_look_only ? 0 : tni_os_shm_remove(path);
    if (status == TN_ERR_NOT_FOUND)
        return;
    c->removed += status == 0;
    if (status != 0)
        tni_log(TNI_LOG_WARNING, "a file was left: %s", tn_error_detail());
    if (c->each != NULL)
        c->each(path, status, c->context);
}

static void free_files(struct collection *c)
{
    for (size_t i = 0; i < c->count; i++)
        free(c->files[i].path);
    free(c->files);
}

static bool lives(const uint8_t (*ids)[16], uint32_t count, uint64_t domain)
{
    for (uint32_t i = 0; i < count; i++)
        if (domain_part(ids[i]) == domain)
            return true;
    return false;
}

static int collect(struct collection *c, tni_files_living_fn *living)
{
    uint8_t(*ids)[16] = NULL;
    uint32_t count = 0;
    int status = list_files(c);
    if (status == 0 && c->count > 0)
        status = living(&ids, &count);
    for (size_t i = 0; status == 0 && i < c->count; i++)
        if (!lives((const uint8_t(*)[16])ids, count, c->files[i].domain))
            remove_file(c, c->files[i].path);
    free(ids);
    free_files(c);
    return status < 0 ? status : c->removed;
}

int tni_files_collect(tni_files_living_fn *living, tni_files_fn *each, void *context)
{
    struct collection c = {.each = each, .context = context};
    return collect(&c, living);
}

int tni_files_find(tni_files_living_fn *living, tni_files_fn *each, void *context)
{
    struct collection c = {.is_look_only = true, .each = each, .context = context};
    return collect(&c, living);
}

void tni_files_end_domain(const struct tni_segment *s)
{
    struct collection c = {.is_ending = true, .only_domain = domain_part(s->header->id)};
    if (list_files(&c) < 0)
        tni_log(TNI_LOG_WARNING, "files were not looked for: %s", tn_error_detail());
    for (size_t i = 0; i < c.count; i++)
        remove_file(&c, c.files[i].path);
    free_files(&c);
}
