/* SPDX-License-Identifier: Apache-2.0 */
/* devices: the tables of layout.h by which processes order work on devices, and share memory of
 * other allocators. Included by layout.h. */
#ifndef TNI_LAYOUT_DEVICES_H
#define TNI_LAYOUT_DEVICES_H

#include <stdatomic.h>

#include "base/base.h"

/* ---- timelines --------------------------------------------------------------------------- */

/*
 * A timeline is a word of the section `values`, which only rises: streams of its owner, a
 * process, write one number after another, and streams and processes wait until the word has
 * reached a number. A token names the timeline and the number. A new owner goes on from the
 * last number of the old one, so what a token waits for stays reached for ever.
 */
enum { TNI_LOSSES = 4 };
/* Numbers that an owner never wrote, since it died before: `from` to `to`. */
struct tni_loss {
    _Atomic uint64_t to; /* 0: no loss, or one that is being written */
    _Atomic uint64_t from;
    _Atomic int32_t pid; /* of that owner */
    _Atomic uint32_t seat;
};
#define TNI_TIMELINE_RETIRED UINT64_MAX
struct tni_timeline {
    _Atomic uint64_t owner;  /* tni_who(); 0: none; TNI_TIMELINE_RETIRED: none ever again */
    _Atomic uint64_t issued; /* the last number that a stream was, or is about to be, given */
    _Atomic uint32_t losses; /* how many there were; the last TNI_LOSSES are in `lost` */
    uint32_t reserved;
    struct tni_loss lost[TNI_LOSSES];
    uint64_t reserved2;
};
_Static_assert(sizeof(struct tni_timeline) == 128, "two lines of a cache");

/* ---- leases ------------------------------------------------------------------------------ */

/*
 * The process `holder` has an allocation of the process `maker` open, which therefore must not
 * free it. The holder claims a free lease, then writes `maker` and `allocation`, as last.
 * If the holder has died, the maker has its device do other work before it frees the memory.
 */
#define TNI_LEASE_OVER UINT64_MAX
struct tni_lease {
    _Atomic uint64_t holder;     /* tni_who(); 0: free; TNI_LEASE_OVER: it has died */
    _Atomic uint64_t maker;      /* tni_who() */
    _Atomic uint64_t allocation; /* struct tni_backing; 0: not written yet */
    _Atomic uint32_t wanted;     /* the maker asks the holder to close what it does not use */
    uint32_t reserved;
};
_Static_assert(sizeof(struct tni_lease) == 32, "two in a line of a cache");

#endif
