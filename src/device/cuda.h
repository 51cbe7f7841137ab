/* SPDX-License-Identifier: Apache-2.0 */
/* cuda: functions that the files of the room device share. Private to the room device. */
#ifndef TNI_DEVICE_CUDA_H
#define TNI_DEVICE_CUDA_H

#include "device/cuda_api.h"
#include "device/device.h"

/* Groups of functions. A driver that lacks one of a group lacks what the group is for. */
enum tni_cuda_group {
    TNI_CUDA_core, /* without these there is no driver */
    TNI_CUDA_uuid,
    TNI_CUDA_old_uuid,
    TNI_CUDA_pointers,
    TNI_CUDA_streams,
    TNI_CUDA_pitched,
    TNI_CUDA_capture,
    TNI_CUDA_stream_context,
    TNI_CUDA_vmm,
    TNI_CUDA_retain,
    TNI_CUDA_registering,
    TNI_CUDA_timeline,
    TNI_CUDA_events,
    TNI_CUDA_memory,
    TNI_CUDA_ipc,
    TNI_CUDA_peers,
    TNI_CUDA_GROUPS
};

struct tni_cuda;

/*
 * In what the drivers differ that this source is for: one table for each. A function that a
 * table does not have is NULL.
 */
struct tni_cuda_differences {
    const char *product;  /* as its versions are told */
    int32_t major, minor; /* what one of each counts for in a version */
    int32_t oldest;       /* version that is used */
    const char *variable; /* of the environment, which names another library */
    const char *libraries[4];
    const char *visible;     /* the variable of the environment that hides devices */
    const char *why_private; /* why memory of one process only is copied */
    uint32_t without;        /* groups that there are no functions for, or that are not used */
    /** The function, or an adapter, for a name of CUDA. NULL: the library lacks it. */
    void *(*find)(void *library, const char *name);
    /** How the library calls what CUDA calls `name`. NULL: it is not used. */
    const char *(*symbol)(const char *name);
    /** A function that adapters need, and that the library lacks. */
    const char *(*lacks)(void);
    /** The driver keeps the last error of a thread: forget it. */
    void (*forget_error)(void);
    /** Learn how memory is imported. pre: as for an import: tni_cuda_map() */
    int (*prepare_import)(struct tni_cuda *cuda, int32_t id);
    bool takes_turns;     /* calls for memory that processes share race in the driver */
    bool forgets_imports; /* of an imported handle it tells neither the device nor the size */
};

/* A device of the driver, as this process uses it. */
struct tni_cuda_device {
    CUdevice number;
    CUcontext context; /* the primary context, while users > 0 */
    uint32_t users;    /* memory that is mapped, and calls that run */
    /* What never changes, once it was asked for. */
    bool is_described;
    tn_device_info info;
    _Atomic uint64_t granularity; /* 0: not asked for yet */
    _Atomic int words; /* whether its streams write words: 1 no, 2 yes; 0: not asked for yet */
};

struct tni_cuda {
    CUresult (*get_whole_uuid)(CUuuid *, CUdevice); /* of the card, of which it may be a part */
    /* 0: no process has tried to load it. A forked child finds its parent's pid. */
    _Atomic int32_t pid;
    const struct tni_cuda_differences *differences;
    tni_os_mutex turns; /* of calls for memory that processes share, if they take turns */
    tni_os_mutex lock;  /* of all that follows; no thread has it while it calls the program */
    bool is_loaded;
    _Atomic int failure; /* not 0: the status with which each call fails */
    char why[256];
    uint32_t missing; /* groups, a bit each */
    int32_t version;
    int32_t device_count;
    struct tni_cuda_device *devices; /* [device_count]; never freed once there are some */
/* NOLINTNEXTLINE(bugprone-macro-parentheses): a list of parameters has its own */
#define TNI_CUDA_MEMBER(group, name, symbol, version, parameters) CUresult(*name) parameters;
    TNI_CUDA_FUNCTIONS(TNI_CUDA_MEMBER)
#undef TNI_CUDA_MEMBER
};

/* ---- cuda_error.c ------------------------------------------------------------------------ */

/**
 * Turn a result of the driver into a status, with a sentence that names the function.
 * @return 0, TN_ERR_NO_MEMORY, TN_ERR_UNSUPPORTED, TN_ERR_FORKED, TN_ERR_DEVICE
 */
int tni_cuda_check(const struct tni_cuda *cuda, CUresult result, const char *function);
/** Whether a context that reports this has lost all its work: the device does none of it now.
 */
bool tni_cuda_is_lost(CUresult result);
/** How the driver's library calls a function of CUDA's driver. */
const char *tni_cuda_symbol(const struct tni_cuda *cuda, const char *function);
/** Fail with TN_ERR_UNSUPPORTED unless the driver has a group; `what` it is for. */
int tni_cuda_need(const struct tni_cuda *cuda, enum tni_cuda_group group, const char *what);

/* ---- cuda_load.c ------------------------------------------------------------------------- */

/** The functions of libcuda.so.1, and in hip.c those of libamdhip64.so: tni_cuda_load(). */
extern struct tni_cuda tni_cuda_driver, tni_hip_driver;

/**
 * Find the functions of the driver and start it. pre: the lock
 * @return 0; TN_ERR_UNSUPPORTED: there is no driver or device for this process;
 *         TN_ERR_NO_MEMORY, TN_ERR_DEVICE: the driver did not start this time
 */
int tni_cuda_load(struct tni_cuda *cuda);

/* ---- cuda.c ------------------------------------------------------------------------------ */

/** Load the driver if it is not loaded. TN_ERR_FORKED, or as tni_cuda_load(). */
int tni_cuda_begin(const struct tni_memory_kind *kind);
/**
 * Count one more user of a device, and make its primary context this thread's current one. The
 * caller ends with tni_cuda_leave(), in the same thread.
 */
int tni_cuda_enter(const struct tni_memory_kind *kind, int32_t id);
/** @param keeps  the device stays in use, until tni_cuda_release() */
void tni_cuda_leave(struct tni_cuda *cuda, int32_t id, bool keeps);
/** Count one user less, one that tni_cuda_leave() kept. */
void tni_cuda_release(struct tni_cuda *cuda, int32_t id);

int tni_cuda_count(const struct tni_memory_kind *kind);
int tni_cuda_use(const struct tni_memory_kind *kind, int32_t id);
void tni_cuda_unuse(const struct tni_memory_kind *kind, int32_t id);
int tni_cuda_describe(const struct tni_memory_kind *kind, int32_t id, tn_device_info *ret_info);
int tni_cuda_count_free(const struct tni_memory_kind *kind, int32_t id, uint64_t *ret_bytes);

/* ---- cuda_memory.c ----------------------------------------------------------------------- */

int tni_cuda_make(const struct tni_memory_kind *kind, struct tni_device_memory *memory,
                  int *ret_fd);
int tni_cuda_map(const struct tni_memory_kind *kind, struct tni_device_memory *memory,
                 const int *fds, uint32_t count);
void tni_cuda_unmap(const struct tni_memory_kind *kind, const struct tni_device_memory *memory);
int tni_cuda_granularity(const struct tni_memory_kind *kind, int32_t id, uint64_t *ret_bytes);

/* For tni_cuda_differences.prepare_import(): pre: the device is entered, the turn is taken. */
/** Make as little memory as can be. @param m  its device is set */
int tni_cuda_make_smallest(struct tni_cuda *cuda, struct tni_device_memory *m, int *ret_fd);
/** Map what a handle is of. @param m  its device, bytes and is_read_only are set */
int tni_cuda_map_handle(struct tni_cuda *cuda, struct tni_device_memory *m,
                        CUmemGenericAllocationHandle handle);
void tni_cuda_unmap_memory(struct tni_cuda *cuda, const struct tni_device_memory *m);

/* ---- cuda_ipc.c -------------------------------------------------------------------------- */

int tni_cuda_classify(const struct tni_memory_kind *kind, int32_t id, uint64_t address,
                      uint64_t bytes, struct tni_device_foreign *ret_foreign);
int tni_cuda_locate(const struct tni_memory_kind *kind, uint64_t address, int32_t *ret_id);
int tni_cuda_export(const struct tni_memory_kind *kind,
                    const struct tni_device_foreign *foreign,
                    uint8_t ret_handle[TNI_DEVICE_HANDLE_BYTES]);
int tni_cuda_export_pieces(const struct tni_memory_kind *kind,
                           const struct tni_device_foreign *foreign, int *ret_fds);
int tni_cuda_open(const struct tni_memory_kind *kind, struct tni_device_memory *memory,
                  const uint8_t handle[TNI_DEVICE_HANDLE_BYTES]);
void tni_cuda_close(const struct tni_memory_kind *kind, const struct tni_device_memory *memory);

/* ---- cuda_stream.c ----------------------------------------------------------------------- */

int tni_cuda_copy(const struct tni_memory_kind *kind, int32_t id,
                  const struct tni_device_copy *copy);
int tni_cuda_fill(const struct tni_memory_kind *kind, const struct tni_device_memory *part,
                  uint8_t value, void *stream);
int tni_cuda_settle(const struct tni_memory_kind *kind, int32_t id);
/* 0 if this process has not used the driver. */
int tni_cuda_drain(const struct tni_memory_kind *kind);
int tni_cuda_wait(const struct tni_memory_kind *kind, int32_t id, void *stream);
int tni_cuda_pin(const struct tni_memory_kind *kind, void *start, uint64_t bytes);
int tni_cuda_unpin(const struct tni_memory_kind *kind, void *start);

/* ---- cuda_order.c ------------------------------------------------------------------------ */

/**
 * Check that a stream is one of the current context, and is not being captured. pre:
 * tni_cuda_enter()
 */
int tni_cuda_check_entered(const struct tni_cuda *cuda, int32_t id, CUstream stream);
int tni_cuda_check_stream(const struct tni_memory_kind *kind, int32_t id, void *stream);
int tni_cuda_check_words(const struct tni_memory_kind *kind, int32_t id);
int tni_cuda_open_words(const struct tni_memory_kind *kind, int32_t id, void *start,
                        uint64_t bytes);
int tni_cuda_close_words(const struct tni_memory_kind *kind, int32_t id, void *start);
int tni_cuda_words_at(const struct tni_memory_kind *kind, int32_t id, void *start,
                      uint64_t *ret_address);
int tni_cuda_signal(const struct tni_memory_kind *kind, int32_t id,
                    const struct tni_device_word *word);
int tni_cuda_await(const struct tni_memory_kind *kind, int32_t id,
                   const struct tni_device_word *word);

#endif
