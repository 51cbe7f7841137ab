/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of devices share. They run with the fake driver of tests/fakecuda, once in
 * each of its worlds, or with the driver of this machine if TENON_TEST_REAL_GPU is set; then
 * the tests that need the fake are skipped.
 */
#ifndef TENON_TESTS_GPU_GPU_H
#define TENON_TESTS_GPU_GPU_H

#include "fakecuda/fake.h"
#include "harness/harness.h"

/* The control functions of the fake, found by name: a program that linked them would also have
 * the fake's driver functions in place of the real driver's. */
#define GPU_FAKE_FUNCTIONS(X)                                                                  \
    X(make)                                                                                    \
    X(end)                                                                                     \
    X(detach)                                                                                  \
    X(violations)                                                                              \
    X(forgive)                                                                                 \
    X(mem_used)                                                                                \
    X(fail_nth)                                                                                \
    X(kill_nth)                                                                                \
    X(calls)                                                                                   \
    X(calls_total)                                                                             \
    X(hold)                                                                                    \
    X(release)                                                                                 \
    X(context_create)                                                                          \
    X(context_destroy)                                                                         \
    X(capture)                                                                                 \
    X(kernel_fill)                                                                             \
    X(kernel_copy)                                                                             \
    X(peek)                                                                                    \
    X(message_sent)                                                                            \
    X(message_received)                                                                        \
    X(find)                                                                                    \
    X(opens)                                                                                   \
    X(value_seen)
#define GPU_FAKE_MEMBER(name) __typeof__(fake_##name) *name;
struct gpu_fake {
    GPU_FAKE_FUNCTIONS(GPU_FAKE_MEMBER)
};
extern struct gpu_fake gpu_fake; /* filled in by gpu_begin() */

/** Whether the tests run with the driver of this machine. */
bool gpu_is_real(void);
/** Whether the fake is in HIP's dress: TENON_TEST_GPU_DRESS is "hip". */
bool gpu_is_hip(void);
/** Skip this test if the fake is in HIP's dress, which lacks what the text names. */
void gpu_need_cuda(const char *what);
/** The text, with "rocm" where it says "cuda", if the fake is in HIP's dress. */
const char *gpu_text(const char *text);
/** How the driver calls a function that CUDA's calls `function`, as "cuMemCreate". */
const char *gpu_function(const char *function);
/** Name the library of the driver. */
void gpu_set_library(const char *path);
/** Skip this test if the driver is a real one. */
void gpu_need_fake(void);

/** Whether a function of the fake driver begins at this address, or goes on there. */
bool gpu_is_of_fake(uint64_t address);

/** Begin with a universe of the fake; `options` may be NULL. The world is set by the program.
 */
void gpu_begin(const struct fake_options *options);
/**
 * End: no memory of a device is used any more, and the fake has no complaint. Waits until
 * tenond has closed its descriptors.
 */
void gpu_end(void);

/** Bytes in use on device 0, after the dead were reclaimed; 0 with a real driver. */
uint64_t gpu_used(void);
/**
 * Wait until `bytes` are in use on device 0, and fail the test if they never are.
 * @param domain  whose slabs without tensors are given back; NULL: of none
 */
void gpu_await_used(tn_domain *domain, uint64_t bytes);

extern int32_t gpu_type; /* TN_DEVICE_CUDA, or TN_DEVICE_ROCM: gpu_is_hip() */
extern tn_device gpu_0, gpu_1;
extern const tn_device gpu_cpu;

/** Memory of device 0 as another library makes it. */
enum gpu_library {
    GPU_ALLOCATED, /* by cuMemAlloc() */
    GPU_PRIVATE,   /* mapped, and not made for other processes */
    GPU_PIECES     /* mapped in pieces of GPU_PIECE_BYTES, each with a descriptor */
};
enum { GPU_PIECE_BYTES = 2 << 20 };
CUdeviceptr gpu_library_alloc(size_t bytes, enum gpu_library how);
/** @param how  as it was made, and of how many bytes */
void gpu_library_free(CUdeviceptr address, size_t bytes, enum gpu_library how);

/* A part of memory that a library mapped. */
struct gpu_piece {
    size_t bytes;
    bool is_private, is_gap;
    int32_t device;
};

/** Memory of another library that has several tensors, and is freed with the last. */
struct gpu_memory {
    CUdeviceptr at;
    size_t bytes;
    enum gpu_library how;
    const struct gpu_piece *pieces; /* [piece_count], borrowed; NULL: they are as `how` says */
    uint32_t piece_count;
    bool is_kept; /* it is not freed with the last, but by gpu_memory_free() */
    int tensors;
    /* What the library does when it gets the memory of a tensor back; NULL: nothing. */
    void (*on_given_back)(struct gpu_memory *memory, size_t offset);
};
struct gpu_memory *gpu_memory_make(size_t bytes, enum gpu_library how);
/** Map these pieces side by side. */
struct gpu_memory *gpu_memory_map(const struct gpu_piece *pieces, uint32_t count);
/** Free memory that is kept, and has no tensors. */
void gpu_memory_free(struct gpu_memory *memory);
/** A private tensor of bytes over a part of this memory. */
tn_tensor *gpu_memory_tensor(struct gpu_memory *memory, size_t offset, size_t bytes);
/** How many such tensors have gone back to the library, in this process. */
extern int gpu_given_back;

/** A tensor of bytes on device 0, all of them `value`. */
tn_tensor *gpu_tensor(tn_domain *domain, int64_t bytes, uint8_t value);
/** Have a kernel write each byte of a tensor on a device, and do not wait for it. */
void gpu_kernel_fill(const tn_tensor *tensor, uint8_t value);
/**
 * Have a kernel write where there is no memory: the device of this tensor does nothing for this
 * process any more (error 700), and keeps its memory until this process ends. Fake only.
 */
void gpu_break(const tn_tensor *tensor);
/** From now on the default stream of a device does nothing that it is given. Fake only. */
void gpu_hold(int32_t device);
/** End gpu_hold(). */
void gpu_go_on(int32_t device);
/** Make a stream in this context of device 0; NULL: in the primary one. */
CUstream gpu_stream(CUcontext context);
/** Wait for a stream of the primary context of device 0. */
void gpu_stream_wait(CUstream stream);
/** Wait until the default stream of device 0 has done work with which it lost its context. */
void gpu_await_loss(void);
void gpu_stream_end(CUstream stream, CUcontext context);
/** Push a tensor, and tell the fake that all until now comes before what its receiver does. */
void gpu_push(tn_queue *queue, tn_tensor *tensor);
/** Pop a tensor that gpu_push() pushed. */
tn_tensor *gpu_pop(tn_queue *queue);
/** Copy it to the host, and compare each byte. */
void gpu_expect(tn_domain *domain, const tn_tensor *tensor, uint8_t value);

#endif
