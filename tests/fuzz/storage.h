/* SPDX-License-Identifier: Apache-2.0 */
/* storage: a storage as a program without tenon would make it. */
#ifndef TENON_TESTS_FUZZ_STORAGE_H
#define TENON_TESTS_FUZZ_STORAGE_H

#include "fuzz.h"

/** A right header: 64 floats in an object of two pages. */
void fuzz_storage_header(uint32_t strategy, tn_storage_header *ret_header);
/** A memory object that begins with a header; `flags`: 4 not sealed, 8 a page too short, 16
 * write-once. */
int fuzz_storage_object(const tn_storage_header *header, uint32_t flags);

#endif
