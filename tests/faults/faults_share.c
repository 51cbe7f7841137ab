/* SPDX-License-Identifier: Apache-2.0 */
/* Strategies: storages with memory of their own, write-once arenas. */
#include <string.h>

#include "faults.h"
#include "harness/tensor.h"

static tn_tensor *t;
static tn_arena *arena;
static const int64_t shape[] = {5000};

static void unref_out(void) { tn_tensor_unref(*FAULTS_OUT(tn_tensor *)); }
#define WITH_DOMAIN .prepare = faults_begin, .finish = faults_end
static void begin_managed(void) { faults_begin_managed(NULL); }
#define WITH_TENOND .prepare = begin_managed, .finish = faults_end, .makes_files = true

/* ---- the strategy of this process -------------------------------------------------------- */

static int set(void) { return tn_strategy_set(TN_STRATEGY_ARENA); }
static int parse(void) { return tn_strategy_parse("arena", FAULTS_OUT(uint32_t)); }
static int get(void) { return tn_strategy_get() == TN_STRATEGY_ARENA ? 0 : TN_ERR_CORRUPT; }
static int name(void) { return tn_strategy_name(1) != NULL ? 0 : TN_ERR_CORRUPT; }
FAULTS(tn_strategy_parse, .has_no_calls = true, .call = parse)
FAULTS(tn_strategy_set, .has_no_calls = true, .call = set)
FAULTS(tn_strategy_get, .has_no_calls = true, .call = get)
FAULTS(tn_strategy_name, .has_no_calls = true, .call = name)

/* ---- tensors by a strategy --------------------------------------------------------------- */

static const tn_tensor_options by_descriptor = {.struct_size = sizeof by_descriptor,
                                                .strategy = TN_STRATEGY_FILE_DESCRIPTOR};
static const tn_tensor_options by_file = {.struct_size = sizeof by_file,
                                          .strategy = TN_STRATEGY_FILE_SYSTEM};
static const tn_tensor_options write_once = {.struct_size = sizeof write_once,
                                             .flags = TN_TENSOR_WRITE_ONCE};
static int empty_as(const tn_tensor_options *options)
{
    return tn_tensor_create(faults_d, TN_UINT8, 1, shape, options, FAULTS_OUT(tn_tensor *));
}
static int empty_by_descriptor(void) { return empty_as(&by_descriptor); }
static int empty_by_file(void) { return empty_as(&by_file); }
static int empty_write_once(void) { return empty_as(&write_once); }
FAULTS_WHEN(tn_tensor_create, a_descriptor, WITH_DOMAIN, .call = empty_by_descriptor,
            .undo = unref_out)
FAULTS_WHEN(tn_tensor_create, with_tenond, WITH_TENOND, .call = empty_by_descriptor,
            .undo = unref_out)
FAULTS_WHEN(tn_tensor_create, a_file, WITH_DOMAIN, .call = empty_by_file, .undo = unref_out)
FAULTS_WHEN(tn_tensor_create, write_once, WITH_DOMAIN, .call = empty_write_once,
            .undo = unref_out)

static void make_private(void)
{
    TN_CHECK_OK(tn_tensor_create_private(TN_UINT8, 1, shape, &t));
}
static void unref(void) { t = tn_tensor_unref(t); }
static uint64_t is_shared(void) { return t != NULL && tnt_info(t).is_shared; }
static int share_as(void) { return tn_tensor_share(faults_d, t, &by_descriptor); }
static int share_as_file(void) { return tn_tensor_share(faults_d, t, &by_file); }
FAULTS_WHEN(tn_tensor_share, a_descriptor, WITH_DOMAIN, .measure = is_shared,
            .before = make_private, .call = share_as, .undo = unref)
FAULTS_WHEN(tn_tensor_share, a_file, WITH_DOMAIN, .measure = is_shared, .before = make_private,
            .call = share_as_file, .undo = unref)

static void unref_both(void)
{
    unref_out();
    unref();
}
static int clone_by_file(void)
{
    return tn_tensor_clone(faults_d, t, &by_file, FAULTS_OUT(tn_tensor *));
}
static void make_named(void)
{
    make_private();
    TN_CHECK_OK(tn_tensor_set_name(t, "weights"));
}
FAULTS(tn_tensor_clone, WITH_DOMAIN, .measure = is_shared, .before = make_named,
       .call = clone_by_file, .undo = unref_both)

static int to_the_cpu(void)
{
    return tn_tensor_to(faults_d, t, (tn_device){TN_DEVICE_CPU, 0}, NULL,
                        FAULTS_OUT(tn_tensor *));
}
FAULTS(tn_tensor_to, WITH_DOMAIN, .measure = is_shared, .before = make_named,
       .call = to_the_cpu, .undo = unref_both)

/* ---- write-once arenas ------------------------------------------------------------------- */

static int create_arena(void)
{
    return tn_arena_create(faults_d, 10000, TN_NOW, FAULTS_OUT(tn_arena *));
}
static void close_out(void) { tn_arena_close(*FAULTS_OUT(tn_arena *)); }
FAULTS(tn_arena_create, WITH_DOMAIN, .call = create_arena, .undo = close_out)

static void make_arena(void)
{
    TN_CHECK_OK(tn_arena_create(faults_d, 1 << 20, TN_NOW, &arena));
}
static void close_arena(void) { arena = tn_arena_close(arena); }
static uint64_t room(void) { return arena != NULL ? tn_arena_room(arena) : 0; }
static void unref_and_close(void)
{
    unref_out();
    close_arena();
}
static int arena_empty(void)
{
    return tn_arena_allocate(arena, TN_UINT8, 1, shape, FAULTS_OUT(tn_tensor *));
}
FAULTS(tn_arena_allocate, WITH_DOMAIN, .measure = room, .before = make_arena,
       .call = arena_empty, .undo = unref_and_close)

/* ---- arenas that are filled before they are sealed --------------------------------------- */

static int create_unsealed(void)
{
    return tn_arena_create_unsealed(faults_d, 10000, TN_NOW, FAULTS_OUT(tn_arena *));
}
FAULTS(tn_arena_create_unsealed, WITH_DOMAIN, .call = create_unsealed, .undo = close_out)

static void make_unsealed(void)
{
    TN_CHECK_OK(tn_arena_create_unsealed(faults_d, 1 << 20, TN_NOW, &arena));
}
static int write_arena(void) { return tn_arena_write(arena, 0, "tenon", 5); }
static int seal_arena(void) { return tn_arena_seal(arena); }
FAULTS(tn_arena_write, WITH_DOMAIN, .before = make_unsealed, .call = write_arena,
       .undo = close_arena)
FAULTS(tn_arena_seal, WITH_DOMAIN, .before = make_unsealed, .call = seal_arena,
       .undo = close_arena)

static int ask_room(void) { return tn_arena_room(arena) > 0 ? 0 : TN_ERR_CORRUPT; }
static int close_it(void) { return close_arena(), 0; }
FAULTS(tn_arena_room, WITH_DOMAIN, .has_no_calls = true, .before = make_arena, .call = ask_room,
       .undo = close_arena)
FAULTS(tn_arena_close, WITH_DOMAIN, .never_fails = true, .before = make_arena, .call = close_it)
