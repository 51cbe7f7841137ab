/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guard: each mapping of the library lies between two stretches of address space that cannot
 * be touched. So an index from shared memory that was not checked is a crash, not a read of
 * the next mapping. Sanitizers do not know where a mapping ends.
 */
#include <sys/mman.h>

#include "fuzz.h"
#include "os/os.h"

enum { MOST = 64 };
#define GUARD_BYTES (UINT64_C(256) << 20) /* further than the index of any table reaches */

static struct guarded {
    uint8_t *address; /* of the mapping; NULL: this entry is free */
    uint8_t *begin;
    uint64_t bytes; /* of all */
} table[MOST];

static struct guarded *find(const void *address)
{
    for (int i = 0; i < MOST; i++)
        if (table[i].address == address)
            return &table[i];
    return NULL;
}

/* Move a mapping to where it stands alone; without an entry it stays. */
static void *guard(void *mapped, uint64_t size_bytes, uint64_t align_bytes)
{
    struct guarded *entry = find(NULL);
    uint64_t size = tni_align_up(size_bytes, tni_os_page_bytes());
    uint64_t all = size + align_bytes + 2 * GUARD_BYTES;
    if (entry == NULL)
        return mapped;
    uint8_t *begin =
        mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    FUZZ_CHECK(begin != MAP_FAILED);
    uintptr_t place = (uintptr_t)begin + GUARD_BYTES;
    uint8_t *address = begin + GUARD_BYTES + (tni_align_up(place, align_bytes) - place);
    FUZZ_CHECK(mremap(mapped, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, address) == address);
    *entry = (struct guarded){address, begin, all};
    return address;
}

int __real_tni_os_map(int fd, uint64_t size_bytes, uint64_t align_bytes, bool read_only,
                      void **ret_address);
int __wrap_tni_os_map(int fd, uint64_t size_bytes, uint64_t align_bytes, bool read_only,
                      void **ret_address);
int __wrap_tni_os_map(int fd, uint64_t size_bytes, uint64_t align_bytes, bool read_only,
                      void **ret_address)
{
    int status = __real_tni_os_map(fd, size_bytes, align_bytes, read_only, ret_address);
    if (status == 0)
        *ret_address = guard(*ret_address, size_bytes, align_bytes);
    return status;
}

int __real_tni_os_map_private(uint64_t size_bytes, void **ret_address);
int __wrap_tni_os_map_private(uint64_t size_bytes, void **ret_address);
int __wrap_tni_os_map_private(uint64_t size_bytes, void **ret_address)
{
    int status = __real_tni_os_map_private(size_bytes, ret_address);
    if (status == 0)
        *ret_address = guard(*ret_address, size_bytes, tni_os_page_bytes());
    return status;
}

void __real_tni_os_unmap(void *address, uint64_t size_bytes);
void __wrap_tni_os_unmap(void *address, uint64_t size_bytes);
void __wrap_tni_os_unmap(void *address, uint64_t size_bytes)
{
    struct guarded *entry = address != NULL ? find(address) : NULL;
    if (entry == NULL) {
        __real_tni_os_unmap(address, size_bytes);
        return;
    }
    munmap(entry->begin, entry->bytes);
    entry->address = NULL;
}
