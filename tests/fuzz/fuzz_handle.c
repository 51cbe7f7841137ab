/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_handle: the bytes of a handle. What a mutation would never find (magic, domain, ticket,
 * hash) is filled in where the input asks for it; the rest stands as it came.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "share/share.h"

enum {
    HAS_MAGIC = 1 << 0,
    HAS_DOMAIN = 1 << 1,
    HAS_TICKET = 1 << 2,
    HAS_SIZE = 1 << 3,
    HAS_HASH = 1 << 4,
    HAS_BLOCK = 1 << 5,
    WHICH = 6, /* which of the image's handles, two bits */
    HEAD = 48, /* where the view begins: handle.c has the wire form */
    HASH = 8
};

static void complete(uint32_t flags, uint8_t *bytes, size_t size_bytes)
{
    const uint8_t *right = fuzz_image_handle(flags >> WHICH)->bytes;
    if ((flags & HAS_MAGIC) != 0)
        memcpy(bytes, right, 16);
    if ((flags & HAS_DOMAIN) != 0)
        memcpy(bytes + 16, right + 16, 16);
    if ((flags & HAS_TICKET) != 0)
        memcpy(bytes + 32, right + 32, 12);
    if ((flags & HAS_SIZE) != 0) {
        uint16_t view_bytes = (uint16_t)(size_bytes - HEAD - HASH);
        memcpy(bytes + 44, &view_bytes, sizeof view_bytes);
        bytes[46] = right[46];
        bytes[47] = 0;
    }
    if ((flags & HAS_BLOCK) != 0 && size_bytes >= HEAD + 8 + HASH)
        memcpy(bytes + HEAD, right + HEAD, 8);
    if ((flags & HAS_HASH) != 0) {
        uint64_t hash = tni_hash(bytes, size_bytes - HASH);
        memcpy(bytes + size_bytes - HASH, &hash, HASH);
    }
}

static void import(tn_domain *d, const uint8_t *bytes, size_t size_bytes)
{
    tn_tensor *tensor;
    uint64_t ticket;
    int status = tni_handle_ticket(bytes, size_bytes, &ticket);
    if (tn_handle_import(d, bytes, size_bytes, &tensor) == 0) {
        FUZZ_CHECK(status == 0);
        fuzz_touch(tensor);
        tn_tensor_unref(tensor);
    }
    if (status == 0)
        (void)!tni_ticket_revoke(d, ticket);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes)
{
    struct fuzz_input in = fuzz_input(bytes, size_bytes);
    struct tni_segment hand;
    tn_domain *d;
    uint32_t flags = fuzz_u8(&in);
    size_t size = fuzz_left(&in);
    uint8_t *handle = malloc(size != 0 ? size : 1);
    if (handle == NULL)
        return 0;
    fuzz_begin();
    fuzz_image_copy(&hand);
    fuzz_fill(&in, handle, size);
    if (size >= HEAD + HASH)
        complete(flags, handle, size);
    FUZZ_CHECK(fuzz_image_join(&hand, &d) == 0);
    import(d, handle, size);
    FUZZ_CHECK(tn_domain_reap(d, NULL) == 0);
    int found = tn_domain_audit(d, false, NULL, NULL, NULL);
    if (found != 0)
        fuzz_fail("%d discrepancies after an import", found);
    tn_domain_close(d);
    tni_segment_detach(&hand);
    fuzz_end();
    free(handle);
    return 0;
}
