/* SPDX-License-Identifier: Apache-2.0 */
/*
 * object: the table of named things.
 *
 * Nouns: object, handle (this process's end), registry (the claim over names, making and
 * ending).
 * I1  An object is made, opened, closed and ended only under the registry claim; used without
 *     it.
 * I2  A seat's bit in `openers` is set before any other bit of it in that object, and cleared
 *     last.
 * I3  An object with no openers is ended: its slots and its ring give their references back,
 *     then its entry is FREE with the next generation.
 * I4  Before a seat's bit in `openers` comes its bit in the seat's row of opens, which goes
 *     after all else is done: to settle a seat is to look at the objects of its row.
 * I5  Whoever takes away the last opener without the claim sets UNOPENED, before its row says
 *     less. The owner of the claim writes `registry_object` before MAKING, before ENDING, and
 *     before it clears a bit of UNOPENED or SUSPECT.
 *
 * Callers: ring.c, event.c, ... and the reaper. Death: bits are cleared; a claim of the dead is
 * taken over, and the one object that the dead was at is undone, ended or marked again (I5):
 * all by tni_queue_settle_seat().
 *
 * It is one file since whoever opens, closes or settles keeps I2 to I5 together.
 */
#include "queue/object.h"

#include <stdlib.h>
#include <string.h>

#include "queue/names.h"
#include "queue/registry.h"
#include "sync/sync.h"

static const char *const kind_names[TNI_OBJECT_KINDS] = {
    NULL, "queue", "event", "semaphore", "lock", "condition", "barrier"};

const char *tni_object_kind_name(uint32_t kind)
{
    return kind < TNI_OBJECT_KINDS ? kind_names[kind] : NULL;
}

/* ---- handles ----------------------------------------------------------------------------- */

static struct tni_thread *handles_enter(struct tn_domain *d)
{
    struct tni_thread *thread = tni_thread_enter(d);
    tni_mutex_lock(&d->handles_lock);
    return thread;
}

static void handles_leave(struct tn_domain *d, struct tni_thread *thread)
{
    tni_mutex_unlock(&d->handles_lock);
    tni_thread_leave(thread);
}

static void note_deaths(struct tni_handle *handle)
{
    for (uint32_t side = 0; side < TNI_COUNT(handle->deaths_seen); side++)
        atomic_store(&handle->deaths_seen[side],
                     (uint32_t)(atomic_load(&handle->object->death[side]) >> 32));
}

static bool is_first_of_object(const struct tni_handle *handle, const struct tni_handle *same)
{
    return same == NULL || same->generation != handle->generation;
}

/* pre: handles_busy is ours */
static void list_handle(struct tn_domain *d, struct tni_handle *handle)
{
    struct tni_handle **same = &d->handles_on[handle->index];
    handle->roles = &d->roles[handle->index];
    if (is_first_of_object(handle, *same))
        atomic_store(handle->roles, 0);
    handle->next = d->handles;
    if (d->handles != NULL)
        d->handles->before = handle;
    d->handles = handle;
    handle->next_same = *same;
    if (*same != NULL)
        (*same)->before_same = handle;
    *same = handle;
    handle->is_listed = true;
}

/* pre: handles_busy is ours */
static void unlist_handle(struct tn_domain *d, struct tni_handle *handle)
{
    *(handle->before != NULL ? &handle->before->next : &d->handles) = handle->next;
    if (handle->next != NULL)
        handle->next->before = handle->before;
    *(handle->before_same != NULL ? &handle->before_same->next_same
                                  : &d->handles_on[handle->index]) = handle->next_same;
    if (handle->next_same != NULL)
        handle->next_same->before_same = handle->before_same;
    handle->is_listed = false;
}

/* pre: the registry is ours: no other thread makes the table. */
static bool ensure_table(struct tn_domain *d)
{
    if (d->handles_on == NULL)
        d->handles_on = calloc(d->segment.geometry.objects, sizeof(struct tni_handle *));
    return d->handles_on != NULL;
}

/* pre: the registry is ours and `index` is LIVE. */
static void *make_handle(struct tn_domain *d, uint32_t index, size_t handle_bytes)
{
    struct tni_handle *handle = ensure_table(d) ? calloc(1, handle_bytes) : NULL;
    if (handle == NULL) {
        tni_fail(TN_ERR_NO_MEMORY, "no private memory for a handle");
        return NULL;
    }
    handle->domain = d;
    handle->index = index;
    handle->object = tni_object_at(&d->segment, index);
    uint64_t word = atomic_load(&handle->object->word); /* LIVE, or MAKING by us */
    handle->generation = tni_object_generation(word);
    handle->word = tni_object_word(handle->generation, tni_object_maker(word), TNI_OBJECT_LIVE,
                                   tni_object_kind(word));
    tni_mutex_lock(&d->opening_lock);
    tni_bit_set(tni_opens_of(&d->segment, d->seat), index); /* I4 */
    TNI_KILL_POINT("object_opening");
    tni_seat_set_add(&handle->object->openers, d->seat);
    TNI_KILL_POINT("object_opened");
    note_deaths(handle);
    struct tni_thread *thread = handles_enter(d);
    list_handle(d, handle);
    handles_leave(d, thread);
    tni_mutex_unlock(&d->opening_lock);
    return handle;
}

uint64_t tni_object_id(const struct tni_handle *handle)
{
    return (uint64_t)handle->generation << 32 | handle->index;
}

int tni_object_check_slow(const struct tni_handle *handle)
{
    if (TNI_UNLIKELY(handle->domain == NULL))
        return tni_fail(TN_ERR_CLOSED, "this process has left the object's domain");
    int status = tni_process_check(handle->domain);
    if (TNI_UNLIKELY(status != 0))
        return status;
    if (TNI_LIKELY(atomic_load_explicit(&handle->object->word, memory_order_relaxed) ==
                   handle->word))
        return 0;
    return tni_fail(TN_ERR_STALE, "object %u is gone", handle->index);
}

/* ---- making and opening ------------------------------------------------------------------ */

static uint32_t index_of(const struct tn_domain *d, const struct tni_object *object)
{
    return (uint32_t)(object - tni_object_at(&d->segment, 0));
}

/* The first from the hint on, around the end: whoever made or ended an object was there last.
 */
static int find_free(struct tn_domain *d, uint32_t *ret_index)
{
    uint32_t count = d->segment.geometry.objects, at = atomic_load(&d->object_hint);
    for (uint32_t n = 0; n < count; n++, at++) {
        if (at >= count)
            at = 0;
        uint64_t word = atomic_load(&tni_object_at(&d->segment, at)->word);
        if (tni_object_state(word) != TNI_OBJECT_FREE)
            continue;
        tni_raise_limit(&d->segment.header->object_limit, at + 1);
        atomic_store(&d->object_hint, at + 1);
        *ret_index = at;
        return 0;
    }
    return tni_fail(TN_ERR_FULL, "all %u objects of the domain are in use", count);
}

/* Low entries are taken again first: what looks at all objects looks at the used part only. */
static void note_free(struct tn_domain *d, const struct tni_object *object)
{
    uint32_t index = index_of(d, object);
    if (index < atomic_load(&d->object_hint))
        atomic_store(&d->object_hint, index);
}

/* Before the registry is entered: it may take long, and settle the dead. The block is ours. */
static int make_ring(struct tn_domain *d, uint64_t ring_bytes, tni_block *ret_block)
{
    static const struct tni_block_about about = {.kind = TNI_KIND_RING, .is_unfinished = true};
    bool is_zero;
    int status = tni_ref_alloc(d, ring_bytes, &about, true, 0, ret_block, &is_zero);
    if (status == 0 && !is_zero)
        memset(tni_payload_at(&d->segment, *ret_block), 0, ring_bytes);
    return status;
}

/* The ring's reference passes from us to the object. */
static int give_ring(struct tn_domain *d, struct tni_object *object, tni_block block)
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

static void fill(struct tni_object *object, const struct tni_object_spec *spec)
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

static bool is_empty(const struct tni_seat_set *set)
{
    return tni_seat_set_count(set, TNI_NO_SEAT) == 0;
}

static void end_object(struct tn_domain *d, struct tni_object *object);

/* pre: the registry is ours. Its last opener may have closed it without the claim. */
static void end_if_unopened(struct tn_domain *d, uint32_t index)
{
    if (index >= d->segment.geometry.objects)
        return;
    struct tni_object *object = tni_object_at(&d->segment, index);
    if (tni_object_state(atomic_load(&object->word)) == TNI_OBJECT_LIVE &&
        is_empty(&object->openers))
        end_object(d, object);
}

/* pre: the registry is ours. */
static int check_new_name(struct tn_domain *d, const char *name)
{
    const struct tni_segment *s = &d->segment;
    if (name != NULL)
        end_if_unopened(d, tni_names_find(s, name));
    if (name == NULL || tni_names_find(s, name) == s->geometry.objects)
        return 0;
    return tni_fail(TN_ERR_EXISTS, "the domain has an object named " TNI_NAME_FORMAT, name);
}

/* pre: the registry is ours. `ring` is the object's from then on, and 0; or still ours. */
static int create_in(struct tn_domain *d, const struct tni_object_spec *spec, tni_block *ring,
                     size_t handle_bytes, void **ret_handle)
{
    uint32_t index = 0;
    void *handle = NULL;
    int status = check_new_name(d, spec->name);
    if (status != 0 || (status = find_free(d, &index)) != 0)
        return status;
    struct tni_object *object = tni_object_at(&d->segment, index);
    uint32_t generation = tni_object_generation(atomic_load(&object->word));
    atomic_store(&object->ring, 0);
    atomic_store(&d->segment.header->registry_object, index + 1); /* I5 */
    atomic_store(&object->word,
                 tni_object_word(generation, d->seat, TNI_OBJECT_MAKING, spec->kind));
    TNI_KILL_POINT("object_making");
    fill(object, spec);
    if (ring->id != 0 && (status = give_ring(d, object, *ring)) == 0)
        ring->id = 0;
    if (status == 0 && (handle = make_handle(d, index, handle_bytes)) == NULL)
        status = TN_ERR_NO_MEMORY;
    if (status == 0) {
        tni_names_link(&d->segment, index);
        atomic_store(&object->word,
                     tni_object_word(generation, d->seat, TNI_OBJECT_LIVE, spec->kind));
        *ret_handle = handle;
    } else {
        take_ring(d, object);
        set_free(object, generation);
    }
    return status;
}

static int create(struct tn_domain *d, const struct tni_object_spec *spec, tni_block *ring,
                  size_t handle_bytes, void **ret_handle)
{
    int status = tni_registry_enter(d);
    if (status == 0) {
        status = create_in(d, spec, ring, handle_bytes, ret_handle);
        tni_registry_leave(d);
    }
    return status;
}

int tni_object_create(struct tn_domain *d, const struct tni_object_spec *spec,
                      size_t handle_bytes, void **ret_handle)
{
    tni_block ring = {0};
    int status = tni_process_check(d);
    if (status == 0 && spec->name != NULL)
        status = tni_check_name(kind_names[spec->kind], spec->name, TNI_OBJECT_NAME_BYTES - 1);
    if (status == 0 && spec->ring_bytes != 0)
        status = make_ring(d, spec->ring_bytes, &ring);
    if (status != 0)
        return status;
    status = create(d, spec, &ring, handle_bytes, ret_handle);
    for (uint32_t tries = 0; status == TN_ERR_FULL && tni_process_relieve(d, &tries);)
        status = create(d, spec, &ring, handle_bytes, ret_handle);
    if (ring.id != 0)
        tni_ref_release(d, ring);
    return status;
}

int tni_object_open(struct tn_domain *d, uint32_t kind, const char *name, uint64_t id,
                    size_t handle_bytes, void **ret_handle)
{
    const struct tni_segment *s = &d->segment;
    int status = tni_process_check(d);
    if (status == 0 && name != NULL)
        status = tni_check_name(kind_names[kind], name, TNI_OBJECT_NAME_BYTES - 1);
    if (status != 0 || (status = tni_registry_enter(d)) != 0)
        return status;
    uint32_t index = name != NULL ? tni_names_find(s, name) : (uint32_t)id;
    end_if_unopened(d, index);
    uint64_t word =
        index < s->geometry.objects ? atomic_load(&tni_object_at(s, index)->word) : 0;
    void *handle;
    if (tni_object_state(word) != TNI_OBJECT_LIVE ||
        (name == NULL && tni_object_generation(word) != (uint32_t)(id >> 32)))
        status = name != NULL
                     ? tni_fail(TN_ERR_NOT_FOUND,
                                "the domain has no object named " TNI_NAME_FORMAT, name)
                     : tni_fail(TN_ERR_NOT_FOUND, "the domain has no object %llx",
                                (unsigned long long)id);
    else if (tni_object_kind(word) != kind)
        status = tni_fail(TN_ERR_INVALID, "object %u is of the kind %s, not %s", index,
                          tni_object_kind(word) < TNI_OBJECT_KINDS && tni_object_kind(word) > 0
                              ? kind_names[tni_object_kind(word)]
                              : "none that is known",
                          kind_names[kind]);
    else if ((handle = make_handle(d, index, handle_bytes)) == NULL)
        status = TN_ERR_NO_MEMORY;
    else
        *ret_handle = handle;
    tni_registry_leave(d);
    return status;
}

/* ---- closing and ending ------------------------------------------------------------------ */

static bool has_suspects(const struct tni_object *object)
{
    return atomic_load(&object->suspects_added) != atomic_load(&object->suspects_done);
}

/* I3. pre: the registry is ours; nobody has it open. Resumable. */
static void end_object(struct tn_domain *d, struct tni_object *object)
{
    uint64_t word = atomic_load(&object->word);
    uint32_t generation = tni_object_generation(word), kind = tni_object_kind(word);
    uint32_t index = index_of(d, object);

    atomic_store(&d->segment.header->registry_object, index + 1); /* I5 */
    atomic_store(&object->word, tni_object_word(generation, d->seat, TNI_OBJECT_ENDING, kind));
    TNI_KILL_POINT("object_ending");
    if (kind == TNI_OBJECT_QUEUE)
        tni_ring_end(d, object);
    take_ring(d, object);
    tni_names_unlink(&d->segment, index);
    set_free(object, generation);
    note_free(d, object);
    TNI_KILL_POINT("object_ended");
}

static void clear_bits(struct tni_object *object, uint32_t seat)
{
    tni_seat_set_remove(&object->watchers, seat);
    tni_seat_set_remove(&object->producers, seat);
    tni_seat_set_remove(&object->consumers, seat);
    TNI_KILL_POINT("object_bits_cleared");
    tni_seat_set_remove(&object->openers, seat); /* I2 */
}

/*
 * Take a handle off the list, if it is still there. True: the process has no other one of its
 * object.
 */
static bool unlink_handle(struct tn_domain *d, struct tni_handle *handle)
{
    bool is_last = true;
    struct tni_thread *thread = handles_enter(d);
    if (handle->is_listed)
        unlist_handle(d, handle);
    for (const struct tni_handle *h = d->handles_on[handle->index]; h != NULL && is_last;
         h = h->next_same)
        is_last = h->generation != handle->generation;
    handles_leave(d, thread);
    return is_last;
}

/* What a process holds ends with its last handle: its seat will be somebody else's. */
static void give_back(struct tn_domain *d, struct tni_object *object, uint32_t kind)
{
    if (kind == TNI_OBJECT_SEMAPHORE)
        tni_semaphore_settle_seat(d, object, d->seat);
    else if (kind == TNI_OBJECT_LOCK)
        tni_lock_settle_seat(d, object, d->seat);
    else if (kind == TNI_OBJECT_QUEUE && tni_seat_set_has(&object->consumers, d->seat))
        tni_ring_settle_seat(d, object, d->seat); /* leases that were not acknowledged */
}

/*
 * Wake who waits at an object that this process has left. A wait for a dead process ends only
 * when no living one could serve it, and this process was perhaps the last; and the leases that
 * this process gave back are messages again. pre: its bits are cleared. If it dies before it
 * wakes the others, whoever settles it does.
 */
static void tell_of_leaving(struct tn_domain *d, struct tni_object *object, bool is_consumer)
{
    if (is_consumer || atomic_load(&object->death[TNI_SIDE_ANY]) != 0)
        tni_object_wake_all(&d->segment, object);
}

/* pre: the registry is ours if `has_claim`. */
static void end_unopened(struct tn_domain *d, struct tni_object *object, bool has_claim)
{
    if (!is_empty(&object->openers))
        return;
    if (has_claim)
        end_object(d, object);
    else
        tni_bit_set(tni_loose_of(&d->segment, TNI_LOOSE_UNOPENED), index_of(d, object));
}

/*
 * Without the claim our bits go all the same, and who looks after the domain next ends what has
 * no opener; only our row says more than there is, since a thread of ours may open it again.
 */
static void close_object(struct tn_domain *d, struct tni_handle *handle)
{
    bool has_claim = tni_registry_enter(d) == 0;
    tni_mutex_lock(&d->opening_lock); /* a thread of ours that opens it may have the claim */
    uint64_t word = atomic_load(&handle->object->word);
    /* Once more: another thread of ours may have opened it before we had the registry. */
    if (tni_object_generation(word) == handle->generation &&
        tni_object_state(word) == TNI_OBJECT_LIVE && unlink_handle(d, handle)) {
        uint32_t kind = tni_object_kind(word);
        bool is_consumer = tni_seat_set_has(&handle->object->consumers, d->seat);
        give_back(d, handle->object, kind);
        clear_bits(handle->object, d->seat);
        tell_of_leaving(d, handle->object, is_consumer);
        end_unopened(d, handle->object, has_claim);
        if (has_claim)
            tni_bit_clear(tni_opens_of(&d->segment, d->seat), handle->index); /* I4 */
    }
    tni_mutex_unlock(&d->opening_lock);
    if (has_claim)
        tni_registry_leave(d);
}

/* In a child without a seat the object is its parent's; the list of handles is its own. */
static void detach(struct tn_domain *d, struct tni_handle *handle)
{
    bool has_seat = tni_process_has_seat(d);
    if (unlink_handle(d, handle) && has_seat)
        close_object(d, handle);
}

void tni_object_close(struct tni_handle *handle)
{
    if (handle == NULL)
        return;
    struct tn_domain *d = handle->domain;
    /* After the domain was left the domain may be gone: see tni_queue_fini(). */
    if (d != NULL)
        detach(d, handle);
    free(handle);
}

static _Atomic uint32_t no_roles;

void tni_queue_fini(struct tn_domain *d)
{
    while (d->handles != NULL) {
        struct tni_handle *handle = d->handles;
        detach(d, handle);
        handle->roles = &no_roles;
        handle->domain = NULL; /* the user frees it; there is nothing left to do then */
    }
}

/* ---- fork -------------------------------------------------------------------------------- */

static int open_for_child(struct tn_domain *d, uint32_t child)
{
    for (const struct tni_handle *h = d->handles; h != NULL; h = h->next) {
        tni_bit_set(tni_opens_of(&d->segment, child), h->index); /* I4 */
        tni_seat_set_add(&h->object->openers, child);
        TNI_KILL_POINT("fork_object_opened");
    }
    return 0;
}

TNI_AROUND_FORK static void reset_in_child(struct tn_domain *d)
{
    tni_mutex_reset(&d->opening_lock);
    if (d->is_empty_in_children)
        return;
    for (struct tni_handle *h = d->handles; h != NULL; h = h->next)
        if (atomic_load(h->roles) != 0) /* what is not written to is not copied */
            atomic_store(h->roles, 0);
}

int tni_queue_init(struct tn_domain *d)
{
    tni_process_hook(
        d, &(struct tni_fork_hooks){.prepare = open_for_child, .child = reset_in_child});
    return 0;
}

void *tni_object_ring(const struct tni_segment *s, const struct tni_object *object,
                      uint64_t need_bytes)
{
    tni_block block = {atomic_load(&object->ring)};
    if (!tni_geometry_has_block(&s->geometry, block.id) ||
        tni_block_bytes(&s->geometry, block) < need_bytes)
        return NULL;
    return tni_payload_look(s, block);
}

/* ---- the dead ---------------------------------------------------------------------------- */

static void note_death(struct tni_object *object, uint32_t side, uint32_t seat, int32_t pid)
{
    uint64_t old = atomic_load(&object->death[side]), next;
    if (side == TNI_SIDE_PRODUCER)
        atomic_fetch_or(&object->ended, TNI_QUEUE_BEREFT); /* before anybody knows of it */
    atomic_store(&object->death_pid[side], pid);
    do /* others settle other seats: the count never falls */
        next = tni_who(seat, (uint32_t)(old >> 32) + 1);
    while (!atomic_compare_exchange_strong(&object->death[side], &old, next));
}

/*
 * Ring first, and disarm only what was armed at our look. Who is killed or stopped before the
 * ring leaves it to the next one who rings, or to who settles the dead; so does who cannot
 * ring. Who dies after it has made the descriptor readable. One that was cleared and armed
 * again meanwhile stays armed.
 */
static void ring_descriptor(const struct tni_segment *s, uint32_t seat)
{
    struct tni_seat *entry = tni_seat_at(s, seat);
    uint32_t armed = atomic_load(&entry->bell_fd_armed);
    if (TNI_LIKELY((armed & TNI_BELL_ARMED) == 0))
        return;
    TNI_KILL_POINT("bell_rings");
    if (!tni_process_bell_ring(s, seat))
        return;
    TNI_KILL_POINT("bell_rung");
    atomic_compare_exchange_strong(&entry->bell_fd_armed, &armed,
                                   armed & ~(uint32_t)TNI_BELL_ARMED);
}

void tni_object_ring_watchers(const struct tni_segment *s, const struct tni_object *object)
{
    for (uint32_t w = 0; w < TNI_SEAT_WORDS; w++)
        for (uint64_t bits = atomic_load(&object->watchers.word[w]); bits != 0;
             bits &= bits - 1) {
            uint32_t seat = w * 64 + tni_low_bit(bits);
            if (!tni_geometry_has_seat(&s->geometry, seat))
                continue;
            struct tni_seat *entry = tni_seat_at(s, seat);
            tni_wait_notify(&entry->bell, INT32_MAX);
            ring_descriptor(s, seat);
        }
}

void tni_object_wake_all(const struct tni_segment *s, struct tni_object *object)
{
    /* Who said that it looks may be the one that died. */
    atomic_fetch_and(&object->items, ~(uint32_t)TNI_WAIT_LOOKING);
    atomic_fetch_and(&object->room, ~(uint32_t)TNI_WAIT_LOOKING);
    tni_wait_notify_all(&object->items);
    tni_wait_notify_all(&object->room);
    tni_object_ring_watchers(s, object);
}

static void settle_kind(struct tn_domain *d, struct tni_object *object, uint32_t kind,
                        uint32_t seat)
{
    switch (kind) {
    case TNI_OBJECT_QUEUE:
        tni_ring_settle_seat(d, object, seat);
        break;
    case TNI_OBJECT_SEMAPHORE:
        tni_semaphore_settle_seat(d, object, seat);
        break;
    case TNI_OBJECT_LOCK:
        tni_lock_settle_seat(d, object, seat);
        break;
    case TNI_OBJECT_BARRIER:
        tni_barrier_settle_seat(d, object, seat);
        break;
    default:
        break; /* events and conditions hold nothing of anybody */
    }
}

/* fork() failed: nobody had the seat, so nobody has died. */
static bool is_unborn(const struct tni_seat *entry)
{
    return (atomic_load(&entry->flags) & TNI_SEAT_UNBORN) != 0 && atomic_load(&entry->pid) == 0;
}

/*
 * The seat's bit goes after its death was noted: a recoverer that is killed in between leaves
 * the bit, and the next one notes the death again. Nobody is told of a death while the bit is
 * there, so two recoverers may also count the deaths of two seats as one.
 */
static void settle_role(struct tni_object *object, uint32_t side, uint32_t seat, int32_t pid)
{
    struct tni_seat_set *set =
        side == TNI_SIDE_PRODUCER ? &object->producers : &object->consumers;
    if (!tni_seat_set_has(set, seat))
        return;
    note_death(object, side, seat, pid);
    TNI_KILL_POINT("settle_role_noted");
    tni_seat_set_remove(set, seat);
}

/*
 * I4: a recoverer that starts anew comes to the object again, and wakes all at it even if the
 * one before cleared the seat's bits.
 */
static void settle_live(struct tn_domain *d, struct tni_object *object, uint32_t kind,
                        uint32_t seat)
{
    const struct tni_seat *entry = tni_seat_at(&d->segment, seat);
    int32_t pid = atomic_load(&entry->pid);

    if (!tni_seat_set_has(&object->openers, seat) || is_unborn(entry)) {
        clear_bits(object, seat);
        tni_object_wake_all(&d->segment, object);
        return;
    }
    settle_kind(d, object, kind, seat);
    TNI_KILL_POINT("settle_object_kind");
    settle_role(object, TNI_SIDE_PRODUCER, seat, pid);
    settle_role(object, TNI_SIDE_CONSUMER, seat, pid);
    note_death(object, TNI_SIDE_ANY, seat, pid);
    TNI_KILL_POINT("settle_object_noted");
    clear_bits(object, seat);
    TNI_KILL_POINT("settle_object_closed");
    tni_object_wake_all(&d->segment, object);
}

/*
 * pre: the registry is ours. What nobody makes is undone, what nobody has open or what is half
 * ended is ended.
 */
static void finish_object(struct tn_domain *d, uint32_t index)
{
    if (!tni_geometry_has_object(&d->segment.geometry, index))
        return;
    struct tni_object *object = tni_object_at(&d->segment, index);
    uint64_t word = atomic_load(&object->word);
    uint32_t state = tni_object_state(word);
    if (state == TNI_OBJECT_MAKING) {
        take_ring(d, object);
        tni_names_unlink(&d->segment, index);
        set_free(object, tni_object_generation(word));
        note_free(d, object);
    } else if (state == TNI_OBJECT_ENDING ||
               (state == TNI_OBJECT_LIVE && is_empty(&object->openers))) {
        end_object(d, object);
    } else if (has_suspects(object)) {
        tni_bit_set(tni_loose_of(&d->segment, TNI_LOOSE_SUSPECT), index);
    }
}

/*
 * The claim of a dead seat passes to us, with what it was at (I5); a live one's is waited for a
 * moment.
 */
static int registry_take_over(struct tn_domain *d, uint32_t dead)
{
    uint64_t who = atomic_load(&d->segment.header->registry);
    if (who == 0 || tni_who_seat(who) != dead || !tni_registry_take(d, who))
        return tni_registry_enter_settling(d);
    finish_object(d, atomic_load(&d->segment.header->registry_object) - 1);
    return 0;
}

/*
 * pre: the registry is ours. The bit goes first: an opener that goes meanwhile either is seen
 * by our look, or sets it again.
 */
static void finish_unopened(struct tn_domain *d)
{
    _Atomic uint64_t *row = tni_loose_of(&d->segment, TNI_LOOSE_UNOPENED);
    uint32_t limit = tni_object_limit(&d->segment);
    for (uint32_t i = tni_bit_next(row, 0, limit); i < limit;
         i = tni_bit_next(row, i + 1, limit)) {
        atomic_store(&d->segment.header->registry_object, i + 1); /* I5 */
        tni_bit_clear(row, i);
        TNI_KILL_POINT("object_unopened_cleared");
        finish_object(d, i);
    }
}

static bool has_unopened(const struct tni_segment *s)
{
    uint32_t limit = tni_object_limit(s);
    return tni_bit_next(tni_loose_of(s, TNI_LOOSE_UNOPENED), 0, limit) < limit;
}

void tni_queue_finish_unopened(struct tn_domain *d)
{
    if (!has_unopened(&d->segment) || tni_registry_enter_settling(d) != 0)
        return;
    finish_unopened(d);
    tni_registry_leave(d);
}

int tni_queue_finish(struct tn_domain *d, uint32_t index)
{
    int status = tni_registry_enter_settling(d);
    if (status == 0) {
        finish_object(d, index);
        tni_registry_leave(d);
    }
    return status;
}

static bool needs_finish(const struct tn_domain *d, uint32_t dead)
{
    uint64_t who = atomic_load(&d->segment.header->registry);
    return (who != 0 && tni_who_seat(who) == dead) || has_unopened(&d->segment);
}

/* I4. The seat is dead: nobody but its recoverer writes its row. */
static void settle_opens(struct tn_domain *d, bool are_queues, uint32_t seat)
{
    _Atomic uint64_t *row = tni_opens_of(&d->segment, seat);
    uint32_t limit = tni_object_limit(&d->segment);
    for (uint32_t i = tni_bit_next(row, 0, limit); i < limit;
         i = tni_bit_next(row, i + 1, limit)) {
        struct tni_object *object = tni_object_at(&d->segment, i);
        uint64_t word = atomic_load(&object->word);
        uint32_t kind = tni_object_kind(word);
        bool is_live = tni_object_state(word) == TNI_OBJECT_LIVE && kind < TNI_OBJECT_KINDS;
        if (are_queues && !(is_live && kind == TNI_OBJECT_QUEUE))
            continue;
        if (is_live) {
            settle_live(d, object, kind, seat);
            end_unopened(d, object, false);
        }
        TNI_KILL_POINT("settle_object_woken");
        tni_bit_clear(row, i);
    }
    tni_bit_forget(row, limit);
}

int tni_queue_settle_seat(struct tn_domain *d, uint32_t seat)
{
    /* Queues first: who counts in a semaphore what queues gave out never finds too little. */
    settle_opens(d, true, seat);
    settle_opens(d, false, seat);
    int status = 0;
    if (needs_finish(d, seat) && (status = registry_take_over(d, seat)) == 0) {
        finish_unopened(d);
        tni_registry_leave(d);
    }
    tni_semaphore_take_announces(d, seat);
    /* It may have freed the registry and told nobody, or died of the one wake-up there was. */
    tni_wait_notify(&d->segment.header->registry_wait, INT32_MAX);
    return status;
}

/* ---- recounts of what the dead were changing --------------------------------------------- */

bool tni_queue_has_suspects(const struct tni_segment *s)
{
    return atomic_load(&s->header->objects_added) != atomic_load(&s->header->objects_done);
}

static bool recount_object(struct tn_domain *d, uint32_t index, uint64_t deadline_ns)
{
    bool is_done = tni_semaphore_recount(d, index);
    if (is_done || tni_os_now_ns() >= deadline_ns)
        return is_done;
    tni_process_name_recounted(d, tni_recounted_object(index));
    uint32_t tries = 0;
    do {
        tni_os_back_off(tries++);
        is_done = tni_semaphore_recount(d, index);
    } while (!is_done && tni_os_now_ns() < deadline_ns);
    tni_process_name_recounted(d, 0);
    return is_done;
}

int tni_queue_recount(struct tn_domain *d, uint64_t deadline_ns)
{
    struct tni_header *h = d->segment.header;
    if (!tni_queue_has_suspects(&d->segment))
        return 0;
    /* Has objects stay: whoever ends one has the registry. */
    int status = tni_registry_enter_settling(d);
    if (status != 0)
        return status;
    uint64_t added = atomic_load(&h->objects_added); /* whoever added has marked its object */
    uint32_t left = 0;
    _Atomic uint64_t *row = tni_loose_of(&d->segment, TNI_LOOSE_SUSPECT);
    uint32_t limit = tni_object_limit(&d->segment);
    for (uint32_t i = tni_bit_next(row, 0, limit); i < limit;
         i = tni_bit_next(row, i + 1, limit)) {
        const struct tni_object *object = tni_object_at(&d->segment, i);
        left += has_suspects(object) && !recount_object(d, i, deadline_ns);
        atomic_store(&h->registry_object, i + 1); /* I5 */
        tni_bit_clear(row, i);
        TNI_KILL_POINT("semaphore_unmarked");
        if (has_suspects(object)) /* it is not done, or was marked meanwhile */
            tni_bit_set(row, i);
    }
    if (left == 0)
        atomic_store(&h->objects_done, added);
    tni_registry_leave(d);
    if (left == 0)
        return 0;
    return tni_fail(TN_ERR_TIMED_OUT,
                    "%u semaphores are still to be recounted: live threads are changing them",
                    left);
}

/* ---- records ----------------------------------------------------------------------------- */

uint64_t tni_queue_count_records(const struct tni_segment *s, tni_block block)
{
    uint32_t limit = tni_object_limit(s);
    uint64_t count = 0;
    for (uint32_t i = 0; i < limit; i++) {
        const struct tni_object *object = tni_object_at(s, i);
        uint64_t word = atomic_load(&object->word);
        if (tni_object_state(word) == TNI_OBJECT_FREE)
            continue;
        count += atomic_load(&object->ring) == block.id;
        if (tni_object_kind(word) == TNI_OBJECT_QUEUE)
            count += tni_ring_count_records(s, object, block);
    }
    return count;
}

void tni_queue_for_each_record(const struct tni_segment *s, tni_record_fn *each, void *context)
{
    uint32_t limit = tni_object_limit(s);
    for (uint32_t i = 0; i < limit; i++) {
        const struct tni_object *object = tni_object_at(s, i);
        uint64_t word = atomic_load(&object->word);
        if (tni_object_state(word) == TNI_OBJECT_FREE)
            continue;
        uint32_t ring = atomic_load(&object->ring);
        if (ring != 0)
            each((tni_block){ring}, context);
        if (tni_object_kind(word) == TNI_OBJECT_QUEUE)
            tni_ring_for_each_record(s, object, each, context);
    }
}
