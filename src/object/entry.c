/* SPDX-License-Identifier: Apache-2.0 */
/*
 * entry: one entry of the table of objects: made, given its ring, ended.
 *
 * I3  An object without openers is ended: its kind releases its references, then its ring
 *     is released, then its entry is FREE with the next generation.
 * I5  A process that clears the last bit in `openers` without the registry sets the
 *     object's bit UNOPENED, before it clears the bit in its row of opens. The owner of the
 *     registry writes `registry_object` before it makes an entry MAKING or ENDING, and
 *     before it clears a bit of UNOPENED or SUSPECT.
 * Callers: object.c, reclaim.c. Death: the next owner of the registry finds the entry by
 * `registry_object`, and undoes or ends it (reclaim.c).
 */
#include "object/entry.h"

#include <string.h>

#include "object/names.h"

/* Search from the hint on, and around the end: the last make or end was near the hint. */
int tni_entry_find_free(struct tn_domain *d, uint32_t *ret_index)
{
    uint32_t count = d->segment.geometry.objects,
             at = atomic_load(&tni_object_part(d)->object_hint);
    for (uint32_t n = 0; n < count; n++, at++) {
        if (at >= count)
            at = 0;
        uint64_t word = atomic_load(&tni_object_at(&d->segment, at)->word);
        if (tni_object_state(word) != TNI_OBJECT_FREE)
            continue;
        tni_raise_limit(&d->segment.header->object_limit, at + 1);
        atomic_store(&tni_object_part(d)->object_hint, at + 1);
        *ret_index = at;
        return 0;
    }
    return tni_fail(TN_ERR_FULL, "all %u objects of the domain are in use", count);
}

/* Low entries are reused first: scans of all objects stop at the highest used entry. */
static void note_free(struct tn_domain *d, const struct tni_object *object)
{
    uint32_t index = tni_entry_index(d, object);
    if (index < atomic_load(&tni_object_part(d)->object_hint))
        atomic_store(&tni_object_part(d)->object_hint, index);
}

/* Called without the registry: an allocation may take long, and may reclaim dead seats. */
int tni_entry_make_ring(struct tn_domain *d, uint64_t ring_bytes, tni_block *ret_block)
{
    static const struct tni_block_about about = {.kind = TNI_KIND_RING, .is_unfinished = true};
    struct tni_new_block ring;
    int status = tni_ref_alloc(d, ring_bytes, &about, 0, &ring);
    if (status != 0)
        return status;
    if (!ring.is_zero)
        memset(tni_payload_at(&d->segment, ring.block), 0, ring_bytes);
    *ret_block = ring.block;
    return 0;
}

/* The block is announced while its reference moves from this process to the object. */
int tni_entry_give_ring(struct tn_domain *d, struct tni_object *object, tni_block block)
{
    struct tni_thread *thread = tni_thread_enter(d);
    tni_announce_fence(thread, block);
    int status = tni_ref_lend(d, block, true);
    if (status == 0) {
        atomic_store(&object->ring, block.id);
        TNI_KILL_POINT("object_ring_recorded");
    }
    tni_announce_clear(thread);
    tni_thread_leave(thread);
    return status;
}

static void take_ring(struct tn_domain *d, struct tni_object *object)
{
    tni_block block = {atomic_load(&object->ring)};
    if (!tni_geometry_has_block(&d->segment.geometry, block.id)) {
        atomic_store(&object->ring, 0);
        return;
    }
    struct tni_thread *thread = tni_thread_enter(d);
    tni_announce(thread, block, 1);
    atomic_store(&object->ring, 0);
    TNI_KILL_POINT("object_ring_unrecorded");
    tni_ref_drop(d, thread, block);
    tni_thread_leave(thread);
}

static void clear_set(struct tni_seat_set *set)
{
    for (uint32_t w = 0; w < TNI_SEAT_WORDS; w++)
        atomic_store(&set->word[w], 0);
}

void tni_entry_fill(struct tni_object *object, const struct tni_object_spec *spec)
{
    TNI_PUT(object->flags, spec->flags);
    TNI_PUT(object->capacity, spec->capacity);
    TNI_PUT(object->slot_bytes, spec->slot_bytes);
    memset(object->name, 0, sizeof object->name);
    if (spec->name != NULL)
        memcpy(object->name, spec->name, strlen(spec->name));
    for (uint32_t side = 0; side < TNI_COUNT(object->death); side++) {
        atomic_store(&object->death[side], 0);
        atomic_store(&object->death_pid[side], 0);
    }
    atomic_store(&object->ended, 0);
    atomic_store(&object->head, 0);
    atomic_store(&object->tail, 0);
    atomic_store(&object->unpushed, 0);
    atomic_store(&object->redeliveries, 0);
    atomic_store(&object->items, 0);
    atomic_store(&object->room, 0);
    atomic_store(&object->value, spec->value);
    atomic_store(&object->value2, 0);
    atomic_store(&object->suspects_added, 0);
    atomic_store(&object->suspects_done, 0);
    clear_set(&object->openers);
    clear_set(&object->producers);
    clear_set(&object->consumers);
    clear_set(&object->watchers);
}

static void set_free(struct tni_object *object, uint32_t generation)
{
    atomic_store(&object->word, tni_object_word(generation + 1, 0, TNI_OBJECT_FREE, 0));
}

void tni_entry_undo(struct tn_domain *d, struct tni_object *object)
{
    take_ring(d, object);
    tni_names_unlink(&d->segment, tni_entry_index(d, object));
    set_free(object, tni_object_generation(atomic_load(&object->word)));
    note_free(d, object);
}

/* I3 */
void tni_entry_end(struct tn_domain *d, struct tni_object *object)
{
    uint64_t word = atomic_load(&object->word);
    uint32_t generation = tni_object_generation(word), kind = tni_object_kind(word);
    uint32_t index = tni_entry_index(d, object);

    atomic_store(&d->segment.header->registry_object, index + 1); /* I5 */
    atomic_store(&object->word, tni_object_word(generation, d->seat, TNI_OBJECT_ENDING, kind));
    TNI_KILL_POINT("object_ending");
    const struct tni_kind *functions = tni_kind_of(d, kind);
    if (functions != NULL && functions->end != NULL)
        functions->end(d, object);
    take_ring(d, object);
    tni_names_unlink(&d->segment, index);
    set_free(object, generation);
    note_free(d, object);
    TNI_KILL_POINT("object_ended");
}

void tni_entry_end_if_unopened(struct tn_domain *d, uint32_t index)
{
    if (index >= d->segment.geometry.objects)
        return;
    struct tni_object *object = tni_object_at(&d->segment, index);
    if (tni_object_state(atomic_load(&object->word)) == TNI_OBJECT_LIVE &&
        tni_entry_is_unopened(object))
        tni_entry_end(d, object);
}

void tni_entry_clear_bits(struct tni_object *object, uint32_t seat)
{
    tni_seat_set_remove(&object->watchers, seat);
    tni_seat_set_remove(&object->producers, seat);
    tni_seat_set_remove(&object->consumers, seat);
    TNI_KILL_POINT("object_bits_cleared");
    tni_seat_set_remove(&object->openers, seat); /* I2 */
}

/* I3, I5 */
void tni_entry_end_unopened(struct tn_domain *d, struct tni_object *object, bool has_claim)
{
    if (!tni_entry_is_unopened(object))
        return;
    if (has_claim)
        tni_entry_end(d, object);
    else
        tni_bit_set(tni_loose_of(&d->segment, TNI_LOOSE_UNOPENED), tni_entry_index(d, object));
}

void *tni_object_ring(const struct tni_segment *s, const struct tni_object *object,
                      uint64_t need_bytes)
{
    tni_block block = {atomic_load(&object->ring)};
    if (!tni_geometry_has_payload(&s->geometry, block.id) ||
        tni_block_bytes(&s->geometry, block) < need_bytes)
        return NULL;
    return tni_payload_look(s, block);
}
