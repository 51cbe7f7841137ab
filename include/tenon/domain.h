/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENON_DOMAIN_H
#define TENON_DOMAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tenon/deadline.h>
#include <tenon/status.h>

TN_BEGIN_DECLS

/**
 * A domain: the processes that share, with their memory.
 *
 * A process that opens a domain takes a seat in it. A child made by fork() has a seat of its
 * own, and references of its own to everything that its parent held, before fork() returns in
 * the child; the same tn_domain pointer is valid there. If no seat is free, calls in the child
 * return TN_ERR_FORKED, and the child keeps no memory alive.
 *
 * A process leaves with tn_domain_close(). A process that ends without that call has died: its
 * references are released all the same, and processes that wait for it are notified.
 */
typedef struct tn_domain tn_domain;

/** Do not start tenond: members reclaim dead members. Not for a domain with a name. */
enum { TN_DOMAIN_NO_MANAGER = 1u << 0 };

/** Zero in a field means its default. */
typedef struct tn_domain_options {
    size_t struct_size;   /* sizeof(tn_domain_options) */
    uint64_t quota_bytes; /* most payload memory, 1 MiB to 1.23 TiB; default: seven eighths of
                             the memory of the machine, or of the process's cgroup if its
                             limit is lower, less if that leaves no 256 MiB of room (half of
                             it at least), and 1 TiB at most */
    uint64_t watermark_bytes; /* free memory kept warm; above it goes back to the system, and
                                 so does what nobody used for 5 to 11 seconds (without tenond:
                                 when somebody waits); default: quota / 4 */
    uint32_t seats;    /* most processes at once, one of them tenond; default 256, at most
                          1024, at least 2, or 1 without tenond */
    uint32_t blocks;   /* most live blocks of one size class; default 2^20, at most 2^23 */
    uint32_t objects;  /* queues, events, locks, ...; default 1024, at most 65536 */
    uint32_t tickets;  /* exported handles at once; default 65536 */
    uint32_t flags;    /* TN_DOMAIN_* */
    uint32_t reserved; /* zero */
    uint64_t device_quota_bytes; /* most memory of tensors on each device; default: no limit */
    uint64_t device_slab_bytes;  /* memory of a device that is taken at once and cut into small
                                    tensors; default and most: 64 MiB. Less wastes less of a
                                    small card, and takes more descriptors */
    uint64_t foreign_wait_ns;    /* how long tn_domain_close() waits for processes that use
                                    tensors in memory of this process's other allocators on
                                    devices (docs/guide/gpu.md); default: 5 s */
} tn_domain_options;

/**
 * A call that opens a domain, or an object in a domain, joins what exists, or else makes it.
 * With one of these flags the call does only one of the two.
 */
enum {
    TN_OPEN_EXISTING = 1u << 0, /* only join: TN_ERR_NOT_FOUND if there is none */
    TN_OPEN_NEW = 1u << 1       /* only make: TN_ERR_EXISTS if there is one */
};

/**
 * Take a seat in a domain, and make the domain if there is none.
 *
 * A name belongs to the runtime folder of the process that made the domain
 * (tn_runtime_folder()). This call looks in the runtime folder of the caller first, and then at
 * every domain of this user: so a shell, a service and a cron job of one user meet, whatever
 * XDG_RUNTIME_DIR says in each. In a process with TENON_RUNTIME_DIR set this call looks in that
 * folder only (tn_inspect_domains() and `tenon ls` list the domains of all folders
 * nevertheless). A new domain is made in the runtime folder of the caller; with TN_OPEN_NEW the
 * call looks for the name nowhere else.
 *
 * A domain that its last member left stays for about a second, and may be joined in that time.
 *
 * @param name     1 to 63 of [A-Za-z0-9._-], not starting with a dot; to join, also the 32
 *                 hexadecimal digits of a domain's id, which no new domain has for a name; or
 *                 NULL: a new domain without a name, which is joined only by inheritance
 * @param options  of a domain that is made; borrowed; NULL for the defaults. A domain that
 *                 exists stays as it is
 * @param flags    TN_OPEN_*
 * @param ret_domain  owned by the caller, ended with tn_domain_close(); untouched on failure
 * @return 0, or
 *         TN_ERR_INVALID    a name, a flag or an option is out of range; or no domain has the
 * id `name`, and without TN_OPEN_EXISTING; or two domains have the name, in other folders than
 * the caller's: the detail names both ids TN_ERR_NOT_FOUND  TN_OPEN_EXISTING, and no domain has
 * this name; the detail says which folder was looked in, and where a domain of that name is. Or
 *                           the folder that the runtime folder would be made in is missing
 *         TN_ERR_EXISTS     TN_OPEN_NEW, and a domain with this name lives
 *         TN_ERR_VERSION    it was made by another version of the shared layout
 *         TN_ERR_DENIED     it belongs to another user; or the runtime folder is not ours or
 *                           not writable; or its tenond is of another user namespace, where our
 *                           user has another number
 *         TN_ERR_CORRUPT    its control segment is truncated or makes no sense
 *         TN_ERR_FULL       every seat is taken
 *         TN_ERR_NO_MEMORY  no memory or address space
 *         TN_ERR_MANAGER    tenond is missing, not executable or does not answer
 *         TN_ERR_SYSTEM     a system call failed, such as for want of descriptors
 *
 * Threads: any.   Blocks: bounded (5 s at most, for tenond).   Fork: yes.
 * Crash: the domain either exists whole or not at all; the seat is given back.
 */
TN_API TN_NODISCARD int tn_domain_open(const char *name, const tn_domain_options *options,
                                       uint32_t flags, tn_domain **ret_domain);

/**
 * Take a seat in the domain that this process inherited through exec, named by TENON_DOMAIN.
 *
 * @param ret_domain  as of tn_domain_open()
 * @return as tn_domain_open() with TN_OPEN_EXISTING, or
 *         TN_ERR_INVALID    ret_domain is NULL
 *         TN_ERR_NOT_FOUND  the variable is not set, or the domain has a name and ended before
 *                           this process joined it
 *         TN_ERR_CORRUPT    the descriptors that the variable names are not a domain
 *
 * Threads: any.   Blocks: bounded.   Fork: yes.
 */
TN_API TN_NODISCARD int tn_domain_inherit(tn_domain **ret_domain);

/**
 * Write the value of TENON_DOMAIN for the program that this process will become by exec(), and
 * let the descriptors that the value names survive the exec. Call it in the child, between
 * fork() and exec().
 *
 * @param value       receives the text, ended by 0
 * @param size_bytes  of `value`; 64 suffices
 * @return 0, TN_ERR_INVALID (NULL, or no room in `value`), TN_ERR_FORKED, TN_ERR_SYSTEM
 */
TN_API TN_NODISCARD int tn_domain_pass(tn_domain *domain, char *value, size_t size_bytes);

/**
 * Leave the domain, and release every reference of this process. Returns NULL; NULL is
 * accepted.
 *
 * Threads: no other thread may be inside a call on this domain or its objects.
 * Blocks: bounded. If tenond lacks the descriptor of a file_descriptor storage that other
 * processes use, the call waits about 5 s for a tenond that is stopped or silent.
 *
 * Tensors, queues and other objects of this domain must not be used afterwards, but may and
 * should still be unref'ed or closed.
 */
TN_API tn_domain *tn_domain_close(tn_domain *domain);

/** tn_domain_info's `seat` in a process that has none. */
enum { TN_NO_SEAT = 0xffff };

/** What a member can ask about its domain and about itself. */
typedef struct tn_domain_info {
    size_t struct_size; /* sizeof(tn_domain_info), set by the caller */
    const char *name;   /* "" if the domain has none; borrowed until the domain is closed */
    uint8_t id[16];
    uint64_t member;      /* a number for this process's stay in the domain, which no other
                             process is ever given; 0 in a child that was forked without
                             a seat */
    uint32_t seat;        /* of this process; TN_NO_SEAT in such a child */
    uint32_t seats;       /* processes that fit, one of them tenond */
    uint64_t quota_bytes; /* now */
    uint64_t quota_limit_bytes;  /* the quota that the domain was made with */
    uint64_t watermark_bytes;    /* now */
    uint64_t device_quota_bytes; /* now, of each device; UINT64_MAX: no limit */
} tn_domain_info;

/**
 * Describe the domain, and this process in it.
 *
 * @param ret_info  its struct_size says how much is filled in; untouched on failure
 * @return 0, or TN_ERR_INVALID: an argument is NULL, or struct_size is out of range
 *
 * Threads: any.   Blocks: never.   Fork: yes.
 */
TN_API TN_NODISCARD int tn_domain_get_info(const tn_domain *domain, tn_domain_info *ret_info);

/**
 * Whether the process with this number (tn_domain_info's `member`) lives and is in the domain.
 * False for any other number, and for NULL.
 *
 * Threads: any.   Blocks: never.   Fork: yes.
 */
TN_API bool tn_domain_has_member(const tn_domain *domain, uint64_t member);

/**
 * Reclaim the seats of all dead processes, and end all handles that have expired, instead of
 * leaving both to tenond. Also count again the blocks that dead processes were changing.
 * @param ret_reaped  how many seats; may be NULL; untouched on failure
 * @return 0, or
 *         TN_ERR_TIMED_OUT  a live member is in the way, such as one that is stopped in the
 *                           middle of a call. Either a seat is not reclaimed yet, or some
 *                           blocks are not counted yet, and their memory stays in use until
 *                           they are. Everything else is done. tenond and waiting members
 *                           retry; the caller may retry as well
 *         TN_ERR_CORRUPT, TN_ERR_FORKED
 *
 * Threads: any.   Blocks: bounded, unless another process reclaims the same seat.   Fork: yes.
 * Crash: the next reaper continues.
 */
TN_API TN_NODISCARD int tn_domain_reap(tn_domain *domain, uint32_t *ret_reaped);

/**
 * Give free memory back to the system until at most `keep_bytes` of it stay committed; and to
 * devices all memory that was taken for small tensors and has none. Another process that has
 * such memory mapped unmaps it in its next call that has to do with devices.
 * @param ret_freed_bytes  may be NULL; untouched on failure
 * @return 0, TN_ERR_INVALID (the domain is NULL), TN_ERR_FORKED
 */
TN_API TN_NODISCARD int tn_domain_trim(tn_domain *domain, uint64_t keep_bytes,
                                       uint64_t *ret_freed_bytes);

/**
 * Change the watermark, for all members: the amount of free memory that stays committed.
 * @return 0, TN_ERR_INVALID (the domain is NULL), TN_ERR_FORKED
 */
TN_API TN_NODISCARD int tn_domain_set_watermark(tn_domain *domain, uint64_t watermark_bytes);

/**
 * Change the quota, for all members.
 * @param quota_bytes  1 MiB to the quota that the domain was made with. What is in use beyond a
 *                     smaller quota stays; only new memory is refused
 * @return 0, TN_ERR_INVALID (the domain is NULL, or quota_bytes is out of range), TN_ERR_FORKED
 */
TN_API TN_NODISCARD int tn_domain_set_quota(tn_domain *domain, uint64_t quota_bytes);

/**
 * Change the quota of devices, for all members: the most memory of tensors on each device.
 * @param quota_bytes  0: no limit. What is in use beyond it stays; only new memory is refused
 * @return 0, TN_ERR_INVALID (the domain is NULL), TN_ERR_FORKED
 */
TN_API TN_NODISCARD int tn_domain_set_device_quota(tn_domain *domain, uint64_t quota_bytes);

/**
 * Get the one pollable descriptor of this process. It is readable when a queue that this
 * process watches with tn_object_watch() may have become ready. Borrowed until the domain is
 * closed.
 *
 * After poll() says readable: call tn_domain_poll_clear(), then try each watched queue.
 *
 * @param ret_fd  borrowed; untouched on failure
 * @return 0, TN_ERR_INVALID (an argument is NULL), TN_ERR_CLOSED (this process has left the
 *         domain), TN_ERR_FORKED (no seat), or TN_ERR_SYSTEM (no descriptor can be made)
 *
 * Threads: any.   Blocks: never.   Fork: yes; a child has a descriptor of its own.
 */
TN_API TN_NODISCARD int tn_domain_poll_fd(tn_domain *domain, int *ret_fd);
/** Make the descriptor of tn_domain_poll_fd() unreadable, until a watched queue rings again. */
TN_API void tn_domain_poll_clear(tn_domain *domain);

TN_END_DECLS

#endif
