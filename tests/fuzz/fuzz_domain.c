/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_domain: a domain whose tables are damaged while members work in it.
 *
 * An input is a list of steps: damage a field, or call a function. Afterwards every function
 * is called once more. Whatever the tables say, a call returns an error, or a result that
 * lies inside of the mappings; no step waits without end; and no process outside of the
 * domain gets a signal.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/inspect.h"
#include "fuzz.h"
#include "reaper/reaper.h"
#include "share/share.h"

enum { STEPS = 64, TENSORS = 6, MESSAGES = 3, QUEUES = 3 };

struct run {
    struct tni_segment hand; /* what damages */
    tn_domain *domain;
    tn_tensor *tensors[TENSORS];
    tn_message messages[MESSAGES];
    tn_queue *from[MESSAGES]; /* where each was popped; NULL: there is none */
    tn_queue *queues[QUEUES];
    tn_event *event;
    tn_semaphore *semaphore;
    tn_lock *lock;
    tn_condition *condition;
    tn_barrier *barrier;
    struct fuzz_handle handle;
};

static volatile uint64_t sink;

/* ---- holding ----------------------------------------------------------------------------- */

static void hold(struct run *r, uint32_t index, tn_tensor *tensor)
{
    fuzz_touch(tensor);
    tn_tensor_unref(r->tensors[index % TENSORS]);
    r->tensors[index % TENSORS] = tensor;
}

static void end_message(struct run *r, uint32_t index)
{
    if (r->from[index] != NULL)
        tn_message_fini(&r->messages[index]);
    r->from[index] = NULL;
}

static void look_at_message(const tn_message *m)
{
    size_t size = TNI_MIN(m->size_bytes, (size_t)65536);
    if (size > 0)
        sink = tni_hash(m->bytes, size) ^
               tni_hash((const uint8_t *)m->bytes + m->size_bytes - size, size);
    for (uint32_t i = 0; i < m->tensor_count; i++)
        fuzz_touch(m->tensors[i]);
}

/* ---- queues ------------------------------------------------------------------------------ */

static void pop(struct run *r, uint32_t at, tn_queue *queue)
{
    at %= MESSAGES;
    end_message(r, at);
    if (tn_queue_pop(queue, TN_NOW, &r->messages[at]) == 0) {
        r->from[at] = queue;
        look_at_message(&r->messages[at]);
    }
}

static void push(struct run *r, uint32_t what, tn_queue *queue)
{
    static const uint8_t bytes[3000];
    tn_tensor *tensors[] = {r->tensors[what % TENSORS], r->tensors[(what + 1) % TENSORS]};
    tn_message message = {.bytes = bytes,
                          .size_bytes = what % 3 * 1000,
                          .tensors = tensors,
                          .tensor_count =
                              (tensors[0] != NULL ? 1u : 0) + (tensors[1] != NULL ? 1u : 0)};
    if (tensors[0] == NULL)
        tensors[0] = tensors[1];
    (void)!tn_queue_push(queue, &message, 0, TN_NOW);
}

static void acknowledge(struct run *r, uint32_t at, bool give_back)
{
    at %= MESSAGES;
    if (r->from[at] == NULL)
        return;
    if (give_back)
        (void)!tn_message_return(r->from[at], &r->messages[at]);
    else
        (void)!tn_message_ack(r->from[at], &r->messages[at]);
    end_message(r, at);
}

static void reopen(struct run *r, uint32_t at, uint64_t id)
{
    static const char *const names[QUEUES] = {"redeliver", "drop", "lease"};
    at %= QUEUES;
    for (uint32_t i = 0; i < MESSAGES; i++)
        if (r->from[i] == r->queues[at])
            end_message(r, i);
    r->queues[at] = tn_object_close(r->queues[at]);
    if (id != 0)
        (void)!tn_object_open_id(r->domain, TN_OBJECT_QUEUE, id, &r->queues[at]);
    else
        (void)!tn_queue_open(r->domain, names[at], NULL, TN_OPEN_EXISTING, &r->queues[at]);
}

static void create(struct run *r, uint32_t at)
{
    const tn_queue_options options = {
        .struct_size = sizeof options, .capacity = 2 + at % 8, .policy = at % 3};
    at %= QUEUES;
    if (r->queues[at] == NULL)
        (void)!tn_queue_open(r->domain, NULL, &options, 0, &r->queues[at]);
}

static void use_queue(struct run *r, struct fuzz_input *in)
{
    uint32_t verb = fuzz_u8(in) % 14, at = fuzz_u8(in);
    tn_queue *queue = r->queues[at % QUEUES];
    tn_tensor *tensor;
    if (verb == 0)
        reopen(r, at, 0);
    if (verb == 1)
        reopen(r, at, fuzz_u64(in));
    if (verb == 2)
        create(r, at);
    if (queue == NULL || verb <= 2)
        return;
    switch (verb) {
    case 3:
        pop(r, at / QUEUES, queue);
        break;
    case 4:
        if (tn_queue_pop_tensor(queue, TN_NOW, &tensor) == 0)
            hold(r, at, tensor);
        break;
    case 5:
        push(r, at, queue);
        break;
    case 6:
        if (r->tensors[at % TENSORS] != NULL)
            (void)!tn_queue_push_tensor(queue, r->tensors[at % TENSORS], 0, TN_NOW);
        break;
    case 7:
    case 8:
        acknowledge(r, at, verb == 7);
        break;
    case 9:
        (void)!tn_queue_attach(queue, 1 + at % 3);
        break;
    case 10:
        (void)!tn_queue_end(queue);
        break;
    case 11:
        (void)!tn_object_watch(queue, at % 2 != 0);
        break;
    case 12:
        (void)!tn_object_wait_any(&queue, 1, tn_deadline_after(fuzz_u32(in)));
        break;
    default:
        sink = tn_queue_count(queue) +
               (unsigned)tn_queue_get_info(
                   queue, &(tn_queue_info){.struct_size = sizeof(tn_queue_info)});
        break;
    }
}

/* ---- objects ----------------------------------------------------------------------------- */

static void open_objects(struct run *r)
{
    if (r->event == NULL)
        (void)!tn_event_open(r->domain, "event", TN_OPEN_EXISTING, &r->event);
    if (r->semaphore == NULL)
        (void)!tn_semaphore_open(r->domain, "semaphore", 0, TN_OPEN_EXISTING, &r->semaphore);
    if (r->lock == NULL)
        (void)!tn_lock_open(r->domain, "lock", TN_OPEN_EXISTING, &r->lock);
    if (r->condition == NULL)
        (void)!tn_condition_open(r->domain, "condition", TN_OPEN_EXISTING, &r->condition);
    if (r->barrier == NULL)
        (void)!tn_barrier_open(r->domain, "barrier", 0, TN_OPEN_EXISTING, &r->barrier);
}

static void close_objects(struct run *r)
{
    r->event = tn_object_close(r->event);
    r->semaphore = tn_object_close(r->semaphore);
    r->condition = tn_object_close(r->condition);
    r->lock = tn_object_close(r->lock);
    r->barrier = tn_object_close(r->barrier);
}

static void use_event(struct run *r, uint32_t verb, tn_deadline deadline)
{
    if (verb == 0)
        (void)!tn_event_set(r->event);
    else if (verb == 1)
        (void)!tn_event_clear(r->event);
    else
        (void)!tn_event_wait(r->event, deadline);
}

static void use_condition(struct run *r, uint32_t verb, tn_deadline deadline)
{
    if (verb == 0)
        (void)!tn_condition_signal(r->condition);
    else if (verb == 1)
        (void)!tn_condition_broadcast(r->condition);
    else if (r->lock != NULL && tn_lock_acquire(r->lock, deadline) >= 0) {
        (void)!tn_condition_wait(r->condition, r->lock, deadline);
        (void)!tn_lock_release(r->lock);
    }
}

static void use_object(struct run *r, struct fuzz_input *in)
{
    uint32_t kind = fuzz_u8(in) % 7, verb = fuzz_u8(in) % 3;
    tn_deadline deadline = verb == 2 ? tn_deadline_after(300 * TN_MILLISECOND) : TN_NOW;
    if (kind == 0)
        open_objects(r);
    if (kind == 1)
        close_objects(r);
    if (kind == 2 && r->event != NULL)
        use_event(r, verb, deadline);
    if (kind == 3 && r->semaphore != NULL) {
        sink = tn_semaphore_count(r->semaphore);
        (void)!(verb != 0 ? tn_semaphore_acquire(r->semaphore, deadline)
                          : tn_semaphore_release(r->semaphore));
    }
    if (kind == 4 && r->lock != NULL)
        (void)!(verb != 0 ? tn_lock_acquire(r->lock, deadline) : tn_lock_release(r->lock));
    if (kind == 5 && r->condition != NULL)
        use_condition(r, verb, deadline);
    if (kind == 6 && r->barrier != NULL)
        (void)!(verb != 0 ? tn_barrier_wait(r->barrier, deadline)
                          : tn_barrier_reset(r->barrier));
}

/* ---- tensors and handles ----------------------------------------------------------------- */

static void make_tensor(struct run *r, struct fuzz_input *in)
{
    static const int64_t counts[] = {1, 50, 3000, 70000, 1 << 24};
    uint32_t at = fuzz_u8(in);
    const tn_tensor_options options = {.struct_size = sizeof options,
                                       .strategy = 1 + at % 3,
                                       .deadline =
                                           at % 2 == 0 ? TN_NOW : tn_deadline_after(1000)};
    tn_tensor *tensor;
    if (tn_tensor_create(r->domain, TN_INT16, 1, &counts[at / 3 % TNI_COUNT(counts)], &options,
                         &tensor) == 0)
        hold(r, fuzz_u8(in), tensor);
}

static void use_handle(struct run *r, struct fuzz_input *in)
{
    uint32_t verb = fuzz_u8(in) % 4, at = fuzz_u8(in);
    const struct fuzz_handle *handle = at < 128 ? fuzz_image_handle(at) : &r->handle;
    tn_tensor *tensor = r->tensors[at % TENSORS];
    uint64_t ticket = fuzz_u64(in);
    if (verb == 0 &&
        tn_handle_import(r->domain, handle->bytes, handle->size_bytes, &tensor) == 0)
        hold(r, at, tensor);
    if (verb == 1 && tensor != NULL)
        (void)!tn_handle_export(tensor, NULL, r->handle.bytes, sizeof r->handle.bytes,
                                &r->handle.size_bytes);
    if (verb == 2 && tni_handle_ticket(handle->bytes, handle->size_bytes, &ticket) == 0)
        (void)!tni_ticket_revoke(r->domain, ticket);
    if (verb == 3)
        (void)!tni_ticket_revoke(r->domain, ticket);
}

/* ---- looking and repairing --------------------------------------------------------------- */

static int see_text(const char *sentence, bool repaired, void *context)
{
    (void)context;
    sink = strlen(sentence) + repaired;
    return 0;
}
static int see_seat(const tn_seat_entry *info, void *context)
{
    (void)context;
    FUZZ_CHECK(memchr(info->command, 0, sizeof info->command) != NULL);
    FUZZ_CHECK(memchr(info->state, 0, sizeof info->state) != NULL);
    return 0;
}
static int see_block(const tn_block_entry *info, void *context)
{
    const struct run *r = context;
    FUZZ_CHECK(info->ndim >= 0 && info->ndim <= TN_MAX_NDIM);
    FUZZ_CHECK(info->holder_count <= r->hand.geometry.seats);
    FUZZ_CHECK(info->bytes <= TNI_MAX(info->block_bytes, info->object_bytes));
    sink = strlen(info->kind) + strlen(info->strategy) + strlen(info->attributes) +
           (info->path != NULL ? strlen(info->path) : 0) +
           tni_hash(info->holders, info->holder_count * sizeof *info->holders);
    return 0;
}
static int see_object(const tn_object_entry *info, void *context)
{
    (void)context;
    FUZZ_CHECK(memchr(info->name, 0, sizeof info->name) != NULL);
    sink = strlen(info->kind);
    return 0;
}
static int see_ticket(const tn_ticket_entry *info, void *context)
{
    (void)context;
    sink = info->bytes;
    return 0;
}

static int see_scheduler(const tn_scheduler_entry *info, void *context)
{
    (void)context;
    FUZZ_CHECK(memchr(info->name, 0, sizeof info->name) != NULL);
    FUZZ_CHECK(info->info.resource_count <= 16);
    for (uint32_t i = 0; i < info->info.resource_count; i++)
        sink = strlen(info->info.resources[i].name);
    return 0;
}

static int see_device(const tn_device_entry *info, void *context)
{
    (void)context;
    FUZZ_CHECK(memchr(info->uuid, 0, sizeof info->uuid) != NULL);
    for (uint32_t i = 0; i < info->holder_count; i++)
        FUZZ_CHECK(memchr(info->holders[i].command, 0, sizeof info->holders[i].command) !=
                   NULL);
    return 0;
}

static void inspect(struct run *r)
{
    struct tn_inspector inspector = {.segment = r->hand};
    tn_domain_stat stat = {.struct_size = sizeof stat};
    FUZZ_CHECK(tn_inspect_stat(&inspector, &stat) == 0);
    FUZZ_CHECK(tn_inspect_seats(&inspector, see_seat, r) == 0);
    (void)!tn_inspect_blocks(&inspector, see_block, r);
    FUZZ_CHECK(tn_inspect_objects(&inspector, see_object, r) == 0);
    FUZZ_CHECK(tn_inspect_tickets(&inspector, see_ticket, r) == 0);
    FUZZ_CHECK(tn_inspect_schedulers(&inspector, see_scheduler, r) == 0);
    FUZZ_CHECK(tn_inspect_devices(&inspector, see_device, r) == 0);
    (void)!tn_inspect_audit(&inspector, false, see_text, r, NULL);
}

static void repair(struct run *r, uint32_t verb)
{
    uint64_t freed;
    switch (verb % 8) {
    case 0:
        (void)!tn_domain_reap(r->domain, NULL);
        break;
    case 1:
        (void)!tn_domain_audit(r->domain, false, see_text, r, NULL);
        break;
    case 2:
        (void)!tn_domain_audit(r->domain, true, see_text, r, NULL);
        break;
    case 3:
        inspect(r);
        break;
    case 4:
        (void)!tn_domain_trim(r->domain, 0, &freed);
        break;
    case 5:
        (void)!tni_ticket_for_each(&r->domain->segment, see_ticket, r);
        sink = tni_ticket_expire(r->domain, tni_os_now_ns());
        break;
    case 6:
        atomic_store(&r->domain->survive_ns, 0);
        tni_manager_survive(r->domain);
        break;
    default:
        (void)!tni_files_let_go(&r->hand, false, NULL, NULL);
        break;
    }
}

/* ---- one input --------------------------------------------------------------------------- */

static void step(struct run *r, struct fuzz_input *in)
{
    uint32_t verb = fuzz_u8(in) % 8;
    uint32_t at;
    switch (verb) {
    case 0:
    case 1:
    case 2:
        fuzz_image_patch(&r->hand, in);
        break;
    case 3:
        use_queue(r, in);
        break;
    case 4:
        use_object(r, in);
        break;
    case 5:
        make_tensor(r, in);
        break;
    case 6:
        use_handle(r, in);
        break;
    default:
        at = fuzz_u8(in);
        if (at < 128)
            repair(r, at);
        else
            r->tensors[at % TENSORS] = tn_tensor_unref(r->tensors[at % TENSORS]);
        break;
    }
}

static void call_everything(struct run *r)
{
    static const uint8_t queue_verbs[] = {0, 5, 6, 9, 3, 4, 3, 8, 13};
    static const uint8_t handle_verbs[] = {0, 1, 3};
    for (uint8_t q = 0; q < QUEUES; q++)
        for (size_t i = 0; i < sizeof queue_verbs; i++) {
            const uint8_t bytes[] = {queue_verbs[i], q};
            struct fuzz_input in = fuzz_input(bytes, sizeof bytes);
            use_queue(r, &in);
        }
    for (uint8_t h = 0; h < FUZZ_HANDLES; h++)
        for (size_t i = 0; i < sizeof handle_verbs; i++) {
            const uint8_t bytes[] = {handle_verbs[i], h};
            struct fuzz_input in = fuzz_input(bytes, sizeof bytes);
            use_handle(r, &in);
        }
    open_objects(r);
    for (uint8_t i = 2 * 3; i < 7 * 3; i++) {
        const uint8_t bytes[] = {i / 3, i % 3};
        struct fuzz_input in = fuzz_input(bytes, sizeof bytes);
        use_object(r, &in);
    }
    for (uint32_t i = 0; i < 8; i++)
        repair(r, (i + 3) % 8);
}

static void end(struct run *r)
{
    for (uint32_t i = 0; i < MESSAGES; i++)
        end_message(r, i);
    for (uint32_t i = 0; i < TENSORS; i++)
        tn_tensor_unref(r->tensors[i]);
    for (uint32_t i = 0; i < QUEUES; i++)
        tn_object_close(r->queues[i]);
    close_objects(r);
    tn_domain_close(r->domain);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes)
{
    struct fuzz_input in = fuzz_input(bytes, size_bytes);
    struct run *r = calloc(1, sizeof *r);
    if (r == NULL)
        return 0;
    fuzz_begin();
    fuzz_image_copy(&r->hand);
    for (uint32_t before = fuzz_u8(&in) % 8; before > 0; before--)
        fuzz_image_patch(&r->hand, &in);
    if (fuzz_image_join(&r->hand, &r->domain) == 0) {
        for (uint32_t n = 0; n < STEPS && fuzz_left(&in) > 0; n++)
            step(r, &in);
        call_everything(r);
        end(r);
    }
    tni_segment_detach(&r->hand);
    fuzz_end();
    free(r);
    return 0;
}
