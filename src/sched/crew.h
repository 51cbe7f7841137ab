/* SPDX-License-Identifier: Apache-2.0 */
/* crew: the scheduler, its workers and its graphs. Private to the room sched. */
#ifndef TNI_SCHED_CREW_H
#define TNI_SCHED_CREW_H

#include "device/device.h"
#include "os/os.h"
#include "sched/disk.h"
#include "sched/sched.h"
#include "show/show.h"

enum { TNI_FAILURE_BYTES = 512 };

/* The sentence of a task that was ended with an error before its function returned. */
struct tni_early {
    struct tni_early *next;
    const struct tni_task *task;
    char sentence[TNI_FAILURE_BYTES];
};

/* What a task waits for that reads data which is made again. */
struct tni_await {
    struct tni_await *next;
    struct tni_edge edge;
};

struct tn_graph {
    struct tni_graph tasks; /* the first member: a task finds its graph by it */
    struct tn_sched *sched;
    struct tn_graph *prev, *next;    /* of the scheduler */
    uint32_t trace_number;           /* of the graph in the trace */
    struct tni_early *early;         /* owned */
    struct tni_await *awaits;        /* owned */
    tni_os_cond ended;               /* broadcast when the last task has ended */
    int failure_status;              /* of the task that failed first; 0: none failed */
    char failure[TNI_FAILURE_BYTES]; /* its sentence */
};

/* A thread that runs tasks: of the scheduler, or one that is in tn_graph_run(). */
struct tni_worker {
    struct tn_sched *sched;
    struct tni_running *running; /* owned; what the tasks of this worker have got */
    struct tni_task *task;       /* the one that runs, or NULL */
    bool has_seceded;
    bool is_woken;
    bool is_coming;               /* called, and not there yet */
    bool is_place;                /* of a tni_place: it calls functions that must not wait */
    const struct tn_graph *helps; /* tn_graph_run() of this graph; NULL: a thread of the crew */
    tni_os_cond wake_up;
    struct tni_worker *next_idle;
    struct tni_worker *outer; /* the worker whose task called tn_graph_run() in this thread */
    struct tni_worker *next;  /* of the scheduler */
    tni_os_thread thread;     /* unless helps is set */
    /* Of its turn: the tasks that wait, and those that became ready, the newest first. A thread
     * that takes tasks takes the whole list, in one step, so that no task is taken twice. */
    struct tni_task *_Atomic waiting, *_Atomic readied;
    _Atomic uint32_t run_count; /* tasks that its turn has begun */
    uint32_t seen_count;        /* what run_count was when the guard looked last */
};

/* A pool whose workers run tasks, and the thread that uses the pool (place.c). */
struct tni_place {
    struct tni_worker worker; /* the thread, as those find it that the task functions call */
    struct tn_pool *pool;     /* claimed; not owned */
    struct tni_place *next;   /* of the scheduler */
    uint32_t most;            /* short tasks that are taken at a time */
    bool is_called;           /* to look for tasks */
    bool is_full;             /* the pool takes no more jobs before it has given a result */
    bool is_fetching;         /* it waits in the pool, where tni_pool_wake() calls it */
    /* Only the thread uses these: */
    bool is_short;          /* there was no memory: it tries again soon */
    struct tni_chain taken; /* tasks whose job was not given to the pool yet */
    struct tni_task *given; /* tasks whose job was, the newest first, by `next` and `child` */
    uint64_t newest;        /* the last job that was given */
    uint64_t dropped;       /* jobs up to this one have no task: they failed with the pool */
};

/* The copies of data that the scheduler makes itself. */
struct tni_tensors {
    tn_dtype dtype;
    int32_t ndim;
    int64_t shape[TN_MAX_NDIM];
    uint64_t size_bytes;
    bool is_read_only;            /* no task may write the data */
    bool owns_host;               /* the scheduler made the tensor on the host */
    _Atomic uint32_t host_copies; /* from and to that tensor */
    struct tni_disk *disk;        /* borrowed; NULL: there is none */
    bool is_on_disk;
    uint64_t disk_first; /* its range, while it is on the disk */
    tn_tensor *example;  /* owned; has the attributes of what was written to the disk; or NULL
                          */
    uint32_t count;
    tn_tensor *at[]; /* [count]; owned; by memory; NULL: no room. Who moves a copy writes it */
};

/* Data of the program. */
struct tn_data {
    struct tn_sched *sched;
    struct tni_data *its;        /* owned */
    struct tni_tensors *tensors; /* owned; NULL: functions of the program move the copies */
    char *name;                  /* owned */
    tn_data_options options;
    struct tn_data *prev, *next; /* of the scheduler */
};

/* A task that runs in virtual time. */
struct tni_event {
    uint64_t ends_ns;
    struct tni_task *task;
    struct tni_running *running; /* owned */
    bool is_move;                /* its data has come, and it begins to run */
};

struct tn_sched {
    tni_os_mutex lock; /* of all below, but for what tasks and graphs have that is atomic */
    struct tni_plan plan;
    struct tn_sched_options options; /* its pointers to texts are not kept */
    int32_t pid;                     /* of the process that made it */
    uint64_t began_ns;               /* when that was */
    struct tn_graph *graphs;
    struct tn_data *data;
    tni_os_cond data_changed; /* broadcast when data was moved, or tasks that name it ended, */
    uint32_t data_waits;      /* if so many threads wait for it */
    tn_device *devices;    /* owned; [TNI_MEMORIES]; the type 0: none. NULL: no card has one */
    struct tni_disk *disk; /* owned; NULL: there is none */
    uint64_t added_count, ended_count; /* tasks */
    struct tni_shown *shown;           /* owned; NULL: no domain shows the scheduler */
    /* threads */
    struct tni_worker *workers; /* threads of the scheduler, and callers of tn_graph_run() */
    struct tni_worker *idle;
    struct tni_worker
        *guard;             /* an idle worker that looks for turns without progress, or NULL */
    uint32_t guarded_count; /* turns in which tasks wait, or waited */
    _Atomic uint32_t idle_count;
    uint32_t thread_count, thread_most, coming_count;
    uint32_t seceded_count; /* tasks that run and gave back their CPU */
    bool is_closing;
    struct tni_place *places;
    struct tni_trace *trace;     /* owned; NULL: without TN_SCHED_TRACE */
    struct tni_watcher *watcher; /* owned; NULL: no descriptor was watched yet */
    /* virtual time */
    uint64_t virtual_ns;
    struct tni_event *events; /* owned; a heap by ends_ns, [event_count] */
    uint32_t event_count, event_room;
};

/* ---- check.c ----------------------------------------------------------------------------- */

/** Fail unless the object is there and of this process. TN_ERR_INVALID, TN_ERR_FORKED. */
int tni_sched_check(const struct tn_sched *sched, const char *name);
static inline bool tni_sched_is_virtual(const struct tn_sched *sched)
{
    return (sched->options.flags & TN_SCHED_VIRTUAL) != 0;
}
/** Whether what each task did is told or noted. Then each task has its own times. */
static inline bool tni_sched_is_traced(const struct tn_sched *sched)
{
    return sched->options.trace != NULL || sched->trace != NULL;
}
/** The time of the scheduler's clock. */
uint64_t tni_sched_now_ns(const struct tn_sched *sched);

/* ---- trace.c ----------------------------------------------------------------------------- */

/** @return 0, TN_ERR_NO_MEMORY, TN_ERR_SYSTEM */
int tni_trace_create(struct tni_trace **ret_trace);
/** NULL is accepted. @param is_own  whether this process made it */
void tni_trace_free(struct tni_trace *trace, bool is_own);
/** Give a number to a graph. */
uint32_t tni_trace_graph(struct tni_trace *trace);
/** Note the inputs and the names of tasks that were added; the first has the number `first`. */
void tni_trace_add(struct tni_trace *trace, uint32_t graph, uint32_t first,
                   const tn_task_list *list);
/** Note a task that has ended. */
void tni_trace_note(struct tni_trace *trace, const struct tni_task *task,
                    const struct tni_running *running, int status, uint64_t ended_ns);
/** Note what memories have now, where that has changed. Under the lock. pre: sched->trace */
void tni_trace_memories(struct tn_sched *sched);

/* ---- info.c ------------------------------------------------------------------------------ */

/** Under the lock. @param ret  all zero */
void tni_sched_fill_info(const struct tn_sched *sched, tn_sched_info *ret);
/** Write into the domain what the scheduler does. Under the lock. pre: sched->shown */
void tni_sched_show(struct tn_sched *sched);
/* What the domain shows is that of the last change, also when all threads sleep or hang. */
static inline void tni_sched_lock(struct tn_sched *sched) { tni_os_mutex_lock(&sched->lock); }
/* Before others may change it: what the domain shows, and what the trace has. Under the lock.
 */
static inline void tni_sched_report(struct tn_sched *sched)
{
    if (TNI_UNLIKELY(sched->shown != NULL))
        tni_sched_show(sched);
    if (TNI_UNLIKELY(sched->trace != NULL))
        tni_trace_memories(sched);
}
static inline void tni_sched_unlock(struct tn_sched *sched)
{
    tni_sched_report(sched);
    tni_os_mutex_unlock(&sched->lock);
}
/** Wait for a condition. Under the lock, which is released meanwhile. */
static inline void tni_sched_wait(struct tn_sched *sched, tni_os_cond *cond, uint64_t until_ns)
{
    tni_sched_report(sched);
    tni_os_cond_wait(cond, &sched->lock, until_ns);
}

/* ---- finish.c ---------------------------------------------------------------------------- */

static inline struct tn_graph *tni_graph_of(const struct tni_task *task)
{
    return (struct tn_graph *)task->graph;
}
static inline bool tni_graph_has_ended(const struct tn_graph *graph)
{
    return atomic_load_explicit(&graph->tasks.unended, memory_order_acquire) == 0;
}
/**
 * Remember the first failure of a graph, with this thread's detail. Under the lock.
 * @param task  NULL: the graph was cancelled
 */
void tni_finish_failure(struct tn_graph *graph, const struct tni_task *task, int status);
/** Count tasks of a graph that ended, and wake up those that wait for the last. Under the lock.
 */
void tni_finish_count(struct tn_graph *graph, uint32_t ended);
/**
 * End a task whose function has returned before. Under the lock. The caller wakes up a thread.
 * @param task  its `running` is given back, once no task has it
 */
void tni_finish_later(struct tni_task *task, int status, uint64_t now_ns);
/** End what tasks have, and tell who waits for their data. Under the lock. */
void tni_finish_use(struct tn_sched *sched, struct tni_running *running, uint64_t now_ns);
/** Keep this thread's detail for a task that is ended early. Under the lock. */
void tni_finish_keep_sentence(struct tn_graph *graph, const struct tni_task *task);
/** Fail with the status and the sentence that were kept for the task. Under the lock. */
int tni_finish_early(struct tn_graph *graph, const struct tni_task *task);
/** Note that a task in a worker process needs no CPU, and give back what none needs. Under the
 * lock. The caller wakes up a thread. */
void tni_finish_secede(struct tn_sched *sched, struct tni_task *task, uint64_t now_ns);
/** Take `running` from the task, and give it back, once no task has it. Under the lock. */
void tni_finish_running(struct tn_sched *sched, struct tni_task *task, uint64_t now_ns);
/**
 * Decide whether a task runs again whose function returned `*status`. Not under the lock.
 * @param status  replaced by TN_ERR_NO_MEMORY if its memory ran out for the last time
 * @return true: as its kind says now, which may be another than before
 */
bool tni_finish_again(struct tn_sched *sched, struct tni_task *task,
                      const struct tni_running *running, int *status);
/** The flags for the next call of a task's function: TN_CALL_* */
uint32_t tni_finish_call_flags(const struct tni_task *task);
/** The status with which a task ends if its function returned `status`, which is not 0. */
int tni_finish_status(const struct tni_task *task, int status);
/** Call the trace function, and note the task. Not under the lock. */
void tni_finish_trace(const struct tn_sched *sched, const struct tni_task *task,
                      const struct tni_running *running, int status, uint64_t ended_ns);
/** Make a struct for what a task gets, with room for all slots. NULL: no memory */
struct tni_running *tni_running_create(const struct tn_sched *sched);
/** Where the result of a task lies: its first slot, or TNI_NO_SLOT. */
static inline struct tni_slot_ref tni_running_place(const struct tni_running *running)
{
    const struct tni_variant *variant = &running->signature->variants[running->variant];
    return variant->slot_count > 0 ? running->slots[0] : TNI_NO_SLOT;
}

/* ---- watch.c ----------------------------------------------------------------------------- */

/** End a task. Under the lock, which is released meanwhile. An error: it has ended already. */
typedef int tni_watch_fn(struct tn_sched *sched, struct tni_task *task, int status);
/**
 * Have a descriptor end a task that has no watch. Under the lock.
 * @param fd   borrowed; it is copied
 * @param end  the same function in each call
 * @return 0, TN_ERR_INVALID (it is not open, or cannot be waited for), TN_ERR_NO_MEMORY,
 *         TN_ERR_SYSTEM
 */
int tni_watch_begin(struct tn_sched *sched, struct tni_task *task, int fd, tni_watch_fn *end);
/** End the watch of a task, if it has one. Under the lock. */
void tni_watch_end_of(struct tn_sched *sched, struct tni_task *task);
/** The same. Not under the lock, which is taken. */
void tni_watch_end_locked(struct tn_sched *sched, struct tni_task *task);
/** End the watches of all tasks of a graph, which have ended. Under the lock. */
void tni_watch_end_graph(struct tn_sched *sched, const struct tn_graph *graph);
/** End the thread that waits for descriptors. Not under the lock. */
void tni_watcher_end(struct tn_sched *sched);

/* ---- crew.c ------------------------------------------------------------------------------ */

/**
 * Wake up or start a thread, if a ready task can begin now or at a known time. Under the lock.
 * @return 0, or the error of the thread that could not be started, if no other can run tasks
 */
int tni_crew_wake(struct tn_sched *sched);
/** Run tasks until the graph has ended. Under the lock. @return 0, TN_ERR_TIMED_OUT, ... */
int tni_crew_help(struct tn_sched *sched, struct tn_graph *graph, uint64_t deadline_ns);
/** End the threads and free their workers. Not under the lock. */
void tni_crew_end(struct tn_sched *sched);
/** The worker of this thread whose task runs; NULL: none. */
struct tni_worker *tni_crew_current(void);
void tni_crew_set_current(struct tni_worker *worker);
/** Call a hook of the program, or NULL. Under the lock, which is released meanwhile. */
void tni_crew_call_hook(struct tn_sched *sched, void (*hook)(void *));
/** Give back the CPU of the task that this thread runs. Not under the lock. */
void tni_crew_secede(struct tni_worker *worker);

/* ---- worker.c ---------------------------------------------------------------------------- */

/** Make a worker without a thread. @return 0, TN_ERR_NO_MEMORY, TN_ERR_SYSTEM */
int tni_worker_init(struct tn_sched *sched, struct tni_worker *worker);
void tni_worker_fini(struct tni_worker *worker);
/** Move the tasks that wait in its turn to the end of the chain. */
void tni_worker_take_waiting(struct tni_worker *worker, struct tni_chain *chain);
/** Keep tasks that became ready. By the worker itself. @param chain  is empty afterwards */
void tni_worker_add_ready(struct tni_worker *worker, struct tni_chain *chain);
static inline bool tni_worker_has_ready(struct tni_worker *worker)
{
    return atomic_load_explicit(&worker->readied, memory_order_relaxed) != NULL;
}
/** Move what became ready to the end of the chain, the oldest first. */
void tni_worker_take_ready(struct tni_worker *worker, struct tni_chain *chain);
/**
 * Put the tasks of workers that made no progress since the last look into the plan. Under the
 * lock. @return whether there were any
 */
bool tni_workers_look(struct tn_sched *sched);
/** Call the threads of places where a task can begin. Under the lock. */
void tni_places_wake(struct tn_sched *sched, uint64_t now_ns);

/* ---- place.c ----------------------------------------------------------------------------- */

/**
 * Find the place of a pool, or make it. Not under the lock.
 * @return 0, TN_ERR_INVALID, TN_ERR_NO_MEMORY, TN_ERR_SYSTEM
 */
int tni_place_of(struct tn_sched *sched, struct tn_pool *pool, struct tni_place **ret_place);
/** End the threads of all places. Not under the lock. */
void tni_places_end(struct tn_sched *sched);

/* ---- data.c ------------------------------------------------------------------------------ */

/**
 * Move what a task needs. Not under the lock.
 * @return 0, TN_TASK_OOM, or the error with which the task fails
 */
int tni_moves_run(struct tn_sched *sched, struct tni_running *running);
/** What is listed was moved, or failed: others may begin. Under the lock. */
void tni_moves_settle(struct tn_sched *sched, struct tni_running *running);
/** Free the room of a copy. Not under the lock. */
void tni_data_drop(const struct tn_data *data, uint32_t memory);
/** Tell threads that wait for data that tasks have ended. Under the lock. */
void tni_moves_tell(struct tn_sched *sched);

/* ---- lineage.c --------------------------------------------------------------------------- */

/**
 * Have data made again that a task reads and that was lost with its devices, by the tasks that
 * wrote it. Not under the lock.
 * @return whether the task, which has not run, now waits for those; false: it fails
 */
bool tni_lineage_await(struct tn_sched *sched, struct tni_task *task);
/** Forget the tasks of a graph that is closed. Under the lock. */
void tni_lineage_forget(struct tn_sched *sched, struct tn_graph *graph);

/* ---- holders.c --------------------------------------------------------------------------- */

/* A device when a task found no memory there. */
struct tni_device_room {
    uint64_t total_bytes, free_bytes; /* total_bytes is 0: not known */
};
/** How the program knows a memory. */
tn_memory tni_memory_named(const struct tn_sched *sched, uint32_t memory);
/** The memory that a task uses: of its data, or else of the card of its first slot. */
uint32_t tni_memory_of(const struct tn_sched *sched, const struct tni_running *running);
/** Ask the device of a memory. Not under the lock: the driver answers. */
struct tni_device_room tni_device_room_read(const struct tn_sched *sched, uint32_t memory);
/**
 * Write for an error who has what of a memory: "; GPU 0 has 5 of 8 bytes in use: 'a' 3 (task 2,
 * train), 'b' 2". Under the lock.
 * @param running  of the task that found no room, which the text calls "this task"; or NULL
 */
void tni_memory_print(const struct tn_sched *sched, uint32_t memory,
                      const struct tni_running *running, char *text, size_t size_bytes);
/** Write what of the device is not the scheduler's; "" if it is not known. Under the lock. */
void tni_device_room_print(const struct tn_sched *sched, uint32_t memory,
                           const struct tni_device_room *room, char *text, size_t size_bytes);

/* ---- devices.c --------------------------------------------------------------------------- */

/**
 * Read which devices cards are, and get ready to use them.
 * @return 0, TN_ERR_INVALID, TN_ERR_NO_MEMORY, or as tn_device_find() and tn_device_get_free()
 */
int tni_devices_begin(struct tn_sched *sched);
void tni_devices_end(struct tn_sched *sched);
/** The memory that is that of the device; TNI_NO_MEMORY: none is. */
uint32_t tni_device_memory(const struct tn_sched *sched, tn_device device);

/* ---- tensors.c --------------------------------------------------------------------------- */

/**
 * Check the options of data with a tensor, and take a reference to it, unless it is an example.
 * @param o          its `bytes` are set, and its tensor becomes NULL
 * @param ret_first  the memory of the tensor; TNI_NO_MEMORY: it is an example
 * @return 0, TN_ERR_INVALID, TN_ERR_UNSUPPORTED, TN_ERR_NO_MEMORY
 */
int tni_tensors_create(const struct tn_sched *sched, tn_data_options *o, uint32_t *ret_first,
                       struct tni_tensors **ret_tensors);
/** NULL is accepted. */
void tni_tensors_free(struct tni_tensors *tensors);
/** Bring a copy to a memory. Not under the lock. @return as tn_data_copy_fn */
int tni_tensors_copy(struct tn_sched *sched, struct tni_tensors *tensors,
                     const struct tni_copy *its);
/** Free a copy. Not under the lock. */
void tni_tensors_drop(struct tni_tensors *tensors, uint32_t memory);

/* ---- sleep.c ----------------------------------------------------------------------------- */

/** Wait for a condition, under the lock, and call the interrupt hook. 0 or TN_ERR_INTERRUPTED.
 */
int tni_sched_sleep(struct tn_sched *sched, tni_os_cond *cond, uint64_t deadline_ns);

/* ---- virtual.c --------------------------------------------------------------------------- */

/** Let virtual time pass until the graph has ended. Under the lock. */
int tni_virtual_run(struct tn_sched *sched, const struct tn_graph *graph);

#endif
