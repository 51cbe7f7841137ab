/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz: what the targets share. A target is a file fuzz_WHAT.c with LLVMFuzzerTestOneInput().
 * libFuzzer drives it (dev/fuzz), or replay.c, which runs the corpus as a test.
 *
 * Nouns: input (bytes, read from the front; zeros follow its end), world (time and processes as
 * the target sees them), image (a small domain with dead and living members, whose copies are
 * damaged).
 * The world's clock stands still but for its readers, and leaps over every sleep: an input
 * takes no real time, is the same each time, and waiting without end is noticed. No process is
 * started, signalled, or looked for.
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
/** A number as code may stumble over it: small, all ones, about a power of two, or any. */
uint64_t fuzz_number(struct fuzz_input *in);
/** Copy; what is missing is zero. */
void fuzz_fill(struct fuzz_input *in, void *bytes, size_t size_bytes);
/** Lay some numbers over bytes, as the input says. */
void fuzz_overlay(struct fuzz_input *in, void *bytes, size_t size_bytes);
/** The rest as text in allocated memory, to be freed; `most` bytes at most. */
char *fuzz_text(struct fuzz_input *in, size_t most);

/* ---- world ------------------------------------------------------------------------------- */

/** Say what is wrong and abort. */
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
/** End it: as many descriptors are open as at its begin. */
void fuzz_end(void);
/** Let time be real again, for what is made with real processes. */
void fuzz_leave_world(void);
/** The next tni_os_connect() gets this descriptor; -1: nobody listens. */
void fuzz_connect_next(int fd);
/** What a look for storages through the descriptors of all processes finds. */
void fuzz_let_find(int fd, uint64_t inode);
/** That descriptor; -1. */
int fuzz_found(void);
/** This process's folder, for files. */
const char *fuzz_folder(void);

/* ---- tensors ----------------------------------------------------------------------------- */

/** Read what a tensor says, its first and last element, and all of its attributes. */
void fuzz_touch(tn_tensor *tensor);

/* ---- image ------------------------------------------------------------------------------- */

enum { FUZZ_HANDLES = 4, FUZZ_HANDLE_BYTES = 1024 };
struct fuzz_handle {
    size_t size_bytes;
    uint8_t bytes[FUZZ_HANDLE_BYTES];
};

/** A copy of the image, mapped for those who damage it; the descriptors are its own. */
void fuzz_image_copy(struct tni_segment *ret_segment);
/** Handles that the image's members exported: of the arena, a file, a memory object; many uses.
 */
const struct fuzz_handle *fuzz_image_handle(uint32_t index);
/** Damage one field, as the input says. */
void fuzz_image_patch(const struct tni_segment *segment, struct fuzz_input *in);
/** Join a copy as one more member. @return as tn_domain_inherit() */
int fuzz_image_join(const struct tni_segment *segment, tn_domain **ret_domain);

#endif
