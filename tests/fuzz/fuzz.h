/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz: what the targets share. A target is a file fuzz_WHAT.c with LLVMFuzzerTestOneInput().
 * libFuzzer drives it (dev/fuzz), or replay.c, which runs the corpus as a test.
 *
 * Nouns: input (bytes, read from the front; zeros follow its end), world (time and processes
 * as the target sees them), image (a small domain with dead and living members, whose copies
 * are damaged). The clock of the world moves only when it is read, and jumps over every sleep.
 * So an input takes no real time, gives the same result each time, and an endless wait is
 * found. The world starts, signals and searches no process.
 */
#ifndef TENON_TESTS_FUZZ_H
#define TENON_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tenon/tenon.h>

#include "segment/segment.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes);

/* ---- input ------------------------------------------------------------------------------- */

struct fuzz_input {
    const uint8_t *at, *end;
};

static inline struct fuzz_input fuzz_input(const uint8_t *bytes, size_t size_bytes)
{
    return (struct fuzz_input){bytes, bytes + size_bytes};
}
static inline size_t fuzz_left(const struct fuzz_input *in)
{
    return (size_t)(in->end - in->at);
}
/** Little-endian; bytes behind the end are 0. */
uint64_t fuzz_take(struct fuzz_input *in, size_t bytes);
static inline uint8_t fuzz_u8(struct fuzz_input *in) { return (uint8_t)fuzz_take(in, 1); }
static inline uint32_t fuzz_u16(struct fuzz_input *in) { return (uint32_t)fuzz_take(in, 2); }
static inline uint32_t fuzz_u32(struct fuzz_input *in) { return (uint32_t)fuzz_take(in, 4); }
static inline uint64_t fuzz_u64(struct fuzz_input *in) { return fuzz_take(in, 8); }
/** A number of a kind that often breaks code: small, all ones, near a power of two, or any. */
uint64_t fuzz_number(struct fuzz_input *in);
/** Copy bytes of the input; those behind its end are 0. */
void fuzz_fill(struct fuzz_input *in, void *bytes, size_t size_bytes);
/** Overwrite some of the bytes with numbers that the input chooses. */
void fuzz_overlay(struct fuzz_input *in, void *bytes, size_t size_bytes);
/** The rest of the input as text of at most `most` bytes, in memory that the caller frees. */
char *fuzz_text(struct fuzz_input *in, size_t most);

/* ---- world ------------------------------------------------------------------------------- */

/** Print a failure and abort. */
void fuzz_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
#define FUZZ_CHECK(condition)                                                                  \
    do {                                                                                       \
        if (!(condition))                                                                      \
            fuzz_fail("%s:%d: %s: %s", __FILE__, __LINE__, #condition, tn_error_detail());     \
    } while (0)

/**
 * Begin an input. The first call makes a runtime folder and one for named memory, which are
 * this process's own.
 */
void fuzz_begin(void);
/** Name these folders in the environment again. */
void fuzz_restore_folders(void);
/** End an input, and check that as many descriptors are open as at its begin. */
void fuzz_end(void);
/** Use the real clock again, for a world of real processes. */
void fuzz_leave_world(void);
/** Give this descriptor to the next tni_os_connect(); -1: no process listens. */
void fuzz_connect_next(int fd);
/** Set what a search for storages in the descriptors of all processes finds. */
void fuzz_let_find(int fd, uint64_t inode);
/** The descriptor that the search finds; -1: none. */
int fuzz_found(void);
/** This process's folder, for files. */
const char *fuzz_folder(void);

/* ---- tensors ----------------------------------------------------------------------------- */

/** Read the fields of a tensor, its first and last element, and all its attributes. */
void fuzz_touch(tn_tensor *tensor);

/* ---- image ------------------------------------------------------------------------------- */

enum { FUZZ_HANDLES = 4, FUZZ_HANDLE_BYTES = 1024 };
struct fuzz_handle {
    size_t size_bytes;
    uint8_t bytes[FUZZ_HANDLE_BYTES];
};

/** Map a copy of the image for a target that damages it. The copy has its own descriptors. */
void fuzz_image_copy(struct tni_segment *ret_segment);
/** Handles that the image's members exported: of the arena, a file, a memory object; many uses.
 */
const struct fuzz_handle *fuzz_image_handle(uint32_t index);
/** Damage one field that the input chooses. */
void fuzz_image_patch(const struct tni_segment *segment, struct fuzz_input *in);
/** Join a copy as another member. @return as tn_domain_inherit() */
int fuzz_image_join(const struct tni_segment *segment, tn_domain **ret_domain);

#endif
