/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk: the file to which tensors are evicted that the host has no room for.
 *
 * One file without a name, so that the kernel frees it with the process. Ranges of it are taken
 * from its free ranges, which lie in the order of their offsets and never touch each other, or
 * else from its end.
 */
#include <stdlib.h>

#include "sched/disk.h"

struct range {
    struct range *next;
    uint64_t first, end;
};

struct tni_disk {
    tni_os_mutex lock; /* of what follows, but for the descriptor */
    int fd;
    uint64_t end;
    struct range *free;
};

int tni_disk_create(const char *folder, struct tni_disk **ret_disk)
{
    struct tni_disk *disk = calloc(1, sizeof *disk);
    if (disk == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "there is no memory for a scheduler");
    int status = tni_os_disk_open(folder, &disk->fd);
    if (status == 0 && (status = tni_os_mutex_init(&disk->lock)) != 0)
        tni_os_close(disk->fd);
    if (status == 0)
        *ret_disk = disk;
    else
        free(disk);
    return status;
}

void tni_disk_free(struct tni_disk *disk, bool is_own)
{
    if (disk == NULL)
        return;
    for (struct range *range = disk->free, *next; range != NULL; range = next) {
        next = range->next;
        free(range);
    }
    tni_os_close(disk->fd);
    if (is_own)
        tni_os_mutex_fini(&disk->lock);
    free(disk);
}

int tni_disk_fd(const struct tni_disk *disk) { return disk->fd; }

uint64_t tni_disk_take(struct tni_disk *disk, uint64_t size_bytes)
{
    struct range **at = &disk->free, *range = NULL;
    tni_os_mutex_lock(&disk->lock);
    while (*at != NULL && (*at)->end - (*at)->first < size_bytes)
        at = &(*at)->next;
    uint64_t first = disk->end;
    if (*at == NULL) {
        disk->end += size_bytes;
    } else {
        first = (*at)->first;
        (*at)->first += size_bytes;
    }
    if (*at != NULL && (*at)->first == (*at)->end) {
        range = *at;
        *at = range->next;
    }
    tni_os_mutex_unlock(&disk->lock);
    free(range);
    return first;
}

/* Put a free range into the list; `at` is where it belongs. */
static void insert(struct range **at, struct range *before, struct range *range)
{
    struct range *next = range->next = *at;
    *at = range;
    if (next != NULL && next->first == range->end) {
        range->end = next->end;
        range->next = next->next;
        free(next);
    }
    if (before != NULL && before->end == range->first) {
        before->end = range->end;
        before->next = range->next;
        free(range);
    }
}

void tni_disk_give(struct tni_disk *disk, uint64_t first, uint64_t size_bytes)
{
    struct range *range = malloc(sizeof *range), *before = NULL;
    tni_os_disk_discard(disk->fd, first, size_bytes);
    if (range == NULL)
        return; /* the range is not used again */
    *range = (struct range){.first = first, .end = first + size_bytes};
    tni_os_mutex_lock(&disk->lock);
    struct range **at = &disk->free;
    while (*at != NULL && (*at)->first < first) {
        before = *at;
        at = &before->next;
    }
    insert(at, before, range);
    tni_os_mutex_unlock(&disk->lock);
}
