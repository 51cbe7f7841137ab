/* SPDX-License-Identifier: Apache-2.0 */
/*
 * folder: the runtime folder that a domain belongs to, and the tenond that manages the
 * domain.
 *
 * Nouns: place (the runtime folder that a header names), manager (the tenond that a header
 * names, while it lives and holds the lock of its folder).
 * I1  A domain belongs to the runtime folder whose hash is in its header. Only the tenond
 *     of that folder manages the domain, and only members with that folder start a tenond.
 *     If the tenond goes on in another folder, a member follows it before it asks or starts
 *     a tenond. The header alone makes no member follow: see tni_folder_follow().
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

/* The live tenond that manages the domain; 0: there is none, or this process cannot see it. */
static int32_t pid_of_manager(const struct tni_segment *s)
{
    uint64_t manager = atomic_load(&s->header->manager);
    uint32_t seat = tni_who_seat(manager);
    bool is_visible = tni_process_who_lives(s, manager) && tni_process_is_here(s, seat);
    return is_visible ? atomic_load(&tni_seat_at(s, seat)->pid) : 0;
}

bool tni_manager_has_other(const struct tni_segment *s)
{
    char folder[TNI_FOLDER_BYTES];
    int32_t pid = pid_of_manager(s);
    return pid != 0 && pid != tni_os_pid() &&
           tni_os_process_folder(pid, TNI_MANAGER_LOCK, folder, TNI_FOLDER_BYTES) == 0;
}

bool tni_manager_is_in_folder(const struct tni_segment *s, const char *folder)
{
    int32_t pid = pid_of_manager(s);
    return pid != 0 && tni_os_process_has(pid, folder, TNI_MANAGER_LOCK);
}

/* The hash tells whether the process is the tenond that is meant. */
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
    if (runtime == 0 || !tni_folder_of_tenond(pid_of_manager(s), runtime, found))
        return tni_fail(TN_ERR_NOT_FOUND,
                        "this process can see no tenond that manages the domain '%s'", s->name);
    snprintf(folder, size_bytes, "%s", found);
    return 0;
}

/* The runtime folder that a header names. */
struct place {
    uint32_t runtime;
    const struct tni_segment *segment;
};

/* Every member can write into the header, but only the tenond of a folder has its lock. */
static int is_place_of_tenond(const char *folder, void *context)
{
    const struct place *place = context;
    return tni_manager_hash_folder(folder) == place->runtime &&
           (!tni_manager_is_alive(place->segment) ||
            tni_manager_is_in_folder(place->segment, folder));
}

/*
 * I1. A domain that never belonged to this process's folder does not decide the folder. A
 * header that names another folder than that of the live manager does not, either: the manager
 * corrects the header. If the manager died after it went on in another folder, only the header
 * tells which.
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
