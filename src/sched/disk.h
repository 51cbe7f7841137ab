/* SPDX-License-Identifier: Apache-2.0 */
/* disk: the file to which tensors are evicted that the host has no room for. */
#ifndef TNI_SCHED_DISK_H
#define TNI_SCHED_DISK_H

#include "os/os.h"

struct tni_disk;

/** @return 0, TN_ERR_NO_MEMORY, or as tni_os_disk_open() */
int tni_disk_create(const char *folder, struct tni_disk **ret_disk);
/** NULL is accepted. @param is_own  whether this process made it */
void tni_disk_free(struct tni_disk *disk, bool is_own);
/** Its file, for tni_os_disk_read() and tni_os_disk_write() */
int tni_disk_fd(const struct tni_disk *disk);
/** Take a range of the file. @return its offset */
uint64_t tni_disk_take(struct tni_disk *disk, uint64_t size_bytes);
void tni_disk_give(struct tni_disk *disk, uint64_t first, uint64_t size_bytes);

#endif
