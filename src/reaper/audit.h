/* SPDX-License-Identifier: Apache-2.0 */
/* audit: what the files of the audit share. Inside the room reaper. */
#ifndef TNI_REAPER_AUDIT_H
#define TNI_REAPER_AUDIT_H

#include "reaper/reaper.h"

struct tni_audit {
    const struct tni_segment *segment;
    struct tn_domain *domain; /* that this process is a member of; NULL: an inspector */
    bool is_repair;           /* pre: a member */
    tn_audit_fn *each;        /* may be NULL */
    void *context;
    int found;
    uint32_t unchecked;      /* blocks that were in motion all the time */
    uint64_t named_until_ns; /* no block is counted under its name for longer */
    int stop;                /* what `each` said to end it; 0: go on */
    uint32_t stayed;         /* subjects that were wrong for long */
};

void tni_audit_say(struct tni_audit *audit, bool repaired, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/**
 * Whether `wrong` stays true for about 50 ms: longer than any operation, and than a prompt
 * reclaiming. Where many stayed so, which is damage and no motion, a few looks do for the rest.
 */
typedef bool tni_audit_wrong_fn(const struct tni_audit *audit, const void *subject);
bool tni_audit_stays(struct tni_audit *audit, tni_audit_wrong_fn *wrong, const void *subject);

/** Seats, objects, tickets, claims, limits. */
void tni_audit_tables(struct tni_audit *audit);
/** Of these, objects and tickets. */
void tni_audit_objects(struct tni_audit *audit);
/** What storages outside of the arena name: files that somebody else may have touched. */
int tni_audit_storages(struct tni_audit *audit);

#endif
