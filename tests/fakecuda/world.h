/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the fake's rules share: a universe, a device in use, and its memory. */
#ifndef TENON_TESTS_FAKECUDA_WORLD_H
#define TENON_TESTS_FAKECUDA_WORLD_H

#include "fakecuda/exports.h"
#include "harness/harness.h"

#define OK(call)       assert_int_equal(call, CUDA_SUCCESS)
#define IS(code, call) assert_int_equal(call, code)

#define CHUNK ((size_t)2 << 20)

/* Make a universe, and name it in the environment; NULL is the defaults. */
void world_begin(const struct fake_options *options);
/* End it. There must be no complaint. */
void world_end(void);
/* End it. There must be complaints, one of which contains this text. */
void world_end_with(const char *text);
/* There is a violation of this rule: forget it. Fails the test if there is none. */
void world_expect(const char *rule);

/* Initialise the driver, and push the primary context of device 0. @return the context */
CUcontext world_enter(void);
/* Undo world_enter(), and detach from the universe. */
void world_leave(void);

/* A chunk of virtual memory with everything that belongs to it. */
struct chunk {
    CUmemGenericAllocationHandle handle;
    CUdeviceptr ptr;
    size_t bytes;
};
CUmemAllocationProp world_properties(void);
CUmemAccessDesc world_access(CUmemAccess_flags flags);
struct chunk chunk_create(size_t bytes);
/* Map what a descriptor names. Closes the descriptor. */
struct chunk chunk_import(int fd, size_t bytes, CUmemAccess_flags flags);
/* @return a descriptor of it */
int chunk_export(const struct chunk *chunk);
void chunk_destroy(struct chunk *chunk);

/* A channel between two processes, made before the fork, which carries descriptors. */
struct channel {
    int ends[2];
};
struct channel channel_open(void);
void channel_send_fd(const struct channel *channel, int fd);
int channel_receive_fd(const struct channel *channel);
void channel_send(const struct channel *channel, const void *bytes, size_t size);
void channel_receive(const struct channel *channel, void *bytes, size_t size);
void channel_close(struct channel *channel);

/* The first byte at a device's address. */
unsigned char byte_at(CUdeviceptr ptr);

#endif
