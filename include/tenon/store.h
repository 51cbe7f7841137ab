/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENON_STORE_H
#define TENON_STORE_H

#include <tenon/queue.h>

TN_BEGIN_DECLS

/**
 * A store: a map from keys to values that the processes of a domain share. A value is a
 * message: tensors and bytes, which a get returns without a copy.
 *
 * A key is text of 1 to 512 bytes. A value never changes; a put replaces it. Who has got a
 * value keeps it as long as he likes, whatever happens to its key. Each change of a store has a
 * number, which is the version of the value that was put, and the numbers only rise.
 *
 * Reads take no lock. Puts and deletes of one store come one after another; if a process dies
 * in the middle of one, the key has the old value or the new one.
 *
 * A tn_store is this process's private handle; a forked child may use its parent's. A store
 * ends, and releases its values, when the last process that has it open closed it or died,
 * unless it is kept: tn_store_set_kept().
 *
 * Threads: any number at once may use one tn_store.
 */
typedef tn_object tn_store;

enum { TN_STORE_KEY_BYTES = 512 };

enum {
    /* A put into a full store removes the values that were used least recently. Without this
       flag such a put fails. */
    TN_STORE_EVICT = 1u << 0
};

/** Zero in a field means its default. */
typedef struct tn_store_options {
    size_t struct_size;
    uint32_t capacity; /* keys that the store holds at most; default 4096, at most 2^20 */
    uint32_t flags;    /* TN_STORE_EVICT */
    /* Bytes of all values at most; default: no limit. A value's bytes are those of its tensors'
       storages, counted for each value anew, and of its message. Tensors side by side in one
       storage count once. */
    uint64_t budget_bytes;
} tn_store_options;

/**
 * Open the store with this name, or make it if there is none.
 *
 * @param name     as of tn_queue_open()
 * @param options  borrowed; NULL: the defaults for a store that is made, and any for one that
 *                 exists. A store that exists and differs from a field that is not zero is
 *                 refused, and the detail names both values
 * @param flags    TN_OPEN_*
 * @param ret_store  owned by the caller, ended with tn_object_close(); untouched on failure
 * @return 0, or as tn_queue_open()
 *
 * Threads: any.   Blocks: bounded.   Fork: yes.
 * Crash: the store either exists whole or not at all.
 */
TN_API TN_NODISCARD int tn_store_open(tn_domain *domain, const char *name,
                                      const tn_store_options *options, uint32_t flags,
                                      tn_store **ret_store);

enum {
    TN_PUT_IF_ABSENT = 1u << 0, /* fail if the key has a value */
    TN_PUT_PINNED = 1u << 1     /* the value is not evicted: see tn_store_set_pinned() */
};

/** Zero in a field means its default. */
typedef struct tn_store_put_options {
    size_t struct_size;
    uint32_t flags; /* TN_PUT_* */
    uint32_t reserved;
    uint64_t if_version;  /* fail unless the key's value has this version; 0: put in any case */
    uint64_t lifetime_ns; /* after which the value is removed; 0: never */
    tn_deadline deadline; /* of waits for memory and for other processes; default: TN_NOW */
} tn_store_put_options;

/**
 * Give a key a value, in place of the value that it has.
 *
 * @param key      borrowed; 1 to 512 bytes, ended by a zero byte
 * @param value    borrowed, tensors too: the store takes references of its own. bytes,
 *                 size_bytes, tensors and tensor_count are read
 * @param options  borrowed; NULL: the defaults
 * @param ret_version  the value's version; NULL: not wanted; untouched on failure
 * @return 0, or
 *         TN_ERR_EXISTS     TN_PUT_IF_ABSENT, and the key has a value
 *         TN_ERR_STALE      if_version, and the key has a value of another version
 *         TN_ERR_NOT_FOUND  if_version, and the key has no value
 *         TN_ERR_FULL       the store has as many keys as it can hold, and nothing that may be
 *                           evicted
 *         TN_ERR_NO_MEMORY  the value would exceed the budget, and nothing more may be evicted;
 *                           or there is no memory for the message until the deadline
 *         TN_ERR_TIMED_OUT  another process was in the middle of a change until the deadline,
 *                           and at least 5 s: it may be stopped; the detail names it
 *         TN_ERR_INVALID    the key is empty or too long; or as tn_queue_push()
 *         TN_ERR_CLOSED, TN_ERR_FORKED, TN_ERR_CORRUPT
 *
 * Threads: any.   Blocks: as above.   Fork: yes.
 * Crash: the key has the old value or the new one.
 */
TN_API TN_NODISCARD int tn_store_put(tn_store *store, const char *key, const tn_message *value,
                                     const tn_store_put_options *options,
                                     uint64_t *ret_version);

/**
 * Get the value of a key. No byte of it is copied.
 *
 * @param key        borrowed
 * @param ret_value  owned by the caller, ended with tn_message_fini(); untouched on failure
 * @param ret_version  NULL: not wanted
 * @return 0, or
 *         TN_ERR_NOT_FOUND  the key has no value, or none any more
 *         TN_ERR_INVALID    an argument is NULL, or the key is empty or too long
 *         TN_ERR_NO_MEMORY  private memory
 *         TN_ERR_FULL       the value has more references than its count can hold
 *         TN_ERR_CLOSED, TN_ERR_FORKED, TN_ERR_CORRUPT; or as tn_queue_pop() for tensors that
 *                           cannot be had
 *
 * Threads: any.   Blocks: never.   Fork: yes.   Crash: the reaper gives the references back.
 */
TN_API TN_NODISCARD int tn_store_get(tn_store *store, const char *key, tn_message *ret_value,
                                     uint64_t *ret_version);

/**
 * Get the value of a key; or learn that this process is to make it. Of all processes that ask
 * for a key without a value, one is told to make it, and the others wait. That process calls
 * tn_store_put(), or tn_store_give_up() if it cannot make the value. If it does neither and
 * dies, or closes the store, one of the others is told to make it.
 *
 * @param key        borrowed
 * @param deadline   until when to wait for another process that makes the value
 * @param ret_value  owned by the caller after 0; untouched otherwise
 * @return 0: the value; TN_STORE_MAKE: make it; or
 *         TN_ERR_TIMED_OUT    another process still makes the value at the deadline; or as
 *                             tn_store_put()
 *         TN_ERR_INTERRUPTED  tn_interrupt_set()
 *         or as tn_store_get() and tn_store_put()
 *
 * Threads: any; two threads of one process that ask for one key are treated as two processes.
 * Blocks: until the deadline.   Fork: yes; a child does not make what its parent was told to.
 * Crash: another process is told to make the value.
 */
TN_API TN_NODISCARD int tn_store_get_or_make(tn_store *store, const char *key,
                                             tn_deadline deadline, tn_message *ret_value);
enum { TN_STORE_MAKE = 1 };

/**
 * Say that this process does not make the value that tn_store_get_or_make() told it to make.
 * @return 0; TN_ERR_NOT_FOUND: it was not told to, or the key got a value meanwhile; or as
 *         tn_store_delete()
 *
 * Threads: any.   Blocks: bounded.   Fork: yes.   Crash: as if the call had been made.
 */
TN_API TN_NODISCARD int tn_store_give_up(tn_store *store, const char *key);

/**
 * Remove a key and its value.
 *
 * @param if_version  fail unless the value has this version; 0: in any case
 * @return 0, or TN_ERR_NOT_FOUND; TN_ERR_STALE: the value has another version; TN_ERR_INVALID;
 *         TN_ERR_TIMED_OUT: another process was in the middle of a change for 5 s;
 *         TN_ERR_CLOSED, TN_ERR_FORKED, TN_ERR_CORRUPT
 *
 * Threads: any.   Blocks: bounded.   Fork: yes.   Crash: the key is removed or not.
 */
TN_API TN_NODISCARD int tn_store_delete(tn_store *store, const char *key, uint64_t if_version);

/**
 * Choose whether a value may be evicted. A value that a process holds, or a tensor of it, is
 * not evicted either. A put that replaces the value chooses anew.
 * @return as tn_store_delete()
 *
 * Threads: any.   Blocks: bounded.   Fork: yes.   Crash: it is pinned or not.
 */
TN_API TN_NODISCARD int tn_store_set_pinned(tn_store *store, const char *key, bool pinned);

/**
 * Choose whether the store, and so its domain, stays when no process has it open: tenond keeps
 * both until the last value is deleted, or its lifetime is over. Then the store is kept no
 * longer. A tenond that is killed while the domain has no other process takes all with it.
 * @return 0; TN_ERR_UNSUPPORTED: the domain has no tenond; TN_ERR_INVALID, TN_ERR_CLOSED,
 *         TN_ERR_FORKED
 *
 * Threads: any.   Blocks: never.   Fork: yes.   Crash: it is kept or not.
 */
TN_API TN_NODISCARD int tn_store_set_kept(tn_store *store, bool kept);

/** What a store has under a key. */
typedef struct tn_store_entry {
    const char *key; /* valid during the call of a tn_store_each_fn */
    uint64_t version;
    uint64_t bytes;    /* that count against the budget */
    uint64_t left_ns;  /* until the value is removed; TN_FOREVER.ns: it has no such time */
    uint32_t tensors;  /* of the message */
    bool is_pinned;    /* tn_store_set_pinned() */
    bool is_promised;  /* a process makes the value: there is none yet */
    int32_t maker_pid; /* of that process; else 0 */
} tn_store_entry;

/** @return 0: go on; else the end, which tn_store_for_each() returns */
typedef int tn_store_each_fn(const tn_store_entry *entry, void *context);

/**
 * Call a function for each key that begins with a prefix, in no order. Keys that are put or
 * deleted meanwhile may be among them or not.
 *
 * @param prefix  "": all keys
 * @param each    may call any function of this store
 * @return 0, what `each` returned, or TN_ERR_INVALID, TN_ERR_NO_MEMORY, TN_ERR_CLOSED,
 *         TN_ERR_FORKED
 *
 * Threads: any.   Blocks: as `each` does.   Fork: yes.
 */
TN_API TN_NODISCARD int tn_store_for_each(tn_store *store, const char *prefix,
                                          tn_store_each_fn *each, void *context);

/**
 * Wait until a key that begins with a prefix gets a value or loses it, after a version.
 *
 * The store remembers its last 256 changes, and the first 23 bytes of their keys. So the call
 * may also return for a change of another key: the caller looks what has changed.
 *
 * @param prefix       "": any key
 * @param since        a version; 0: from the beginning
 * @param ret_version  of the store's last change, for the next call; untouched on failure
 * @return 0, or TN_ERR_TIMED_OUT, TN_ERR_INTERRUPTED, TN_ERR_INVALID, TN_ERR_CLOSED,
 *         TN_ERR_FORKED
 *
 * Threads: any.   Blocks: until the deadline.   Fork: yes.
 */
TN_API TN_NODISCARD int tn_store_wait(tn_store *store, const char *prefix, uint64_t since,
                                      tn_deadline deadline, uint64_t *ret_version);

/** How a store was made, and what it did. */
typedef struct tn_store_info {
    size_t struct_size; /* sizeof(tn_store_info), set by the caller */
    uint32_t capacity;
    uint32_t flags; /* TN_STORE_EVICT */
    uint64_t budget_bytes;
    uint32_t count; /* keys that have a value, or a process that makes it */
    uint32_t reserved;
    uint64_t bytes;   /* of all values */
    uint64_t version; /* of the last change */
    /* Since the store was made. A process that dies may take a few of its last hits and misses
       with it. */
    uint64_t hits, misses;
    uint64_t puts, deletes, evictions, expirations;
    bool is_kept; /* tn_store_set_kept() */
} tn_store_info;

/**
 * Describe the store.
 * @param ret_info  its struct_size says how much is filled in; untouched on failure
 * @return 0, TN_ERR_INVALID, TN_ERR_CLOSED, TN_ERR_FORKED, TN_ERR_STALE
 *
 * Threads: any.   Blocks: never.   Fork: yes.
 */
TN_API TN_NODISCARD int tn_store_get_info(const tn_store *store, tn_store_info *ret_info);

TN_END_DECLS

#endif
