/* SPDX-License-Identifier: Apache-2.0 */
/* explore_views_saved: save and hash what the memory model of C11 keeps. */
#include "explore_views.h"

#include <string.h>

static uint8_t *put(uint8_t *to, const void *from, size_t size_bytes)
{
    memcpy(to, from, size_bytes);
    return to + size_bytes;
}
static const uint8_t *get(const uint8_t *from, void *to, size_t size_bytes)
{
    memcpy(to, from, size_bytes);
    return from + size_bytes;
}

static uint8_t *put_view(uint8_t *to, const struct view *view)
{
    return put(put(to, view->at, known_atomic_count), view->clock, ex.model->process_count);
}
static const uint8_t *get_view(const uint8_t *from, struct view *view, uint32_t count)
{
    memset(view->at + count, 0, known_atomic_count - count);
    return get(get(from, view->at, count), view->clock, ex.model->process_count);
}

size_t views_save(uint8_t *ret)
{
    uint8_t *to = ret;
    unsigned n = ex.model->process_count;
    to = put(to, &known_atomic_count, sizeof known_atomic_count);
    to = put(to, &known_cell_count, sizeof known_cell_count);
    to = put(to, &views.message_count, sizeof views.message_count);
    to = put(to, views.has_told, n);
    for (unsigned p = 0; p < n; p++) {
        to = put_view(to, &views.now[p]);
        to = put_view(to, &views.acquire[p]);
        to = put_view(to, &views.release[p]);
    }
    to = put_view(to, &views.order);
    to = put(to, views.atomic, known_atomic_count * sizeof views.atomic[0]);
    for (uint32_t m = 0; m < views.message_count; m++) {
        to = put(to, &views.message[m].value, sizeof views.message[m].value);
        to = put(to, &views.message[m].is_rmw, 1);
        to = put_view(to, &views.message[m].view);
    }
    to = put(to, views.cell, known_cell_count * sizeof views.cell[0]);
    return (size_t)(to - ret);
}

void views_load(const uint8_t *from)
{
    unsigned n = ex.model->process_count;
    uint32_t atomic_were, cell_were;
    from = get(from, &atomic_were, sizeof atomic_were);
    from = get(from, &cell_were, sizeof cell_were);
    from = get(from, &views.message_count, sizeof views.message_count);
    from = get(from, views.has_told, n);
    for (unsigned p = 0; p < n; p++) {
        from = get_view(from, &views.now[p], atomic_were);
        from = get_view(from, &views.acquire[p], atomic_were);
        from = get_view(from, &views.release[p], atomic_were);
    }
    from = get_view(from, &views.order, atomic_were);
    from = get(from, views.atomic, atomic_were * sizeof views.atomic[0]);
    for (uint32_t m = 0; m < views.message_count; m++) {
        from = get(from, &views.message[m].value, sizeof views.message[m].value);
        from = get(from, &views.message[m].is_rmw, 1);
        from = get_view(from, &views.message[m].view, atomic_were);
    }
    get(from, views.cell, cell_were * sizeof views.cell[0]);
    memset(views.cell + cell_were, 0, (known_cell_count - cell_were) * sizeof views.cell[0]);
    if (atomic_were < known_atomic_count)
        memset(&views.message[views.message_count], 0, sizeof views.message[0]);
    for (uint32_t i = atomic_were; i < known_atomic_count; i++)
        views_add_initial(i);
}

void views_hash(uint64_t hash[2])
{
    static uint64_t bytes[VIEWS_MOST_BYTES / 8];
    size_t size_bytes = views_save((uint8_t *)bytes);
    bytes[size_bytes / 8 + 1] = 0;
    memset((uint8_t *)bytes + size_bytes, 0, 8);
    for (size_t i = 0; 8 * i < size_bytes; i += 2) {
        uint64_t second = 8 * (i + 1) < size_bytes ? bytes[i + 1] : 0;
        hash[0] = mix(hash[0] ^ bytes[i], second);
        hash[1] = mix(hash[1] ^ second, bytes[i]);
    }
}
