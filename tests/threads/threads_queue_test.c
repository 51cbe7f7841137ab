/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queues between threads of several members: each message comes once and whole, in the order of
 * its producer, by every policy; leases come back; waiting and polling find what there is.
 */
#include <poll.h>
#include <sched.h>
#include <string.h>

#include "harness/tensor.h"
#include "threads/threads.h"

/* A process keeps one socket for ringing bells: made before a test's descriptors are counted.
 */
__attribute__((constructor)) static void ring_once(void) { tni_os_bell_ring(1); }

static tn_queue *queues[MEMBERS]; /* one queue, each member's handle of it */

static void open_queue(uint32_t capacity, uint32_t policy)
{
    const tn_queue_options options = {
        .struct_size = sizeof options, .capacity = capacity, .policy = policy};
    TN_CHECK_OK(tn_queue_open(members[0], NULL, &options, 0, &queues[0]));
    for (unsigned i = 1; i < MEMBERS; i++)
        TN_CHECK_OK(tn_object_open_id(members[i], TN_OBJECT_QUEUE, tn_object_id(queues[0]),
                                      &queues[i]));
}

static void close_queue(void)
{
    for (unsigned i = 0; i < MEMBERS; i++)
        tn_object_close(queues[i]);
}

static tn_queue *queue_of(const struct worker *w) { return queues[w->number % MEMBERS]; }

/* ---- what is pushed and popped ----------------------------------------------------------- */

enum { MOST_BYTES = 700, MOST_TENSORS = 4 };
struct letter {
    uint32_t producer, number, tensor_count, bytes;
};

static struct {
    _Atomic uint32_t pushed, popped; /* of all producers */
    _Atomic uint64_t sum_pushed, sum_popped;
    _Atomic uint32_t last[MAX_WORKERS]; /* of each producer, where one consumer pops */
    bool is_ordered;
} post;

static void begin(uint32_t capacity, uint32_t policy)
{
    memset(&post, 0, sizeof post);
    world_begin(16 << 20);
    open_queue(capacity, policy);
}

static tn_tensor *make(struct worker *w, uint32_t number)
{
    const int64_t count = 1 + (int64_t)worker_random(w, 40);
    tn_tensor *t;
    TN_CHECK_OK(tn_tensor_create(w->domain, TN_UINT32, 1, &count,
                                 TN_OPTIONS(tn_tensor_options, .deadline = TN_FOREVER), &t));
    for (int64_t i = 0; i < count; i++)
        ((uint32_t *)tn_tensor_data(t))[i] = number;
    return t;
}

static void note_pushed(const struct letter *letter)
{
    atomic_fetch_add(&post.pushed, 1);
    atomic_fetch_add(&post.sum_pushed, letter->number);
}

/* Bytes in the slot or in a block, with no tensor, one, or several. */
static void push(struct worker *w)
{
    tn_tensor *tensors[MOST_TENSORS];
    uint8_t bytes[MOST_BYTES];
    struct letter letter = {.producer = w->number,
                            .number = (uint32_t)w->rounds + 1,
                            .tensor_count = (uint32_t)worker_random(w, MOST_TENSORS + 1)};
    letter.bytes = (uint32_t)(sizeof letter + worker_random(w, MOST_BYTES - sizeof letter));
    memcpy(bytes, &letter, sizeof letter);
    memset(bytes + sizeof letter, (uint8_t)letter.number, letter.bytes - sizeof letter);
    for (uint32_t i = 0; i < letter.tensor_count; i++)
        tensors[i] = make(w, letter.number);
    const tn_message message = {.bytes = bytes,
                                .size_bytes = letter.bytes,
                                .tensors = tensors,
                                .tensor_count = letter.tensor_count};
    uint32_t flags = worker_random(w, 2) == 0 ? TN_PUSH_MOVE : 0;
    bool is_pushed = DID(tn_queue_push(queue_of(w), &message, flags, soon()), TN_ERR_TIMED_OUT);
    if (is_pushed)
        note_pushed(&letter);
    if (!is_pushed || flags == 0)
        for (uint32_t i = 0; i < letter.tensor_count; i++)
            tn_tensor_unref(tensors[i]);
}

static void check_message(const tn_message *message)
{
    struct letter letter;
    TN_CHECK(message->size_bytes >= sizeof letter);
    memcpy(&letter, message->bytes, sizeof letter);
    TN_CHECK(message->size_bytes == letter.bytes);
    TN_CHECK(message->tensor_count == letter.tensor_count);
    const uint8_t *bytes = message->bytes;
    for (uint32_t i = sizeof letter; i < letter.bytes; i++)
        TN_CHECK(bytes[i] == (uint8_t)letter.number);
    for (uint32_t t = 0; t < message->tensor_count; t++) {
        const uint32_t *data = tn_tensor_data(message->tensors[t]);
        for (int64_t i = 0; i < tn_tensor_count(message->tensors[t]); i++)
            TN_CHECK(data[i] == letter.number);
    }
    if (post.is_ordered && message->attempt == 0)
        TN_CHECK(atomic_exchange(&post.last[letter.producer], letter.number) < letter.number);
}

static void note_popped(const tn_message *message)
{
    const struct letter *letter = message->bytes;
    atomic_fetch_add(&post.popped, 1);
    atomic_fetch_add(&post.sum_popped, letter->number);
}

static bool pop_one(tn_queue *q, tn_deadline deadline)
{
    tn_message message;
    if (!DID(tn_queue_pop(q, deadline, &message), TN_ERR_TIMED_OUT))
        return false;
    check_message(&message);
    note_popped(&message);
    if (message.lease != 0)
        TN_CHECK_OK(tn_message_ack(q, &message));
    tn_message_fini(&message);
    return true;
}

static void pop(struct worker *w) { pop_one(queue_of(w), soon()); }

/* Some messages are given back first, some are acknowledged only after others came. */
static void pop_lease(struct worker *w)
{
    tn_queue *q = queue_of(w);
    tn_message held[3];
    int count = tn_queue_pop_many(q, 3, soon(), held);
    if (!DID(count, TN_ERR_TIMED_OUT))
        return;
    for (int i = count; i-- > 0;) {
        check_message(&held[i]);
        if (worker_random(w, 3) == 0) {
            TN_CHECK_OK(tn_message_return(q, &held[i]));
        } else {
            note_popped(&held[i]);
            TN_CHECK_OK(tn_message_ack(q, &held[i]));
        }
        tn_message_fini(&held[i]);
    }
}

/* Every message that was pushed was popped once. */
static void finish(void)
{
    while (pop_one(queues[0], TN_NOW))
        ;
    assert_true(post.pushed > 0);
    assert_int_equal(post.popped, post.pushed);
    assert_int_equal(post.sum_popped, post.sum_pushed);
    close_queue();
    world_end();
}

/* ---- the policies ------------------------------------------------------------------------ */

TN_TEST(each_message_is_popped_once_by_one_of_many)
{
    begin(8, TN_QUEUE_REDELIVER);
    run_crews((struct crew[]){{push, 3}, {pop, 3}, {NULL, 0}});
    finish();
}

TN_TEST(a_queue_that_drops_delivers_all_while_no_process_dies)
{
    begin(4, TN_QUEUE_DROP);
    run_crews((struct crew[]){{push, 2}, {pop, 2}, {NULL, 0}});
    finish();
}

TN_TEST(one_consumer_gets_each_producers_messages_in_order)
{
    begin(4, TN_QUEUE_REDELIVER);
    post.is_ordered = true;
    run_crews((struct crew[]){{push, 3}, {pop, 1}, {NULL, 0}});
    finish();
}

TN_TEST(a_returned_lease_comes_again_until_it_is_acknowledged)
{
    begin(8, TN_QUEUE_LEASE);
    run_crews((struct crew[]){{push, 3}, {pop_lease, 3}, {NULL, 0}});
    finish();
}

/* Two slots: pushes wait for room and pops for messages nearly always. */
TN_TEST(sleepers_at_a_full_and_an_empty_queue_are_woken)
{
    begin(2, TN_QUEUE_REDELIVER);
    run_crews((struct crew[]){{push, 1}, {pop, 1}, {NULL, 0}});
    finish();
}

/* ---- one tensor, many at once ------------------------------------------------------------ */

static void push_tensor(struct worker *w)
{
    tn_tensor *t = make(w, (uint32_t)w->rounds + 1);
    struct letter letter = {.number = (uint32_t)w->rounds + 1};
    if (DID(tn_queue_push_tensor(queue_of(w), t, TN_PUSH_MOVE, soon()), TN_ERR_TIMED_OUT))
        note_pushed(&letter);
    else
        tn_tensor_unref(t);
}

static bool pop_tensor_of(tn_queue *q, tn_deadline deadline)
{
    tn_tensor *t;
    if (!DID(tn_queue_pop_tensor(q, deadline, &t), TN_ERR_TIMED_OUT))
        return false;
    const uint32_t *data = tn_tensor_data(t);
    for (int64_t i = 1; i < tn_tensor_count(t); i++)
        TN_CHECK(data[i] == data[0]);
    struct letter letter = {.number = data[0]};
    note_popped(&(tn_message){.bytes = &letter});
    tn_tensor_unref(t);
    return true;
}

static void pop_tensor(struct worker *w) { pop_tensor_of(queue_of(w), soon()); }

TN_TEST(a_moved_tensor_changes_hands_without_a_count)
{
    begin(16, TN_QUEUE_REDELIVER);
    run_crews((struct crew[]){{push_tensor, 3}, {pop_tensor, 3}, {NULL, 0}});
    while (pop_tensor_of(queues[0], TN_NOW))
        ;
    finish();
}

/* ---- attributes that are set meanwhile ----------------------------------------------------
 */

/* A tensor of which one thread sets metadata: any number of bytes, all of them alike. */
static tn_tensor *marked, *beside;

static void set_mark(struct worker *w)
{
    static char value[3000];
    size_t bytes = (size_t)worker_random(w, sizeof value);
    memset(value, (int)worker_random(w, 256), bytes);
    TN_CHECK_OK(tn_tensor_set_metadata(marked, "mark", bytes == 0 ? NULL : value, bytes));
}

static void push_marked(struct worker *w)
{
    tn_tensor *both[] = {marked, beside};
    tn_message message = {.tensors = both, .tensor_count = 1 + (uint32_t)worker_random(w, 2)};
    if (DID(tn_queue_push(queues[0], &message, 0, soon()), TN_ERR_TIMED_OUT))
        note_pushed(&(struct letter){.number = 1});
}

static void copy_marked(struct worker *w)
{
    tn_tensor *copy;
    const int64_t count = tn_tensor_count(marked);
    TN_CHECK_OK(tn_tensor_create(w->domain, TN_UINT32, 1, &count,
                                 TN_OPTIONS(tn_tensor_options, .deadline = TN_FOREVER), &copy));
    TN_CHECK_OK(tn_tensor_copy_attributes(copy, marked));
    TN_CHECK_OK(tn_tensor_copy(copy, marked));
    tn_tensor_unref(copy);
}

static bool pop_marked_of(tn_queue *q, tn_deadline deadline)
{
    tn_message message;
    size_t bytes = 0;
    if (!DID(tn_queue_pop(q, deadline, &message), TN_ERR_TIMED_OUT))
        return false;
    const char *value = tn_tensor_metadata(message.tensors[0], "mark", &bytes);
    for (size_t i = 1; value != NULL && i < bytes; i++)
        TN_CHECK(value[i] == value[0]);
    for (int64_t i = 0; i < tn_tensor_count(marked); i++)
        TN_CHECK(((uint32_t *)tn_tensor_data(message.tensors[0]))[i] == 7);
    tn_message_fini(&message);
    note_popped(&(tn_message){.bytes = &(struct letter){.number = 1}});
    return true;
}

static void pop_marked(struct worker *w) { pop_marked_of(queue_of(w), soon()); }

static tn_tensor *make_sevens(void)
{
    tn_tensor *t;
    TN_CHECK_OK(tn_tensor_create(members[0], TN_UINT32, 1, (int64_t[]){16}, NULL, &t));
    for (int i = 0; i < 16; i++)
        ((uint32_t *)tn_tensor_data(t))[i] = 7;
    return t;
}

TN_TEST(attributes_may_be_set_while_the_tensor_is_pushed_and_copied)
{
    begin(2, TN_QUEUE_REDELIVER);
    marked = make_sevens(), beside = make_sevens();
    run_crews((struct crew[]){
        {push_marked, 3}, {set_mark, 1}, {copy_marked, 1}, {pop_marked, 2}, {0}});
    while (pop_marked_of(queues[0], TN_NOW))
        ;
    for (int i = 0; i < 16; i++)
        TN_CHECK(((uint32_t *)tn_tensor_data(beside))[i] == 7);
    tn_tensor_unref(marked);
    tn_tensor_unref(beside);
    finish();
}

/* ---- waiting for several, polling -------------------------------------------------------- */

static void wait_any_and_pop(struct worker *w)
{
    tn_queue *q = queue_of(w);
    if (DID(tn_object_wait_any(&q, 1, soon()), TN_ERR_TIMED_OUT))
        pop_one(q, TN_NOW);
}

static void poll_and_pop(struct worker *w)
{
    tn_queue *q = queue_of(w);
    int fd;
    TN_CHECK_OK(tn_domain_poll_fd(w->domain, &fd));
    if (w->rounds == 0)
        TN_CHECK_OK(tn_object_watch(q, true));
    poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 5);
    tn_domain_poll_clear(w->domain);
    while (pop_one(q, TN_NOW))
        ;
}

TN_TEST(waiting_for_any_queue_and_polling_find_messages)
{
    begin(8, TN_QUEUE_REDELIVER);
    /* Worker 4 polls, of member 1; workers 2 and 3 wait. */
    run_crews((struct crew[]){{push, 2}, {wait_any_and_pop, 2}, {poll_and_pop, 1}, {NULL, 0}});
    TN_CHECK_OK(tn_object_watch(queues[1], false));
    finish();
}

/* ---- making and ending ------------------------------------------------------------------- */

static void make_and_end(struct worker *w)
{
    static const char *const names[] = {"one", "two"};
    const char *name = names[worker_random(w, 2)];
    const tn_queue_options options = {.struct_size = sizeof options, .capacity = 2};
    uint32_t number = 1;
    tn_queue *q;
    tn_message message = {.bytes = &number, .size_bytes = sizeof number};
    if (!DID(tn_queue_open(w->domain, name, NULL, TN_OPEN_EXISTING, &q), TN_ERR_NOT_FOUND) &&
        !DID(tn_queue_open(w->domain, name, &options, TN_OPEN_NEW, &q), TN_ERR_EXISTS,
             TN_ERR_FULL))
        return;
    DID(tn_queue_push(q, &message, 0, TN_NOW), TN_ERR_TIMED_OUT, TN_ERR_CLOSED);
    if (DID(tn_queue_pop(q, TN_NOW, &message), TN_ERR_TIMED_OUT, TN_ERR_CLOSED))
        tn_message_fini(&message);
    if (worker_random(w, 4) == 0)
        TN_CHECK_OK(tn_queue_end(q));
    tn_object_close(q);
}

TN_TEST(queues_are_made_found_and_ended_by_name_at_the_same_time)
{
    world_begin(16 << 20);
    run_crews((struct crew[]){{make_and_end, 4}, {NULL, 0}});
    world_end();
}

/* Looks at everything from outside meanwhile: figures, tables, the audit's numbers. */
static void look(struct worker *w)
{
    struct tni_queue_figures figures;
    TN_CHECK(tn_queue_count(queue_of(w)) <= tnt_capacity(queue_of(w)));
    tni_queue_figures(&w->domain->segment, tni_object_id_index(tn_object_id(queue_of(w))) & 63,
                      &figures);
    TN_CHECK(figures.full + figures.leased + figures.claimed <= 3 * 8);
    sched_yield();
}

TN_TEST(a_queue_can_be_inspected_while_others_push_and_pop)
{
    begin(8, TN_QUEUE_LEASE);
    run_crews((struct crew[]){{push, 2}, {pop_lease, 2}, {look, 1}, {NULL, 0}});
    finish();
}
