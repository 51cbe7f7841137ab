/* SPDX-License-Identifier: Apache-2.0 */
/*
 * soak: kill processes of a busy domain at random, and account for each message and byte.
 *
 * Nouns. The conductor makes the domain, starts all other processes, and audits the domain; it
 * is never killed. The crew are the processes that it starts, each in a slot with a role. The
 * killer is a process that is no member. The ledger is shared memory outside of the domain,
 * where each process notes an operation before and after it. A round is the time between two
 * audits.
 *
 * A process notes "pushing" before a push and "pushed" after it, with atomic stores, and so
 * on. So the ledger names each operation that was in flight when a process was killed.
 */
#ifndef TENON_TESTS_SOAK_H
#define TENON_TESTS_SOAK_H

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <tenon/tenon.h>

#include "soak_words.h"

#define SOAK_MS_NS     UINT64_C(1000000)
#define SOAK_S_NS      UINT64_C(1000000000)
#define SOAK_LEDGER    "SOAK_LEDGER" /* variable: descriptor of the ledger */
#define SOAK_FOLDER    "/tmp/tenon-soak-XXXXXX"
#define SOAK_HANDLE    4096
#define SOAK_HANG_NS   (40 * SOAK_S_NS)
#define SOAK_GATHER_NS (60 * SOAK_S_NS)

enum {
    SOAK_SLOTS = 192,
    SOAK_CREW = 26, /* the first slots are the conductor's */
    SOAK_MESSAGES = 1 << 19,
    SOAK_MESSAGE_TENSORS = 4,
    SOAK_PERMITS = 3,
    SOAK_QUOTA_MIB = 12, /* so small that allocations wait, and fail */
    SOAK_TEXT_BYTES = 2048
};

/* ---- the ledger -------------------------------------------------------------------------- */

enum { SOAK_M_NONE = 0, SOAK_M_PUSHING = 1, SOAK_M_PUSHED = 2, SOAK_M_REFUSED = 3 };
enum { SOAK_T_NONE = 0, SOAK_T_EXPORTING = 1, SOAK_T_EXPORTED = 2, SOAK_T_REFUSED = 3 };

/* The state of a consumer that was killed in the middle of a pop. */
enum { SOAK_SEEN_NOT = 0, SOAK_SEEN_TAKING = 1, SOAK_SEEN_WAITING = 2 };

/* A message of this round, and the ticket that may go with it. */
struct soak_entry {
    _Atomic uint32_t state;
    uint32_t queue, life, number;
    uint32_t strategies; /* one bit for each strategy */
    _Atomic uint32_t popped, acking, acked;
    _Atomic uint32_t ticket_state;
    uint32_t uses;
    _Atomic uint32_t tries, imports, revoking, revoked;
    _Atomic uint64_t ticket;
    uint64_t earliest_end_ns, latest_end_ns; /* 0: the ticket does not expire */
};

struct soak_slot {
    _Atomic int32_t pid; /* 0: free */
    _Atomic uint32_t role, life;
    _Atomic uint32_t deed, queue,
        count;                /* the operation in flight; messages that it may have taken */
    _Atomic uint32_t seen_as; /* SOAK_SEEN_*: the state that the killer found */
    _Atomic uint32_t stops;   /* the killer has stopped the process */
    _Atomic uint32_t parked;  /* the last round at whose end the process parked */
    _Atomic uint64_t since_ns;
};

struct soak_queue_book {
    uint64_t ring_offset; /* in the arena */
    uint32_t capacity, slot_bytes;
    _Atomic uint32_t in_hand; /* most messages that killed consumers may have had */
    _Atomic uint32_t lost;    /* how many pops found that the memory object was lost */
};

struct soak_ledger {
    uint64_t seed;
    uint32_t kills_per_second;
    char domain[32];
    char runtime_folder[64], shm_folder[64];
    _Atomic uint32_t round;
    _Atomic uint32_t parking, ending; /* flags */
    _Atomic uint32_t killer_rests;
    _Atomic uint32_t news; /* changes when there is something for the conductor to check */
    _Atomic uint32_t lives, messages;
    int32_t conductor_pid;
    _Atomic int32_t server_pid;
    _Atomic uint32_t failed; /* 1: being written, 2: written */
    _Atomic uint32_t promise;
    int32_t failed_pid;
    char text[SOAK_TEXT_BYTES];
    _Atomic uint64_t figures[SOAK_FIGURE_COUNT];
    _Atomic uint64_t checks[SOAK_PROMISE_COUNT];
    _Atomic uint64_t kills[SOAK_ROLE_COUNT], kills_at[SOAK_DEED_COUNT];
    /* These fields are used under the domain's lock. */
    _Atomic uint64_t lock_owner; /* {life:32, pid:32} */
    _Atomic uint64_t guarded[2];
    _Atomic uint32_t ups, downs, maybe_ups,
        maybe_downs; /* operations on the semaphore `signal` */
    _Atomic uint32_t maybe_tickets;
    struct soak_queue_book queues[8];
    struct soak_slot slots[SOAK_SLOTS];
    struct soak_entry entries[SOAK_MESSAGES];
};

extern struct soak_ledger *soak;
extern const char *const soak_role_names[],
    *const soak_deed_names[], *const soak_figure_names[], *const soak_promise_names[];

struct soak_queue_kind {
    const char *name;
    uint32_t capacity, inline_bytes, policy;
};
enum { SOAK_QUEUES = 6 };
extern const struct soak_queue_kind soak_queue_kinds[SOAK_QUEUES];
enum { SOAK_CHANNELS = 3 }; /* one for each policy */

/* What a process is and has. */
struct soak_self {
    struct soak_slot *slot;
    uint32_t life;
    uint64_t random;
    tn_domain *domain;
    tn_queue *queues[SOAK_QUEUES];
    tn_lock *lock;
    tn_semaphore *permits, *signal;
    tn_event *door, *bell;
    tn_condition *condition;
    tn_store *store;
    tn_channel *channels[SOAK_CHANNELS];
    uint32_t published;            /* messages of this life to channels */
    uint32_t numbers[SOAK_QUEUES]; /* of the last message that this life pushed */
};
extern struct soak_self me;

/** @return false: no memory */
bool soak_ledger_make(void);
bool soak_ledger_open(void);
uint64_t soak_now_ns(void);
tn_deadline soak_deadline(uint64_t ms);
uint64_t soak_until_ns(uint64_t ms);
uint64_t soak_random(void);
uint32_t soak_below(uint32_t below);
bool soak_chance(uint32_t percent);
void soak_seed(uint64_t seed);
void soak_count(enum soak_figure figure, uint64_t by);
static inline void soak_checked(enum soak_promise promise)
{
    atomic_fetch_add_explicit(&soak->checks[promise], 1, memory_order_relaxed);
}
/** Note what this process does from now on. */
void soak_do(enum soak_deed deed);
void soak_do_at(enum soak_deed deed, uint32_t queue, uint32_t count);
/** Report the first discrepancy, which ends the run, and wait for the end. Does not return. */
void soak_fail(enum soak_promise promise, const char *format, ...)
    __attribute__((format(printf, 2, 3), noreturn));
/** The same for a call that failed with a status that it must not return. */
void soak_fail_status(enum soak_promise promise, const char *call, int status)
    __attribute__((noreturn));
void soak_watch_crashes(void);
/** Tell the conductor that a process parked, rests, failed or ended. */
void soak_tell(void);
/** Have this process, and those that it forks, tell the conductor of each child that ends. */
void soak_tell_of_children(void);
/**
 * Wait until a process tells something, for a short while at most, since not everything is
 * told.
 */
void soak_await_news(void);
/** Take a free slot that is not one of the conductor's. */
void soak_enlist(enum soak_role role);
void soak_take_slot(struct soak_slot *slot, enum soak_role role);
void soak_dismiss(void);
static inline bool soak_goes_on(void)
{
    return atomic_load(&soak->parking) == 0 && atomic_load(&soak->failed) == 0;
}
/** state letter of a process; 0: there is none */
char soak_process_state(pid_t pid);

/* ---- messages (soak_message.c) ----------------------------------------------------------- */

struct soak_part {
    uint64_t key;
    uint32_t words, first, strategy, has_name;
};
/* The bytes of a message: this, its parts, then filler. */
struct soak_wire {
    uint64_t magic;
    uint32_t round, id, queue, life, number, part_count, handle_bytes, filler_bytes;
    struct soak_part handle_part;
    struct soak_part parts[SOAK_MESSAGE_TENSORS];
};
struct soak_parcel {
    struct soak_wire wire;
    tn_tensor *tensors[SOAK_MESSAGE_TENSORS];
    uint8_t handle[SOAK_HANDLE];
    uint8_t bytes[sizeof(struct soak_wire) + SOAK_HANDLE + 2048];
};

/** Make a tensor of some size with some strategy. @return false: there is no room now */
bool soak_make_tensor(struct soak_part *ret_part, tn_tensor **ret_tensor);
void soak_check_tensor(const tn_tensor *tensor, const struct soak_part *part, const char *what);
void soak_drop_tensors(tn_tensor **tensors, uint32_t count);
/** Push a parcel whose tensors and parts are set; the call consumes them. */
void soak_push(struct soak_parcel *parcel, uint32_t queue);
/** Check a message and mark it in the ledger. The caller keeps the message. */
void soak_receive(const tn_message *message, uint32_t queue, struct soak_wire *ret_wire);
/** Check its contents again later: they must not change while a process holds the message. */
void soak_check_contents(const tn_message *message, const struct soak_wire *wire);
void soak_acknowledge(uint32_t queue, tn_message *message, uint32_t id);
/** Check that a pop may fail with this status, and count the result. */
void soak_judge_pop(int status, uint32_t queue);
/** Export a tensor into the parcel. */
void soak_export(struct soak_parcel *parcel, struct soak_entry *entry);
void soak_import(const tn_message *message, const struct soak_wire *wire);
uint32_t soak_new_entry(void);

/* ---- roles ------------------------------------------------------------------------------- */

void soak_produce(uint32_t turns);
void soak_consume(uint32_t turns);
void soak_relay(uint32_t turns);
void soak_keep(uint32_t turns);
int soak_store_open(tn_domain *domain, uint32_t flags);
void soak_use_store(void);
int soak_channels_open(tn_domain *domain, uint32_t flags);
void soak_channels_close(void);
void soak_use_channel(void);
void soak_own_pool(uint32_t turns);
void soak_serve_pool(void);
void soak_be_parent(uint32_t turns);
int soak_be_child(tn_domain *domain, void *argument);
void soak_hoard(uint32_t turns);
void soak_reclaim(uint32_t turns);
void soak_visit(uint32_t turns);

/** Open by name the objects that a role needs. @return 0 or a status */
int soak_open_objects(tn_domain *domain);
void soak_close_objects(void);
/** Play the role of a slot until the process retires. The domain is open. */
int soak_play(struct soak_slot *slot);
extern const char *const *soak_program(const char *part, uint32_t number);

/* ---- the conductor ----------------------------------------------------------------------- */

/** Start each member of the crew that does not run, in one pass. */
void soak_crew_fill(tn_domain *domain);
/** Collect each process of the crew that has ended, and account for it. */
void soak_crew_collect(void);
void soak_crew_watch(void);
/** Ask each process to park, and wait until it has. */
void soak_crew_park(void);
void soak_crew_resume(void);
void soak_crew_end(void);
uint32_t soak_crew_members(void);
bool soak_crew_has(pid_t pid);

/** Check and remove each value, and check that the store says so. */
void soak_empty_store(void);
/** Check that the channels have no subscriber and no message. */
void soak_check_channels(void);
void soak_audit_begin(void);
void soak_audit_round(void);
void soak_audit_end(void);
/** Note, before the first process starts, what must be left at the end. */
void soak_left_begin(void);
/** Check that each file has a block. */
void soak_check_files(void);
/** Check that nothing is left but what there was in the beginning. */
void soak_check_left(void);
void soak_check_emptiness(void);
uint32_t soak_count_files(const char *folder);

/** @return how many processes descend from `pid`, at most `size` */
uint32_t soak_list_tree(pid_t pid, pid_t *ret_list, uint32_t size);
void soak_process_name(pid_t pid, char name[32]);
pid_t soak_process_parent(pid_t pid);
pid_t soak_killer_start(void);
/** Report the first discrepancy with all details, and end the run. */
void soak_report_failure(void) __attribute__((noreturn));
/** Print the verdicts and the figures, and exit. */
void soak_finish(bool passed) __attribute__((noreturn));
void soak_report_figures(double minutes);
void soak_report_progress(double seconds);
void soak_report_stack(pid_t pid);
void soak_report_descriptors(pid_t pid);

#endif
