/* SPDX-License-Identifier: Apache-2.0 */
/* kept: frees tensors and storages. With TNI_TENSOR_CATCH it keeps their memory for a while. */
#include <stdlib.h>

#include "tensor/build.h"

/* The last 256 storages and views that ended, whose memory is still readable (tensor.c, I4). */
#if TNI_TENSOR_CATCH
enum { KEPT = 256 };
struct kept {
    _Atomic(void *) memory[KEPT];
    _Atomic uint32_t next;
};

/* Keep this memory, and return the memory that was kept 256 calls ago. */
static void *keep(struct kept *kept, void *memory)
{
    uint32_t at = atomic_fetch_add_explicit(&kept->next, 1, memory_order_relaxed) % KEPT;
    return atomic_exchange(&kept->memory[at], memory);
}

void tni_tensor_free_memory(void *memory)
{
    static struct kept views;
    free(keep(&views, memory));
}

struct tni_storage *tni_storage_retire(struct tni_storage *s)
{
    static struct kept storages;
    _Alignas(struct tni_storage)
        uint8_t copy[sizeof *s + sizeof(tn_tensor) + sizeof(int64_t) * 2 * TNI_SPARE_NDIM];
    bool has_room = s->has_room;
    if (has_room) /* copy it before keep(): after that, another thread may reuse the memory */
        memcpy(copy, s, sizeof copy);
    struct tni_storage *older = keep(&storages, s);
    if (older != NULL && older->has_room && has_room) { /* the copy goes on in older memory */
        memcpy(older, copy, sizeof copy);
        ((tn_tensor *)(older + 1))->storage = older;
    }
    return older;
}
#else
void tni_tensor_free_memory(void *memory) { free(memory); }
struct tni_storage *tni_storage_retire(struct tni_storage *s) { return s; }
#endif
