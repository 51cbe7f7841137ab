/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan: decides which task runs next, and with which resources. It has no thread, no lock and
 * no clock: the room above calls it under one lock, and says what time it is. So the same code
 * decides in real time and in virtual time.
 */
#ifndef TNI_PLAN_H
#define TNI_PLAN_H

#include "plan/data.h"
#include "plan/parse.h"
#include "plan/resource.h"

/* ---- kinds ------------------------------------------------------------------------------- */

enum { TNI_VARIANTS = 4 }; /* most ways to run one kind of task */

/* The requests of a kind. Kinds with the same requests have the same signature. */
struct tni_signature {
    uint32_t variant_count;
    struct tni_variant {
        struct tni_request request;
        uint32_t pool_mask, slot_count;
    } variants[TNI_VARIANTS];
    uint32_t pool_mask;     /* of all variants */
    bool is_batch;          /* one variant, without slots: several tasks may run on one grant */
    const void *place;      /* who runs the tasks; NULL: threads of the scheduler */
    struct tni_lane *lanes; /* owned */
    struct tni_signature *next;
};

struct tni_plan;

/* Tasks that have the same functions and requests, and take about the same time. */
struct tn_kind {
    const struct tni_plan *plan; /* that it belongs to */
    char *name;                  /* owned */
    struct tni_signature *signature;
    void (*run[TNI_VARIANTS])(void), (*take)(void); /* the room above casts them */
    uint64_t mean_ns[TNI_VARIANTS];                 /* a moving average; 0: not known */
    uint32_t affinity_mask;                         /* pools */
    uint32_t attempts;                              /* how often a task may be started */
    bool writes_inputs;            /* a task that ran out of memory is not run again */
    bool is_repeatable;            /* a task may run again after it has ended */
    uint8_t numbers[TNI_VARIANTS]; /* of the variants, as the program counts them */
    /* A task that ran out of memory as a variant runs again as one of these (again.c): */
    struct tn_kind *alone[TNI_VARIANTS], *elsewhere[TNI_VARIANTS];
    struct tn_kind *of; /* the kind of the program for whose tasks this one was made, or NULL */
    bool is_last;       /* a task that ran out of memory as this kind fails */
    struct tn_kind *next;
};

/* ---- tasks ------------------------------------------------------------------------------- */

enum {
    TNI_TASK_WAITING, /* for inputs */
    TNI_TASK_READY,
    TNI_TASK_RUNNING,
    TNI_TASK_PENDING, /* its function returned, and the task has not ended */
    TNI_TASK_ENDED
};

struct tni_task {
    _Atomic uint32_t waits; /* inputs that have not ended */
    uint32_t id;            /* in its graph */
    uint64_t key;           /* smaller runs first: 16 bits of priority, 48 of order */
    struct tn_kind *kind;
    void *context;
    struct tni_graph *graph;
    const uint32_t *successors;        /* tasks of the same list */
    const struct tni_access *accesses; /* to data; NULL: none */
    struct tni_edge *_Atomic later; /* tasks of later lists; TNI_EDGES_CLOSED once it ended */
    uint32_t successor_count;
    uint8_t attempt;     /* from 1, once it began */
    bool is_ended_early; /* tn_task_end() was called before its function returned */
    bool has_seceded;    /* in a worker process: its `running` counts it */
    _Atomic uint8_t state;
    uint8_t variant;
    uint8_t set_aside;               /* how often others took the room that its data needs */
    struct tni_task *next, *child;   /* in a lane or in a list */
    uint64_t bytes, run_ns;          /* 0: not known */
    uint64_t near_bytes;             /* of the largest input that was made on a slot */
    struct tni_slot_ref near;        /* where it was made */
    struct tni_slot_ref made_on;     /* the slot of this task, once it ended */
    int32_t status;                  /* once it ended */
    int32_t early_status;            /* with is_ended_early: what it is to end with */
    _Atomic uint32_t cause;          /* 1 + the id of the task that failed first; 0: none */
    uint32_t feeds;                  /* pools, not built in, that tasks after it request */
    struct tni_pool *wide_in;        /* whose wide_count counts it; or NULL */
    struct tni_running *running;     /* while it is PENDING */
    struct tni_watch *_Atomic watch; /* of the room above; NULL: no descriptor ends it */
};

struct tni_edge {
    struct tni_edge *next;
    struct tni_task *task;
};
#define TNI_EDGES_CLOSED ((struct tni_edge *)1)

/* A chain of tasks by their `next`. */
struct tni_chain {
    struct tni_task *first, *last;
};

enum { TNI_CHUNKS = 25, TNI_FIRST_CHUNK_LOG2 = 5, TNI_TASKS_LOG2 = 29 };

/* Tasks and the order between them. Chunk k has 2^(k + 5) tasks, so that tasks never move. */
struct tni_graph {
    struct tni_task *_Atomic chunks[TNI_CHUNKS];
    _Atomic uint32_t count;
    _Atomic uint64_t unended;
    _Atomic bool is_cancelled;
    struct tni_block *blocks; /* owned: what the tasks point to */
};

/* A list of tasks to add, checked by tni_graph_add(). */
struct tni_task_list {
    uint32_t count;
    uint64_t added_ns; /* now, since the scheduler began */
    const struct tni_new_task {
        struct tn_kind *kind;
        void *context;
        int32_t priority;
        uint64_t bytes, run_ns;
    } * tasks;
    const uint64_t *input_ends, *inputs; /* as in tn_task_list */
    struct tni_access *accesses;         /* consumed on success; NULL: no task has any */
    const uint32_t *access_firsts;       /* [count]: where those of each task begin; UINT32_MAX:
                                            it has none */
};

enum { TNI_PRIORITY_MOST = 32767 };
#define TNI_INPUT_IN_LIST (UINT64_C(1) << 63)

/* How tasks of one priority are ordered. */
enum {
    TNI_ORDER_AUTO,  /* RANK if the time of each task of the first list is known, else DEPTH */
    TNI_ORDER_DEPTH, /* depth first: what is begun is finished, and its memory released */
    TNI_ORDER_RANK   /* what has the longest way to the end first */
};

static inline struct tni_task *tni_graph_task(const struct tni_graph *graph, uint32_t id)
{
    uint32_t at = id + (1u << TNI_FIRST_CHUNK_LOG2);
    uint32_t log2 = 31u - (uint32_t)__builtin_clz(at);
    /* This acquire pairs with the release in tni_graph_add(). */
    struct tni_task *chunk =
        atomic_load_explicit(&graph->chunks[log2 - TNI_FIRST_CHUNK_LOG2], memory_order_acquire);
    return chunk + (at - (1u << log2));
}

void tni_graph_init(struct tni_graph *graph);
void tni_graph_fini(struct tni_graph *graph);

struct tni_added {
    uint32_t first; /* the id of the first task of the list */
    uint32_t ended; /* tasks of it that ended at once, because an input had failed */
};
/**
 * Add tasks. The caller gives the chain to tni_plan_push().
 * @param ready  the tasks that wait for nothing are appended
 * @return 0, TN_ERR_INVALID, TN_ERR_NO_MEMORY; the graph is unchanged on failure
 */
int tni_graph_add(struct tni_plan *plan, struct tni_graph *graph,
                  const struct tni_task_list *list, struct tni_chain *ready,
                  struct tni_added *ret_added);

/**
 * End a task: tell the tasks that wait for it. If it failed, the tasks that depend on it end,
 * too. May be called without the lock.
 * @param ready      the tasks that became ready are appended
 * @param ret_ended  how many tasks ended, 1 or more
 */
void tni_task_end(struct tni_task *task, int status, struct tni_chain *ready,
                  uint32_t *ret_ended);

/*
 * For a task that was about to run, and has to wait for other tasks of its graph first. Between
 * the first and the last call only this thread knows it. Lists are added under the same lock.
 */
void tni_task_wait_more(struct tni_task *task);
/** @param edge  is the graph's until it is freed */
void tni_task_wait_for(struct tni_task *task, struct tni_task *input, struct tni_edge *edge);
/** @return how many tasks ended, because one of those that the task waits for had failed */
uint32_t tni_task_waits(struct tni_task *task, struct tni_chain *ready);

static inline void tni_chain_append(struct tni_chain *chain, struct tni_task *task)
{
    task->next = NULL;
    if (chain->first == NULL)
        chain->first = task;
    else
        chain->last->next = task;
    chain->last = task;
}

static inline struct tni_task *tni_chain_take(struct tni_chain *chain)
{
    struct tni_task *task = chain->first;
    if (task != NULL)
        chain->first = task->next;
    return task;
}

/* ---- the plan ---------------------------------------------------------------------------- */

/* Resources that are in use, by one task or by several in a row. */
struct tni_running {
    const struct tni_signature *signature;
    uint32_t variant;
    struct tni_slot_ref *slots; /* [the slots of the variant]; the caller's memory */
    uint64_t began_ns, ends_ns; /* ends_ns is what is expected; 0: not known */
    uint32_t held_mask;         /* pools; a task may give back its CPU early, */
    uint64_t cpu_until_ns;      /* at this time; 0: it did not */
    uint32_t count, left;       /* tasks that wait for their end elsewhere: at first, and now */
    uint32_t seceded;           /* of these, tasks that need no CPU any more */
    struct tn_kind *kind;       /* of all of them, if their time is learned; or NULL */
    int32_t pid;                /* of the worker process; 0: this process */
    const struct tni_access *accesses; /* of the only task, to data; NULL: none */
    const struct tni_task *task;       /* that one; set with accesses */
    struct tni_copy *moves;            /* what is to be moved before it runs */
    uint64_t move_ns;                  /* how long that is expected to take */
    /*
     * Of its memory, and of the host: the most that its moves take meanwhile, beyond what they
     * leave taken. Others get it once all was moved.
     */
    uint64_t held_bytes, held_host_bytes;
    const struct tni_data *lacking; /* what it reads and no task has written; or NULL */
    uint8_t memory;                 /* where it has its data */
    bool has_run, has_failed;       /* has_run: its function was called */
    struct tni_running *prev, *next;
};

struct tni_plan {
    struct tni_pools pools;
    struct tni_memories memories;
    struct tni_signature *signatures;
    struct tn_kind *kinds;
    struct tni_running running; /* the head of a ring */
    struct tni_lane *active;    /* lanes with tasks */
    struct tni_chain aside;     /* ready tasks that wait for data, or for room for it */
    uint32_t aside_count;
    uint32_t order, slot_most; /* slot_most: slots of all pools */
    uint32_t skips;            /* after so many a lane gets a reservation */
    uint64_t overtaken_count;  /* how often a lane came to so many */
    double skew;               /* how much later a task may end for the slot of its input */
    uint64_t data_events;      /* how often data was made, and written */
    uint64_t order_next;       /* the order of the next list, for TNI_ORDER_DEPTH */
    uint32_t ready_count;
    uint32_t ready_of_pool[TNI_POOLS];
    _Atomic uint64_t best_key; /* of the tasks that are ready for threads; UINT64_MAX: none */
    double busy[TNI_POOLS];    /* amount times ns that were in use */
};

/* Who takes tasks, and how many. */
struct tni_taker {
    const void *place; /* as in tni_signature */
    uint64_t now_ns;
    uint32_t most;     /* tasks of a signature with is_batch that may share the resources */
    uint64_t batch_ns; /* how long they may take together */
};

/* What a user may set; zero is the default. */
struct tni_plan_options {
    const char *resources;        /* the text of tni_pools_init() */
    const char *memories, *links; /* the texts of tni_memories_init() */
    uint32_t cpu_count;           /* where that text has no CPU */
    uint32_t order;               /* TNI_ORDER_* */
    uint32_t skips;
    double skew;
};

int tni_plan_init(struct tni_plan *plan, const struct tni_plan_options *options);
void tni_plan_fini(struct tni_plan *plan);

/*
 * A kind as a user describes it. A variant for which there is too little of a resource is left
 * out, if another can run.
 */
struct tni_kind_options {
    const char *name;
    uint32_t variant_count; /* 1 to TNI_VARIANTS */
    uint32_t attempts;
    const char *requests[TNI_VARIANTS]; /* as tni_request_read() */
    uint64_t run_ns[TNI_VARIANTS];
    void (*run[TNI_VARIANTS])(void), (*take)(void);
    const char *affinity; /* names of pools, parted by commas or spaces; NULL: none */
    const void *place;    /* as in tni_signature */
    bool writes_inputs, is_repeatable;
};
int tni_plan_add_kind(struct tni_plan *plan, const struct tni_kind_options *options,
                      struct tn_kind **ret_kind);
/**
 * Find or make the kind as which a task runs again whose memory ran out.
 * @param variant  as which it ran
 * @return NULL: it has run as every kind that may help; or there is no memory
 */
struct tn_kind *tni_kind_again(struct tni_plan *plan, struct tn_kind *kind, uint32_t variant);

/** Whether tni_kind_again() finds a kind, if there is memory for it. */
bool tni_kind_may_run_again(const struct tn_kind *kind, uint32_t variant);
/**
 * A kind that tni_kind_again() made has only variants of another kind, which the program made.
 * @return the index that this variant has there
 */
uint32_t tni_kind_first_variant(const struct tn_kind *kind, uint32_t variant);

/** Whether tasks of the kind run alone, since their memory ran out. */
static inline bool tni_kind_is_alone(const struct tn_kind *kind)
{
    return kind->of != NULL && !kind->is_last;
}

/** Make tasks ready to be chosen. */
void tni_plan_push(struct tni_plan *plan, struct tni_chain *ready);

/**
 * Choose what runs next at a place, and take its resources. The caller starts the tasks, in
 * their order.
 * @param ret    its `slots` is set by the caller, with room for slot_most
 * @return false: no task can begin now
 */
bool tni_plan_next(struct tni_plan *plan, const struct tni_taker *taker,
                   struct tni_running *ret, struct tni_chain *ret_tasks);
/**
 * Whether somebody should call tni_plan_next() for the place: a task can begin now, or at
 * tni_plan_retry_ns() if nothing is given back before.
 */
bool tni_plan_can_start(const struct tni_plan *plan, const void *place, uint64_t now_ns);
/**
 * When to call tni_plan_next() again although nothing was given back: a task that waits for a
 * better slot or variant does not wait for ever. TNI_FOREVER: there is none.
 */
uint64_t tni_plan_retry_ns(const struct tni_plan *plan);
/**
 * Count the ready tasks that cannot begin now, each at the pool that it lacks, for the first of
 * its variants. Tasks that wait for a better slot or variant, or for data, are not counted.
 */
void tni_plan_count_waiting(const struct tni_plan *plan, uint64_t now_ns,
                            uint32_t ret_counts[TNI_POOLS]);
/** Let all tasks try again, since data was moved or given back. */
void tni_plan_unblock(struct tni_plan *plan);
/** Give back resources early. A pool that is not held is left out. */
void tni_plan_give_back(struct tni_plan *plan, struct tni_running *running, uint32_t pool_mask,
                        uint64_t now_ns);
/** Give back what is still held, and forget the running task. */
void tni_plan_end(struct tni_plan *plan, struct tni_running *running, uint64_t now_ns);

/** Learn how long `count` tasks of a kind took in all. */
void tni_kind_learn(struct tn_kind *kind, uint32_t variant, uint64_t took_ns, uint32_t count);
/** How long a task is expected to run; 0: not known. */
static inline uint64_t tni_task_time(const struct tni_task *task, uint32_t variant)
{
    return task->run_ns != 0 ? task->run_ns : task->kind->mean_ns[variant];
}

/** Tell the tasks that wait for a task where it was made. Called before tni_task_end(). */
void tni_task_made_on(struct tni_task *task, struct tni_slot_ref slot);
/** Take the ready tasks of a graph out of the lanes, and append them to the chain. */
void tni_plan_remove(struct tni_plan *plan, const struct tni_graph *graph,
                     struct tni_chain *ret_tasks);

#endif
