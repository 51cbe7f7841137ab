/* SPDX-License-Identifier: Apache-2.0 */
/* audit: what the files of the audit share. Inside the room reaper. */
#ifndef TNI_REAPER_AUDIT_H
#define TNI_REAPER_AUDIT_H

#include "reaper/reaper.h"

struct tni_audit {
    const struct tni_segment *segment;
    struct tn_domain *domain; /* the same domain, of a member; NULL: of an inspector */
    bool is_repair;           /* pre: a member */
    tn_audit_fn *each;        /* may be NULL */
    void *context;
    int found;
    uint32_t unchecked; /* blocks that changed all the time, or of which tenond told nothing */
    uint64_t named_until_ns; /* the time limit for counting blocks by name */
    int stop;                /* the result of `each` that ended the audit; 0: go on */
    uint32_t stayed;         /* how many subjects stayed wrong */
};

/** Report a discrepancy. */
void tni_audit_report(struct tni_audit *audit, bool repaired, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/**
 * Whether a subject stays wrong for about 50 ms, which is longer than any operation or
 * reclaiming takes. If many subjects stayed wrong before, the domain is damaged, and a few
 * quick checks are enough.
 */
typedef bool tni_audit_wrong_fn(const struct tni_audit *audit, const void *subject);
bool tni_audit_stays_wrong(struct tni_audit *audit, tni_audit_wrong_fn *wrong,
                           const void *subject);

/** Check the tables: limits, seats, claims, objects and tickets. */
void tni_audit_tables(struct tni_audit *audit);
/** Check objects and tickets: a part of tni_audit_tables(). */
void tni_audit_objects(struct tni_audit *audit);
/** Check the files of storages outside of the arena: other programs may have changed them. */
int tni_audit_storages(struct tni_audit *audit);
/** Check the owners of timelines, and their words. */
void tni_audit_timelines(struct tni_audit *audit);
/** Check slabs, their blocks, and the descriptors of memory of devices that tenond keeps. */
int tni_audit_devices(struct tni_audit *audit);

#endif
