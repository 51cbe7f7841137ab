/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENON_SCHED_H
#define TENON_SCHED_H

#include <stddef.h>
#include <stdint.h>
#include <tenon/deadline.h>
#include <tenon/domain.h>
#include <tenon/pool.h>
#include <tenon/sched_data.h>
#include <tenon/status.h>
#include <tenon/version.h>

TN_BEGIN_DECLS

/**
 * A scheduler: resources, and threads that run tasks when the resources that the tasks request
 * are free. Needs no domain, unless tasks run in the worker processes of a pool.
 *
 * Resources are written as NAME=VALUE, parted by spaces:
 *
 *     CPU=4 MEM=16.5 GPU=((0,1),(2,3))
 *
 * A number is a sum: tasks take a part of it and give it back. Amounts have at most four
 * decimals. Numbers in parentheses are slots, each with an identity: a task that requests GPU=1
 * gets one of them for itself, and tn_resource_id() tells which. Inner parentheses are affinity
 * groups, such as two slots of one card; groups may be nested 8 deep. A task that requests
 * several slots gets slots of one group if a group is large enough, and waits if that group is
 * busy. If only the whole resource is large enough, it gets slots of as few groups as possible.
 * A request of less than one slot, such as GPU=0.5, shares a slot.
 *
 * Two resources are always there. CPU is the number of processors that this process may use,
 * unless it is given. THREADS, 64 unless it is given, is how many tasks that request less than
 * one CPU run at a time; each of them gets a thread of its own.
 *
 * Threads: any function of this header, except the close functions, from several threads at a
 * time.   Fork: not in a child: TN_ERR_FORKED; the child may close what it has.
 */
typedef struct tn_sched tn_sched;

/** Tasks, and the order between them. A graph belongs to one scheduler. */
typedef struct tn_graph tn_graph;

/** What tasks have in common: their function, what they request, and how long they take. */
typedef struct tn_kind tn_kind;

/** In which order ready tasks of one priority begin. */
enum {
    TN_ORDER_AUTO = 0, /* by rank if the times of all tasks of the first list that the scheduler
                          gets are known, else by depth; so for later lists too */
    TN_ORDER_DEPTH = 1, /* depth first: few results are waited for at a time */
    TN_ORDER_RANK = 2 /* first the task with the longest way to the end of the graph, from when
                         it was added: those of later lists overtake it only for a while */
};

enum {
    TN_SCHED_VIRTUAL = 1, /* virtual time: functions are not called, and a task takes run_ns */
    TN_SCHED_TRACE = 2    /* keep what each task did, for tn_sched_write_trace() */
};

/** What a task did, for tn_sched_options.trace. */
typedef struct tn_task_event {
    const tn_graph *graph;
    uint64_t task;
    const char *kind; /* the name of its kind */
    uint32_t variant;
    int32_t status;
    uint64_t began_ns, ended_ns; /* of CLOCK_MONOTONIC, or virtual, from 0 */
    const char *slots;           /* as in "GPU=0,1"; "" if the task had none */
    int32_t pid;                 /* of the worker process that ran it; 0: this process did */
    uint32_t reserved;
} tn_task_event;
typedef void tn_trace_fn(const tn_task_event *event, void *context);

/** Zero in a field means its default. */
typedef struct tn_sched_options {
    size_t struct_size;    /* sizeof(tn_sched_options) */
    const char *resources; /* as above; NULL: the environment variable TENON_RESOURCES */
    uint32_t flags;        /* TN_SCHED_* */
    uint32_t order;        /* TN_ORDER_* */
    uint32_t skips; /* after how many later tasks that need the same resources begin before
                       it, a ready task has them reserved; default 8 */
    uint32_t reserved;
    double skew;        /* affinity: how much longer than its run time a task may take,
                           in order to begin on the slot that made its largest input;
                           default 1 */
    tn_trace_fn *trace; /* called after each task, in the thread that ran it; must not call
                           tenon */
    void *trace_context;
    /* For programs whose tasks need a lock, such as that of an interpreter: a thread calls
       begin_work before it looks for tasks, and end_work before it sleeps or ends. The caller
       of tn_graph_run() has the lock already, and has it when the call returns. */
    void (*begin_work)(void *context);
    void (*end_work)(void *context);
    void *work_context;
    /* Called after a task returned TN_TASK_OOM, in the thread that ran it, before it runs
       again: give back memory that the program keeps for later. Not for tasks of a pool. */
    void (*release_caches)(void *context);
    void *release_context;
    /* The domain whose tn_inspect_schedulers() and `tenon top` show the scheduler; NULL: none.
       The scheduler is closed before the domain. Not with TN_SCHED_VIRTUAL. */
    tn_domain *domain;
    const char *name; /* that they show, as tn_queue_open() takes it; copied; NULL: none */
    /* For tasks that have data (see tn_data): */
    /*
     * Bytes of the memory of each card, and, if the host is to have an end, of the copies there
     * that the scheduler may evict, as in "GPU=16000000000 HOST=64000000000". What the host has
     * no room for goes to the disk (TN_MEMORY_DISK).
     */
    const char *memories;
    /*
     * Bytes a second between memories, as in "HOST=24000000000 PEER=100000000000
     * FAR=40000000000 DISK=2000000000" for copies between the host and a card, between cards
     * that are near each other, between others, and from and to the disk. Cards of one resource
     * are near each other if the groups that they are in are in one group, and if no node of
     * memory is known to be near only one of their devices (tn_device_info.numa_node). What is
     * not given is measured: by the first copy, then as a moving average. Until then it is 10
     * GB/s, FAR is half of PEER, and DISK is 1 GB/s.
     */
    const char *links;
    /*
     * For data with a tensor: the device of each card, in their order, as tn_device_find()
     * reads it: "GPU=(cuda:0,cuda:1)", or UUIDs. A card that `memories` does not name has as
     * many bytes as are free on its device when the scheduler is made, but no more than the
     * quota of devices of the domain. Not with TN_SCHED_VIRTUAL.
     */
    const char *devices;
    /*
     * For data with a tensor, if `memories` says what the HOST has: the folder of the disk. The
     * scheduler writes to one file there, which has no name and ends with the process. Not with
     * TN_SCHED_VIRTUAL.
     */
    const char *spill;
} tn_sched_options;

/**
 * Make a scheduler. It starts threads when it has tasks for them.
 *
 * @param options    borrowed; NULL for the defaults
 * @param ret_sched  owned by the caller, ended with tn_sched_close(); untouched on failure
 * @return 0, or
 *         TN_ERR_INVALID    an option is out of range, or the text of resources or the name is
 *                           malformed
 *         TN_ERR_NO_MEMORY  there is no private memory, or none in the domain
 *         TN_ERR_FULL, TN_ERR_CLOSED, TN_ERR_FORKED  with a domain, as tn_tensor_empty()
 *         TN_ERR_NOT_FOUND, TN_ERR_UNSUPPORTED, TN_ERR_DEVICE  with devices, as
 *         tn_device_find() and tn_device_get_free()
 *         TN_ERR_NOT_FOUND, TN_ERR_DENIED, TN_ERR_SYSTEM  with spill: there is no such folder,
 *                           or no file can be made in it
 *
 * Blocks: never, but with devices as tn_device_get_free().
 * Crash: what the domain shows of the scheduler is gone with the seat of the process.
 */
TN_API TN_NODISCARD int tn_sched_create(const tn_sched_options *options, tn_sched **ret_sched);

/**
 * Close the graphs and the data of the scheduler that are open, end its threads and free it.
 *
 * @param sched  consumed; NULL: nothing happens
 * @return NULL
 *
 * Threads: while no other thread uses the scheduler, and in no task of it.
 * Blocks: until the tasks that run have ended.
 */
TN_API tn_sched *tn_sched_close(tn_sched *sched);

/** One resource, as tn_sched_get_info() fills it in. */
typedef struct tn_resource_info {
    char name[32];
    double total, free; /* slots are counted */
    double busy_ns;     /* amount in use times nanoseconds, of the tasks that have ended */
    uint32_t waiting;   /* ready tasks that lack it; each is counted at one resource */
    uint32_t reserved;
} tn_resource_info;

typedef struct tn_sched_info {
    size_t struct_size; /* sizeof(tn_sched_info), set by the caller */
    uint64_t now_ns;    /* CLOCK_MONOTONIC, or the virtual time */
    uint32_t ready;     /* tasks that wait for resources, or for a worker process */
    uint32_t running;   /* sets of resources in use; tasks that pend included */
    uint32_t threads;   /* started by the scheduler */
    uint32_t resource_count;
    uint64_t tasks; /* that have not ended, of all graphs */
    uint64_t ended; /* of all graphs, those that are closed included */
    tn_resource_info resources[16];
    uint64_t moved_bytes;   /* of data, that were copied between memories */
    uint64_t evicted_bytes; /* of copies that had to leave a memory */
    uint64_t card_bytes;    /* of all copies on cards */
    uint64_t card_capacity; /* of all cards with memories */
} tn_sched_info;
/**
 * Get what the scheduler does now.
 * @param ret_info  filled in; its struct_size is set by the caller
 * @return 0, or TN_ERR_INVALID: an argument is NULL, or struct_size is no size of this struct
 *
 * Blocks: never.
 */
TN_API TN_NODISCARD int tn_sched_get_info(tn_sched *sched, tn_sched_info *ret_info);

/**
 * Write what the tasks did that have ended, as JSON that https://ui.perfetto.dev and the trace
 * viewer of Chrome open: a lane for each slot and each CPU, an arrow from each input to the
 * task that waited for it, and a counter for each resource. Two more counters of each memory
 * that had data are the bytes that the copies of data take there, as in tn_memory_info.used,
 * and the bytes that were copied to it until then. Times are those of tn_task_event. The trace
 * grows with each task, by some 100 bytes, and with each change of a memory, by 32, until the
 * scheduler is closed.
 *
 * @param fd  a descriptor to write to; it stays open
 * @return 0, or
 *         TN_ERR_INVALID    sched is NULL, or was made without TN_SCHED_TRACE
 *         TN_ERR_NO_MEMORY  there is no private memory, or was none when a task ended
 *         TN_ERR_SYSTEM     a write failed
 *         TN_ERR_CLOSED     the other end of a pipe is closed
 *         TN_ERR_FORKED
 *
 * Blocks: until all is written, but holds up no other call.
 */
TN_API TN_NODISCARD int tn_sched_write_trace(tn_sched *sched, int fd);

/* ---- kinds ------------------------------------------------------------------------------- */

/** What a task function returns; a negative TN_ERR_* is an error. */
enum {
    TN_TASK_DONE = 0,
    TN_TASK_PENDING = 1, /* tn_task_end() or tn_task_end_on() ends it later; until then it
                            keeps what it has except its CPU and its thread */
    TN_TASK_RETRY = 2,   /* run it again, at most tn_kind_options.attempts times in all; it has
                            written nothing of its data (tn_access) */
    TN_TASK_OOM = 3      /* memory ran out: run it again as below */
};

/*
 * A task whose memory ran out is run again alone: it waits until no other task has a part of
 * what it requests, but of CPUs. It gets the whole of each sum. Of slots without inner groups
 * it gets whole ones; of others all slots of an innermost group, or all that there are, if it
 * requests more than such a group has, or these groups differ in size; then, if cards have
 * memories, all slots of the largest one. tn_resource_id() still tells as many slots as it
 * requested. If it requests CPUs only, it gets all of them. If its
 * memory runs out again, it is run as those of its variants that request none of that. Then,
 * or if there is no such variant, it fails with TN_ERR_NO_MEMORY. Runs that ended so do not
 * count as attempts.
 */

/** The call of a task function; borrowed until the function returns. */
typedef struct tn_task_call {
    tn_graph *graph;
    uint64_t task;
    void *context;           /* of the task */
    uint32_t attempt;        /* from 1 */
    uint32_t variant;        /* of the kind */
    tn_message *job;         /* all zero, to be filled in, if the kind has a pool; else NULL */
    const tn_memory *memory; /* where the task has its data; NULL: it names none */
    uint32_t flags;          /* TN_CALL_* */
    uint32_t reserved;
} tn_task_call;
typedef int tn_task_fn(const tn_task_call *call);

enum {
    TN_CALL_LAST = 1 /* TN_TASK_OOM fails the task: there is no other way to run it */
};

/**
 * Take the result of a task that a worker process has run. The function may take a tensor out
 * of result->message by setting its entry to NULL.
 *
 * @param result  borrowed until the function returns; its status is 0
 * @return TN_TASK_DONE, TN_TASK_RETRY, TN_TASK_OOM or a negative TN_ERR_*
 */
typedef int tn_task_take_fn(const tn_task_call *call, tn_pool_result *result);

/** One way to run a kind of task. */
typedef struct tn_variant {
    tn_task_fn *run;     /* NULL only with TN_SCHED_VIRTUAL */
    const char *request; /* as in "CPU=0 GPU=1"; one CPU if it has no CPU; NULL: one CPU */
    uint64_t run_ns;     /* how long it takes, at most TN_RUN_NS_MAX; 0: not known, it is
                            measured */
} tn_variant;

enum { TN_VARIANTS = 4 };
#define TN_RUN_NS_MAX (UINT64_C(1) << 60) /* 36 years */

typedef struct tn_kind_options {
    size_t struct_size;         /* sizeof(tn_kind_options) */
    const char *name;           /* for errors and traces; copied; NULL: "task" */
    const tn_variant *variants; /* [variant_count]; the one that would end first is taken, of
                                   those for which the scheduler has the resources */
    uint32_t variant_count;     /* 1 to TN_VARIANTS */
    uint32_t attempts;          /* how often a task may be started; default 3 */
    const char *affinity;  /* resources with slots, as in "GPU": begin on the slot that made
                              the largest input, if it is free soon; NULL: none */
    tn_pool *pool;         /* NULL: the tasks run in threads. Else they run in its workers, as
                              below */
    tn_task_take_fn *take; /* NULL: results are dropped. Only with a pool */
    uint32_t flags;        /* TN_KIND_* */
    uint32_t reserved;
} tn_kind_options;

enum {
    TN_KIND_WRITES_INPUTS = 1, /* so TN_TASK_OOM is an error: a second run would find other
                                  inputs than the first */
    TN_KIND_REPEATABLE = 2     /* a task may also run again after it has ended, until its graph
                                  is closed: with the same context, it writes the same data. A
                                  scheduler that moves tensors makes data so that was lost with
                                  a device, when a later task of that graph reads it. The second
                                  run is a task of the graph, after those that were added */
};

/**
 * Describe a kind of task.
 *
 * The tasks of a kind with a pool are jobs of that pool. The function of the variant does not
 * do the task: it fills in call->job, and the job function of the pool does the task in a
 * worker, without a copy of the tensors of the message. What the function fills in is borrowed
 * until it is called for the next task; it may be called again for the same task, if there was
 * no room for the message. The status of the result ends the task, as if a task function had
 * returned it: but if it is TN_TASK_DONE, what `take` returns does.
 *
 * The function and `take` are called by one thread of the scheduler, and must not wait. In
 * both, tn_resource_id() tells the slots of the task; the worker knows them if they are in the
 * message. A task whose worker dies is run again as the pool's options say. The scheduler uses
 * the pool from this call until tn_sched_close(); nobody else may use it or close it meanwhile.
 * Tasks that request one CPU, and are short, are sent several at a time, if the pool has no
 * more workers than the scheduler has CPUs.
 *
 * @param ret_kind  owned by the scheduler, until that is closed; untouched on failure
 * @return 0, or
 *         TN_ERR_INVALID    a request is malformed; or the scheduler can never meet any of
 *                           them; or affinity names what no variant requests; or another
 * scheduler uses the pool; or an argument is NULL or out of range TN_ERR_NO_MEMORY  there is no
 * private memory TN_ERR_SYSTEM     the thread that uses the pool could not be started
 *         TN_ERR_FORKED
 *
 * Blocks: never.
 * Crash: the workers end with this process, and the memory of their jobs is released.
 */
TN_API TN_NODISCARD int tn_kind_create(tn_sched *sched, const tn_kind_options *options,
                                       tn_kind **ret_kind);

/* ---- graphs ------------------------------------------------------------------------------ */

/** A task to add. */
typedef struct tn_task {
    tn_kind *kind;    /* of the same scheduler */
    void *context;    /* passed on */
    uint64_t bytes;   /* of its result, for affinity; 0: not known */
    uint64_t run_ns;  /* how long it takes, at most TN_RUN_NS_MAX; 0: as others of its kind */
    int32_t priority; /* -32768 to 32767; tasks of a higher priority begin first */
    uint32_t reserved;
} tn_task;

/** What a task does with data. */
typedef struct tn_access {
    tn_data *data; /* of the same scheduler */
    /* TN_READ, TN_WRITE (all of it is written anew), or both. The copy that a task writes has
       no valid content if the task fails: then the data is as it was if there is another copy,
       else no task may read it before one has written it. */
    uint32_t mode;
    uint32_t reserved;
} tn_access;
enum { TN_READ = 1, TN_WRITE = 2 };

/** As an input of a task: task i of the same list. Other inputs are numbers of the graph. */
#define TN_TASK_OF_LIST(i) (UINT64_C(1) << 63 | (uint64_t)(i))

typedef struct tn_task_list {
    size_t struct_size;   /* sizeof(tn_task_list) */
    const tn_task *tasks; /* [count] */
    uint64_t count;
    const uint64_t *input_ends; /* [count]: the inputs of task i are inputs[input_ends[i - 1]]
                                   to inputs[input_ends[i] - 1]; NULL: no task has any */
    const uint64_t *inputs;     /* tasks that must end before: [input_ends[count - 1]] */
    const char *const *names;   /* [count], for tn_sched_write_trace(); copied; may be NULL, and
                                   so may a name */
    const uint64_t *access_ends; /* [count]: task i has accesses[access_ends[i - 1]] to
                                    accesses[access_ends[i] - 1]; NULL: no task has any */
    const tn_access *accesses;   /* [access_ends[count - 1]] */
} tn_task_list;

/**
 * Make a graph without tasks.
 * @param ret_graph  owned by the caller, ended with tn_graph_close(); untouched on failure
 * @return 0, TN_ERR_INVALID, TN_ERR_NO_MEMORY, TN_ERR_FORKED
 *
 * Blocks: never.
 */
TN_API TN_NODISCARD int tn_graph_create(tn_sched *sched, tn_graph **ret_graph);

/**
 * Add tasks; those that wait for nothing may begin at once. Nothing is added on failure.
 *
 * @param list       borrowed
 * @param ret_first  the number of the first task; the others follow; may be NULL
 * @return 0, or
 *         TN_ERR_INVALID    an input does not exist; tasks wait for each other in a circle; a
 *                           kind is NULL or of another scheduler; the graph would have more
 *                           than 2^29 tasks; the data of a task do not fit into the memory of
 *                           a card, or its slots not on one; a task of a pool names data; an
 *                           argument is NULL or out of range
 *         TN_ERR_DENIED     a task writes data whose tensor is read-only
 *         TN_ERR_CLOSED     the graph was cancelled
 *         TN_ERR_NO_MEMORY, TN_ERR_FORKED
 *
 * Blocks: never.
 */
TN_API TN_NODISCARD int tn_graph_add(tn_graph *graph, const tn_task_list *list,
                                     uint64_t *ret_first);

/**
 * Wait until all tasks of the graph have ended. In a task of the same scheduler, the call first
 * gives back the CPU of that task, as tn_task_secede(), unless the deadline is TN_NOW.
 *
 * @return 0, or
 *         The status of the task that failed first, with its sentence. All tasks have ended.
 *         TN_ERR_TIMED_OUT    the deadline passed; the tasks go on
 *         TN_ERR_INTERRUPTED  the hook of tn_interrupt_set() ended the wait, or the graph was
 *                             cancelled
 *         TN_ERR_SYSTEM       no thread could be started, and none runs
 *         TN_ERR_INVALID      the graph is NULL; or a task waits for its own graph, or the
 *                             function of a task of a pool waits for any
 *         TN_ERR_FORKED, TN_ERR_NO_MEMORY
 *
 * Blocks: until the deadline.
 */
TN_API TN_NODISCARD int tn_graph_wait(tn_graph *graph, tn_deadline deadline);

/**
 * Run tasks in this thread until all tasks of the graph have ended; otherwise as
 * tn_graph_wait(). The tasks may be of other graphs of the scheduler. A task that this thread
 * runs can delay the return beyond the deadline.
 * @return as tn_graph_wait(), but never TN_ERR_SYSTEM
 *
 * Blocks: until the deadline.
 */
TN_API TN_NODISCARD int tn_graph_run(tn_graph *graph, tn_deadline deadline);

/**
 * End the tasks that have not begun, with TN_ERR_INTERRUPTED. Tasks that run go on.
 * @return 0, TN_ERR_INVALID, TN_ERR_FORKED
 *
 * Blocks: never.
 */
TN_API int tn_graph_cancel(tn_graph *graph);

/**
 * Cancel the graph, wait until its tasks have ended, and free it.
 * @param graph  consumed; NULL: nothing happens
 * @return NULL
 *
 * Threads: while no other thread uses the graph, and in no task of it.
 * Blocks: until the tasks that run have ended.
 */
TN_API tn_graph *tn_graph_close(tn_graph *graph);

typedef struct tn_graph_info {
    size_t struct_size;                        /* sizeof(tn_graph_info), set by the caller */
    uint64_t tasks;                            /* in all */
    uint64_t waiting, ready, running, pending; /* each task is counted once */
    uint64_t done, failed; /* failed: also those that did not begin, since an input failed */
} tn_graph_info;
/**
 * Count the tasks of a graph by their state. Takes some nanoseconds for each task.
 * @return 0, or TN_ERR_INVALID: an argument is NULL, or struct_size is no size of this struct
 *
 * Blocks: never.
 */
TN_API TN_NODISCARD int tn_graph_get_info(tn_graph *graph, tn_graph_info *ret_info);

/* ---- tasks ------------------------------------------------------------------------------- */

/**
 * Get how a task ended.
 *
 * @param ret_cause  the task whose failure was the first cause, if the task failed; may be NULL
 * @return 0: done, or
 *         TN_ERR_TIMED_OUT  the task has not ended
 *         TN_ERR_NOT_FOUND  the graph has no such task
 *         TN_ERR_INVALID    the graph is NULL
 *         Another error: the status with which the task, or the first cause, failed.
 *
 * Blocks: never.
 */
TN_API TN_NODISCARD int tn_task_get_status(tn_graph *graph, uint64_t task, uint64_t *ret_cause);

/**
 * End a task that returned, or is about to return, TN_TASK_PENDING. If it is about to return
 * something else, that counts, and this call does not.
 *
 * @param status  0, or a negative TN_ERR_*; with an error, the tn_error_detail() of this thread
 *                is kept as its sentence
 * @return 0, or
 *         TN_ERR_INVALID    the task does not run, or has ended; or the status is positive
 *         TN_ERR_NOT_FOUND  the graph has no such task
 *         TN_ERR_FORKED
 *
 * Blocks: never.
 */
TN_API TN_NODISCARD int tn_task_end(tn_graph *graph, uint64_t task, int status);

/**
 * End a task that returned, or is about to return, TN_TASK_PENDING, with the status 0 once a
 * descriptor is readable or at its end: of a pipe, a socket, an eventfd, a timer, a process
 * (pidfd_open) or a fence of a device. tn_task_end() may end the task before, as with an error.
 * If the task is about to return something else, that counts, and this call does not. One
 * thread of the scheduler waits for all such descriptors, and reads from none.
 *
 * @param fd  borrowed; a copy is watched until the task has ended
 * @return 0, or
 *         TN_ERR_INVALID    the task does not run, or has ended; or the descriptor is not open,
 *                           or of a file or a folder, for which nobody can wait
 *         TN_ERR_EXISTS     a descriptor of an earlier call ends the task
 *         TN_ERR_NOT_FOUND  the graph has no such task
 *         TN_ERR_NO_MEMORY  there is no private memory
 *         TN_ERR_SYSTEM     there is no descriptor or thread left for this process
 *         TN_ERR_FORKED
 *
 * Blocks: never.
 */
TN_API TN_NODISCARD int tn_task_end_on(tn_graph *graph, uint64_t task, int fd);

/**
 * Give back the CPU of the task that this thread runs, so that another task may begin; of a
 * task that requests less than one CPU, also its part of THREADS. The task keeps its other
 * resources. To be called before a long wait. A second call does nothing.
 *
 * In a worker process, the thread that runs the job function of a pool calls it, and the
 * scheduler that uses the pool gives the CPU to another task. If all workers are busy then, the
 * pool starts more of them, up to 32, which stay until the pool ends. If the worker dies, the
 * next run of the task begins without a CPU. In a pool that no scheduler uses, the call does
 * nothing.
 *
 * @return 0, TN_ERR_INVALID (this thread runs no task, or a function of a kind with a pool),
 *         TN_ERR_FORKED, or in a worker process as tn_queue_push()
 *
 * Blocks: in a worker process, while the queue of results is full; else never.
 * Crash: a worker that dies in the call has given the CPU back, or has not.
 */
TN_API int tn_task_secede(void);

/**
 * Say how large the result of the task is that this thread runs, instead of tn_task.bytes. Of
 * the inputs of a task whose kind has an affinity, the largest decides on which slot it begins.
 * @return 0, TN_ERR_INVALID (this thread runs no task), or TN_ERR_FORKED
 *
 * Blocks: never.
 */
TN_API int tn_task_set_bytes(uint64_t bytes);

/**
 * Get the slots that the task of this thread has got.
 *
 * @param resource  a resource with slots, as in "GPU"
 * @param ret_ids   [capacity]: the numbers of the slots, ascending; NULL only if capacity is 0
 * @return how many slots the task has, also if that is more than `capacity`; 0: none; or
 *         TN_ERR_INVALID    this thread runs no task; or the resource is a sum, whose parts
 *                           have no identity; or an argument is NULL
 *         TN_ERR_NOT_FOUND  the scheduler has no such resource
 *         TN_ERR_FORKED
 *
 * Blocks: never.
 */
TN_API TN_NODISCARD int tn_resource_id(const char *resource, uint32_t *ret_ids,
                                       uint32_t capacity);

TN_END_DECLS

#endif
