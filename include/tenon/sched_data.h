/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENON_SCHED_DATA_H
#define TENON_SCHED_DATA_H

#include <stddef.h>
#include <stdint.h>
#include <tenon/deadline.h>
#include <tenon/status.h>
#include <tenon/tensor.h>
#include <tenon/version.h>

TN_BEGIN_DECLS

typedef struct tn_sched tn_sched; /* tenon/sched.h */

/** As tn_memory.resource: the disk, if tn_sched_options.memories says what the HOST has. */
#define TN_MEMORY_DISK "DISK"

/**
 * The memory of a card, or of the host, or the disk. A card is an innermost group of the slots
 * of a resource; without inner groups, each slot is one.
 */
typedef struct tn_memory {
    const char *resource; /* as in "GPU"; NULL: the host; or TN_MEMORY_DISK */
    uint32_t slot;        /* the first slot of the card */
    uint32_t reserved;
} tn_memory;

/**
 * Data that tasks name, and its copies in the memories of cards and of the host. Before a task
 * begins, the scheduler brings what the task reads into the memory of the card whose slot the
 * task has, or of the host if the task has none of a resource that tn_sched_options.memories
 * names. The task begins on the card to which the least has to be brought.
 *
 * If a memory is full, copies are evicted that no running task uses: of the 32 that were used
 * longest ago, the oldest that another memory has, too, else the oldest, which is copied to the
 * host before. The host has no end, unless tn_sched_options.memories says so: then it evicts to
 * the disk, in the same way, and what has no room on the host leaves a card for the disk. If
 * all that does not make room, the task waits.
 *
 * Who copies: functions of the program; or, if the data was made from a tensor, the scheduler,
 * which makes tensors in its domain on the devices that tn_sched_options.devices names, and on
 * the host, and writes to one unlinked file in the folder tn_sched_options.spill. A task finds
 * the tensor of its card by tn_data_tensor(). It waits for what it had the device do before it
 * ends.
 *
 * If a device has less memory than its card, a copy ends the task as TN_TASK_OOM does. If the
 * device fails, its tasks fail with that error, and tasks with data do not begin there any
 * more, as long as another card of the resource can have the data. If the disk fails or is
 * full, the task that needed the room fails with TN_ERR_SYSTEM, and what was to leave stays.
 *
 * Data does not order tasks: the inputs of a task do. But no task runs while another one writes
 * data that it names, nor writes what another one reads.
 *
 * Threads: as of the scheduler.   Fork: not in a child: TN_ERR_FORKED; the child may close it.
 */
typedef struct tn_data tn_data;

/**
 * Bring a copy to a memory. Called by a thread of the scheduler, for each copy by one at a
 * time, and before the task that needs the copy.
 *
 * @param from  a memory with a valid copy; NULL: only make room, since the task writes it anew
 * @param to    where the copy gets room, unless it has some since an earlier call
 * @return 0, TN_TASK_OOM (as if the task had returned it), or a negative TN_ERR_*, with which
 *         the task fails
 */
typedef int tn_data_copy_fn(void *context, const tn_memory *from, const tn_memory *to);
/** Free the room of a copy. Never called for the host of data with TN_DATA_ON_HOST. */
typedef void tn_data_drop_fn(void *context, const tn_memory *memory);

enum {
    TN_DATA_ON_HOST = 1,   /* the program has it in the memory of the host, where it stays */
    TN_DATA_TEMPORARY = 2, /* nobody needs its content once all tasks that name it have ended:
                              it is dropped where another one needs the room */
    TN_DATA_LIKE = 4       /* it has the type and the shape of its tensor, and no copy until a
                              task has written it */
};

typedef struct tn_data_options {
    size_t struct_size; /* sizeof(tn_data_options) */
    const char *name;   /* for errors; copied; NULL: "data" */
    uint64_t bytes;     /* at least 1; with a tensor 0, and the scheduler counts what a tensor
                           of that size takes of a device, or its size if there is no device */
    uint32_t flags;     /* TN_DATA_* */
    uint32_t reserved;
    tn_data_copy_fn *copy; /* NULL only with a tensor or TN_SCHED_VIRTUAL; so is drop */
    tn_data_drop_fn *drop;
    void *context;
    /*
     * Its first copy, unless TN_DATA_LIKE is set; contiguous. The scheduler takes a reference.
     * A tensor on the host stays the copy there: TN_DATA_ON_HOST need not be set. If it is
     * registered (tn_tensor_pin()), copies go at full speed; what the scheduler makes on the
     * host, it registers itself when it is copied again. A tensor on a device, which is that of
     * a card, leaves the card as any copy does, and its memory with it once the program has
     * given up its own reference. No task may write data whose tensor is read-only.
     */
    tn_tensor *tensor;
} tn_data_options;

/**
 * Make data. Without TN_DATA_ON_HOST and without a tensor it has no copy until a task has
 * written it.
 * @param ret_data  owned by the caller, ended with tn_data_close(); untouched on failure
 * @return 0, or
 *         TN_ERR_INVALID      an argument is NULL or out of range; or it has a tensor, and the
 *                             scheduler has no domain, or a card without a device
 *         TN_ERR_UNSUPPORTED  the tensor is not contiguous
 *         TN_ERR_NO_MEMORY    there is no private memory; or the tensor is on a device, whose
 *                             card has no room for it: nothing leaves for it
 *         TN_ERR_FORKED
 *
 * Blocks: never.
 */
TN_API TN_NODISCARD int tn_data_create(tn_sched *sched, const tn_data_options *options,
                                       tn_data **ret_data);

/**
 * Bring a valid copy to the host, so that the program can read it there. The copy stays valid
 * until a task writes the data, and has room until the data is closed: it is not evicted, and
 * does not count as a part of what tn_sched_options.memories says that the HOST has.
 * @return 0, or
 *         TN_ERR_TIMED_OUT  a task writes it, or another thread moves it
 *         TN_ERR_INVALID    no task has written it; or the task of this thread writes it; or an
 *                           argument is NULL
 *         TN_ERR_NO_MEMORY  the copy function returned TN_TASK_OOM
 *         TN_ERR_INTERRUPTED, TN_ERR_FORKED
 *         Another error: what the copy function returned
 *
 * Blocks: until the deadline, and then as long as the copy function.
 */
TN_API TN_NODISCARD int tn_data_fetch(tn_data *data, tn_deadline deadline);

/**
 * Get the tensor of data that was made from one: in a task that names the data, that of the
 * card or of the host where the task has its data; else that of the host, after
 * tn_data_fetch(). A task that only writes the data finds any content.
 * @return borrowed: in a task until that ends, else until a task writes the data; NULL: there
 *         is none, and tn_error_detail() says why
 *
 * Blocks: never.
 */
TN_API tn_tensor *tn_data_tensor(tn_data *data);

/**
 * Drop all copies, and free it.
 * @param data  consumed; NULL: nothing happens
 * @return NULL
 *
 * Threads: while no other thread uses it, and in no task that names it.
 * Blocks: until the tasks that name it have ended.
 */
TN_API tn_data *tn_data_close(tn_data *data);

typedef struct tn_memory_info {
    size_t struct_size; /* sizeof(tn_memory_info), set by the caller */
    uint64_t capacity;  /* bytes; UINT64_MAX: it has no end, as the disk */
    uint64_t used;      /* bytes of all copies; on the host also of those that do not count: the
                           program's own, and those after tn_data_fetch() */
    uint64_t idle;      /* bytes of those that no running task uses, and that may be evicted */
    uint64_t evictions; /* copies that had to leave */
    uint64_t arrived;   /* bytes that were copied to it */
    uint64_t evicted;   /* bytes of the copies that had to leave */
} tn_memory_info;
/**
 * Get what a memory has.
 * @param memory  its slot is any slot of the card
 * @return 0, TN_ERR_NOT_FOUND: the scheduler has no such memory; TN_ERR_INVALID, TN_ERR_FORKED
 *
 * Blocks: never.
 */
TN_API TN_NODISCARD int tn_memory_get_info(tn_sched *sched, const tn_memory *memory,
                                           tn_memory_info *ret_info);

TN_END_DECLS

#endif
