/* SPDX-License-Identifier: Apache-2.0 */
/*
 * folder: the runtime folder that a domain belongs to, and the tenond that has its lock.
 *
 * Nouns: place (where a domain is, as its header says), office (a tenond is in office while it
 * lives and holds the lock of its folder).
 * I1  A domain belongs to the runtime folder whose hash is in its header; only the tenond of
 *     that folder looks after it, and only members with that folder start one. A member whose
 *     tenond went on in another folder follows it, before it asks or starts a tenond. The
 *     header alone moves nobody: see tni_folder_follow().
 * Callers: the other files of this room. Death: leaves nothing.
 */
#include <stdio.h>
#include <string.h>

#include "reaper/manager.h"

uint32_t tni_manager_runtime(void) { return tni_manager_hash_folder(tni_os_runtime_folder()); }

uint32_t tni_manager_hash_folder(const char *folder)
{
    uint64_t hash = tni_hash(folder, strlen(folder));
    uint32_t half = (uint32_t)(hash ^ hash >> 32);
    return half != 0 ? half : 1;
}

static int is_runtime(const char *folder, void *runtime)
{
    return tni_manager_hash_folder(folder) == *(const uint32_t *)runtime;
}

bool tni_manager_is_ours(uint32_t runtime)
{
    return runtime != 0 && tni_os_runtime_keep(is_runtime, &runtime);
}

bool tni_manager_is_alive(const struct tni_segment *s)
{
    uint64_t manager = atomic_load(&s->header->manager);
    uint32_t seat = tni_who_seat(manager);
    return tni_process_who_lives(s, manager) &&
           (atomic_load(&tni_seat_at(s, seat)->flags) & TNI_SEAT_MANAGER) != 0 &&
           tni_process_seat_state(s, seat) != TNI_OS_DEAD;
}

/* 0: none lives, or none whose descriptors can be looked at from here. */
static int32_t pid_in_office(const struct tni_segment *s)
{
    uint64_t manager = atomic_load(&s->header->manager);
    uint32_t seat = tni_who_seat(manager);
    bool is_visible = tni_process_who_lives(s, manager) && tni_process_is_here(s, seat);
    return is_visible ? atomic_load(&tni_seat_at(s, seat)->pid) : 0;
}

bool tni_manager_is_in_office(const struct tni_segment *s)
{
    char folder[TNI_FOLDER_BYTES];
    int32_t pid = pid_in_office(s);
    return pid != 0 && pid != tni_os_pid() &&
           tni_os_process_folder(pid, TNI_MANAGER_LOCK, folder, TNI_FOLDER_BYTES) == 0;
}

bool tni_manager_is_in_folder(const struct tni_segment *s, const char *folder)
{
    int32_t pid = pid_in_office(s);
    return pid != 0 && tni_os_process_has(pid, folder, TNI_MANAGER_LOCK);
}

/* Of a tenond, by the lock that it holds; the hash says whether it is the one that is meant. */
bool tni_folder_of_tenond(int32_t pid, uint32_t runtime, char folder[TNI_FOLDER_BYTES])
{
    bool is_found =
        tni_os_process_folder(pid, TNI_MANAGER_LOCK, folder, TNI_FOLDER_BYTES) == 0 &&
        tni_manager_hash_folder(folder) == runtime;
    if (!is_found)
        folder[0] = '\0';
    return is_found;
}

int tni_manager_folder(const struct tni_segment *s, char *folder, size_t size_bytes)
{
    uint32_t runtime = atomic_load(&s->header->runtime);
    char found[TNI_FOLDER_BYTES];

    if (runtime == tni_manager_runtime()) {
        snprintf(folder, size_bytes, "%s", tni_os_runtime_folder());
        return 0;
    }
    if (runtime == 0 || !tni_folder_of_tenond(pid_in_office(s), runtime, found))
        return tni_fail(TN_ERR_NOT_FOUND,
                        "no tenond that can be seen from here looks after the domain '%s'",
                        s->name);
    snprintf(folder, size_bytes, "%s", found);
    return 0;
}

/* Where a domain is, as its header says. */
struct place {
    uint32_t runtime;
    const struct tni_segment *segment;
};

/* Anybody can write into the header, but only the tenond of a folder has the lock of it. */
static int is_place_of_tenond(const char *folder, void *context)
{
    const struct place *place = context;
    return tni_manager_hash_folder(folder) == place->runtime &&
           (!tni_manager_is_alive(place->segment) ||
            tni_manager_is_in_folder(place->segment, folder));
}

/*
 * I1. A domain that was never of our folder does not say which one is ours. Nor does a header
 * that names another folder than the tenond that lives has: that tenond puts the header right.
 * Of one that died after it went on, only the header is left to tell.
 */
void tni_folder_follow(struct tn_domain *d)
{
    struct place place = {atomic_load(&d->segment.header->runtime), &d->segment};
    uint32_t before = atomic_load(&tni_reaper_part(d)->runtime);
    bool is_managed = (d->segment.flags & TN_DOMAIN_NO_MANAGER) == 0;
    if (d->is_manager || !is_managed || place.runtime == 0 || place.runtime == before)
        return;
    bool is_ours = before != 0 ? tni_os_runtime_follow(is_place_of_tenond, &place)
                               : tni_manager_is_ours(place.runtime);
    if (is_ours)
        atomic_store(&tni_reaper_part(d)->runtime, place.runtime);
}

void tni_manager_follow(void) { tni_process_for_each(tni_folder_follow); }
