/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: each public function as the first call of a process that _Fork() made, in which no
 * handler of fork() ran. Such a child has a copy of its parent's private memory, but is
 * another process. A function that acts in a domain returns TN_ERR_FORKED, each other one
 * acts on the child's copy, and no byte that the parent shares changes.
 *
 * Longer than other files, since one list has a row for each public function.
 */
#include <tenon/dlpack.h>

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "harness/harness.h"
#include "harness/tensor.h"
#include "process/process.h"
#include "share/share.h"

enum { BYTES = 4096, OUT_BYTES = 4096, PERMITS = 2, ANY = INT32_MAX };

/* The objects that the parent has made, and results that calls write. */
static tn_domain *d;
static tn_queue *queue, *leases;
static tn_event *event;
static tn_semaphore *semaphore;
static tn_lock *lock, *held;
static tn_condition *condition;
static tn_barrier *barrier;
static tn_store *store;
static tn_channel *channel;
static tn_tensor *tensor, *other, *named, *by_descriptor, *own;
static const char *named_path;
static tn_arena *arena;
static tn_inspector *inspector;
static tn_sparse sparse;
static tn_message leased, popped;
static tn_message message = {.bytes = "four", .size_bytes = 4};
static uint8_t handle[TN_HANDLE_MAX_BYTES];
static size_t handle_bytes;
static uint64_t ticket;
static DLManagedTensorVersioned *managed;
static int ends[2], descriptor;
static const int64_t shape[] = {BYTES};
static const tn_tensor_options as_file = {.struct_size = sizeof as_file,
                                          .strategy = TN_STRATEGY_FILE_SYSTEM};
static const char *const argv[] = {"true", NULL};

/* For the second table: children of the parent. */
static tn_process *child;
static tn_forkserver *server;
static tn_group *group;
static tn_pool *pool;
static tn_pool_result result = {.struct_size = sizeof result};

/* For the third: a scheduler with a task that pends, and so with a thread. */
static tn_sched *sched;
static tn_graph *graph;
static tn_data *data;
static const tn_memory host;
static int copy_data(void *context, const tn_memory *from, const tn_memory *to)
{
    return (void)context, (void)from, (void)to, 0;
}
static void drop_data(void *context, const tn_memory *memory) { (void)context, (void)memory; }
static const tn_data_options of_data = {.struct_size = sizeof of_data,
                                        .bytes = 1,
                                        .flags = TN_DATA_ON_HOST,
                                        .copy = copy_data,
                                        .drop = drop_data};
static int pend(const tn_task_call *call) { return (void)call, TN_TASK_PENDING; }
static const tn_variant variant = {.run = pend};
static const tn_kind_options kind_options = {
    .struct_size = sizeof kind_options, .variants = &variant, .variant_count = 1};
static tn_task task;
static const tn_task_list tasks = {.struct_size = sizeof tasks, .tasks = &task, .count = 1};

static _Alignas(64) uint8_t out[OUT_BYTES];
#define OUT(type)        ((type *)(void *)out)
#define OUT_STRUCT(type) (*OUT(size_t) = sizeof(type), OUT(type))
#define DO(call)         ((call), 0)

static int each_domain(const tn_domain_entry *it, void *of) { return (void)it, (void)of, 0; }
static int each_seat(const tn_seat_entry *it, void *of) { return (void)it, (void)of, 0; }
static int each_block(const tn_block_entry *it, void *of) { return (void)it, (void)of, 0; }
static int each_object(const tn_object_entry *it, void *of) { return (void)it, (void)of, 0; }
static int each_ticket(const tn_ticket_entry *it, void *of) { return (void)it, (void)of, 0; }
static int each_device(const tn_device_entry *device, void *context)
{
    (void)device, (void)context;
    return 0;
}
static int each_scheduler(const tn_scheduler_entry *it, void *of)
{
    return (void)it, (void)of, 0;
}
static int each_key(const tn_store_entry *it, void *of) { return (void)it, (void)of, 0; }
static int each_sentence(const char *text, bool is_repaired, void *of)
{
    return (void)text, (void)is_repaired, (void)of, 0;
}
static int each_metadata(const char *key, const void *bytes, size_t size_bytes, void *of)
{
    return (void)key, (void)bytes, (void)size_bytes, (void)of, 0;
}
static int run_job(tn_domain *domain, const tn_pool_job *job, tn_message *ret_result, void *of)
{
    return (void)domain, (void)job, (void)ret_result, (void)of, 0;
}
static int run_process(tn_domain *domain, void *argument)
{
    (void)domain, (void)argument;
    while (pause() != 0) {
    }
    return 0;
}
static int run_member(tn_domain *domain, uint32_t index, void *argument)
{
    return (void)index, run_process(domain, argument);
}

/* ---- the calls --------------------------------------------------------------------------- */

/* X(function, result, call). ANY: the result does not matter. */
#define ON_WHAT_IS_SHARED(X)                                                                   \
    X(tn_tensor_set_flags, 0, tn_tensor_set_flags(tensor, TN_REQUIRES_GRAD))                   \
    X(tn_tensor_flags, ANY, DO(tn_tensor_flags(tensor)))                                       \
    X(tn_tensor_name, ANY, DO(tn_tensor_name(tensor)))                                         \
    X(tn_tensor_get_info, 0,                                                                   \
      tn_tensor_get_info(tensor, &(tn_tensor_info){.struct_size = sizeof(tn_tensor_info)}))    \
    X(tn_tensor_data, ANY, DO(tn_tensor_data(tensor)))                                         \
    X(tn_tensor_dtype, ANY, DO(tn_tensor_dtype(tensor)))                                       \
    X(tn_tensor_ndim, ANY, DO(tn_tensor_ndim(tensor)))                                         \
    X(tn_tensor_shape, ANY, DO(tn_tensor_shape(tensor)))                                       \
    X(tn_tensor_count, ANY, DO(tn_tensor_count(tensor)))                                       \
    X(tn_tensor_set_name, 0, tn_tensor_set_name(tensor, "name"))                               \
    X(tn_tensor_set_axis_names, 0,                                                             \
      tn_tensor_set_axis_names(tensor, (const char *const[]){"x"}))                            \
    X(tn_tensor_axis_name, ANY, DO(tn_tensor_axis_name(tensor, 0)))                            \
    X(tn_tensor_set_lod, 0, tn_tensor_set_lod(tensor, 0, NULL, NULL))                          \
    X(tn_tensor_lod, ANY, DO(tn_tensor_lod(tensor, 0, OUT(uint32_t))))                         \
    X(tn_tensor_set_quantizer, 0, tn_tensor_set_quantizer(tensor, NULL))                       \
    X(tn_tensor_quantizer, false, tn_tensor_quantizer(tensor, OUT(tn_quantizer)))              \
    X(tn_sparse_mark, ANY, tn_sparse_mark(&sparse))                                            \
    X(tn_sparse_find, ANY, tn_sparse_find(sparse.parts, 2, OUT(tn_sparse)))                    \
    X(tn_tensor_set_metadata, 0, tn_tensor_set_metadata(tensor, "key", "b", 1))                \
    X(tn_tensor_metadata, ANY, DO(tn_tensor_metadata(tensor, "key", OUT(size_t))))             \
    X(tn_tensor_for_each_metadata, 0,                                                          \
      tn_tensor_for_each_metadata(tensor, each_metadata, NULL))                                \
    X(tn_tensor_copy_attributes, 0, tn_tensor_copy_attributes(own, tensor))                    \
    X(tn_domain_open, 0, tn_domain_open(NULL, &small, 0, OUT(tn_domain *)))                    \
    X(tn_domain_inherit, TN_ERR_NOT_FOUND, tn_domain_inherit(OUT(tn_domain *)))                \
    X(tn_domain_pass, 0, tn_domain_pass(d, (char *)out, sizeof out))                           \
    X(tn_domain_close, 0, DO(tn_domain_close(d)))                                              \
    X(tn_domain_get_info, TNI_NO_SEAT, tnt_member(d) == 0 ? (int)tnt_seat(d) : 0)              \
    X(tn_domain_has_member, false, tn_domain_has_member(d, member))                            \
    X(tn_domain_reap, TN_ERR_FORKED, tn_domain_reap(d, NULL))                                  \
    X(tn_domain_trim, TN_ERR_FORKED, tn_domain_trim(d, 0, NULL))                               \
    X(tn_domain_set_watermark, TN_ERR_FORKED, tn_domain_set_watermark(d, 1 << 20))             \
    X(tn_domain_set_device_quota, TN_ERR_FORKED, tn_domain_set_device_quota(d, 1 << 20))       \
    X(tn_domain_set_quota, TN_ERR_FORKED, tn_domain_set_quota(d, 1 << 20))                     \
    X(tn_domain_poll_fd, TN_ERR_FORKED, tn_domain_poll_fd(d, OUT(int)))                        \
    X(tn_domain_poll_clear, 0, DO(tn_domain_poll_clear(d)))                                    \
    X(tn_handle_export, TN_ERR_FORKED,                                                         \
      tn_handle_export(tensor, NULL, out, sizeof out, &handle_bytes))                          \
    X(tn_handle_import, TN_ERR_FORKED,                                                         \
      tn_handle_import(d, handle, handle_bytes, OUT(tn_tensor *)))                             \
    X(tn_handle_revoke, TN_ERR_FORKED, tn_handle_revoke(d, handle, handle_bytes))              \
    X(tn_inspect_domains, ANY, tn_inspect_domains(each_domain, NULL))                          \
    X(tn_inspector_open, TN_ERR_NOT_FOUND,                                                     \
      tn_inspector_open("of-nobody", OUT(tn_inspector *)))                                     \
    X(tn_inspector_close, 0, DO(tn_inspector_close(inspector)))                                \
    X(tn_inspect_stat, ANY, tn_inspect_stat(inspector, OUT_STRUCT(tn_domain_stat)))            \
    X(tn_inspect_seats, ANY, tn_inspect_seats(inspector, each_seat, NULL))                     \
    X(tn_inspect_blocks, ANY, tn_inspect_blocks(inspector, each_block, NULL))                  \
    X(tn_inspect_objects, ANY, tn_inspect_objects(inspector, each_object, NULL))               \
    X(tn_inspect_tickets, ANY, tn_inspect_tickets(inspector, each_ticket, NULL))               \
    X(tn_inspect_devices, ANY, tn_inspect_devices(inspector, each_device, NULL))               \
    X(tn_inspect_schedulers, ANY, tn_inspect_schedulers(inspector, each_scheduler, NULL))      \
    X(tn_inspect_audit, ANY, tn_inspect_audit(inspector, false, each_sentence, NULL, NULL))    \
    X(tn_domain_audit, TN_ERR_FORKED, tn_domain_audit(d, true, each_sentence, NULL, NULL))     \
    X(tn_inspect_files, ANY, tn_inspect_files(each_sentence, NULL))                            \
    X(tn_runtime_folder, ANY, DO(tn_runtime_folder()))                                         \
    X(tn_pool_create, TN_ERR_FORKED, tn_pool_create(d, NULL, run_job, NULL, OUT(tn_pool *)))   \
    X(tn_pool_serve, TN_ERR_NOT_FOUND, tn_pool_serve(d, run_job, NULL))                        \
    X(tn_process_fork, TN_ERR_FORKED,                                                          \
      tn_process_fork(d, run_process, NULL, 0, OUT(tn_process *)))                             \
    X(tn_process_exec, TN_ERR_FORKED, tn_process_exec(d, argv, NULL, 0, OUT(tn_process *)))    \
    X(tn_process_follow, TN_ERR_FORKED, tn_process_follow(d, getppid()))                       \
    X(tn_forkserver_start, TN_ERR_FORKED, tn_forkserver_start(d, OUT(tn_forkserver *)))        \
    X(tn_group_create, TN_ERR_FORKED, tn_group_create(d, OUT(tn_group *)))                     \
    X(tn_queue_open, TN_ERR_FORKED,                                                            \
      tn_queue_open(d, NULL, NULL, 0, OUT(tn_queue *)) == TN_ERR_FORKED                        \
          ? tn_queue_open(d, "queue", NULL, TN_OPEN_EXISTING, OUT(tn_queue *))                 \
          : ANY)                                                                               \
    X(tn_object_id, ANY, DO(tn_object_id(queue)))                                              \
    X(tn_object_open_id, TN_ERR_FORKED,                                                        \
      tn_object_open_id(d, TN_OBJECT_QUEUE, tn_object_id(queue), OUT(tn_queue *)))             \
    X(tn_object_close, 0, DO(tn_object_close(queue)))                                          \
    X(tn_object_kind, TN_OBJECT_QUEUE, tn_object_kind(queue))                                  \
    X(tn_object_name, TN_ERR_FORKED, tn_object_name(queue, (char *)out, sizeof out))           \
    X(tn_queue_attach, TN_ERR_FORKED, tn_queue_attach(queue, TN_PRODUCER))                     \
    X(tn_queue_set_stream, TN_ERR_FORKED, tn_queue_set_stream(queue, (tn_device){0, 0}, NULL)) \
    X(tn_queue_get_info, TN_ERR_FORKED,                                                        \
      tn_queue_get_info(queue, &(tn_queue_info){.struct_size = sizeof(tn_queue_info)}))        \
    X(tn_queue_end, TN_ERR_FORKED, tn_queue_end(queue))                                        \
    X(tn_queue_push, TN_ERR_FORKED, tn_queue_push(queue, &message, 0, TN_NOW))                 \
    X(tn_queue_pop, TN_ERR_FORKED, tn_queue_pop(queue, TN_NOW, OUT(tn_message)))               \
    X(tn_queue_push_tensor, TN_ERR_FORKED,                                                     \
      tn_queue_push_tensor(queue, other, TN_PUSH_MOVE, TN_NOW))                                \
    X(tn_queue_pop_tensor, TN_ERR_FORKED,                                                      \
      tn_queue_pop_tensor(queue, TN_NOW, OUT(tn_tensor *)))                                    \
    X(tn_queue_push_many, TN_ERR_FORKED, tn_queue_push_many(queue, &message, 1, 0, TN_NOW))    \
    X(tn_queue_pop_many, TN_ERR_FORKED, tn_queue_pop_many(queue, 1, TN_NOW, OUT(tn_message)))  \
    X(tn_object_wait_any, TN_ERR_FORKED, tn_object_wait_any(&queue, 1, TN_NOW))                \
    X(tn_object_watch, TN_ERR_FORKED, tn_object_watch(queue, true))                            \
    X(tn_queue_count, 0, tn_queue_count(queue))                                                \
    X(tn_message_ack, TN_ERR_FORKED, tn_message_ack(leases, &leased))                          \
    X(tn_message_return, TN_ERR_FORKED, tn_message_return(leases, &leased))                    \
    X(tn_message_fini, 0, DO(tn_message_fini(&popped)))                                        \
    X(tn_strategy_set, 0, tn_strategy_set(TN_STRATEGY_ARENA))                                  \
    X(tn_strategy_parse, 0, tn_strategy_parse("arena", OUT(uint32_t)))                         \
    X(tn_strategy_get, ANY, DO(tn_strategy_get()))                                             \
    X(tn_strategy_name, ANY, DO(tn_strategy_name(0)))                                          \
    X(tn_tensor_clone, TN_ERR_FORKED, tn_tensor_clone(d, own, &as_file, OUT(tn_tensor *)))     \
    X(tn_tensor_resize_storage, ANY, tn_tensor_resize_storage(tensor, 1))                      \
    X(tn_arena_create, TN_ERR_FORKED, tn_arena_create(d, BYTES, TN_NOW, OUT(tn_arena *)))      \
    X(tn_arena_allocate, TN_ERR_FORKED,                                                        \
      tn_arena_allocate(arena, TN_UINT8, 1, shape, OUT(tn_tensor *)))                          \
    X(tn_arena_create_unsealed, TN_ERR_FORKED,                                                 \
      tn_arena_create_unsealed(d, BYTES, TN_NOW, OUT(tn_arena *)))                             \
    X(tn_arena_write, TN_ERR_FORKED, tn_arena_write(arena, 0, "x", 1))                         \
    X(tn_arena_seal, TN_ERR_FORKED, tn_arena_seal(arena))                                      \
    X(tn_arena_room, ANY, DO(tn_arena_room(arena)))                                            \
    X(tn_arena_close, 0, DO(tn_arena_close(arena)))                                            \
    X(tn_tensor_send, ANY, tn_tensor_send(by_descriptor, ends[0], 0, TN_NOW))                  \
    X(tn_tensor_receive, ANY, tn_tensor_receive(ends[1], TN_NOW, OUT(tn_tensor *)))            \
    X(tn_tensor_descriptor, ANY, tn_tensor_descriptor(by_descriptor, 0, OUT(int)))             \
    X(tn_tensor_from_descriptor, ANY, tn_tensor_from_descriptor(descriptor, OUT(tn_tensor *))) \
    X(tn_tensor_open_path, ANY, tn_tensor_open_path(named_path, OUT(tn_tensor *)))             \
    X(tn_device_count, ANY, tn_device_count(TN_DEVICE_CPU))                                    \
    X(tn_device_find, ANY, tn_device_find("cpu", OUT(tn_device)))                              \
    X(tn_device_find_address, ANY, tn_device_find_address(OUT(char), OUT(tn_device)))          \
    X(tn_device_wait, 0, tn_device_wait((tn_device){TN_DEVICE_CPU, 0}, NULL))                  \
    X(tn_device_get_free, ANY,                                                                 \
      tn_device_get_free((tn_device){TN_DEVICE_CPU, 0}, OUT(uint64_t)))                        \
    X(tn_device_get_info, ANY,                                                                 \
      tn_device_get_info((tn_device){TN_DEVICE_CPU, 0}, OUT_STRUCT(tn_device_info)))           \
    X(tn_deadline_after, ANY, DO(tn_deadline_after(1)))                                        \
    X(tn_status_sentence, ANY, DO(tn_status_sentence(0)))                                      \
    X(tn_status_name, ANY, DO(tn_status_name(0)))                                              \
    X(tn_error_detail, ANY, DO(tn_error_detail()))                                             \
    X(tn_error_peer, ANY, DO(tn_error_peer()))                                                 \
    X(tn_log_set, 0, DO(tn_log_set(NULL, NULL)))                                               \
    X(tn_interrupt_set, 0, DO(tn_interrupt_set(NULL, NULL)))                                   \
    X(tn_event_open, TN_ERR_FORKED,                                                            \
      tn_event_open(d, NULL, 0, OUT(tn_event *)) == TN_ERR_FORKED                              \
          ? tn_event_open(d, "event", TN_OPEN_EXISTING, OUT(tn_event *))                       \
          : ANY)                                                                               \
    X(tn_event_set, TN_ERR_FORKED, tn_event_set(event))                                        \
    X(tn_event_clear, TN_ERR_FORKED, tn_event_clear(event))                                    \
    X(tn_event_is_set, false, tn_event_is_set(event))                                          \
    X(tn_semaphore_open, TN_ERR_FORKED,                                                        \
      tn_semaphore_open(d, NULL, 1, 0, OUT(tn_semaphore *)) == TN_ERR_FORKED                   \
          ? tn_semaphore_open(d, "semaphore", 0, TN_OPEN_EXISTING, OUT(tn_semaphore *))        \
          : ANY)                                                                               \
    X(tn_semaphore_release, TN_ERR_FORKED, tn_semaphore_release(semaphore))                    \
    X(tn_semaphore_count, 0, (int)tn_semaphore_count(semaphore))                               \
    X(tn_lock_open, TN_ERR_FORKED,                                                             \
      tn_lock_open(d, NULL, 0, OUT(tn_lock *)) == TN_ERR_FORKED                                \
          ? tn_lock_open(d, "lock", TN_OPEN_EXISTING, OUT(tn_lock *))                          \
          : ANY)                                                                               \
    X(tn_condition_open, TN_ERR_FORKED,                                                        \
      tn_condition_open(d, NULL, 0, OUT(tn_condition *)) == TN_ERR_FORKED                      \
          ? tn_condition_open(d, "condition", TN_OPEN_EXISTING, OUT(tn_condition *))           \
          : ANY)                                                                               \
    X(tn_condition_signal, TN_ERR_FORKED, tn_condition_signal(condition))                      \
    X(tn_condition_broadcast, TN_ERR_FORKED, tn_condition_broadcast(condition))                \
    X(tn_barrier_open, TN_ERR_FORKED,                                                          \
      tn_barrier_open(d, NULL, 2, 0, OUT(tn_barrier *)) == TN_ERR_FORKED                       \
          ? tn_barrier_open(d, "barrier", 0, TN_OPEN_EXISTING, OUT(tn_barrier *))              \
          : ANY)                                                                               \
    X(tn_barrier_reset, TN_ERR_FORKED, tn_barrier_reset(barrier))                              \
    X(tn_event_wait, TN_ERR_FORKED, tn_event_wait(event, TN_NOW))                              \
    X(tn_semaphore_acquire, TN_ERR_FORKED, tn_semaphore_acquire(semaphore, TN_NOW))            \
    X(tn_lock_acquire, TN_ERR_FORKED, tn_lock_acquire(lock, TN_NOW))                           \
    X(tn_lock_release, TN_ERR_FORKED, tn_lock_release(held))                                   \
    X(tn_condition_wait, TN_ERR_FORKED, tn_condition_wait(condition, held, TN_NOW))            \
    X(tn_barrier_wait, TN_ERR_FORKED, tn_barrier_wait(barrier, TN_NOW))                        \
    X(tn_channel_open, TN_ERR_FORKED,                                                          \
      tn_channel_open(d, NULL, NULL, 0, OUT(tn_channel *)) == TN_ERR_FORKED                    \
          ? tn_channel_open(d, "channel", NULL, TN_OPEN_EXISTING, OUT(tn_channel *))           \
          : ANY)                                                                               \
    X(tn_channel_publish, TN_ERR_FORKED, tn_channel_publish(channel, &message, TN_NOW))        \
    X(tn_channel_subscribe, TN_ERR_FORKED, tn_channel_subscribe(channel, TN_FROM_OLDEST))      \
    X(tn_channel_unsubscribe, TN_ERR_FORKED, tn_channel_unsubscribe(channel))                  \
    X(tn_channel_receive, TN_ERR_FORKED, tn_channel_receive(channel, TN_NOW, OUT(tn_message))) \
    X(tn_channel_end, TN_ERR_FORKED, tn_channel_end(channel))                                  \
    X(tn_channel_get_info, TN_ERR_FORKED,                                                      \
      tn_channel_get_info(channel,                                                             \
                          &(tn_channel_info){.struct_size = sizeof(tn_channel_info)}))         \
    X(tn_store_open, TN_ERR_FORKED,                                                            \
      tn_store_open(d, NULL, NULL, 0, OUT(tn_store *)) == TN_ERR_FORKED                        \
          ? tn_store_open(d, "store", NULL, TN_OPEN_EXISTING, OUT(tn_store *))                 \
          : ANY)                                                                               \
    X(tn_store_put, TN_ERR_FORKED, tn_store_put(store, "k", &message, NULL, NULL))             \
    X(tn_store_get, TN_ERR_FORKED, tn_store_get(store, "k", OUT(tn_message), NULL))            \
    X(tn_store_get_or_make, TN_ERR_FORKED,                                                     \
      tn_store_get_or_make(store, "k", TN_NOW, OUT(tn_message)))                               \
    X(tn_store_give_up, TN_ERR_FORKED, tn_store_give_up(store, "promised"))                    \
    X(tn_store_delete, TN_ERR_FORKED, tn_store_delete(store, "k", 0))                          \
    X(tn_store_set_pinned, TN_ERR_FORKED, tn_store_set_pinned(store, "k", true))               \
    X(tn_store_set_kept, TN_ERR_FORKED, tn_store_set_kept(store, false))                       \
    X(tn_store_for_each, TN_ERR_FORKED, tn_store_for_each(store, "", each_key, NULL))          \
    X(tn_store_wait, TN_ERR_FORKED, tn_store_wait(store, "", 0, TN_NOW, OUT(uint64_t)))        \
    X(tn_store_get_info, TN_ERR_FORKED,                                                        \
      tn_store_get_info(store, &(tn_store_info){.struct_size = sizeof(tn_store_info)}))        \
    X(tn_dtype_name, ANY, tn_dtype_name(TN_UINT8, (char *)out, sizeof out))                    \
    X(tn_dtype_parse, ANY, tn_dtype_parse("uint8", OUT(tn_dtype)))                             \
    X(tn_dtype_size, 0, tn_dtype_size(TN_UINT8, OUT(size_t)))                                  \
    X(tn_tensor_create, TN_ERR_FORKED,                                                         \
      tn_tensor_create(d, TN_UINT8, 1, shape, NULL, OUT(tn_tensor *)))                         \
    X(tn_tensor_create_private, 0,                                                             \
      tn_tensor_create_private(TN_UINT8, 1, shape, OUT(tn_tensor *)))                          \
    X(tn_tensor_share, TN_ERR_FORKED, tn_tensor_share(d, own, &as_file))                       \
    X(tn_tensor_ref, 0, DO(tn_tensor_ref(tensor)))                                             \
    X(tn_tensor_unref, 0, DO(tn_tensor_unref(tensor)))                                         \
    X(tn_tensor_view, ANY,                                                                     \
      tn_tensor_view(tensor, TN_UINT8, 1, shape, NULL, 0, OUT(tn_tensor *)))                   \
    X(tn_tensor_slice, ANY, tn_tensor_slice(tensor, 0, 0, 2, 1, OUT(tn_tensor *)))             \
    X(tn_tensor_transpose, ANY, tn_tensor_transpose(tensor, NULL, OUT(tn_tensor *)))           \
    X(tn_tensor_reshape, ANY, tn_tensor_reshape(tensor, 1, shape, OUT(tn_tensor *)))           \
    X(tn_tensor_pin, ANY, tn_tensor_pin(own))                                                  \
    X(tn_tensor_unpin, 0, tn_tensor_unpin(own))                                                \
    X(tn_tensor_record, TN_ERR_UNSUPPORTED, tn_tensor_record(own, NULL))                       \
    X(tn_tensor_wait, 0, tn_tensor_wait(tensor, NULL))                                         \
    X(tn_tensor_sync, 0, tn_tensor_sync(tensor, TN_NOW))                                       \
    X(tn_tensor_device, ANY, DO(tn_tensor_device(tensor)))                                     \
    X(tn_tensor_copy_on, ANY, tn_tensor_copy_on(own, tensor, NULL))                            \
    X(tn_tensor_to, TN_ERR_FORKED,                                                             \
      tn_tensor_to(d, own, (tn_device){TN_DEVICE_CPU, 0}, NULL, OUT(tn_tensor *)))             \
    X(tn_tensor_copy, 0, tn_tensor_copy(own, tensor))                                          \
    X(tn_tensor_same_storage, ANY, DO(tn_tensor_same_storage(tensor, other)))                  \
    X(tn_tensor_find, TN_ERR_FORKED,                                                           \
      tn_tensor_find(d, tn_tensor_data(tensor), BYTES, OUT(tn_tensor *)))                      \
    X(tn_tensor_to_dlpack, ANY, tn_tensor_to_dlpack(tensor, OUT(DLManagedTensorVersioned *)))  \
    X(tn_tensor_from_dlpack, 0, tn_tensor_from_dlpack(managed, OUT(tn_tensor *)))              \
    X(tn_version, ANY, DO(tn_version()))

/* These join each domain, in a new seat. */
#define IN_ITS_OWN_SEAT(X) X(tn_inspect_gc, ANY, tn_inspect_gc(each_sentence, NULL))

#define ON_CHILDREN(X)                                                                         \
    X(tn_pool_submit, TN_ERR_INVALID,                                                          \
      tn_pool_submit(pool, &message, 0, TN_NOW, OUT(uint64_t)))                                \
    X(tn_pool_fetch, TN_ERR_INVALID,                                                           \
      tn_pool_fetch(pool, 1, TN_NOW, OUT_STRUCT(tn_pool_result)))                              \
    X(tn_pool_result_fini, 0, DO(tn_pool_result_fini(&result)))                                \
    X(tn_pool_end, TN_ERR_INVALID, tn_pool_end(pool))                                          \
    X(tn_pool_join, TN_ERR_INVALID, tn_pool_join(pool, TN_NOW))                                \
    X(tn_pool_terminate, TN_ERR_INVALID, tn_pool_terminate(pool, TN_NOW))                      \
    X(tn_pool_close, 0, DO(tn_pool_close(pool)))                                               \
    X(tn_pool_get_info, 0,                                                                     \
      tn_pool_get_info(pool, &(tn_pool_info){.struct_size = sizeof(tn_pool_info)}))            \
    X(tn_process_pid, ANY, DO(tn_process_pid(child)))                                          \
    X(tn_process_wait, TN_ERR_INVALID, tn_process_wait(child, TN_NOW, NULL))                   \
    X(tn_process_kill, TN_ERR_INVALID, tn_process_kill(child, SIGKILL))                        \
    X(tn_process_close, 0, DO(tn_process_close(child)))                                        \
    X(tn_forkserver_fork, ANY,                                                                 \
      tn_forkserver_fork(server, run_process, NULL, 0, 0, OUT(tn_process *)))                  \
    X(tn_forkserver_pid, ANY, DO(tn_forkserver_pid(server)))                                   \
    X(tn_forkserver_close, 0, DO(tn_forkserver_close(server)))                                 \
    X(tn_group_fork, TN_ERR_INVALID, tn_group_fork(group, 1, run_member, NULL))                \
    X(tn_group_add, TN_ERR_INVALID, tn_group_add(group, child))                                \
    X(tn_group_wait, TN_ERR_INVALID, tn_group_wait(group, 0, TN_NOW, NULL))                    \
    X(tn_group_get, ANY, DO(tn_group_get(group, 0)))                                           \
    X(tn_group_close, 0, DO(tn_group_close(group)))

/* A scheduler has no threads in the child, and its lock may be taken there. */
#define ON_A_SCHEDULER(X)                                                                      \
    X(tn_sched_create, 0, tn_sched_create(NULL, OUT(tn_sched *)))                              \
    X(tn_sched_get_info, TN_ERR_FORKED, tn_sched_get_info(sched, OUT_STRUCT(tn_sched_info)))   \
    X(tn_sched_write_trace, TN_ERR_FORKED, tn_sched_write_trace(sched, 1))                     \
    X(tn_data_create, TN_ERR_FORKED, tn_data_create(sched, &of_data, OUT(tn_data *)))          \
    X(tn_data_fetch, TN_ERR_FORKED, tn_data_fetch(data, TN_NOW))                               \
    X(tn_data_tensor, 0, DO(tn_data_tensor(data)))                                             \
    X(tn_data_close, 0, DO(tn_data_close(data)))                                               \
    X(tn_memory_get_info, TN_ERR_FORKED,                                                       \
      tn_memory_get_info(sched, &host, OUT_STRUCT(tn_memory_info)))                            \
    X(tn_sched_close, 0, DO(tn_sched_close(sched)))                                            \
    X(tn_kind_create, TN_ERR_FORKED, tn_kind_create(sched, &kind_options, OUT(tn_kind *)))     \
    X(tn_graph_create, TN_ERR_FORKED, tn_graph_create(sched, OUT(tn_graph *)))                 \
    X(tn_graph_add, TN_ERR_FORKED, tn_graph_add(graph, &tasks, OUT(uint64_t)))                 \
    X(tn_graph_wait, TN_ERR_FORKED, tn_graph_wait(graph, TN_NOW))                              \
    X(tn_graph_run, TN_ERR_FORKED, tn_graph_run(graph, TN_NOW))                                \
    X(tn_graph_cancel, TN_ERR_FORKED, tn_graph_cancel(graph))                                  \
    X(tn_graph_close, 0, DO(tn_graph_close(graph)))                                            \
    X(tn_graph_get_info, TN_ERR_FORKED, tn_graph_get_info(graph, OUT_STRUCT(tn_graph_info)))   \
    X(tn_task_get_status, TN_ERR_FORKED, tn_task_get_status(graph, 0, OUT(uint64_t)))          \
    X(tn_task_end, TN_ERR_FORKED, tn_task_end(graph, 0, 0))                                    \
    X(tn_task_end_on, TN_ERR_FORKED, tn_task_end_on(graph, 0, STDIN_FILENO))                   \
    X(tn_task_secede, TN_ERR_INVALID, tn_task_secede())                                        \
    X(tn_task_set_bytes, TN_ERR_INVALID, tn_task_set_bytes(1))                                 \
    X(tn_resource_id, TN_ERR_INVALID, tn_resource_id("GPU", OUT(uint32_t), 1))

struct row {
    const char *function;
    int expected;
    int (*call)(void);
};

#define CALL(function, expected_, ...)                                                         \
    static int call_##function(void) { return (int)(__VA_ARGS__); }
#define ROW(function, expected_, ...) {#function, expected_, call_##function},

static const tn_domain_options small = {.struct_size = sizeof small,
                                        .quota_bytes = 16 << 20,
                                        .seats = 8,
                                        .blocks = 1024,
                                        .objects = 64,
                                        .tickets = 64,
                                        .flags = TN_DOMAIN_NO_MANAGER};
static uint64_t member;

ON_WHAT_IS_SHARED(CALL)
IN_ITS_OWN_SEAT(CALL)
ON_CHILDREN(CALL)
ON_A_SCHEDULER(CALL)
static const struct row on_what_is_shared[] = {ON_WHAT_IS_SHARED(ROW)};
static const struct row in_its_own_seat[] = {IN_ITS_OWN_SEAT(ROW)};
static const struct row on_children[] = {ON_CHILDREN(ROW)};
static const struct row on_a_scheduler[] = {ON_A_SCHEDULER(ROW)};

static void call_in_a_copy(const struct row *row)
{
    enum { LIMIT_S = 60 };
    int status = 0;
    pid_t pid = _Fork();
    TN_CHECK(pid >= 0);
    if (pid == 0) {
        alarm(LIMIT_S);
        int got = row->call();
        bool is_right = row->expected == ANY || got == row->expected;
        if (!is_right)
            dprintf(STDOUT_FILENO, "# %s: %d, %s\n", row->function, got, tn_error_detail());
        _exit(is_right ? 0 : 1);
    }
    TN_CHECK(waitpid(pid, &status, 0) == pid);
    if (status != 0)
        fail_msg("%s in a child of _Fork() ended with %x", row->function, (unsigned)status);
}

/* ---- what is shared ---------------------------------------------------------------------- */

static tn_tensor *make_tensor(const tn_tensor_options *options)
{
    tn_tensor *t = NULL;
    TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, shape, options, &t));
    memset(tn_tensor_data(t), 0x11, BYTES);
    return t;
}

static void make_objects(void)
{
    TN_CHECK_OK(tn_queue_open(d, "queue", NULL, TN_OPEN_NEW, &queue));
    TN_CHECK_OK(tn_event_open(d, "event", TN_OPEN_NEW, &event));
    TN_CHECK_OK(tn_event_set(event));
    TN_CHECK_OK(tn_semaphore_open(d, "semaphore", PERMITS, TN_OPEN_NEW | TN_SEMAPHORE_OWNED,
                                  &semaphore));
    TN_CHECK_OK(tn_semaphore_acquire(semaphore, TN_NOW));
    TN_CHECK_OK(tn_lock_open(d, "lock", TN_OPEN_NEW, &lock));
    TN_CHECK_OK(tn_lock_open(d, NULL, 0, &held));
    TN_CHECK_OK(tn_lock_acquire(held, TN_NOW));
    TN_CHECK_OK(tn_condition_open(d, "condition", TN_OPEN_NEW, &condition));
    TN_CHECK_OK(tn_barrier_open(d, "barrier", 2, TN_OPEN_NEW, &barrier));
    TN_CHECK_OK(tn_channel_open(d, "channel", NULL, TN_OPEN_NEW, &channel));
    TN_CHECK_OK(tn_channel_subscribe(channel, TN_FROM_NEWEST));
    TN_CHECK_OK(tn_channel_publish(channel, &message, TN_NOW));
    TN_CHECK_OK(tn_store_open(d, "store", NULL, TN_OPEN_NEW, &store));
    TN_CHECK_OK(tn_store_put(store, "k", &message, NULL, NULL));
    TN_CHECK(tn_store_get_or_make(store, "promised", TN_NOW, OUT(tn_message)) == TN_STORE_MAKE);
}

/* The parent has both roles at each queue, and each queue has a message. */
static void fill_queues(void)
{
    tn_queue_options options = {.struct_size = sizeof options, .policy = TN_QUEUE_LEASE};
    tn_tensor *t = NULL;
    TN_CHECK_OK(tn_queue_open(d, NULL, &options, 0, &leases));
    TN_CHECK_OK(tn_queue_push(leases, &message, 0, TN_NOW));
    TN_CHECK_OK(tn_queue_pop(leases, TN_NOW, &leased));
    for (int i = 0; i < 3; i++) {
        t = make_tensor(NULL);
        TN_CHECK_OK(tn_queue_push_tensor(queue, t, TN_PUSH_MOVE, TN_NOW));
    }
    TN_CHECK_OK(tn_queue_pop_tensor(queue, TN_NOW, &t));
    tn_tensor_unref(t);
    TN_CHECK_OK(tn_queue_pop(queue, TN_NOW, &popped));
}

static void make_tensors(void)
{
    tensor = make_tensor(NULL);
    other = make_tensor(NULL);
    named = make_tensor(&as_file);
    named_path = tnt_info(named).path;
    by_descriptor =
        make_tensor(TN_OPTIONS(tn_tensor_options, .strategy = TN_STRATEGY_FILE_DESCRIPTOR));
    TN_CHECK_OK(tn_tensor_create_private(TN_UINT8, 1, shape, &own));
    TN_CHECK_OK(tn_arena_create(d, 4 * BYTES, TN_NOW, &arena));
    TN_CHECK_OK(tn_handle_export(tensor, NULL, handle, sizeof handle, &handle_bytes));
    TN_CHECK_OK(tni_handle_ticket(handle, handle_bytes, &ticket));
    TN_CHECK_OK(tn_tensor_to_dlpack(other, &managed));
    TN_CHECK_OK(tn_tensor_descriptor(by_descriptor, 0, &descriptor));
    TN_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
    TN_CHECK_OK(tn_tensor_send(by_descriptor, ends[0], 0, TN_NOW));
}

static void end_all(void)
{
    tn_message_fini(&popped);
    TN_CHECK_OK(tn_message_ack(leases, &leased));
    tn_message_fini(&leased);
    managed->deleter(managed);
    tn_arena_close(arena);
    tn_tensor *const tensors[] = {tensor, other, named, by_descriptor, own};
    for (uint32_t i = 0; i < TNI_COUNT(tensors); i++)
        tn_tensor_unref(tensors[i]);
    TN_CHECK_OK(tn_semaphore_release(semaphore));
    TN_CHECK_OK(tn_lock_release(held));
    close(ends[0]);
    close(ends[1]);
    close(descriptor);
    tn_inspector_close(inspector);
    tn_object_close(queue);
    tn_object_close(leases);
    tn_object_close(event);
    tn_object_close(semaphore);
    tn_object_close(lock);
    tn_object_close(held);
    tn_object_close(condition);
    tn_object_close(barrier);
    tn_object_close(channel);
    tn_object_close(store);
    TNT_AUDIT(d);
    tn_domain_close(d);
}

/* The pages of both files that are not empty, one after the other, each with its number. */
struct image {
    uint8_t *bytes;
    size_t size_bytes;
};

static void add_page(struct image *image, const uint8_t *page, uint64_t number)
{
    static const uint8_t zero[BYTES];
    if (memcmp(page, zero, BYTES) == 0)
        return;
    image->bytes = realloc(image->bytes, image->size_bytes + sizeof number + BYTES);
    TN_CHECK(image->bytes != NULL);
    memcpy(image->bytes + image->size_bytes, &number, sizeof number);
    memcpy(image->bytes + image->size_bytes + sizeof number, page, BYTES);
    image->size_bytes += sizeof number + BYTES;
}

static void add_file(struct image *image, int fd)
{
    uint8_t page[BYTES];
    off_t end = 0, at;
    while ((at = lseek(fd, end, SEEK_DATA)) >= 0) {
        end = lseek(fd, at, SEEK_HOLE);
        for (at -= at % BYTES; at < end; at += BYTES) {
            memset(page, 0, sizeof page);
            TN_CHECK(pread(fd, page, sizeof page, at) > 0);
            add_page(image, page, (uint64_t)at / BYTES);
        }
    }
}

static struct image take_image(void)
{
    struct image image = {NULL, 0};
    add_file(&image, d->segment.control_fd);
    add_file(&image, d->segment.arena_fd);
    return image;
}

static void check_same(const struct image *before, const char *function)
{
    struct image after = take_image();
    size_t at = 0, most = TNI_MIN(before->size_bytes, after.size_bytes);
    while (at < most && before->bytes[at] == after.bytes[at])
        at++;
    if (at < most || before->size_bytes != after.size_bytes)
        fail_msg("%s in a child of _Fork() wrote to what is shared: byte %zu of page %zu",
                 function, at % (sizeof(uint64_t) + BYTES) - sizeof(uint64_t),
                 at / (sizeof(uint64_t) + BYTES));
    free(after.bytes);
}

static void open_inspector(void)
{
    char id[2 * sizeof d->segment.id + 1];
    for (size_t i = 0; i < sizeof d->segment.id; i++)
        snprintf(id + 2 * i, 3, "%02x", d->segment.id[i]);
    TN_CHECK_OK(tn_inspector_open(id, &inspector));
}

static void begin_with_all(void)
{
    d = tnt_domain(&small);
    member = tnt_member(d);
    make_tensors();
    make_objects();
    fill_queues();
    open_inspector();
    sparse = (tn_sparse){.part_count = 2, .parts = {tensor, other}};
}

TN_TEST(no_first_call_of_a_copied_process_acts_in_its_parents_seat)
{
    begin_with_all();
    struct image before = take_image();
    for (uint32_t i = 0; i < TNI_COUNT(on_what_is_shared); i++) {
        call_in_a_copy(&on_what_is_shared[i]);
        check_same(&before, on_what_is_shared[i].function);
    }
    free(before.bytes);
    end_all();
}

TN_TEST(gc_as_the_first_call_of_a_copied_process_harms_nothing)
{
    begin_with_all();
    for (uint32_t i = 0; i < TNI_COUNT(in_its_own_seat); i++)
        call_in_a_copy(&in_its_own_seat[i]);
    end_all();
}

/* ---- children of the parent -------------------------------------------------------------- */

TN_TEST(no_first_call_of_a_copied_process_acts_on_its_siblings)
{
    tn_pool_options options = {.struct_size = sizeof options, .workers = 1};
    d = tnt_domain(&small);
    TN_CHECK_OK(tn_process_fork(d, run_process, NULL, 0, &child));
    TN_CHECK_OK(tn_forkserver_start(d, &server));
    TN_CHECK_OK(tn_group_create(d, &group));
    TN_CHECK_OK(tn_group_fork(group, 1, run_member, NULL));
    TN_CHECK_OK(tn_pool_create(d, &options, run_job, NULL, &pool));
    for (uint32_t i = 0; i < TNI_COUNT(on_children); i++)
        call_in_a_copy(&on_children[i]);

    assert_int_equal(tn_process_wait(child, TN_NOW, NULL), TN_ERR_TIMED_OUT);
    assert_int_equal(tn_group_wait(group, 0, TN_NOW, NULL), TN_ERR_TIMED_OUT);
    TN_CHECK_OK(tn_pool_submit(pool, &message, 0, TN_NOW, &(uint64_t){0}));
    TN_CHECK_OK(tn_pool_fetch(pool, TN_POOL_ANY_JOB, TN_FOREVER, &result));
    tn_pool_result_fini(&result);
    tn_process *last = NULL;
    TN_CHECK_OK(tn_forkserver_fork(server, run_process, NULL, 0, 0, &last));
    tn_process_close(last);
    tn_pool_close(pool);
    tn_group_close(group);
    tn_forkserver_close(server);
    tn_process_close(child);
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    TNT_AUDIT(d);
    tn_domain_close(d);
}

/* ---- a scheduler ------------------------------------------------------------------------- */

TN_TEST(no_first_call_of_a_copied_process_uses_its_parents_scheduler)
{
    tn_graph_info info = {.struct_size = sizeof info};
    TN_CHECK_OK(tn_sched_create(NULL, &sched));
    TN_CHECK_OK(tn_kind_create(sched, &kind_options, &task.kind));
    TN_CHECK_OK(tn_graph_create(sched, &graph));
    TN_CHECK_OK(tn_data_create(sched, &of_data, &data));
    TN_CHECK_OK(tn_graph_add(graph, &tasks, NULL));
    for (uint32_t i = 0; i < TNI_COUNT(on_a_scheduler); i++)
        call_in_a_copy(&on_a_scheduler[i]);
    TN_CHECK_OK(tn_graph_get_info(graph, &info));
    assert_true(info.tasks == 1);
    int status;
    while ((status = tn_task_end(graph, 0, 0)) == TN_ERR_INVALID)
        sched_yield(); /* the task has not begun */
    TN_CHECK_OK(status);
    TN_CHECK_OK(tn_graph_wait(graph, TN_FOREVER));
    tn_sched_close(sched);
}

/* ---- all of them ------------------------------------------------------------------------- */

static bool has_row(const char *function, const struct row *rows, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(rows[i].function, function) == 0)
            return true;
    return false;
}

static bool is_called(const char *function)
{
    return strcmp(function, "tn_process_fail") == 0 || /* it ends its process */
           has_row(function, on_what_is_shared, TNI_COUNT(on_what_is_shared)) ||
           has_row(function, in_its_own_seat, TNI_COUNT(in_its_own_seat)) ||
           has_row(function, on_children, TNI_COUNT(on_children)) ||
           has_row(function, on_a_scheduler, TNI_COUNT(on_a_scheduler));
}

TN_TEST(every_public_function_is_called_first_in_a_copied_process)
{
    char line[128], function[128];
    uint32_t count = 0;
    FILE *map = fopen(TNT_SOURCE "/tenon.map", "r");
    TN_CHECK(map != NULL);
    while (fgets(line, sizeof line, map) != NULL) {
        if (sscanf(line, " tn_%120[a-z0-9_];", function + 3) != 1)
            continue;
        memcpy(function, "tn_", 3);
        count++;
        if (!is_called(function))
            fail_msg("%s is not called", function);
    }
    fclose(map);
    assert_true(count >= TNI_COUNT(on_what_is_shared) + TNI_COUNT(on_children));
}
