/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the sources of the fake share. A universe is one file that each process maps:
 * struct universe, then for each device the records of accesses and the memory. One lock
 * guards the tables; who holds it may take the lock of this process (local.lock), but not the
 * other way round.
 */
#ifndef TENON_TESTS_FAKE_STATE_H
#define TENON_TESTS_FAKE_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "fakecuda/fake.h"

enum {
    MAX_DEVICES = 8,
    MAX_PROCESSES = 128,
    MAX_ALLOCATIONS = 2048,
    MAX_PIECES = 4096,
    MAX_HANDLES = 4096,
    MAX_MAPPINGS = 4096,
    MAX_EXPORTS = 4096,
    MAX_EVENTS = 2048,
    MAX_WORDS = 2048,
    MAX_MESSAGES = 1024,
    MAX_INFLIGHT = 1024,
    MAX_VIOLATIONS = 200,
    AGENTS = 256,
    PAGE = 4096,
    PAGE_ACCESSES = 10,
    SPACE_FACTOR = 4, /* a device has so many times more addresses than memory */
};

#define MAGIC       0x61647563656b6146ULL
#define BLOCK_BYTES ((uint64_t)2 << 20)

/* ---- numbers of the functions ------------------------------------------------------------ */

#define FN_ENUM(group, name, symbol, version, parameters) FN_##symbol,
enum {
    TNI_CUDA_FUNCTIONS(FN_ENUM) TNI_CUDA_OLD_UUID(FN_ENUM) FN_COUNT,
    FN_ANY = FN_COUNT,
    FN_NONE,
};
#undef FN_ENUM

/* What a function needs before it does anything. Only the last two ask for a sticky error. */
enum needs { NEEDS_NOTHING, NEEDS_INIT, NEEDS_NO_FAULT, NEEDS_CONTEXT };

/* ---- the universe ------------------------------------------------------------------------ */

/* Which steps of which agents come before a moment. An agent is a process or a stream. */
struct clock {
    uint32_t steps[AGENTS];
};

enum process_state { PROCESS_NONE, PROCESS_LIVE };

struct process {
    uint32_t state;
    int pid;
    int fake_pid;
    int agent;
    uint64_t start_time;
    uint64_t instance;
    uint32_t contexts; /* bits of devices */
    uint32_t faulted;  /* bits of devices */
    struct clock clock;
};

enum allocation_kind { ALLOCATION_NONE, ALLOCATION_VMM, ALLOCATION_LEGACY };

struct allocation {
    uint32_t kind;
    uint32_t device;
    uint64_t id; /* never used again */
    uint64_t bytes;
    uint64_t off; /* in the memory of the device */
    uint32_t handle_types;
    uint32_t handle_count;
    uint32_t mapping_count;
    uint32_t export_count;
    int owner; /* of legacy memory: the process, or -1 after its death */
    bool is_freed;
    bool is_recycled; /* its memory may be another one's */
    uint64_t owner_instance;
    uint64_t owner_address;
};

/* What cuMemAlloc() returned: a part of a block, or a whole one. */
struct piece {
    uint64_t id; /* 0 is none */
    int allocation;
    bool is_freed; /* but an importer keeps it */
    uint64_t off;
    uint64_t bytes;
};

struct handle {
    CUmemGenericAllocationHandle value; /* 0 is none */
    int process;
    int allocation;
    uint64_t refs;
};

enum mapping_kind { MAPPING_NONE, MAPPING_VMM, MAPPING_OWN, MAPPING_IMPORT };

struct mapping {
    uint32_t kind;
    int process;
    int allocation;
    uint32_t refs; /* of an import: opens */
    CUdeviceptr address;
    uint64_t bytes;
    uint64_t buffer_id;
    CUmemGenericAllocationHandle handle;
    uint64_t piece; /* of an import: what was opened */
    uint64_t piece_off;
    CUcontext context; /* not of virtual memory: whose it is */
    uint8_t access[MAX_DEVICES];
};

struct export
{
    uint64_t id; /* the descriptor's count; 0 is none */
    int allocation;
    int reserved;
};

struct event {
    uint64_t id; /* 0 is none */
    int owner;   /* the process, or -1 after its end */
    uint32_t flags;
    uint32_t ref_count[MAX_PROCESSES];
    uint32_t announced;
    bool is_destroyed;
    uint64_t submitted; /* records so far */
    uint64_t completed; /* the highest record that is done */
    struct clock clock;
};

/* A 64-bit word that streams write and wait for. */
struct word {
    uint64_t space; /* 0 is none; the device, or the file that the host's memory is of */
    uint64_t inode;
    uint64_t off;
    uint64_t submitted; /* the highest value that a stream was told to write */
    uint64_t written;
    bool is_submitted;
    bool is_written;
    struct clock clock;
};

struct message {
    uint64_t key;
    uint64_t turn; /* 0 is none */
    struct clock clock;
};

/*
 * An operation that was submitted and is not done: a dead process's may still be done. Fills
 * and copies within a device are, and what they wait for in their stream.
 */
struct inflight {
    uint32_t state; /* enum inflight_state */
    uint32_t kind;  /* enum operation_kind */
    int process;
    int agent;
    int context_device;
    int device; /* of the memory */
    uint64_t order;
    uint64_t turn; /* of its process' death */
    uint64_t dst_off;
    uint64_t src_off;
    uint64_t bytes; /* of a row */
    uint64_t rows;
    uint64_t dst_pitch;
    uint64_t src_pitch;
    uint64_t value;
    int word; /* or -1 */
    int event;
    uint64_t event_id;
    struct clock clock;
};
enum inflight_state { INFLIGHT_NONE, INFLIGHT_LIVE, INFLIGHT_ORPHAN };

struct violation {
    int pid;
    char function[40];
    char rule[8];
    char text[200];
    char trace[500];
};

struct access {
    uint32_t step;
    uint16_t agent;
    uint16_t start;
    uint16_t bytes; /* 0 is none */
    uint16_t is_write;
};
struct page {
    struct access accesses[PAGE_ACCESSES];
};

struct universe {
    uint64_t magic;
    uint64_t file_bytes;
    struct fake_options options;
    pthread_mutex_t lock;
    uint64_t next_id; /* of allocations, pieces, events, buffers, instances: one sequence */
    uint64_t random;
    uint64_t opens;
    uint64_t turn; /* counts deaths and messages */
    _Atomic uint64_t calls[FN_COUNT];
    uint32_t violation_count;
    uint32_t forgiven;
    int mapping_end; /* no mapping was ever at this index or above; so the others */
    int handle_end;
    int piece_end;
    int inflight_end;
    struct clock dead;             /* all that dead processes did */
    uint32_t agent_steps[AGENTS];  /* never begin again */
    int32_t agent_process[AGENTS]; /* process + 1; 0 is none */
    uint64_t agent_instance[AGENTS];
    struct process processes[MAX_PROCESSES];
    struct allocation allocations[MAX_ALLOCATIONS];
    struct piece pieces[MAX_PIECES];
    struct handle handles[MAX_HANDLES];
    struct mapping mappings[MAX_MAPPINGS];
    struct export exports[MAX_EXPORTS];
    struct event events[MAX_EVENTS];
    struct word words[MAX_WORDS];
    struct message messages[MAX_MESSAGES];
    struct inflight inflight[MAX_INFLIGHT];
    struct violation violations[MAX_VIOLATIONS];
};

/* ---- this process ------------------------------------------------------------------------ */

struct CUctx_st {
    bool is_used;
    bool is_primary;
    bool is_kept; /* of libfakehip: until the process ends */
    int device;   /* of the universe */
    int ordinal;
    uint64_t retains;
    CUresult fault; /* sticky */
};

enum { MAX_CONTEXTS = 32, MAX_DEPTH = 32, MAX_REGISTERED = 256 };

struct range {
    struct range *next;
    CUdeviceptr address;
    uint64_t bytes;
    bool is_reserved; /* by cuMemAddressReserve(), and not freed */
    bool is_taken;
};

struct registered {
    char *host; /* NULL is none */
    uint64_t bytes;
    unsigned flags;
    CUdeviceptr device;
    uint64_t space;
    uint64_t inode;
    uint64_t off;
};

struct fault {
    int function; /* FN_NONE is none */
    unsigned left;
    CUresult code;
};

struct local {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    _Atomic int pid; /* of who called cuInit(); 0 before */
    int process;     /* index in the universe */
    _Atomic bool is_detached;
    _Atomic bool is_ending; /* workers leave */
    unsigned worker_count;
    int visible[MAX_DEVICES];
    int visible_count;
    struct CUctx_st contexts[MAX_CONTEXTS];
    struct CUstream_st *streams;
    struct CUevent_st *events;
    struct range *ranges;
    struct registered registered[MAX_REGISTERED];
    _Atomic uint64_t calls[FN_COUNT];
    struct fault faults[8];
    unsigned kill_left;
    bool kills_after;
};
extern struct local local;
extern struct universe *_Atomic universe;

/* ---- universe.c -------------------------------------------------------------------------- */

/* Map the universe of TENON_FAKECUDA, if that is not done yet. */
bool universe_open(void);
void universe_lock(void);
void universe_unlock(void);
uint64_t universe_id(void);
/* A random number below `below`, or any for 0. */
uint64_t universe_random(uint64_t below);
struct process *me(void);
char *device_memory(int device);
struct page *device_pages(int device);
uint64_t device_space(void);
/* End the driver in this process without any check. */
void universe_close(void);

/* ---- processes.c ------------------------------------------------------------------------- */

void processes_attach(void);
/* Reclaim what dead processes held. */
void processes_sweep(void);
/* Reclaim what this process holds: it ends. */
void process_reap(int process);

/* ---- calls.c ----------------------------------------------------------------------------- */

/*
 * Begin a call of the driver: count it, inject what is due, and check what it needs. After
 * success the universe is locked.
 */
CUresult call_enter(int function, enum needs needs);
/* End the call that call_enter() began. @return result */
CUresult call_leave(CUresult result);
/* A call of fake.h that is like one of the driver, but is not counted. */
CUresult call_enter_quiet(enum needs needs);
void violation(const char *rule, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *function_name(int function);
/* Whether the driver is too old to have this function. */
bool function_is_missing(int function);

/* ---- contexts.c -------------------------------------------------------------------------- */

CUcontext context_current(void);
bool context_is_used(CUcontext context);
int context_device(CUcontext context);
/* Push the primary context of a device, which is made if it is not there: HIP, H3. */
CUresult context_use(CUdevice ordinal);
void context_unuse(void);
/* NULL: there is none. */
CUcontext context_primary(CUdevice ordinal);
void contexts_check_end(void);
void contexts_reset(void);
/* An ordinal of this process as a device of the universe, or -1. */
int device_of(CUdevice ordinal);
/* The reverse, or -1. */
int ordinal_of(int device);

/* ---- memory.c ---------------------------------------------------------------------------- */

/* @return the index, or -1 if there is no memory; -2 - code for another error */
int allocation_create(int device, uint64_t bytes, uint32_t kind);
/* Free the memory if nothing refers to it any more. */
void allocation_settle(int allocation);
void allocations_sweep(void);
/* Count again what refers to each: who died with the lock may have been about to count. */
void allocations_recount(void);
/* The bytes of a device that are allocated. */
uint64_t device_used(int device);
/* Give the memory away although somebody has it mapped. */
void allocation_recycle(int allocation);
/* A descriptor of an allocation. @return the descriptor, or -1 */
int export_create(int allocation);
/* @return the allocation, or -1 */
int export_find(int fd);
bool export_is_open(uint64_t id);

/* ---- addresses.c ------------------------------------------------------------------------- */

CUdeviceptr address_take(uint64_t bytes, uint64_t alignment);
CUdeviceptr address_try(uint64_t bytes, uint64_t alignment); /* 0: there is no room */
void address_give(CUdeviceptr address);
struct range *address_find(CUdeviceptr address);
int mapping_create(uint32_t kind, int allocation, CUdeviceptr address, uint64_t bytes);
void mapping_destroy(int mapping);
/* The mapping of this process that has this address, or -1. */
int mapping_find(CUdeviceptr address);
bool mapping_overlaps(CUdeviceptr address, uint64_t bytes);
void addresses_reset(void);

/* ---- target.c ---------------------------------------------------------------------------- */

/* Where an address leads: memory of a device, or registered memory of the host. */
struct target {
    char *bytes;
    int device; /* -1: the host */
    uint64_t off;
    uint64_t length; /* how far it goes on */
    int allocation;
};
/* @return whether there is something; without a check of access */
bool target_find(CUdeviceptr address, struct target *ret_target);
/* @return the same for an access of a stream of a context */
bool target_access(CUcontext context, CUdeviceptr address, bool writes,
                   struct target *ret_target);
struct registered *registered_find(const void *host, uint64_t bytes);
/* The one whose device pointer this is, or NULL. */
struct registered *registered_at(CUdeviceptr address);
/* Say which part of which file this memory is. @return false if it is not there */
bool registered_locate(struct registered *r);
void registered_check_end(void);

/* ---- streams.c --------------------------------------------------------------------------- */

enum operation_kind {
    OPERATION_FILL,
    OPERATION_COPY,
    OPERATION_READ,  /* device to host */
    OPERATION_WRITE, /* host to device */
    OPERATION_RECORD,
    OPERATION_WAIT_EVENT,
    OPERATION_SET_VALUE,
    OPERATION_WAIT_VALUE,
};

struct need {
    struct CUstream_st *stream;
    uint64_t ticket;
};

struct operation {
    struct operation *next;
    uint32_t kind;
    int inflight; /* -1 is none */
    CUdeviceptr dst;
    CUdeviceptr src;
    CUcontext dst_context; /* whose devices have the memory; NULL: the stream's */
    CUcontext src_context;
    void *host;
    char *staged;   /* a copy of the host's memory, or NULL */
    uint64_t bytes; /* of a row */
    uint64_t rows;
    uint64_t dst_pitch; /* from a row to the next */
    uint64_t src_pitch;
    uint64_t value;
    int event;
    uint64_t event_id;
    uint64_t ticket;
    struct need *needs;
    unsigned need_count;
    struct clock clock; /* of who submitted it */
};

/* From the first byte of rows to the last one. */
static inline uint64_t rows_span(uint64_t bytes, uint64_t rows, uint64_t pitch)
{
    return bytes == 0 ? 0 : (rows - 1) * pitch + bytes;
}

struct CUstream_st {
    struct CUstream_st *next;
    uint64_t magic;
    CUcontext context;
    unsigned flags;
    bool is_default;
    const void *thread; /* whose default stream it is; or NULL */
    bool is_destroyed;
    _Atomic bool is_cancelled; /* what is left is not done */
    bool has_worker;
    bool is_held;
    _Atomic bool is_capturing;
    unsigned steps;
    uint64_t submitted; /* tickets */
    uint64_t begun;
    uint64_t done;
    struct operation *first;
    struct operation **end;
    int agent;
    struct clock clock; /* guarded by the lock of the universe */
};

/* A process' own name of an event. */
struct CUevent_st {
    struct CUevent_st *next;
    CUcontext context;
    int event;   /* index in the universe */
    uint64_t id; /* 0 is none: it was destroyed */
    bool is_imported;
};

/* The stream, or the default one of the current context for NULL; NULL if it is none. */
struct CUstream_st *stream_of(CUstream stream);
struct operation *operation_create(uint32_t kind);
/* Consumes the operation. The universe is locked. @return its ticket */
uint64_t stream_submit(struct CUstream_st *stream, struct operation *operation);
/* Unlocks the universe while it waits. */
CUresult stream_wait(struct CUstream_st *stream, uint64_t ticket);
bool stream_is_done(struct CUstream_st *stream);
/* Whether an operation that is not done touches this range: the rules of unmapping. */
bool streams_touch(CUdeviceptr address, uint64_t bytes);
void streams_end_context(CUcontext context);
void streams_end(void);

/* ---- legacy.c and legacy_ipc.c ----------------------------------------------------------- */

/* A process ends: its memory of cuMemAlloc() is freed. */
void legacy_drop(int process);
void legacy_check_end(void);
/* cuMemAlloc()'s memory of a context ends with it. */
void legacy_end_context(CUcontext context);
/* The piece that has this address of a mapping of its owner, or NULL. */
struct piece *piece_at(const struct mapping *mapping, CUdeviceptr address);
struct piece *piece_of(uint64_t id);
/* Whether what an address of legacy memory leads to was freed. */
bool legacy_is_freed(const struct mapping *mapping, CUdeviceptr address);
/* Forget a piece that was freed, if nobody has it open any more. */
void piece_settle(uint64_t id);
/* The memory is gone, and so are its pieces. */
void pieces_drop(int allocation);

/* ---- events.c ---------------------------------------------------------------------------- */

void events_drop(int process);
void events_check_end(void);
void events_reset(void);
void event_complete(const struct operation *operation, const struct clock *clock);
/* @return whether the record is done; then its clock comes before this one */
bool event_is_done(const struct operation *operation, struct clock *clock);

/* ---- timeline.c -------------------------------------------------------------------------- */

/* @return 0, or the code that the context fails with */
CUresult word_set(struct CUstream_st *stream, const struct operation *operation);
/* @return 0 if the word has reached the value, CUDA_ERROR_NOT_READY, or what fails */
CUresult word_is_reached(struct CUstream_st *stream, const struct operation *operation);
/* The index of the word that an operation waits for, or -1. */
int word_index(const struct operation *operation);
/* @return whether a stream wrote the value, or the processor said that it did */
bool word_was_written(const struct word *word, uint64_t value);
void words_forget(int device, uint64_t off, uint64_t bytes);

/* ---- work.c ------------------------------------------------------------------------------ */

/* Do one operation; if it fails, the context has a sticky error. */
void work_do(struct CUstream_st *stream, struct operation *operation);
/* Put it among those that may survive their process, if it is such a one. */
void work_announce(struct CUstream_st *stream, struct operation *operation);
void work_done(struct operation *operation);
/*
 * After a synchronising call: what the processes left that died up to this turn is done, and
 * comes before what follows the clock, which may be NULL.
 */
void orphans_finish(int device, uint64_t turn, struct clock *clock);
/* The same for memory that is freed, whoever frees it. */
void orphans_finish_in(int device, uint64_t off, uint64_t bytes);

/* ---- copies.c ---------------------------------------------------------------------------- */

/* @return 0 and the stream, or the code of a stream that takes no work */
CUresult stream_for_work(CUstream handle, struct CUstream_st **ret_stream);

/* ---- clocks.c ---------------------------------------------------------------------------- */

int agent_create(int process);
/* The process has died: who synchronises after that comes after all that it did. */
void agent_destroy(int agent);
void clock_join(struct clock *clock, const struct clock *other);
/* A new step of an agent. */
void clock_step(struct clock *clock, int agent);
/* The work of this process on a stream comes after all that it did until now. */
void clock_submit(struct clock *ret_clock);
/* Record an access, and compare it with those of other processes. */
void race_access(const struct clock *clock, int agent, const struct target *target,
                 uint64_t bytes, bool writes);
void race_forget(int device, uint64_t off, uint64_t bytes);

#endif
