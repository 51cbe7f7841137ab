/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store: reads and writes the header with which the memory object or file of a storage begins.
 *
 * Other processes can write the header. So the sizes and offsets in it are copied once, and the
 * copies are compared with the size that the kernel states. The header is read with a system
 * call before it is mapped: a killed maker may leave an object without memory, and a process
 * that touches such an object gets SIGBUS if the system has no memory left.
 */
#include <string.h>

#include "backing/backing.h"

_Static_assert(sizeof(tn_storage_header) <= 4096, "the header fits in one page of any size");
_Static_assert(sizeof(tn_storage_header) == 120 + 2 * 256 + 512,
               "programs without tenon read this");

enum { PID_BITS = 22, DOMAIN_ENTRY = 0 };

static bool is_power_of_two(uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

int tni_store_check(const tn_storage_header *h, uint64_t object_bytes)
{
    if (memcmp(h->magic, TN_STORAGE_MAGIC, sizeof h->magic) != 0)
        return tni_fail(TN_ERR_CORRUPT,
                        "the object is not a storage: its magic number is wrong");
    if (h->version != TN_STORAGE_VERSION)
        return tni_fail(TN_ERR_VERSION, "the storage has version %u of its header, not %d",
                        h->version, TN_STORAGE_VERSION);
    if (h->must_understand != 0)
        return tni_fail(TN_ERR_VERSION,
                        "the storage uses features 0x%x that this library does not know",
                        h->must_understand);
    if (object_bytes < h->object_bytes)
        return tni_fail(TN_ERR_CORRUPT, "the object has %llu bytes, but its header states %llu",
                        (unsigned long long)object_bytes, (unsigned long long)h->object_bytes);
    if (h->data_offset < sizeof *h || !is_power_of_two(h->data_offset) ||
        h->data_offset > h->object_bytes || h->data_bytes > h->object_bytes - h->data_offset)
        return tni_fail(TN_ERR_CORRUPT,
                        "the storage states %llu bytes of data at %llu, in an object of %llu",
                        (unsigned long long)h->data_bytes, (unsigned long long)h->data_offset,
                        (unsigned long long)h->object_bytes);
    return 0;
}

static int stat_object(int fd, bool is_file, struct tni_os_memory *ret_memory)
{
    int status = is_file ? tni_os_shm_stat(fd, ret_memory) : tni_os_memory_stat(fd, ret_memory);
    if (status != 0)
        return status;
    if (is_file && ret_memory->uid != tni_os_uid()) /* another user could truncate it later */
        return tni_fail(TN_ERR_DENIED,
                        "the file of the storage belongs to user %u, but this process runs as "
                        "user %u",
                        ret_memory->uid, tni_os_uid());
    if (!is_file && !ret_memory->is_sealed)
        return tni_fail(TN_ERR_INVALID, "descriptor %d is not sealed against shrinking", fd);
    if (ret_memory->size_bytes < tni_os_page_bytes())
        return tni_fail(TN_ERR_CORRUPT,
                        "the storage is truncated: its object has only %llu bytes",
                        (unsigned long long)ret_memory->size_bytes);
    return 0;
}

int tni_store_map(int fd, bool is_file, bool read_only, struct tni_mapping *ret_mapping)
{
    struct tni_os_memory memory;
    tn_storage_header header;
    void *address;
    int status = stat_object(fd, is_file, &memory);
    if (status == 0)
        status = tni_os_read_at(fd, 0, &header, sizeof header);
    if (status == 0)
        status = tni_store_check(&header, memory.size_bytes);
    if (status != 0)
        return status;
    read_only |= memory.is_write_once;
    status = tni_os_map(fd, header.object_bytes, tni_os_page_bytes(), read_only, &address);
    if (status != 0)
        return status;
    *ret_mapping = (struct tni_mapping){.address = address,
                                        .object_bytes = header.object_bytes,
                                        .data_offset = header.data_offset,
                                        .data_bytes = header.data_bytes,
                                        .inode = memory.inode,
                                        .generation = header.generation,
                                        .refs = 1,
                                        .fd = -1,
                                        .is_read_only = read_only,
                                        .is_write_once = memory.is_write_once};
    return 0;
}

/* ---- holders ----------------------------------------------------------------------------- */

/* C++ programs include the struct that has the entries, so they are not declared _Atomic. */
static uint64_t load(const uint64_t *entry) { return __atomic_load_n(entry, __ATOMIC_SEQ_CST); }

static bool swap(uint64_t *entry, uint64_t expected, uint64_t next)
{
    return __atomic_compare_exchange_n(entry, &expected, next, false, __ATOMIC_SEQ_CST,
                                       __ATOMIC_SEQ_CST);
}

static uint64_t holder_of(const struct tni_os_process *process)
{
    return process->start_time << PID_BITS | (uint32_t)process->pid;
}

static bool is_alive(uint64_t holder, uint64_t pid_space)
{
    struct tni_os_process process = {.pid = (int32_t)(holder & ((1u << PID_BITS) - 1)),
                                     .start_time = holder >> PID_BITS,
                                     .pid_space = pid_space};
    return tni_os_process_state(&process, false) != TNI_OS_DEAD;
}

bool tni_store_is_held(const tn_storage_header *h)
{
    for (uint32_t i = DOMAIN_ENTRY + 1; i < TN_STORAGE_HOLDERS; i++) {
        uint64_t holder = load(&h->holders[i]);
        if (holder != 0 && is_alive(holder, h->pid_space))
            return true;
    }
    return false;
}

int tni_store_attach(const struct tni_mapping *m, uint32_t *ret_entry)
{
    tn_storage_header *h = (tn_storage_header *)(void *)m->address;
    struct tni_os_process self;
    int status = tni_os_self(&self);
    if (status != 0)
        return status;
    if (self.pid_space != h->pid_space)
        return tni_fail(TN_ERR_DENIED, "the file was made in another pid or time namespace, in "
                                       "which no process could see that this process holds it");
    for (uint32_t i = DOMAIN_ENTRY + 1; i < TN_STORAGE_HOLDERS; i++) {
        uint64_t holder = load(&h->holders[i]);
        if ((holder == 0 || !is_alive(holder, h->pid_space)) &&
            swap(&h->holders[i], holder, holder_of(&self))) {
            *ret_entry = i;
            TNI_KILL_POINT("store_attached");
            return 0;
        }
    }
    return tni_fail(TN_ERR_FULL, "%d processes hold the file already", TN_STORAGE_HOLDERS - 1);
}

/* Remove the file of a mapping. TN_ERR_NOT_FOUND: it is gone, or another file has its name. */
static int remove_file(const struct tni_mapping *m)
{
    struct tni_os_memory memory;
    int fd;
    int status = tni_os_shm_open(m->path, &fd);
    if (status != 0)
        return status == TN_ERR_INVALID ? TN_ERR_NOT_FOUND : status;
    if (tni_os_shm_stat(fd, &memory) != 0 || memory.inode != m->inode)
        status = TN_ERR_NOT_FOUND;
    tni_os_close(fd);
    return status != 0 ? status : tni_os_shm_remove(m->path);
}

/* If this process dies before it removes the file, tni_files_collect() removes it. */
void tni_store_detach(const struct tni_mapping *m, uint32_t entry)
{
    tn_storage_header *h = (tn_storage_header *)(void *)m->address;
    struct tni_os_process self;
    if (tni_os_self(&self) != 0 || !swap(&h->holders[entry], holder_of(&self), 0))
        return; /* this process is a forked child, and the entry belongs to its parent */
    if (load(&h->holders[DOMAIN_ENTRY]) != 0 || tni_store_is_held(h))
        return;
    TNI_KILL_POINT("store_detached");
    int status = remove_file(m);
    if (status != 0 && status != TN_ERR_NOT_FOUND)
        tni_log(TNI_LOG_WARNING, "a file was not removed: %s", tn_error_detail());
}
