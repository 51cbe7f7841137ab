/* SPDX-License-Identifier: Apache-2.0 */
/* stores: the ring block of a store, a map from keys to message blocks. Included by layout.h.
 */
#ifndef TNI_LAYOUT_STORES_H
#define TNI_LAYOUT_STORES_H

#include <stdatomic.h>

#include "base/base.h"

/*
 * The block has this head, then `buckets` numbers of entries (2^n, at least the capacity), then
 * the entries. `value` of the store's struct tni_object is its budget in bytes, and `value2`
 * the claim (tni_who()) of the process that changes the store.
 *
 * Only the words of entries say what the store has. The chains of buckets, the list of free
 * entries, `count` and `bytes` follow from them: the next process that has the claim after one
 * that died in the middle of a change makes them anew.
 */
enum { TNI_STORE_CHANGES = 256, TNI_STORE_CHANGE_BYTES = 23, TNI_STORE_VICTIMS = 60 };

/* A change of a store: the version, then {length:8, the first bytes of the key}. */
struct tni_store_change {
    _Atomic uint64_t version; /* 0: this is being written */
    _Atomic uint64_t key[3];
};

struct tni_store {
    _Atomic uint64_t version; /* of the last change */
    /* Odd while a process takes entries out of chains: then a reader that did not find a key
       looks at all entries. */
    _Atomic uint32_t epoch;
    _Atomic uint32_t is_settled; /* 0: the store is new, or a process began a change */
    _Atomic uint32_t free;       /* number + 1 of the first free entry; 0: none */
    _Atomic uint32_t count;      /* entries that have a block */
    _Atomic uint64_t bytes;      /* of these */
    _Atomic uint64_t expires_ns; /* no value expires before this time; 0: none does */
    _Atomic uint64_t puts;
    _Atomic uint64_t deletes;
    _Atomic uint64_t evictions;
    _Atomic uint64_t expirations;
    _Alignas(64) _Atomic uint64_t clock; /* of uses: the last `used` of an entry */
    _Alignas(64) _Atomic uint64_t hits;
    _Atomic uint64_t misses;
    /* Entries that were used least recently, at the last search; hints. */
    _Alignas(64) _Atomic uint64_t victims_used; /* the most recent use of any of them then */
    _Atomic uint32_t victim_count;
    _Atomic uint32_t victims[TNI_STORE_VICTIMS];
    _Alignas(64) struct tni_store_change changes[TNI_STORE_CHANGES]; /* by version, modulo */
};

/* The word of an entry is {turn:32, block:32}. The block is a record; 0: none. */
enum { TNI_STORE_PINNED = 1 };
struct tni_store_entry {
    _Atomic uint64_t word;
    _Atomic uint64_t hash; /* tni_hash_fast() of the key */
    _Atomic uint64_t used;
    _Atomic uint32_t next;  /* number + 1 of the next entry of the chain; 0: none */
    _Atomic uint32_t flags; /* TNI_STORE_PINNED */
};
static inline uint32_t tni_store_turn(uint64_t word) { return (uint32_t)(word >> 32); }
static inline uint32_t tni_store_block(uint64_t word) { return (uint32_t)word; }
static inline uint64_t tni_store_word(uint32_t turn, uint32_t block)
{
    return (uint64_t)turn << 32 | block;
}

/*
 * The head of an entry's message block, before the key, which is padded to a multiple of 8, and
 * the value's bytes. It does not change once the entry names the block.
 */
struct tni_store_item {
    uint64_t version;
    uint64_t expires_ns; /* on the clock of tni_os_shared_ns(); 0: never */
    uint64_t bytes;      /* that count against the budget */
    uint64_t maker; /* tni_who() of the process that makes the value; 0: this is the value */
    uint32_t key_bytes;
    int32_t maker_pid;
    uint32_t tensors; /* of the message */
    uint32_t reserved;
};

#endif
