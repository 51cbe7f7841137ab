/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_view: a tensor as it stands in a slot: its view, in memory that others write. The bytes
 * lie at the end of their allocation, and need not be aligned.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "harness/tensor.h"
#include "tensor/build.h"

enum { HAS_BLOCK = 1, IS_CONTIGUOUS = 2, IS_SHIFTED = 4, WHICH = 6, HEAD = 48 };

static void decode(tn_domain *d, const uint8_t *view, size_t size_bytes)
{
    tn_tensor *tensor;
    int checked = tni_view_check(&d->segment, view, size_bytes);
    int used = tni_tensor_decode(d, view, size_bytes, &tensor);
    FUZZ_CHECK(checked <= (int)size_bytes && used <= (int)size_bytes);
    if (used < 0)
        return;
    fuzz_touch(tensor);
    if (tensor->storage->mapping != NULL)
        tni_backing_unmap(d, tensor->storage->mapping);
    tensor->storage->mapping = NULL;
    tni_tensor_forget(NULL, tensor);
}

/* Against a storage of so many bytes, which is not read. */
static void decode_within(uint64_t limit, const uint8_t *view, size_t size_bytes)
{
    tn_tensor *tensor;
    if (tni_tensor_decode_as(view, size_bytes, limit, &tensor) < 0)
        return;
    FUZZ_CHECK(tnt_info(tensor).byte_offset <= limit);
    tni_tensor_end(tensor);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes)
{
    struct fuzz_input in = fuzz_input(bytes, size_bytes);
    struct tni_segment hand;
    tn_domain *d;
    uint32_t flags = fuzz_u8(&in);
    uint64_t limit = fuzz_number(&in);
    size_t shift = (flags & IS_SHIFTED) != 0, size = fuzz_left(&in);
    uint8_t *room = malloc(size + shift + 1), *view = room + shift + 1;
    if (room == NULL)
        return 0;
    fuzz_begin();
    fuzz_image_copy(&hand);
    fuzz_fill(&in, view, size);
    if ((flags & HAS_BLOCK) != 0 && size >= 8)
        memcpy(view, fuzz_image_handle(flags >> WHICH)->bytes + HEAD, 8);
    if ((flags & IS_CONTIGUOUS) != 0 && size >= 22)
        view[21] = TNI_VIEW_CONTIGUOUS;
    FUZZ_CHECK(fuzz_image_join(&hand, &d) == 0);
    decode(d, view, size);
    decode_within(limit, view, size);
    tn_domain_close(d);
    tni_segment_detach(&hand);
    fuzz_end();
    free(room);
    return 0;
}
