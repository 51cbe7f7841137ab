/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pieces: the memory that an allocator of another library got from this one, by its address.
 * Each piece is a tensor, whose only reference the table has. Its user protects the table.
 */
#ifndef TENON_PIECES_H
#define TENON_PIECES_H

#include "core.h"

enum { TNP_PIECE_BUCKETS = 1024 };

struct tnp_pieces {
    struct tnp_piece *buckets[TNP_PIECE_BUCKETS];
    size_t count;
};

/**
 * Add a tensor, which is consumed.
 * @return its address; NULL: there is no memory for the entry, and the tensor is released
 */
void *tnp_pieces_add(struct tnp_pieces *pieces, tn_tensor *tensor);
/** @return the tensor at just this address, borrowed; NULL: none of this table begins there */
tn_tensor *tnp_pieces_find(const struct tnp_pieces *pieces, const void *address);
/** Remove the entry of an address. @return its tensor, owned by the caller; NULL: as above */
tn_tensor *tnp_pieces_take(struct tnp_pieces *pieces, const void *address);

#endif
