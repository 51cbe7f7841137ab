/* SPDX-License-Identifier: Apache-2.0 */
/* storage: see storage.h. */
#include <tenon/dlpack.h>

#include "storage.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "os/os.h"

enum { PAGE = 4096, UNSEALED = 4, SHORT = 8, ONCE = 16 };

void fuzz_storage_header(uint32_t strategy, tn_storage_header *ret_header)
{
    struct tni_os_process self;
    FUZZ_CHECK(tni_os_self(&self) == 0);
    *ret_header = (tn_storage_header){.version = TN_STORAGE_VERSION,
                                      .object_bytes = 2 * PAGE,
                                      .data_offset = PAGE,
                                      .data_bytes = 64 * sizeof(float),
                                      .uid = tni_os_uid(),
                                      .strategy = strategy,
                                      .block = 0x06000001,
                                      .generation = 1,
                                      .creator_pid = self.pid,
                                      .creator_start = self.start_time,
                                      .pid_space = self.pid_space,
                                      .dtype_code = kDLFloat,
                                      .dtype_bits = 32,
                                      .dtype_lanes = 1,
                                      .ndim = 2,
                                      .shape = {8, 8},
                                      .strides = {8, 1}};
    memcpy(ret_header->magic, TN_STORAGE_MAGIC, sizeof ret_header->magic);
}

int fuzz_storage_object(const tn_storage_header *h, uint32_t flags)
{
    int seals = F_SEAL_SHRINK | F_SEAL_GROW | ((flags & ONCE) != 0 ? F_SEAL_WRITE : 0);
    int fd = memfd_create("tenon-storage:", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    FUZZ_CHECK(fd >= 0 && pwrite(fd, h, sizeof *h, 0) == (ssize_t)sizeof *h);
    FUZZ_CHECK(ftruncate(fd, (flags & SHORT) != 0 ? PAGE : 2 * PAGE) == 0);
    if ((flags & UNSEALED) == 0)
        FUZZ_CHECK(fcntl(fd, F_ADD_SEALS, seals) == 0);
    return fd;
}
