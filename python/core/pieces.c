/* SPDX-License-Identifier: Apache-2.0 */
#include "pieces.h"

#include <stdlib.h>

struct tnp_piece {
    struct tnp_piece *next;
    const void *address;
    tn_tensor *tensor;
};

static size_t bucket_of(const void *address)
{
    return ((uintptr_t)address >> 9) % TNP_PIECE_BUCKETS;
}

void *tnp_pieces_add(struct tnp_pieces *pieces, tn_tensor *tensor)
{
    void *address = tn_tensor_data(tensor);
    struct tnp_piece *piece = malloc(sizeof *piece), **bucket;
    if (piece == NULL) {
        tn_tensor_unref(tensor);
        return NULL;
    }
    bucket = &pieces->buckets[bucket_of(address)];
    *piece = (struct tnp_piece){.next = *bucket, .address = address, .tensor = tensor};
    *bucket = piece;
    pieces->count++;
    return address;
}

tn_tensor *tnp_pieces_find(const struct tnp_pieces *pieces, const void *address)
{
    const struct tnp_piece *piece = pieces->buckets[bucket_of(address)];
    while (piece != NULL && piece->address != address)
        piece = piece->next;
    return piece == NULL ? NULL : piece->tensor;
}

tn_tensor *tnp_pieces_take(struct tnp_pieces *pieces, const void *address)
{
    struct tnp_piece **at = &pieces->buckets[bucket_of(address)];
    while (*at != NULL && (*at)->address != address)
        at = &(*at)->next;
    struct tnp_piece *piece = *at;
    if (piece == NULL)
        return NULL;
    tn_tensor *tensor = piece->tensor;
    *at = piece->next;
    pieces->count--;
    free(piece);
    return tensor;
}
