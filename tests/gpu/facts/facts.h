/* SPDX-License-Identifier: Apache-2.0 */
/*
 * facts: what `make check-gpu` asks a real GPU: questions whose answers NVIDIA's documents
 * leave open, and figures. Each question runs in a process of its own, which dev/check-gpu
 * starts, and which forks others before it uses the driver. What a question prints:
 *
 *   said<TAB>sentence             a part of the answer
 *   agrees<TAB>yes|no             whether tenon's assumption holds; "no" counts
 *   unanswered<TAB>reason         the question ended early
 *   figure<TAB>what<TAB>size<TAB>median<TAB>p99<TAB>count<TAB>unit
 */
#ifndef TENON_TESTS_FACTS_H
#define TENON_TESTS_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "gpu/facts/driver.h"

struct question {
    const char *number;
    const char *text;
    const char *assumption; /* what tenon takes for granted; "": nothing */
    void (*run)(int argument);
    int argument;
};
/* Each file's questions, ended by one without a number. */
extern const struct question driver_questions[], handle_questions[], opening_questions[],
    death_questions[], event_questions[], memory_questions[], value_questions[],
    row_questions[], call_figures[], copy_figures[], faulty_questions[];

/* ---- answers (answer.c) ------------------------------------------------------------------ */

void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void agree(bool holds);
void unanswered(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

uint64_t now_ns(void);
/** Wait; only where what is asked is what happens in that time. */
void pass_ms(unsigned ms);

/** Times or rates of one thing. */
enum { MOST_SAMPLES = 4096 };
struct samples {
    unsigned count;
    double values[MOST_SAMPLES];
};
void samples_add(struct samples *samples, double value);
/** Print the median of samples and what 99 of 100 are not worse than, and empty them. @param
 * bytes  0: the figure has no size */
void figure(const char *what, uint64_t bytes, struct samples *samples, const char *unit);

/** --small: sizes and counts for the fake driver; --quick: fewer samples, and no large sizes.
 */
extern bool is_small, is_quick;
/** Read --small or --quick. @return the index of the argument after it */
int sizes_read(int argc, char **argv);
/** A count: `large`, less with --quick, or `small` with --small. */
unsigned sized(unsigned large, unsigned small);
/** The n-th size of the figures, from 0; 0: none, or the device has no room for the copies. */
uint64_t nth_size(unsigned n, unsigned copies);

/* ---- processes (peer.c) ------------------------------------------------------------------ */

enum { PATIENCE_MS = 20000 };

struct message {
    CUresult code;
    uint64_t bytes, value;
    CUipcMemHandle memory;
    CUipcEventHandle event;
};
struct peer {
    pid_t pid;
    int pidfd, socket;
};
/** Fork a process that runs run(socket, argument) and exits. This one must have no driver yet.
 */
struct peer peer_start(void (*run)(int socket, int argument), int argument);
/** @param fd  a descriptor that goes with it; -1: none */
void peer_send(int socket, const struct message *message, int fd);
/** @param ret_fd  NULL: no descriptor is wanted */
struct message peer_receive(int socket, int *ret_fd);
/** Let a peer go on, or wait until it lets this process go on. */
void peer_signal(int socket);
void peer_await(int socket);
/** Kill a peer and wait until it has ended. */
void peer_kill(struct peer *peer);
/** Wait until a peer has ended. @return whether it exited with 0 */
bool peer_join(struct peer *peer);

/* ---- memory (memory.c) ------------------------------------------------------------------- */

enum { PATTERN = 0x5a, GRANULE = 2 << 20 };

struct memory {
    CUmemGenericAllocationHandle handle; /* 0: released */
    CUdeviceptr at;
    size_t bytes;
};
CUmemAllocationProp memory_properties(void);
/** Make memory that can be exported, and map it. */
struct memory memory_make(size_t bytes);
int memory_export(const struct memory *memory);
/** Import and map what a descriptor names, release the handle, and close the descriptor. */
struct memory memory_import(int fd, size_t bytes, CUmemAccess_flags flags);
/** Reserve addresses and map a handle. */
CUdeviceptr memory_map(CUmemGenericAllocationHandle handle, size_t bytes,
                       CUmemAccess_flags flags);
void memory_end(struct memory *memory);
/** Set each byte, and wait. */
void memory_fill(CUdeviceptr at, size_t bytes, unsigned char value);
/** Copy to the host, and wait. */
CUresult memory_read(void *to, CUdeviceptr at, size_t bytes);
/** Copy to the host. @return how many bytes differ from `value`; -1 and *ret_code: it failed */
long memory_differs(CUdeviceptr at, size_t bytes, unsigned char value, CUresult *ret_code);
/** Memory of the host that the device reaches by itself. */
void *memory_pinned(size_t bytes);
/** Wait for a stream without waiting in the driver. @return its code; CUDA_ERROR_NOT_READY:
 * never */
CUresult stream_await(CUstream stream, unsigned ms);

/* ---- kernels (kernels.c) ----------------------------------------------------------------- */

/** Run until `ns` have passed, then store 1 at `flag`; 0: store nothing. */
void kernel_spin(CUstream stream, uint64_t ns, CUdeviceptr flag);
/** Write to one word again and again until `ns` have passed, one more each time. */
void kernel_count(CUstream stream, CUdeviceptr word, uint64_t ns);
/** Set each 16 bytes to four times this word. */
void kernel_fill(CUstream stream, CUdeviceptr at, size_t bytes, uint32_t word);
/** Read all, again and again until `ns` have passed; add the number of other words to *wrong.
 */
struct reading {
    CUdeviceptr at, wrong;
    uint64_t bytes, ns;
    uint32_t word;
};
void kernel_read(CUstream stream, const struct reading *reading);

#endif
