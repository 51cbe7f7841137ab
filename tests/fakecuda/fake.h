/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libfakecuda: a strict fake of the CUDA driver, for tests on machines without a GPU.
 *
 * The first process of a test makes a universe, a file that holds the devices and their
 * memory, and puts its path into the environment variable TENON_FAKECUDA. Each process that
 * calls cuInit() attaches to it. The fake returns the driver's errors where the driver has a
 * defined one; what is undefined in the driver is a violation, which the universe records.
 * fake_end() reports them. README.md lists the rules, by the numbers that comments name.
 *
 *   TENON_FAKECUDA=path            the universe
 *   TENON_FAKECUDA_VISIBLE=2,0     the devices that this process sees, in this order
 *   TENON_FAKECUDA_PID=n           the process id that the driver believes this process has
 *   TENON_FAKECUDA_KILL=n:before   as fake_kill_nth(); "n:after"
 *   TENON_FAKECUDA_FAIL=f:n:code   as fake_fail_nth(); "*" is any function
 *   TENON_FAKECUDA_ABORT=1         a violation prints itself and aborts
 *
 * All processes of a universe are of one namespace of process ids.
 *
 * A pointer to a device is an address without access: the processor faults on it. It differs
 * between processes.
 */
#ifndef TENON_TESTS_FAKE_H
#define TENON_TESTS_FAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/cuda_api.h"

#define FAKE_API __attribute__((visibility("default")))

/*
 * What a dead process left undone in its streams may still be done: the fake does it, in
 * FAKE_KEEP, at the end of the first cuStreamSynchronize(), cuCtxSynchronize() or
 * cuStreamQuery() that says done, of another process and the same device, that begins after
 * the death. Who gives the memory to others before that has a race.
 */

/** What happens where the driver's behaviour is undefined. Each case is a violation, too. */
enum fake_world {
    FAKE_KEEP,    /* freed memory stays until the last importer closes it */
    FAKE_FAULT,   /* the next access to freed memory fails, and the context with it */
    FAKE_RECYCLE, /* freed memory goes to the next allocation at once */
};

/** Groups that an old driver lacks: bits of fake_options.without. */
enum fake_without {
    FAKE_NO_UUID_V2 = 1,
    FAKE_NO_VMM = 2,
    FAKE_NO_POSIX_FD = 4, /* the attribute says no, and cuMemCreate refuses the handle type */
    FAKE_NO_MEM_OPS = 8,
    FAKE_NO_IPC_EVENTS = 16,
    FAKE_NO_PROC_ADDRESS = 32, /* dlsym still finds cuGetProcAddress_v2: it returns 801 */
    FAKE_NO_RETAIN = 64,
    FAKE_NO_CAPTURE = 128,
    FAKE_NO_EVENTS = 256,
    FAKE_NO_REGISTER = 512,
    FAKE_NO_PITCHED = 1024,
};

/** Options of a universe. Zero is the default of each. */
struct fake_options {
    uint32_t device_count;   /* 0 is 1; at most 8 */
    uint32_t world;          /* enum fake_world */
    uint64_t memory_bytes;   /* of each device, a multiple of 2 MiB; 0 is 1 GiB */
    uint64_t granularity;    /* of virtual memory, a power of 2; 0 is 2 MiB */
    uint64_t seed;           /* of addresses and delays; 0 is a fixed one */
    uint32_t driver_version; /* 0 is 13000, and 71300000 of libfakehip */
    uint32_t without;        /* bits of enum fake_without */
    uint32_t compute_mode;   /* 0 or CU_COMPUTEMODE_EXCLUSIVE_PROCESS */
    uint32_t max_events;     /* live events between processes; 0 is 1000 */
    int32_t init_result;     /* what cuInit() returns */
    uint32_t open_cost_ns_per_mib;
    bool delays;        /* a short random delay before each operation of a stream */
    bool mig;           /* each device is an instance of its own: nothing opens across them */
    bool no_shared_shm; /* an event's handle cannot be opened */
    bool strict_base;   /* a handle is exported only of the base of an allocation */
    bool no_races;      /* accesses of several processes are not compared */
    bool strict_pitch;  /* copies within a device have only pitches of cuMemAllocPitch() */
    bool takes_numbers; /* of libfakehip: H2, whatever the version is */
    uint8_t reserved;
};

/* ---- the universe ------------------------------------------------------------------------ */

/**
 * Make the file of a universe. The caller sets TENON_FAKECUDA to its path.
 * @return 0, or an errno
 */
FAKE_API int fake_make(const char *path, const struct fake_options *options);
/**
 * Detach this process, check all that happened in the universe, and remove it. Each violation
 * is a complaint, and so is a process that is still attached, memory that is still used, and
 * an operation of a dead process that would still write memory of others.
 * @return how many complaints `report` lists, a line each. It is always ended by a 0.
 */
FAKE_API int fake_end(const char *path, char *report, size_t size);
/**
 * End the driver in this process as the end of the process does: what it still holds is a
 * violation. An exit() does so, too. A process that ends by _exit() or a signal is not asked.
 */
FAKE_API void fake_detach(void);
/** Write the violations so far, a line each. @return their number */
FAKE_API int fake_violations(char *buffer, size_t size);
/** Forget the violations so far: for a test that provoked them. @return their number */
FAKE_API int fake_forgive(void);
/** Reclaim what dead processes held, then count the bytes of a device that are used. */
FAKE_API uint64_t fake_mem_used(int device);

/* ---- faults ------------------------------------------------------------------------------ */

/**
 * Let the n-th call from now of this process, from 1, return `code` and do nothing.
 * `function` is a name or symbol of the driver, or NULL for any.
 */
FAKE_API void fake_fail_nth(const char *function, unsigned n, CUresult code);
/** Kill this process at its n-th call from now, "before" or "after" the call's effect. */
FAKE_API void fake_kill_nth(unsigned n, const char *when);
/** How many calls of `function`, or of all if it is NULL, this process has made. */
FAKE_API uint64_t fake_calls(const char *function);
/** The same of all processes of the universe. */
FAKE_API uint64_t fake_calls_total(const char *function);

/** The function of CUDA's driver with this symbol, which libfakehip has, but does not export.
 */
FAKE_API void *fake_find(const char *symbol);

/* ---- streams ----------------------------------------------------------------------------- */

/** Begin no further operation of a stream; NULL is the current context's default stream. */
FAKE_API void fake_hold(CUstream stream);
/** Let a held stream do its next operation, if it has one, and wait until that is done. */
FAKE_API void fake_step(CUstream stream);
/** End fake_hold(). */
FAKE_API void fake_release(CUstream stream);
/** Begin or end the capture of a stream into a graph. */
FAKE_API void fake_capture(CUstream stream, bool is_capturing);
/** Write or copy device memory in the order of a stream, with the checks of a kernel. */
FAKE_API CUresult fake_kernel_fill(CUstream stream, CUdeviceptr ptr, size_t bytes,
                                   unsigned char value);
FAKE_API CUresult fake_kernel_copy(CUstream stream, CUdeviceptr dst, CUdeviceptr src,
                                   size_t bytes);

/* ---- memory ------------------------------------------------------------------------------ */

/**
 * Read or write device memory that this process has mapped, outside of all rules.
 * @return 0, or 1 if it is not mapped
 */
FAKE_API int fake_peek(CUdeviceptr ptr, void *buffer, size_t bytes);
FAKE_API int fake_poke(CUdeviceptr ptr, const void *buffer, size_t bytes);
/** How often handles of memory were opened that were not open yet, in all processes. */
FAKE_API uint64_t fake_opens(void);
/** Make a context of a device beside its primary one. */
FAKE_API CUresult fake_context_create(CUcontext *ret_context, int device);
FAKE_API void fake_context_destroy(CUcontext context);

/* ---- order between processes ------------------------------------------------------------- */

/*
 * The fake knows the order that streams, events and timeline values make. What the program
 * under test says to another process by its own messages, the test annotates: all that this
 * process did before fake_message_sent(key) comes before all that another process does after
 * fake_message_received(key). A key is for one message. A process that has not called
 * cuInit() says nothing by them.
 */
FAKE_API void fake_message_sent(uint64_t key);
FAKE_API void fake_message_received(uint64_t key);
/** The processor of this process wrote this 64-bit word, which streams wait for. */
FAKE_API void fake_value_set(const void *host_word);
/** The processor of this process read this word, and found a value that a stream wrote. */
FAKE_API void fake_value_seen(const void *host_word);
/**
 * This process told another one to wait for the last record of this event. The event must not
 * be recorded again before the other one's call that waits.
 */
FAKE_API void fake_wait_announced(CUevent event);

#endif
