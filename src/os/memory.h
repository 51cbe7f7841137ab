/* SPDX-License-Identifier: Apache-2.0 */
/* Part of os.h, whose rules hold here: memory objects, mappings, named memory. */
#ifndef TNI_OS_MEMORY_H
#define TNI_OS_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- memory objects: anonymous shared memory behind a descriptor ------------------------- */

struct tni_os_memory {
    uint64_t size_bytes;
    uint32_t uid;   /* of the owner */
    uint64_t inode; /* with `device`, identifies the object on this machine */
    uint64_t device;
    bool is_sealed;     /* it cannot shrink */
    bool is_write_once; /* no new writable mapping, no write through a descriptor */
};

/**
 * Make a memory object that only this user may open. Its size is sealed, and so are its seals:
 * another holder of the descriptor could otherwise seal it against this process's writes.
 * @param size_bytes  a multiple of the page, not 0
 * @return 0, TN_ERR_INVALID, TN_ERR_NO_MEMORY, TN_ERR_SYSTEM (descriptors, a file size limit)
 */
int tni_os_memory_create(const char *name, uint64_t size_bytes, int *ret_fd);
/** The same, but more seals can be added until tni_os_memory_seal_writes(). */
int tni_os_memory_create_sealable(const char *name, uint64_t size_bytes, int *ret_fd);
/** The inode and the device of what a descriptor refers to, whatever it is. TN_ERR_INVALID. */
int tni_os_identify(int fd, uint64_t *ret_inode, uint64_t *ret_device);
/**
 * Where what a descriptor refers to ends: its bytes. It may have an end of 0. TN_ERR_INVALID:
 * it has none.
 */
int tni_os_descriptor_end(int fd, uint64_t *ret_bytes);
/** TN_ERR_INVALID: not a memory object, or one of huge pages (hugetlbfs). */
int tni_os_memory_stat(int fd, struct tni_os_memory *ret_memory);
/** Bytes of memory that the system has allocated for the object. */
int tni_os_memory_committed(int fd, uint64_t *ret_bytes);
/**
 * Refuse, for every process from now on: new writable mappings, writes through descriptors, and
 * more seals. Mappings that are writable now stay writable. TN_ERR_SYSTEM: the object is sealed
 * against seals, or the system has no such seal.
 */
int tni_os_memory_seal_writes(int fd);
/** Open the same object anew, with access rights that are independent of those of `fd`. */
int tni_os_memory_reopen(int fd, bool read_only, int *ret_fd);
/**
 * Write to a memory object or a file. Memory is allocated where there is none, which is cheaper
 * than tni_os_commit() and a copy. TN_ERR_NO_MEMORY.
 */
int tni_os_write_at(int fd, uint64_t offset, const void *source, uint64_t size_bytes);
/**
 * Read from a memory object or a file. Bytes that were never written read as zero, and no
 * memory is allocated for them. A read through a mapping would allocate memory, and could raise
 * SIGBUS. TN_ERR_CORRUPT: the object ends before; TN_ERR_DENIED: the descriptor cannot be read
 * from.
 */
int tni_os_read_at(int fd, uint64_t offset, void *bytes, size_t size_bytes);
/** Give whole pages of the object back to the system; they read as zero then. They need not be
 * mapped. */
int tni_os_punch(int fd, uint64_t offset, uint64_t size_bytes);

/* ---- mappings ---------------------------------------------------------------------------- */

/*
 * Mappings of memory objects are shared. All mappings are made without reserved memory. If
 * address space runs out, or a limit is reached, which the detail names, the error is
 * TN_ERR_NO_MEMORY.
 */

/** Map the object from its start. `align_bytes` is a power of two, at least a page. */
int tni_os_map(int fd, uint64_t size_bytes, uint64_t align_bytes, bool read_only,
               void **ret_address);
/** Map a part of the object for writing; `offset` is a multiple of the page. */
int tni_os_map_part(int fd, uint64_t offset, uint64_t size_bytes, void **ret_address);
/**
 * Map the object from its start at exactly this address, in place of what is mapped there.
 * After a failure there may be nothing. Address and size are multiples of the page.
 */
int tni_os_map_over(int fd, void *address, uint64_t size_bytes, bool read_only);
/** Map private zeroed memory; a page that was never touched costs nothing. */
int tni_os_map_private(uint64_t size_bytes, void **ret_address);
/** Map zeroed memory that forked children share with this process. */
int tni_os_map_shared(uint64_t size_bytes, void **ret_address);
/** Do nothing for NULL. */
void tni_os_unmap(void *address, uint64_t size_bytes);
/**
 * Allocate memory for all pages of a range that is mapped for writing, and keep their bytes. No
 * access to the range raises SIGBUS afterwards. TN_ERR_NO_MEMORY. Fallback: populate_write.
 */
int tni_os_commit(void *address, uint64_t size_bytes);
/** Give whole pages of a shared mapping back to the system; they read as zero then. */
int tni_os_discard(void *address, uint64_t size_bytes);
/** The same for memory of tni_os_map_private(). */
void tni_os_discard_private(void *address, uint64_t size_bytes);
/**
 * Let each forked child find this private memory zeroed, without a copy. @return false: the
 * system cannot do that
 */
bool tni_os_empty_in_children(void *address, uint64_t size_bytes);
/** Ask for huge pages. Best effort. */
void tni_os_advise_huge(void *address, uint64_t size_bytes);
/** Leave this memory out of core dumps. Best effort. */
void tni_os_advise_no_dump(void *address, uint64_t size_bytes);

/* ---- named memory: files of a memory file system ----------------------------------------- */

/** $TENON_SHM_DIR, else /dev/shm. */
const char *tni_os_shm_folder(void);
/** The path of a file in a folder. @return 0, TN_ERR_INVALID (too long) */
int tni_os_shm_join(char *ret_path, size_t size_bytes, const char *folder, const char *name);
/**
 * Make a file with mode 0600 and allocate all its memory. A failure leaves no file; a death
 * inside may leave one that is shorter or lacks memory.
 * @return 0, TN_ERR_EXISTS, TN_ERR_NO_MEMORY (the file system is full or too small: the detail
 *         says how much it has), TN_ERR_DENIED, TN_ERR_NOT_FOUND (no such folder: the detail
 *         says which variable names it), TN_ERR_SYSTEM
 * Fallback: fallocate.
 */
int tni_os_shm_create(const char *path, uint64_t size_bytes, int *ret_fd);
/**
 * Open a file for reading and writing; a symbolic link is not followed. TN_ERR_INVALID: not a
 * regular file; TN_ERR_NOT_FOUND; TN_ERR_DENIED.
 */
int tni_os_shm_open(const char *path, int *ret_fd);
/** The same, for reading only. */
int tni_os_shm_open_read_only(const char *path, int *ret_fd);
/** A file has no seals. TN_ERR_INVALID: not a regular file. */
int tni_os_shm_stat(int fd, struct tni_os_memory *ret_memory);
/** TN_ERR_NOT_FOUND, TN_ERR_DENIED. */
int tni_os_shm_remove(const char *path);
typedef int tni_os_shm_fn(const char *path, const char *name, void *context);
/**
 * Call `each` for every regular file of this user in the folder whose name starts with
 * `prefix`, until it returns a number other than 0. @return that number, 0, or an error
 */
int tni_os_shm_for_each(const char *folder, const char *prefix, tni_os_shm_fn *each,
                        void *context);
/** Size of the file system of tni_os_shm_folder(); UINT64_MAX if no limit is known. */
uint64_t tni_os_shm_bytes(void);

/* ---- files without a name, for what a program would rather not have in memory ------------ */

/**
 * Make one in a folder, with mode 0600; it is gone with its last descriptor. A death inside
 * leaves nothing, or, if the file system has no files without a name, an empty file
 * ".tenon-disk-XXXXXX".
 * @return 0, TN_ERR_NOT_FOUND, TN_ERR_DENIED, TN_ERR_SYSTEM, also if the file system is full
 * Fallback: tmpfile.
 */
int tni_os_disk_open(const char *folder, int *ret_fd);
/** TN_ERR_SYSTEM, also if the file system is full. */
int tni_os_disk_write(int fd, uint64_t offset, const void *bytes, uint64_t size_bytes);
/** TN_ERR_SYSTEM, also if the file ends before. */
int tni_os_disk_read(int fd, uint64_t offset, void *bytes, uint64_t size_bytes);
/** Give the room of a range back to the file system. Best effort. */
void tni_os_disk_discard(int fd, uint64_t offset, uint64_t size_bytes);

#endif
