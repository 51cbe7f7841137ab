/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inspect: tell which process holds which blocks, without being a member. inspect_domains.c
 * finds domains, inspect_stat.c counts, inspect_blocks.c, inspect_objects.c and
 * inspect_tickets.c list, and inspect_files.c searches for files that belong to no domain.
 *
 * Noun: inspector (a process that reads the tables of a domain and is no member).
 * I1  An inspector maps read-only and has no seat, so members cannot see what it does, nor
 *     its death. It reads only below the limits that members raised, because reading a page
 *     that was never used would give it memory.
 * I2  Every number from shared memory is checked or cut before it is used as a size or an
 *     index, or added; every text is cut and made printable.
 * I3  Repair and gc are the work of a member: they join, and leave again.
 * Callers: users; the tool. tenond need not live. Death: an inspector leaves nothing; one
 * that joined (I3) leaves what any member leaves.
 */
#include "api/inspect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reaper/reaper.h"

int tn_inspector_open(const char *name, tn_inspector **ret_inspector)
{
    int control_fd, arena_fd;

    if (ret_inspector == NULL)
        return tni_fail_null("ret_inspector");
    int status = tni_check_name("domain", name, TNI_NAME_BYTES - 1);
    if (status != 0)
        return status;
    tn_inspector *inspector = calloc(1, sizeof *inspector);
    if (inspector == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for an inspector");
    if ((status = tni_manager_find(name, true, &control_fd, &arena_fd)) != 0)
        goto free_inspector;
    if ((status = tni_segment_attach(control_fd, arena_fd, true, &inspector->segment)) != 0)
        goto close_fds;
    *ret_inspector = inspector;
    return 0;

close_fds:
    tni_os_close(control_fd);
    tni_os_close(arena_fd);
free_inspector:
    free(inspector);
    return status;
}

tn_inspector *tn_inspector_close(tn_inspector *inspector)
{
    if (inspector != NULL)
        tni_segment_detach(&inspector->segment);
    free(inspector);
    return NULL;
}

/* ---- what the files share ---------------------------------------------------------------- */

void tni_inspect_hex_id(const struct tni_segment *s, char hex[TNI_HEX_ID_BYTES])
{
    for (size_t i = 0; i < sizeof s->header->id; i++)
        snprintf(hex + 2 * i, 3, "%02x", TNI_LOOK(s->header->id[i]));
}

void tni_inspect_domain_info(const struct tni_segment *s, tn_domain_entry *ret_info)
{
    tn_domain_entry info = {.uid = TNI_LOOK(s->header->uid),
                            .creator_pid = TNI_LOOK(s->header->creator_pid),
                            .seats_used = tni_process_count(s),
                            .seats = tni_process_limit(s)};
    uint64_t quota = atomic_load(&s->header->quota_bytes);

    tni_text_copy(info.name, sizeof info.name, s->header->name, sizeof s->header->name);
    for (size_t i = 0; i < sizeof info.id; i++)
        info.id[i] = TNI_LOOK(s->header->id[i]);
    info.quota_bytes = TNI_MIN(quota, s->geometry.quota_limit_bytes);
    if (tni_os_memory_committed(s->arena_fd, &info.committed_bytes) != 0)
        info.committed_bytes = 0;
    info.committed_bytes += tni_inspect_outside_bytes(s, NULL);
    info.age_ns = tni_inspect_age(tni_os_shared_ns(), TNI_LOOK(s->header->created_ns));
    if (tni_manager_folder(s, info.runtime_folder, sizeof info.runtime_folder) != 0)
        info.runtime_folder[0] = '\0';
    *ret_info = info;
}

int32_t tni_inspect_seat_pid(const struct tni_segment *s, uint32_t seat)
{
    const struct tni_seat *entry = tni_seat_at(s, seat);
    uint64_t word = atomic_load(&entry->word);
    int32_t pid = atomic_load(&entry->pid);

    if (tni_seat_state(word) == TNI_SEAT_FREE)
        return 0;
    if (pid == 0 && tni_seat_state(word) != TNI_SEAT_REAPING)
        pid = tni_seat_pid(word); /* between the claim and the identity the word has the pid */
    return TNI_MAX(pid, 0);
}

void tni_inspect_seat_command(const struct tni_segment *s, uint32_t seat, char *text,
                              size_t size_bytes)
{
    const struct tni_seat *entry = tni_seat_at(s, seat);
    int32_t pid = tni_inspect_seat_pid(s, seat);

    text[0] = '\0';
    /* A pid of another namespace, or one that was used again, names another process. */
    if (pid != 0 && tni_process_is_here(s, seat))
        tni_os_process_command(pid, text, size_bytes);
    if (text[0] == '\0')
        tni_text_copy(text, size_bytes, entry->command, sizeof entry->command);
}

/* ---- storages outside of the arena ------------------------------------------------------- */

bool tni_inspect_has_memory(const struct tni_segment *s, tni_block block)
{
    return tni_segment_committed(s, block) != 0;
}

bool tni_inspect_backing(const struct tni_segment *s, tni_block block,
                         struct tni_backing *ret_backing)
{
    struct tni_backing b;

    if (!tni_class_is_backing(tni_block_class(block)) ||
        tni_word_state(atomic_load(tni_word_at(s, block))) != TNI_BLOCK_ALLOC ||
        !tni_inspect_has_memory(s, block) || tni_backing_read(s, block, &b) != 0)
        return false;
    /* No object of the host can be larger than the quota, so the sum of sizes cannot overflow.
     */
    if (b.device_type == 0)
        b.object_bytes = TNI_MIN(b.object_bytes, s->geometry.quota_limit_bytes);
    b.data_bytes = TNI_MIN(b.data_bytes, b.object_bytes);
    *ret_backing = b;
    return true;
}

bool tni_inspect_slab(const struct tni_segment *s, tni_block block,
                      struct tni_backing *ret_backing)
{
    tni_block slab = tni_slab_of(s, block);
    return slab.id != 0 && tni_inspect_backing(s, slab, ret_backing) &&
           ret_backing->device_type != 0;
}

bool tni_inspect_is_on_device(const struct tni_segment *s, tni_block block)
{
    struct tni_backing b;
    return tni_class_is_device(&s->geometry, tni_block_class(block)) ||
           (tni_inspect_backing(s, block, &b) && b.device_type != 0);
}

uint64_t tni_inspect_block_bytes(const struct tni_segment *s, tni_block block)
{
    struct tni_backing b;

    if (tni_class_is_backing(tni_block_class(block)))
        return tni_inspect_backing(s, block, &b) ? b.data_bytes : 0;
    uint64_t asked = TNI_LOOK(tni_desc_at(s, block)->bytes);
    return TNI_MIN(asked, tni_block_bytes(&s->geometry, block));
}

/* Not tni_alloc_outside_bytes(), which only a member may call (I1). */
uint64_t tni_inspect_outside_bytes(const struct tni_segment *s, uint64_t *ret_count)
{
    uint32_t frontier = tni_frontier(s, TNI_BACKING_CLASS);
    uint64_t bytes = 0, count = 0;

    for (uint32_t i = 0; i < frontier; i++) {
        struct tni_backing b;
        if (!tni_inspect_backing(s, tni_block_make(TNI_BACKING_CLASS, i), &b) ||
            b.device_type != 0)
            continue;
        bytes += b.object_bytes;
        count++;
    }
    if (ret_count != NULL)
        *ret_count = count;
    return bytes;
}
