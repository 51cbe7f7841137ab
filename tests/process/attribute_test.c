/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attributes arrive as they were sent, by every way that a tensor can be sent and with every
 * strategy.
 */
#include <tenon/dlpack.h>

#include "harness/harness.h"
#include "harness/tensor.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "os/os.h"
#include "share/share.h"

/*
 * A process keeps one socket for ringing bells. It is made here, before a test counts
 * descriptors.
 */
__attribute__((constructor)) static void ring_once(void) { tni_os_bell_ring(1); }

/* ---- tensors with attributes ------------------------------------------------------------- */

/* Make a tensor whose bytes are 0, 1, 2, ... */
static tn_tensor *make(tn_dtype dtype, int32_t ndim, const int64_t *shape)
{
    tn_tensor *t = NULL;
    TN_CHECK_OK(tn_tensor_create_private(dtype, ndim, shape, &t));
    for (uint64_t i = 0; i < tnt_info(t).size_bytes; i++)
        ((uint8_t *)tn_tensor_data(t))[i] = (uint8_t)(i + 1);
    return t;
}

static tn_tensor *make_parameter(void)
{
    tn_tensor *t = make(TN_FLOAT32, 2, (int64_t[]){2, 3});
    TN_CHECK_OK(tn_tensor_set_flags(t, TN_REQUIRES_GRAD | TN_PARAMETER));
    return t;
}

static tn_tensor *make_buffer(void)
{
    tn_tensor *t = make(TN_FLOAT32, 1, (int64_t[]){5});
    TN_CHECK_OK(tn_tensor_set_flags(t, TN_STOP_GRADIENT | TN_BUFFER));
    return t;
}

static tn_tensor *make_sequences(void)
{
    static const uint64_t coarse[] = {0, 2, 3}, fine[] = {0, 1, 1, 6};
    tn_tensor *t = make(TN_FLOAT32, 2, (int64_t[]){6, 2});
    TN_CHECK_OK(
        tn_tensor_set_lod(t, 2, (uint32_t[]){3, 4}, (const uint64_t *[]){coarse, fine}));
    return t;
}

static tn_tensor *make_quantized(uint32_t scheme)
{
    static const double scales[] = {0.5, -1e-3, 3e7};
    static const int64_t zeros[] = {-128, 0, INT64_MAX};
    bool is_whole = scheme == TN_QUANTIZER_AFFINE;
    tn_quantizer quantizer = {scheme, is_whole ? 0 : 1, is_whole ? 1 : 3, 0, scales, zeros};
    tn_tensor *t = make(TN_INT8, 2, (int64_t[]){4, 3});
    TN_CHECK_OK(tn_tensor_set_quantizer(t, &quantizer));
    return t;
}

static tn_tensor *make_whole_quantized(void) { return make_quantized(TN_QUANTIZER_AFFINE); }
static tn_tensor *make_channel_quantized(void)
{
    return make_quantized(TN_QUANTIZER_AFFINE_CHANNEL);
}

static tn_tensor *make_conjugate(void)
{
    tn_tensor *t = make(TN_COMPLEX64, 1, (int64_t[]){4});
    TN_CHECK_OK(tn_tensor_set_flags(t, TN_CONJUGATE | TN_NEGATIVE));
    return t;
}

static tn_tensor *make_described(void)
{
    tn_tensor *t = make(TN_FLOAT64, 3, (int64_t[]){1, 2, 2});
    TN_CHECK_OK(tn_tensor_set_name(t, "embedding.weight"));
    TN_CHECK_OK(tn_tensor_set_axis_names(t, (const char *[]){"batch", "", "größe"}));
    TN_CHECK_OK(tn_tensor_set_metadata(t, "step", "\0\1\2", 3));
    TN_CHECK_OK(tn_tensor_set_metadata(t, "empty", "", 0));
    TN_CHECK_OK(tn_tensor_set_metadata(t, "a", "last", 5));
    return t;
}

static tn_tensor *make_large(void)
{
    uint8_t value[TN_ATTRIBUTES_MAX_BYTES - 16];
    for (size_t i = 0; i < sizeof value; i++)
        value[i] = (uint8_t)(i * i >> 3);
    tn_tensor *t = make(TN_UINT8, 1, (int64_t[]){3});
    TN_CHECK_OK(tn_tensor_set_metadata(t, "key", value, sizeof value));
    return t;
}

static tn_tensor *make_pinned(void)
{
    static int32_t data[4] = {11, 22, 33, 44};
    static int64_t shape[] = {4};
    static DLManagedTensorVersioned managed;
    managed = (DLManagedTensorVersioned){
        .version = {1, 0},
        .dl_tensor = {data, {kDLCUDAHost, 0}, 1, {kDLInt, 32, 1}, shape, NULL, 0}};
    tn_tensor *t = NULL;
    TN_CHECK_OK(tn_tensor_from_dlpack(&managed, &t));
    return t;
}

static tn_tensor *(*const makers[])(void) = {
    make_parameter,
    make_buffer,
    make_sequences,
    make_whole_quantized,
    make_channel_quantized,
    make_conjugate,
    make_described,
    make_large,
    make_pinned,
};
enum { KINDS = sizeof makers / sizeof makers[0] };

/* ---- comparing --------------------------------------------------------------------------- */

static bool is_same_text(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static void expect_same_quantizer(const tn_tensor *t, const tn_tensor *like)
{
    tn_quantizer a = {0}, b = {0};
    TN_CHECK(tn_tensor_quantizer(t, &a) == tn_tensor_quantizer(like, &b));
    TN_CHECK(a.scheme == b.scheme && a.axis == b.axis && a.count == b.count);
    for (uint32_t i = 0; i < a.count; i++)
        TN_CHECK(a.scales[i] == b.scales[i] && a.zero_points[i] == b.zero_points[i]);
}

static void expect_same_lod(const tn_tensor *t, const tn_tensor *like)
{
    TN_CHECK(tnt_lod_levels(t) == tnt_lod_levels(like));
    for (uint32_t i = 0; i < tnt_lod_levels(t); i++) {
        uint32_t count = 0, like_count = 0;
        const uint64_t *a = tn_tensor_lod(t, i, &count);
        const uint64_t *b = tn_tensor_lod(like, i, &like_count);
        TN_CHECK(count == like_count && memcmp(a, b, count * sizeof *a) == 0);
    }
}

struct metadata {
    const tn_tensor *other;
    char keys[256];
};

static int compare_metadata(const char *key, const void *bytes, size_t size_bytes,
                            void *context)
{
    struct metadata *m = context;
    size_t other_bytes = 0, at = strlen(m->keys);
    const void *other = tn_tensor_metadata(m->other, key, &other_bytes);
    TN_CHECK(other != NULL && size_bytes == other_bytes);
    TN_CHECK(size_bytes == 0 || memcmp(bytes, other, size_bytes) == 0);
    (void)snprintf(m->keys + at, sizeof m->keys - at, "%s ", key);
    return 0;
}

static void expect_same_metadata(const tn_tensor *t, const tn_tensor *like)
{
    struct metadata there = {.other = like}, back = {.other = t};
    TN_CHECK_OK(tn_tensor_for_each_metadata(t, compare_metadata, &there));
    TN_CHECK_OK(tn_tensor_for_each_metadata(like, compare_metadata, &back));
    TN_CHECK(strcmp(there.keys, back.keys) == 0);
}

static void expect_same(const tn_tensor *t, const tn_tensor *like)
{
    TN_CHECK(tn_tensor_flags(t) == tn_tensor_flags(like));
    TN_CHECK(is_same_text(tn_tensor_name(t), tn_tensor_name(like)));
    for (int32_t i = 0; i < tn_tensor_ndim(like); i++)
        TN_CHECK(is_same_text(tn_tensor_axis_name(t, i), tn_tensor_axis_name(like, i)));
    expect_same_quantizer(t, like);
    expect_same_lod(t, like);
    expect_same_metadata(t, like);
    TN_CHECK(tnt_info(t).size_bytes == tnt_info(like).size_bytes);
    TN_CHECK(memcmp(tn_tensor_data(t), tn_tensor_data(like), tnt_info(t).size_bytes) == 0);
}

/* Check that the tensor is what makers[which] makes. */
static void expect_kind(const tn_tensor *t, uint32_t which)
{
    tn_tensor *like = makers[which]();
    expect_same(t, like);
    tn_tensor_unref(like);
}

/* ---- sharing ----------------------------------------------------------------------------- */

static const tn_tensor_options strategies[] = {
    {.struct_size = sizeof(tn_tensor_options), .strategy = TN_STRATEGY_ARENA},
    {.struct_size = sizeof(tn_tensor_options), .strategy = TN_STRATEGY_FILE_DESCRIPTOR},
    {.struct_size = sizeof(tn_tensor_options), .strategy = TN_STRATEGY_FILE_SYSTEM},
    {.struct_size = sizeof(tn_tensor_options),
     .strategy = TN_STRATEGY_FILE_DESCRIPTOR,
     .flags = TN_TENSOR_WRITE_ONCE},
};
enum { STRATEGIES = sizeof strategies / sizeof strategies[0] };

static tn_tensor *share(tn_domain *domain, tn_tensor *t, uint32_t strategy)
{
    tn_tensor_options options = strategies[strategy];
    options.deadline = TN_FOREVER;
    TN_CHECK_OK(tn_tensor_share(domain, t, &options));
    TN_CHECK(tnt_info(t).strategy == strategies[strategy].strategy);
    return t;
}

/* The parts of two sparse tensors, marked and shared. */
enum { COO_PARTS = 2, CSR_PARTS = 3, PARTS = COO_PARTS + CSR_PARTS };
static void make_parts(tn_domain *domain, uint32_t strategy, tn_tensor **ret_parts)
{
    tn_sparse coo = {
        TN_LAYOUT_COO,
        TN_SPARSE_COALESCED,
        3,
        COO_PARTS,
        {100, 200, 5},
        {make(TN_INT64, 2, (int64_t[]){2, 7}), make(TN_FLOAT32, 2, (int64_t[]){7, 5})}};
    tn_sparse csr = {TN_LAYOUT_CSR,
                     0,
                     2,
                     CSR_PARTS,
                     {10, 1000},
                     {make(TN_INT32, 1, (int64_t[]){11}), make(TN_INT32, 1, (int64_t[]){4}),
                      make(TN_FLOAT64, 1, (int64_t[]){4})}};
    TN_CHECK_OK(tn_sparse_mark(&coo));
    TN_CHECK_OK(tn_sparse_mark(&csr));
    memcpy(ret_parts, coo.parts, COO_PARTS * sizeof *ret_parts);
    memcpy(ret_parts + COO_PARTS, csr.parts, CSR_PARTS * sizeof *ret_parts);
    for (uint32_t i = 0; i < PARTS; i++)
        share(domain, ret_parts[i], strategy);
}

static void unref_all(tn_tensor **tensors, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        tn_tensor_unref(tensors[i]);
}

/* A message with one tensor of each kind and two sparse tensors. */
enum { ALL = KINDS + PARTS };
static void make_all(tn_domain *domain, uint32_t strategy, tn_tensor **ret_tensors)
{
    for (uint32_t i = 0; i < KINDS; i++)
        ret_tensors[i] = share(domain, makers[i](), strategy);
    make_parts(domain, strategy, ret_tensors + KINDS);
}

static void expect_all(tn_tensor *const *tensors, uint32_t count)
{
    tn_sparse s;
    TN_CHECK(count == ALL);
    for (uint32_t i = 0; i < KINDS; i++) {
        TN_CHECK(tn_sparse_find(tensors + i, count - i, &s) == 1);
        expect_kind(tensors[i], i);
    }
    TN_CHECK(tn_sparse_find(tensors + KINDS, PARTS, &s) == COO_PARTS);
    TN_CHECK(s.layout == TN_LAYOUT_COO && s.flags == TN_SPARSE_COALESCED && s.ndim == 3);
    TN_CHECK(s.shape[0] == 100 && s.shape[1] == 200 && s.shape[2] == 5);
    TN_CHECK(s.parts[0] == tensors[KINDS] && s.parts[1] == tensors[KINDS + 1]);
    TN_CHECK(tn_sparse_find(tensors + KINDS + COO_PARTS, CSR_PARTS, &s) == CSR_PARTS);
    TN_CHECK(s.layout == TN_LAYOUT_CSR && s.flags == 0 && s.shape[0] == 10);
    TN_CHECK(s.parts[2] == tensors[ALL - 1]);
}

static tn_domain *open_domain(void)
{
    tn_domain_options options = {.struct_size = sizeof options, .quota_bytes = 64 << 20};
    return tnt_domain(&options);
}

/* ---- queues ------------------------------------------------------------------------------ */

struct place {
    tn_domain *domain;
    tn_queue *queue;
    uint32_t strategy;
};

static void push_all(struct place *place)
{
    tn_tensor *tensors[ALL];
    make_all(place->domain, place->strategy, tensors);
    TN_CHECK_OK(tn_queue_push(
        place->queue, &(tn_message){.tensors = tensors, .tensor_count = ALL}, 0, TN_FOREVER));
    unref_all(tensors, ALL);
}

/* A message whose content lies in the slot has no message block. */
static bool is_from_slot(const tn_message *message) { return message->internal[1] == NULL; }

static int pop_each_kind(void *argument)
{
    struct place *place = argument;
    for (uint32_t i = 0; i < KINDS; i++) {
        tn_message message;
        TN_CHECK_OK(tn_queue_pop(place->queue, TN_FOREVER, &message));
        TN_CHECK(message.tensor_count == 1);
        expect_kind(message.tensors[0], i);
        TN_CHECK(makers[i] != make_parameter || is_from_slot(&message));
        TN_CHECK(makers[i] != make_large || !is_from_slot(&message));
        tn_message_fini(&message);
    }
    return 0;
}

TN_TEST(attributes_arrive_unchanged_in_a_slot_and_a_message_block)
{
    struct place place = {.domain = open_domain()};
    TN_CHECK_OK(tn_queue_open(place.domain, NULL, NULL, 0, &place.queue));
    for (uint32_t s = 0; s < STRATEGIES; s++) {
        pid_t child = tnt_fork(pop_each_kind, &place);
        for (uint32_t i = 0; i < KINDS; i++)
            TN_CHECK_OK(tn_queue_push_tensor(place.queue, share(place.domain, makers[i](), s),
                                             TN_PUSH_MOVE, TN_FOREVER));
        tnt_wait_ok(child);
    }
    tn_object_close(place.queue);
    TNT_AUDIT(place.domain);
    tn_domain_close(place.domain);
}

static int pop_all(void *argument)
{
    struct place *place = argument;
    tn_message message;
    TN_CHECK_OK(tn_queue_pop(place->queue, TN_FOREVER, &message));
    expect_all(message.tensors, message.tensor_count);
    tn_message_fini(&message);
    return 0;
}

TN_TEST(one_message_carries_the_attributes_of_many_tensors)
{
    struct place place = {.domain = open_domain()};
    TN_CHECK_OK(tn_queue_open(place.domain, NULL, NULL, 0, &place.queue));
    for (; place.strategy < STRATEGIES; place.strategy++) {
        pid_t child = tnt_fork(pop_all, &place);
        push_all(&place);
        tnt_wait_ok(child);
    }
    tn_object_close(place.queue);
    TNT_AUDIT(place.domain);
    tn_domain_close(place.domain);
}

static int pass_on(void *argument)
{
    struct place *place = argument;
    tn_message message;
    tn_queue *back;
    TN_CHECK_OK(tn_queue_open(place->domain, "back", NULL, TN_OPEN_EXISTING, &back));
    TN_CHECK_OK(tn_queue_pop(place->queue, TN_FOREVER, &message));
    tn_message again = {.tensors = message.tensors, .tensor_count = message.tensor_count};
    TN_CHECK_OK(tn_queue_push(back, &again, 0, TN_FOREVER));
    tn_message_fini(&message);
    tn_object_close(back);
    return 0;
}

TN_TEST(attributes_arrive_unchanged_after_a_receiver_forwards_them)
{
    struct place place = {.domain = open_domain()};
    tn_queue *back;
    TN_CHECK_OK(tn_queue_open(place.domain, NULL, NULL, 0, &place.queue));
    TN_CHECK_OK(tn_queue_open(place.domain, "back", NULL, TN_OPEN_NEW, &back));
    for (; place.strategy < STRATEGIES; place.strategy++) {
        tn_message message;
        pid_t child = tnt_fork(pass_on, &place);
        push_all(&place);
        tnt_wait_ok(child);
        TN_CHECK_OK(tn_queue_pop(back, TN_NOW, &message));
        expect_all(message.tensors, message.tensor_count);
        tn_message_fini(&message);
    }
    tn_object_close(back);
    tn_object_close(place.queue);
    TNT_AUDIT(place.domain);
    tn_domain_close(place.domain);
}

TN_TEST(a_sparse_part_without_the_others_is_refused_by_name)
{
    struct place place = {.domain = open_domain()};
    tn_tensor *parts[PARTS], *view;
    TN_CHECK_OK(tn_queue_open(place.domain, NULL, NULL, 0, &place.queue));
    make_parts(place.domain, 0, parts);
    for (uint32_t i = 0; i < PARTS; i++) {
        assert_int_equal(tn_queue_push_tensor(place.queue, parts[i], 0, TN_NOW),
                         TN_ERR_INVALID);
        assert_non_null(strstr(tn_error_detail(), "of a sparse tensor"));
    }
    tn_message some = {.tensors = parts + COO_PARTS, .tensor_count = CSR_PARTS - 1};
    assert_int_equal(tn_queue_push(place.queue, &some, 0, TN_NOW), TN_ERR_INVALID);
    assert_non_null(
        strstr(tn_error_detail(),
               "the values of a sparse tensor in CSR are missing behind the columns"));
    assert_int_equal(tn_queue_count(place.queue), 0);
    /* A view of a part is no part of the sparse tensor. */
    TN_CHECK_OK(tn_tensor_slice(parts[1], 0, 0, 7, 1, &view));
    TN_CHECK_OK(tn_queue_push_tensor(place.queue, view, TN_PUSH_MOVE, TN_NOW));
    unref_all(parts, PARTS);
    tn_object_close(place.queue);
    TNT_AUDIT(place.domain);
    tn_domain_close(place.domain);
}

/* ---- handles ----------------------------------------------------------------------------- */

struct handles {
    tn_domain *domain;
    struct {
        uint8_t bytes[TN_HANDLE_MAX_BYTES];
        size_t used;
    } handle[ALL];
};

static int import_all(void *argument)
{
    struct handles *h = argument;
    tn_tensor *tensors[ALL];
    for (uint32_t i = 0; i < ALL; i++)
        TN_CHECK_OK(
            tn_handle_import(h->domain, h->handle[i].bytes, h->handle[i].used, &tensors[i]));
    expect_all(tensors, ALL);
    unref_all(tensors, ALL);
    return 0;
}

TN_TEST(attributes_arrive_as_they_were_through_handles)
{
    struct handles *h = calloc(1, sizeof *h);
    tn_tensor *tensors[ALL];
    h->domain = open_domain();
    for (uint32_t s = 0; s < STRATEGIES; s++) {
        make_all(h->domain, s, tensors);
        for (uint32_t i = 0; i < ALL; i++)
            TN_CHECK_OK(tn_handle_export(tensors[i], NULL, h->handle[i].bytes,
                                         TN_HANDLE_MAX_BYTES, &h->handle[i].used));
        unref_all(tensors, ALL);
        tnt_wait_ok(tnt_fork(import_all, h));
    }
    TNT_AUDIT(h->domain);
    tn_domain_close(h->domain);
    free(h);
}

/* Write the hash of the bytes before it, as a forger would. */
static void sign(uint8_t *handle, size_t used)
{
    uint64_t hash = tni_hash(handle, used - sizeof hash);
    memcpy(handle + used - sizeof hash, &hash, sizeof hash);
}

static int note_uses(const tn_ticket_entry *ticket, void *context)
{
    *(uint32_t *)context = ticket->uses_left;
    return 0;
}

TN_TEST(a_handle_with_forged_attributes_is_refused_or_a_tensor)
{
    enum { USES = 1000000, HEAD_BYTES = 48 };
    static uint8_t bytes[TN_HANDLE_MAX_BYTES];
    tn_handle_options options = {.struct_size = sizeof options, .uses = USES};
    tn_domain *domain = open_domain();
    tn_tensor *t = share(domain, make_described(), 0), *back = NULL;
    uint32_t taken = 0, refused = 0, left = 0;
    size_t used;
    TN_CHECK_OK(tn_handle_export(t, &options, bytes, sizeof bytes, &used));
    for (size_t at = HEAD_BYTES; at < used - sizeof(uint64_t); at++)
        for (unsigned mask = 1; mask < 256; mask <<= 1) {
            bytes[at] ^= (uint8_t)mask;
            sign(bytes, used);
            int status = tn_handle_import(domain, bytes, used, &back);
            *(status == 0 ? &taken : &refused) += 1;
            if (status == 0)
                tn_tensor_unref(back);
            bytes[at] ^= (uint8_t)mask;
        }
    sign(bytes, used);
    TN_CHECK_OK(tn_handle_import(domain, bytes, used, &back));
    expect_same(back, t);
    TN_CHECK_OK(tni_ticket_for_each(&domain->segment, note_uses, &left));
    assert_int_equal(left, USES - 1 - taken);
    assert_true(refused > taken && taken > 0);
    tn_tensor_unref(back);
    tn_tensor_unref(t);
    TNT_AUDIT(domain);
    tn_domain_close(domain);
}

/* ---- fork and exec ----------------------------------------------------------------------- */

struct inherited {
    tn_tensor *tensors[ALL];
};

static int change_own(void *argument)
{
    struct inherited *in = argument;
    expect_all(in->tensors, ALL);
    tn_tensor *none = make(TN_INT8, 1, (int64_t[]){1});
    for (uint32_t i = 0; i < ALL; i++)
        TN_CHECK_OK(tn_tensor_copy_attributes(in->tensors[i], none));
    tn_tensor_unref(none);
    return 0;
}

TN_TEST(a_forked_child_changes_only_its_own_copy_of_attributes)
{
    struct inherited in;
    tn_domain *domain = open_domain();
    for (uint32_t s = 0; s < STRATEGIES; s++) {
        make_all(domain, s, in.tensors);
        tnt_wait_ok(tnt_fork(change_own, &in));
        expect_all(in.tensors, ALL);
        unref_all(in.tensors, ALL);
    }
    TNT_AUDIT(domain);
    tn_domain_close(domain);
}

/* This program runs once more, as the program that tn_process_exec() starts. */
__attribute__((constructor)) static void be_a_program_that_pops(void)
{
    struct place place;
    if (getenv("ATTRIBUTE_TEST_POPS") == NULL)
        return;
    TN_CHECK_OK(tn_domain_inherit(&place.domain));
    TN_CHECK_OK(tn_queue_open(place.domain, "all", NULL, TN_OPEN_EXISTING, &place.queue));
    pop_all(&place);
    tn_object_close(place.queue);
    tn_domain_close(place.domain);
    (void)fflush(NULL);
    _exit(0);
}

static tn_process *start_program(tn_domain *domain)
{
    static char self[4096];
    static const char *const argv[] = {self, NULL};
    static const char *const environment[] = {"ATTRIBUTE_TEST_POPS=1", NULL};
    tn_process *process = NULL;
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    TN_CHECK(length > 0);
    self[length] = '\0';
    TN_CHECK_OK(tn_process_exec(domain, argv, environment, 0, &process));
    return process;
}

TN_TEST(attributes_arrive_unchanged_in_an_executed_program)
{
    struct place place = {.domain = open_domain()};
    TN_CHECK_OK(tn_queue_open(place.domain, "all", NULL, TN_OPEN_NEW, &place.queue));
    for (; place.strategy < STRATEGIES; place.strategy++) {
        tn_process_status status = {.struct_size = sizeof status};
        tn_process *process = start_program(place.domain);
        push_all(&place);
        TN_CHECK_OK(tn_process_wait(process, TN_FOREVER, &status));
        assert_int_equal(status.exit_code, 0);
        tn_process_close(process);
    }
    tn_object_close(place.queue);
    TNT_AUDIT(place.domain);
    tn_domain_close(place.domain);
}

/* ---- what arrives ------------------------------------------------------------------------ */

static int export_what_arrives(void *argument)
{
    static const char *const refused[] = {"quantizer", "quantizer by channel", "conjugate bit",
                                          NULL};
    struct place *place = argument;
    DLManagedTensorVersioned *managed;
    tn_tensor *t;
    for (uint32_t i = 0; i < 4; i++) {
        TN_CHECK_OK(tn_queue_pop_tensor(place->queue, TN_FOREVER, &t));
        int status = tn_tensor_to_dlpack(t, &managed);
        TN_CHECK(refused[i] == NULL || status == TN_ERR_UNSUPPORTED);
        TN_CHECK(refused[i] == NULL || strstr(tn_error_detail(), refused[i]) != NULL);
        if (refused[i] == NULL) {
            TN_CHECK_OK(status);
            TN_CHECK(tn_tensor_flags(t) == TN_WAS_PINNED);
            TN_CHECK(managed->dl_tensor.device.device_type == kDLCPU);
            TN_CHECK(((int32_t *)managed->dl_tensor.data)[3] == 44);
            managed->deleter(managed);
        }
        tn_tensor_unref(t);
    }
    return 0;
}

TN_TEST(a_pinned_tensor_arrives_plain_and_marked)
{
    static tn_tensor *(*const sent[])(void) = {make_whole_quantized, make_channel_quantized,
                                               make_conjugate, make_pinned};
    struct place place = {.domain = open_domain()};
    TN_CHECK_OK(tn_queue_open(place.domain, NULL, NULL, 0, &place.queue));
    for (uint32_t s = 0; s < STRATEGIES; s++) {
        pid_t child = tnt_fork(export_what_arrives, &place);
        for (uint32_t i = 0; i < 4; i++)
            TN_CHECK_OK(tn_queue_push_tensor(place.queue, share(place.domain, sent[i](), s),
                                             TN_PUSH_MOVE, TN_FOREVER));
        tnt_wait_ok(child);
    }
    tn_object_close(place.queue);
    TNT_AUDIT(place.domain);
    tn_domain_close(place.domain);
}
