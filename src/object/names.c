/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names: a hash table of the objects that have a name.
 *
 * Nouns: chain (the objects whose names have the same hash, linked by `name_next`).
 * I1  Only the owner of the registry changes a chain, each time by one store.
 * I2  An object is in its chain before it is LIVE, and out of it before its name is erased.
 * I3  A chain is a hint. A search checks each object on the chain; if one does not belong
 *     there, the owner of the registry builds all chains anew.
 * Callers: object.c. Death: an object is in its chain or not (I1), and the process that
 * undoes or ends it unlinks it. A death during a rebuild leaves `names_lost` set, and the
 * next search rebuilds the chains.
 */
#include "object/names.h"

#include <string.h>

static _Atomic uint32_t *chain_of(const struct tni_segment *s, const char *name)
{
    uint64_t hash = tni_hash(name, strnlen(name, TNI_OBJECT_NAME_BYTES));
    return tni_name_at(s, (uint32_t)hash & (tni_geometry_names(&s->geometry) - 1));
}

static bool is_named(const struct tni_object *object, const char *name)
{
    return tni_object_state(atomic_load(&object->word)) == TNI_OBJECT_LIVE &&
           strncmp(object->name, name, sizeof object->name) == 0;
}

/* I3. The object that `link` names; NULL: there is none, or it is not of this chain. */
static struct tni_object *follow(const struct tni_segment *s, const _Atomic uint32_t *chain,
                                 uint32_t link)
{
    if (!tni_geometry_has_object(&s->geometry, link - 1))
        return NULL;
    struct tni_object *object = tni_object_at(s, link - 1);
    if (tni_object_state(atomic_load(&object->word)) == TNI_OBJECT_FREE ||
        chain_of(s, object->name) != chain)
        return NULL;
    return object;
}

/*
 * Find the link that names `wanted`, or, if that is NULL, the LIVE object of this name.
 * *ret_link is the last link of the chain, which is 0, if the chain does not have it.
 * @return whether all objects before that link belong to the chain
 */
static bool find_link(const struct tni_segment *s, const char *name,
                      const struct tni_object *wanted, _Atomic uint32_t **ret_link)
{
    _Atomic uint32_t *chain = chain_of(s, name);
    *ret_link = chain;
    for (uint32_t steps = 0; steps <= s->geometry.objects; steps++) {
        uint32_t link = atomic_load(*ret_link);
        if (link == 0)
            return true;
        struct tni_object *object = follow(s, chain, link);
        if (object == NULL)
            return false;
        if (wanted != NULL ? object == wanted : is_named(object, name))
            return true;
        *ret_link = &object->name_next;
    }
    return false; /* the chain is a circle */
}

static void build(const struct tni_segment *s)
{
    uint32_t limit = tni_object_limit(s), names = tni_geometry_names(&s->geometry);
    atomic_store(&s->header->names_lost, 1);
    for (uint32_t n = 0; n < names; n++)
        atomic_store(tni_name_at(s, n), 0);
    TNI_KILL_POINT("names_cleared");
    for (uint32_t i = 0; i < limit; i++)
        if (tni_object_state(atomic_load(&tni_object_at(s, i)->word)) != TNI_OBJECT_FREE)
            tni_names_link(s, i);
    atomic_store(&s->header->names_lost, 0);
}

uint32_t tni_names_find(const struct tni_segment *s, const char *name)
{
    _Atomic uint32_t *link = NULL;
    bool is_sound = atomic_load(&s->header->names_lost) == 0 && find_link(s, name, NULL, &link);
    if (!is_sound) {
        build(s);
        is_sound = find_link(s, name, NULL, &link);
    }
    uint32_t found = is_sound ? atomic_load(link) : 0;
    return found != 0 ? found - 1 : s->geometry.objects;
}

bool tni_names_has(const struct tni_segment *s, uint32_t index)
{
    const struct tni_object *object = tni_object_at(s, index);
    _Atomic uint32_t *link;
    return object->name[0] == 0 || atomic_load(&s->header->names_lost) != 0 ||
           (find_link(s, object->name, object, &link) && atomic_load(link) == index + 1);
}

void tni_names_link(const struct tni_segment *s, uint32_t index)
{
    struct tni_object *object = tni_object_at(s, index);
    if (object->name[0] == 0)
        return;
    _Atomic uint32_t *chain = chain_of(s, object->name);
    atomic_store(&object->name_next, atomic_load(chain));
    atomic_store(chain, index + 1);
    TNI_KILL_POINT("object_name_linked");
}

void tni_names_unlink(const struct tni_segment *s, uint32_t index)
{
    struct tni_object *object = tni_object_at(s, index);
    _Atomic uint32_t *link;
    if (object->name[0] == 0)
        return;
    if (!find_link(s, object->name, object, &link))
        atomic_store(&s->header->names_lost, 1);
    else if (atomic_load(link) != 0)
        atomic_store(link, atomic_load(&object->name_next));
    TNI_KILL_POINT("object_name_unlinked");
    object->name[0] = 0;
}
