/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names: makes and parses the file names of FILE_SYSTEM storages.
 *
 * A name is tenon-UID-SPACE-DOMAIN-NUMBER: the user, the pid namespace, the first 8 bytes of
 * the domain's id, and 8 random bytes, the last three in hexadecimal digits. So neither a
 * process with a reused pid nor another container that sees the same files makes the same name.
 * The owner of a file is known even if its maker died before it wrote the header. The domain's
 * id begins with the inode of its control segment, on which each member has its witness.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backing/names.h"

uint64_t tni_file_name_domain(const uint8_t id[16])
{
    uint64_t part = 0;
    for (size_t i = 0; i < sizeof part; i++)
        part = part << 8 | id[i];
    return part;
}

static void write_name(const struct tni_file_name *name, char *text, size_t size_bytes)
{
    snprintf(text, size_bytes,
             TNI_FILE_NAME_PREFIX "%" PRIu32 "-%" PRIx64 "-%016" PRIx64 "-%016" PRIx64,
             name->uid, name->space, name->domain, name->number);
}

/* Accept only what write_name() writes: parse the name, write it again and compare. */
bool tni_file_name_parse(const char *text, struct tni_file_name *ret_name)
{
    struct tni_file_name name;
    char again[96];
    if (sscanf(text, TNI_FILE_NAME_PREFIX "%" SCNu32 "-%" SCNx64 "-%" SCNx64 "-%" SCNx64,
               &name.uid, &name.space, &name.domain, &name.number) != 4)
        return false;
    write_name(&name, again, sizeof again);
    if (strcmp(text, again) != 0)
        return false;
    *ret_name = name;
    return true;
}

/* Check that the folder is an absolute path: each process has its own current folder. */
int tni_files_check_folder(void)
{
    const char *folder = tni_os_shm_folder();
    return folder[0] == '/' ? 0
                            : tni_fail(TN_ERR_INVALID,
                                       "TENON_SHM_DIR, the folder for named memory, is "
                                       "'%.64s', which is not an absolute path",
                                       folder);
}

int tni_files_name(const struct tn_domain *d, char path[TNI_PATH_BYTES])
{
    struct tni_os_process self; /* from the kernel: other processes can write the seat */
    struct tni_file_name name = {.uid = tni_os_uid(),
                                 .domain = tni_file_name_domain(d->segment.id)};
    char text[96];
    int status = tni_files_check_folder();
    if (status != 0 || (status = tni_os_self(&self)) != 0)
        return status;
    name.space = self.pid_space;
    if ((status = tni_os_random(&name.number, sizeof name.number)) != 0)
        return status;
    write_name(&name, text, sizeof text);
    return tni_os_shm_join(path, TNI_PATH_BYTES, tni_os_shm_folder(), text);
}

bool tni_files_is_ours(const struct tni_segment *s, const char *path)
{
    struct tni_file_name name;
    const char *last = strrchr(path, '/');
    return last != NULL && tni_file_name_parse(last + 1, &name) && name.uid == tni_os_uid() &&
           name.domain == tni_file_name_domain(s->id);
}
