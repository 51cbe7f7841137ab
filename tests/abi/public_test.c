/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: what a program was compiled with is what the library of this soname means by it.
 *
 * When one of these fails, programs that were built before would pass other bytes than the
 * library reads. Undo the change, add at the end of a struct that states its size, or raise the
 * soversion in meson.build and put the new numbers here. tn_storage_header, which other
 * programs read too, stands in layout_test.c.
 */
#include "harness/harness.h"

#define PIN(type, field, offset) assert_int_equal(offsetof(type, field), offset)

TN_TEST(tn_quantizer_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_quantizer), 32);
    PIN(tn_quantizer, scheme, 0);
    PIN(tn_quantizer, axis, 4);
    PIN(tn_quantizer, count, 8);
    PIN(tn_quantizer, reserved, 12);
    PIN(tn_quantizer, scales, 16);
    PIN(tn_quantizer, zero_points, 24);
}

TN_TEST(tn_sparse_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_sparse), 296);
    PIN(tn_sparse, layout, 0);
    PIN(tn_sparse, flags, 4);
    PIN(tn_sparse, ndim, 8);
    PIN(tn_sparse, part_count, 12);
    PIN(tn_sparse, shape, 16);
    PIN(tn_sparse, parts, 272);
}

TN_TEST(tn_domain_options_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_domain_options), 72);
    PIN(tn_domain_options, struct_size, 0);
    PIN(tn_domain_options, quota_bytes, 8);
    PIN(tn_domain_options, watermark_bytes, 16);
    PIN(tn_domain_options, seats, 24);
    PIN(tn_domain_options, blocks, 28);
    PIN(tn_domain_options, objects, 32);
    PIN(tn_domain_options, tickets, 36);
    PIN(tn_domain_options, flags, 40);
    PIN(tn_domain_options, reserved, 44);
    PIN(tn_domain_options, device_quota_bytes, 48);
    PIN(tn_domain_options, device_slab_bytes, 56);
    PIN(tn_domain_options, foreign_wait_ns, 64);
}

TN_TEST(tn_handle_options_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_handle_options), 24);
    PIN(tn_handle_options, struct_size, 0);
    PIN(tn_handle_options, uses, 8);
    PIN(tn_handle_options, flags, 12);
    PIN(tn_handle_options, lifetime_ns, 16);
}

TN_TEST(tn_ticket_entry_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_ticket_entry), 40);
    PIN(tn_ticket_entry, id, 0);
    PIN(tn_ticket_entry, uses_left, 8);
    PIN(tn_ticket_entry, issuer_seat, 12);
    PIN(tn_ticket_entry, issuer_pid, 16);
    PIN(tn_ticket_entry, block, 20);
    PIN(tn_ticket_entry, bytes, 24);
    PIN(tn_ticket_entry, remaining_ns, 32);
}

TN_TEST(tn_domain_entry_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_domain_entry), 256);
    PIN(tn_domain_entry, name, 0);
    PIN(tn_domain_entry, id, 64);
    PIN(tn_domain_entry, uid, 80);
    PIN(tn_domain_entry, creator_pid, 84);
    PIN(tn_domain_entry, seats_used, 88);
    PIN(tn_domain_entry, seats, 92);
    PIN(tn_domain_entry, committed_bytes, 96);
    PIN(tn_domain_entry, quota_bytes, 104);
    PIN(tn_domain_entry, age_ns, 112);
    PIN(tn_domain_entry, runtime_folder, 120);
    PIN(tn_domain_entry, other_layout, 248);
}

TN_TEST(tn_domain_stat_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_domain_stat), 424);
    PIN(tn_domain_stat, struct_size, 0);
    PIN(tn_domain_stat, domain, 8);
    PIN(tn_domain_stat, watermark_bytes, 264);
    PIN(tn_domain_stat, live_bytes, 272);
    PIN(tn_domain_stat, free_bytes, 280);
    PIN(tn_domain_stat, outside_bytes, 288);
    PIN(tn_domain_stat, outside_count, 296);
    PIN(tn_domain_stat, huge_page_bytes, 304);
    PIN(tn_domain_stat, control_bytes, 312);
    PIN(tn_domain_stat, blocks_live, 320);
    PIN(tn_domain_stat, blocks_limit, 328);
    PIN(tn_domain_stat, objects_used, 336);
    PIN(tn_domain_stat, objects, 340);
    PIN(tn_domain_stat, tickets_used, 344);
    PIN(tn_domain_stat, tickets, 348);
    PIN(tn_domain_stat, layout_version, 352);
    PIN(tn_domain_stat, manager_pid, 356);
    PIN(tn_domain_stat, huge_pages, 360);
    PIN(tn_domain_stat, deaths, 392);
    PIN(tn_domain_stat, manager_starts, 400);
    PIN(tn_domain_stat, foreign_copies, 408);
    PIN(tn_domain_stat, foreign_copied_bytes, 416);
}

TN_TEST(tn_seat_entry_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_seat_entry), 128);
    PIN(tn_seat_entry, seat, 0);
    PIN(tn_seat_entry, incarnation, 4);
    PIN(tn_seat_entry, pid, 8);
    PIN(tn_seat_entry, state, 12);
    PIN(tn_seat_entry, is_manager, 24);
    PIN(tn_seat_entry, command, 25);
    PIN(tn_seat_entry, age_ns, 96);
    PIN(tn_seat_entry, blocks_held, 104);
    PIN(tn_seat_entry, bytes_held, 112);
    PIN(tn_seat_entry, device_bytes_held, 120);
}

TN_TEST(tn_holder_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_holder), 72);
    PIN(tn_holder, seat, 0);
    PIN(tn_holder, pid, 4);
    PIN(tn_holder, command, 8);
}

TN_TEST(tn_block_entry_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_block_entry), 256);
    PIN(tn_block_entry, block, 0);
    PIN(tn_block_entry, bytes, 8);
    PIN(tn_block_entry, block_bytes, 16);
    PIN(tn_block_entry, strategy, 24);
    PIN(tn_block_entry, object_bytes, 32);
    PIN(tn_block_entry, path, 40);
    PIN(tn_block_entry, is_write_once, 48);
    PIN(tn_block_entry, is_copy, 49);
    PIN(tn_block_entry, age_ns, 56);
    PIN(tn_block_entry, creator_seat, 64);
    PIN(tn_block_entry, creator_pid, 68);
    PIN(tn_block_entry, kind, 72);
    PIN(tn_block_entry, dtype, 80);
    PIN(tn_block_entry, ndim, 84);
    PIN(tn_block_entry, shape, 88);
    PIN(tn_block_entry, attributes, 152);
    PIN(tn_block_entry, references, 160);
    PIN(tn_block_entry, in_messages, 164);
    PIN(tn_block_entry, in_tickets, 168);
    PIN(tn_block_entry, holder_count, 172);
    PIN(tn_block_entry, holders, 176);
    PIN(tn_block_entry, device, 184);
    PIN(tn_block_entry, store, 232);
    PIN(tn_block_entry, key, 240);
    PIN(tn_block_entry, channel, 248);
}

TN_TEST(tn_scheduler_entry_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_scheduler_entry), 1176);
    PIN(tn_scheduler_entry, block, 0);
    PIN(tn_scheduler_entry, seat, 4);
    PIN(tn_scheduler_entry, pid, 8);
    PIN(tn_scheduler_entry, name, 16);
    PIN(tn_scheduler_entry, changed_ns, 64);
    PIN(tn_scheduler_entry, info, 72);
}

TN_TEST(tn_object_entry_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_object_entry), 216);
    PIN(tn_object_entry, id, 0);
    PIN(tn_object_entry, kind, 8);
    PIN(tn_object_entry, name, 16);
    PIN(tn_object_entry, count, 64);
    PIN(tn_object_entry, capacity, 68);
    PIN(tn_object_entry, leased, 72);
    PIN(tn_object_entry, openers, 76);
    PIN(tn_object_entry, producers, 80);
    PIN(tn_object_entry, consumers, 84);
    PIN(tn_object_entry, owner_pid, 88);
    PIN(tn_object_entry, pushed, 96);
    PIN(tn_object_entry, ended, 104);
    PIN(tn_object_entry, broken, 105);
    PIN(tn_object_entry, redelivered, 108);
    PIN(tn_object_entry, owner_count, 112);
    PIN(tn_object_entry, redeliveries, 116);
    PIN(tn_object_entry, owners, 120);
    PIN(tn_object_entry, bytes, 128);
    PIN(tn_object_entry, budget_bytes, 136);
    PIN(tn_object_entry, hits, 144);
    PIN(tn_object_entry, misses, 152);
    PIN(tn_object_entry, evictions, 160);
    PIN(tn_object_entry, is_kept, 168);
    PIN(tn_object_entry, subscribers, 172);
    PIN(tn_object_entry, slowest_pid, 176);
    PIN(tn_object_entry, most_behind, 184);
    PIN(tn_object_entry, dropped, 192);
    PIN(tn_object_entry, disconnected, 200);
    PIN(tn_object_entry, policy, 208);
}

TN_TEST(tn_pool_job_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_pool_job), 40);
    PIN(tn_pool_job, id, 0);
    PIN(tn_pool_job, worker, 8);
    PIN(tn_pool_job, attempt, 12);
    PIN(tn_pool_job, message, 16);
    PIN(tn_pool_job, room, 24);
    PIN(tn_pool_job, room_bytes, 32);
}

TN_TEST(tn_pool_options_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_pool_options), 56);
    PIN(tn_pool_options, struct_size, 0);
    PIN(tn_pool_options, workers, 8);
    PIN(tn_pool_options, start, 12);
    PIN(tn_pool_options, attempts, 16);
    PIN(tn_pool_options, capacity, 20);
    PIN(tn_pool_options, inline_bytes, 24);
    PIN(tn_pool_options, reserved, 28);
    PIN(tn_pool_options, argv, 32);
    PIN(tn_pool_options, environment, 40);
    PIN(tn_pool_options, server, 48);
}

TN_TEST(tn_pool_result_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_pool_result), 368);
    PIN(tn_pool_result, struct_size, 0);
    PIN(tn_pool_result, job, 8);
    PIN(tn_pool_result, status, 16);
    PIN(tn_pool_result, pid, 20);
    PIN(tn_pool_result, worker, 24);
    PIN(tn_pool_result, attempt, 28);
    PIN(tn_pool_result, message, 32);
    PIN(tn_pool_result, detail, 112);
}

TN_TEST(tn_process_status_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_process_status), 280);
    PIN(tn_process_status, struct_size, 0);
    PIN(tn_process_status, exit_code, 8);
    PIN(tn_process_status, signal, 12);
    PIN(tn_process_status, pid, 16);
    PIN(tn_process_status, index, 20);
    PIN(tn_process_status, message, 24);
}

TN_TEST(tn_queue_options_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_queue_options), 24);
    PIN(tn_queue_options, struct_size, 0);
    PIN(tn_queue_options, capacity, 8);
    PIN(tn_queue_options, inline_bytes, 12);
    PIN(tn_queue_options, policy, 16);
    PIN(tn_queue_options, reserved, 20);
}

TN_TEST(tn_message_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_message), 80);
    PIN(tn_message, bytes, 0);
    PIN(tn_message, size_bytes, 8);
    PIN(tn_message, tensors, 16);
    PIN(tn_message, tensor_count, 24);
    PIN(tn_message, attempt, 28);
    PIN(tn_message, producer_seat, 32);
    PIN(tn_message, reserved, 36);
    PIN(tn_message, lease, 40);
    PIN(tn_message, internal, 48);
}

TN_TEST(tn_store_options_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_store_options), 24);
    PIN(tn_store_options, struct_size, 0);
    PIN(tn_store_options, capacity, 8);
    PIN(tn_store_options, flags, 12);
    PIN(tn_store_options, budget_bytes, 16);
}

TN_TEST(tn_store_put_options_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_store_put_options), 40);
    PIN(tn_store_put_options, struct_size, 0);
    PIN(tn_store_put_options, flags, 8);
    PIN(tn_store_put_options, reserved, 12);
    PIN(tn_store_put_options, if_version, 16);
    PIN(tn_store_put_options, lifetime_ns, 24);
    PIN(tn_store_put_options, deadline, 32);
}

TN_TEST(tn_store_entry_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_store_entry), 48);
    PIN(tn_store_entry, key, 0);
    PIN(tn_store_entry, version, 8);
    PIN(tn_store_entry, bytes, 16);
    PIN(tn_store_entry, left_ns, 24);
    PIN(tn_store_entry, tensors, 32);
    PIN(tn_store_entry, is_pinned, 36);
    PIN(tn_store_entry, is_promised, 37);
    PIN(tn_store_entry, maker_pid, 40);
}

TN_TEST(tn_channel_options_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_channel_options), 24);
    PIN(tn_channel_options, struct_size, 0);
    PIN(tn_channel_options, capacity, 8);
    PIN(tn_channel_options, history, 12);
    PIN(tn_channel_options, subscribers, 16);
    PIN(tn_channel_options, policy, 20);
}

TN_TEST(tn_channel_info_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_channel_info), 88);
    PIN(tn_channel_info, struct_size, 0);
    PIN(tn_channel_info, capacity, 8);
    PIN(tn_channel_info, history, 12);
    PIN(tn_channel_info, most_subscribers, 16);
    PIN(tn_channel_info, policy, 20);
    PIN(tn_channel_info, subscribers, 24);
    PIN(tn_channel_info, kept, 28);
    PIN(tn_channel_info, published, 32);
    PIN(tn_channel_info, dropped, 40);
    PIN(tn_channel_info, disconnected, 48);
    PIN(tn_channel_info, most_behind, 56);
    PIN(tn_channel_info, slowest_pid, 64);
    PIN(tn_channel_info, is_ended, 68);
    PIN(tn_channel_info, is_subscribed, 69);
    PIN(tn_channel_info, waiting, 72);
    PIN(tn_channel_info, lost, 80);
}

TN_TEST(tn_store_info_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_store_info), 104);
    PIN(tn_store_info, struct_size, 0);
    PIN(tn_store_info, capacity, 8);
    PIN(tn_store_info, flags, 12);
    PIN(tn_store_info, budget_bytes, 16);
    PIN(tn_store_info, count, 24);
    PIN(tn_store_info, reserved, 28);
    PIN(tn_store_info, bytes, 32);
    PIN(tn_store_info, version, 40);
    PIN(tn_store_info, hits, 48);
    PIN(tn_store_info, misses, 56);
    PIN(tn_store_info, puts, 64);
    PIN(tn_store_info, deletes, 72);
    PIN(tn_store_info, evictions, 80);
    PIN(tn_store_info, expirations, 88);
    PIN(tn_store_info, is_kept, 96);
}

TN_TEST(tn_tensor_options_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_tensor_options), 56);
    PIN(tn_tensor_options, struct_size, 0);
    PIN(tn_tensor_options, strategy, 8);
    PIN(tn_tensor_options, flags, 12);
    PIN(tn_tensor_options, deadline, 16);
    PIN(tn_tensor_options, source, 24);
    PIN(tn_tensor_options, source_bytes, 32);
    PIN(tn_tensor_options, device, 40);
    PIN(tn_tensor_options, stream, 48);
}

TN_TEST(tn_pool_info_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_pool_info), 32);
    PIN(tn_pool_info, struct_size, 0);
    PIN(tn_pool_info, worker_count, 8);
    PIN(tn_pool_info, job_count, 12);
    PIN(tn_pool_info, restart_count, 16);
    PIN(tn_pool_info, worker_pids, 24);
}

TN_TEST(tn_domain_info_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_domain_info), 80);
    PIN(tn_domain_info, struct_size, 0);
    PIN(tn_domain_info, name, 8);
    PIN(tn_domain_info, id, 16);
    PIN(tn_domain_info, member, 32);
    PIN(tn_domain_info, seat, 40);
    PIN(tn_domain_info, seats, 44);
    PIN(tn_domain_info, quota_bytes, 48);
    PIN(tn_domain_info, quota_limit_bytes, 56);
    PIN(tn_domain_info, watermark_bytes, 64);
    PIN(tn_domain_info, device_quota_bytes, 72);
}

TN_TEST(tn_queue_info_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_queue_info), 40);
    PIN(tn_queue_info, struct_size, 0);
    PIN(tn_queue_info, capacity, 8);
    PIN(tn_queue_info, inline_bytes, 12);
    PIN(tn_queue_info, policy, 16);
    PIN(tn_queue_info, count, 20);
    PIN(tn_queue_info, other_producers, 24);
    PIN(tn_queue_info, other_consumers, 28);
    PIN(tn_queue_info, others, 32);
    PIN(tn_queue_info, is_ended, 36);
}

TN_TEST(tn_tensor_info_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_tensor_info), 56);
    PIN(tn_tensor_info, struct_size, 0);
    PIN(tn_tensor_info, strides, 8);
    PIN(tn_tensor_info, byte_offset, 16);
    PIN(tn_tensor_info, size_bytes, 24);
    PIN(tn_tensor_info, storage_bytes, 32);
    PIN(tn_tensor_info, strategy, 40);
    PIN(tn_tensor_info, is_contiguous, 44);
    PIN(tn_tensor_info, is_shared, 45);
    PIN(tn_tensor_info, is_read_only, 46);
    PIN(tn_tensor_info, is_incomplete, 47);
    PIN(tn_tensor_info, path, 48);
}

TN_TEST(tn_peer_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_peer), 8);
    PIN(tn_peer, seat, 0);
    PIN(tn_peer, pid, 4);
}

TN_TEST(tn_task_event_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_task_event), 64);
    PIN(tn_task_event, graph, 0);
    PIN(tn_task_event, task, 8);
    PIN(tn_task_event, kind, 16);
    PIN(tn_task_event, variant, 24);
    PIN(tn_task_event, status, 28);
    PIN(tn_task_event, began_ns, 32);
    PIN(tn_task_event, ended_ns, 40);
    PIN(tn_task_event, slots, 48);
    PIN(tn_task_event, pid, 56);
}

TN_TEST(tn_sched_options_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_sched_options), 144);
    PIN(tn_sched_options, struct_size, 0);
    PIN(tn_sched_options, resources, 8);
    PIN(tn_sched_options, flags, 16);
    PIN(tn_sched_options, order, 20);
    PIN(tn_sched_options, skips, 24);
    PIN(tn_sched_options, reserved, 28);
    PIN(tn_sched_options, skew, 32);
    PIN(tn_sched_options, trace, 40);
    PIN(tn_sched_options, trace_context, 48);
    PIN(tn_sched_options, begin_work, 56);
    PIN(tn_sched_options, end_work, 64);
    PIN(tn_sched_options, work_context, 72);
    PIN(tn_sched_options, release_caches, 80);
    PIN(tn_sched_options, release_context, 88);
    PIN(tn_sched_options, domain, 96);
    PIN(tn_sched_options, name, 104);
    PIN(tn_sched_options, memories, 112);
    PIN(tn_sched_options, links, 120);
    PIN(tn_sched_options, devices, 128);
    PIN(tn_sched_options, spill, 136);
}

TN_TEST(tn_memory_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_memory), 16);
    PIN(tn_memory, resource, 0);
    PIN(tn_memory, slot, 8);
    PIN(tn_memory, reserved, 12);
}

TN_TEST(tn_memory_info_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_memory_info), 56);
    PIN(tn_memory_info, struct_size, 0);
    PIN(tn_memory_info, capacity, 8);
    PIN(tn_memory_info, used, 16);
    PIN(tn_memory_info, idle, 24);
    PIN(tn_memory_info, evictions, 32);
    PIN(tn_memory_info, arrived, 40);
    PIN(tn_memory_info, evicted, 48);
}

TN_TEST(tn_access_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_access), 16);
    PIN(tn_access, data, 0);
    PIN(tn_access, mode, 8);
    PIN(tn_access, reserved, 12);
}

TN_TEST(tn_data_options_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_data_options), 64);
    PIN(tn_data_options, struct_size, 0);
    PIN(tn_data_options, name, 8);
    PIN(tn_data_options, bytes, 16);
    PIN(tn_data_options, flags, 24);
    PIN(tn_data_options, reserved, 28);
    PIN(tn_data_options, copy, 32);
    PIN(tn_data_options, drop, 40);
    PIN(tn_data_options, context, 48);
    PIN(tn_data_options, tensor, 56);
}

TN_TEST(tn_resource_info_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_resource_info), 64);
    PIN(tn_resource_info, name, 0);
    PIN(tn_resource_info, total, 32);
    PIN(tn_resource_info, free, 40);
    PIN(tn_resource_info, busy_ns, 48);
    PIN(tn_resource_info, waiting, 56);
}

TN_TEST(tn_device_holder_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_device_holder), 88);
    PIN(tn_device_holder, seat, 0);
    PIN(tn_device_holder, pid, 4);
    PIN(tn_device_holder, command, 8);
    PIN(tn_device_holder, tensors, 72);
    PIN(tn_device_holder, bytes, 80);
}

TN_TEST(tn_device_entry_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_device_entry), 112);
    PIN(tn_device_entry, type, 0);
    PIN(tn_device_entry, objects, 4);
    PIN(tn_device_entry, uuid, 8);
    PIN(tn_device_entry, bytes, 56);
    PIN(tn_device_entry, quota_bytes, 64);
    PIN(tn_device_entry, tensors, 72);
    PIN(tn_device_entry, live_bytes, 80);
    PIN(tn_device_entry, unheld_bytes, 88);
    PIN(tn_device_entry, holder_count, 96);
    PIN(tn_device_entry, holders, 104);
}

TN_TEST(tn_device_info_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_device_info), 184);
    PIN(tn_device_info, struct_size, 0);
    PIN(tn_device_info, device, 8);
    PIN(tn_device_info, flags, 16);
    PIN(tn_device_info, driver_version, 20);
    PIN(tn_device_info, memory_bytes, 24);
    PIN(tn_device_info, uuid, 32);
    PIN(tn_device_info, uuid_text, 48);
    PIN(tn_device_info, name, 96);
    PIN(tn_device_info, pci, 160);
    PIN(tn_device_info, numa_node, 176);
    assert_int_equal(sizeof(tn_device), 8);
    PIN(tn_device, type, 0);
    PIN(tn_device, id, 4);
}

TN_TEST(tn_sched_info_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_sched_info), 1104);
    PIN(tn_sched_info, struct_size, 0);
    PIN(tn_sched_info, now_ns, 8);
    PIN(tn_sched_info, ready, 16);
    PIN(tn_sched_info, running, 20);
    PIN(tn_sched_info, threads, 24);
    PIN(tn_sched_info, resource_count, 28);
    PIN(tn_sched_info, tasks, 32);
    PIN(tn_sched_info, ended, 40);
    PIN(tn_sched_info, resources, 48);
    PIN(tn_sched_info, moved_bytes, 1072);
    PIN(tn_sched_info, evicted_bytes, 1080);
    PIN(tn_sched_info, card_bytes, 1088);
    PIN(tn_sched_info, card_capacity, 1096);
}

TN_TEST(tn_task_call_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_task_call), 56);
    PIN(tn_task_call, graph, 0);
    PIN(tn_task_call, task, 8);
    PIN(tn_task_call, context, 16);
    PIN(tn_task_call, attempt, 24);
    PIN(tn_task_call, variant, 28);
    PIN(tn_task_call, job, 32);
    PIN(tn_task_call, memory, 40);
    PIN(tn_task_call, flags, 48);
    PIN(tn_task_call, reserved, 52);
}

TN_TEST(tn_variant_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_variant), 24);
    PIN(tn_variant, run, 0);
    PIN(tn_variant, request, 8);
    PIN(tn_variant, run_ns, 16);
}

TN_TEST(tn_kind_options_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_kind_options), 64);
    PIN(tn_kind_options, struct_size, 0);
    PIN(tn_kind_options, name, 8);
    PIN(tn_kind_options, variants, 16);
    PIN(tn_kind_options, variant_count, 24);
    PIN(tn_kind_options, attempts, 28);
    PIN(tn_kind_options, affinity, 32);
    PIN(tn_kind_options, pool, 40);
    PIN(tn_kind_options, take, 48);
    PIN(tn_kind_options, flags, 56);
    PIN(tn_kind_options, reserved, 60);
}

TN_TEST(tn_task_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_task), 40);
    PIN(tn_task, kind, 0);
    PIN(tn_task, context, 8);
    PIN(tn_task, bytes, 16);
    PIN(tn_task, run_ns, 24);
    PIN(tn_task, priority, 32);
    PIN(tn_task, reserved, 36);
}

TN_TEST(tn_task_list_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_task_list), 64);
    PIN(tn_task_list, struct_size, 0);
    PIN(tn_task_list, tasks, 8);
    PIN(tn_task_list, count, 16);
    PIN(tn_task_list, input_ends, 24);
    PIN(tn_task_list, inputs, 32);
    PIN(tn_task_list, names, 40);
    PIN(tn_task_list, access_ends, 48);
    PIN(tn_task_list, accesses, 56);
}

TN_TEST(tn_graph_info_stays_as_it_is)
{
    assert_int_equal(sizeof(tn_graph_info), 64);
    PIN(tn_graph_info, struct_size, 0);
    PIN(tn_graph_info, tasks, 8);
    PIN(tn_graph_info, waiting, 16);
    PIN(tn_graph_info, ready, 24);
    PIN(tn_graph_info, running, 32);
    PIN(tn_graph_info, pending, 40);
    PIN(tn_graph_info, done, 48);
    PIN(tn_graph_info, failed, 56);
}

TN_TEST(the_numbers_of_the_headers_stay_as_they_are)
{
    assert_int_equal(TN_ATTRIBUTES_MAX_BYTES, 32768);
    assert_int_equal(TN_REQUIRES_GRAD, 1);
    assert_int_equal(TN_STOP_GRADIENT, 2);
    assert_int_equal(TN_PARAMETER, 4);
    assert_int_equal(TN_BUFFER, 8);
    assert_int_equal(TN_CONJUGATE, 16);
    assert_int_equal(TN_NEGATIVE, 32);
    assert_int_equal(TN_WAS_PINNED, 64);
    assert_int_equal(TN_LOD_MAX_LEVELS, 8);
    assert_int_equal(TN_QUANTIZER_NONE, 0);
    assert_int_equal(TN_QUANTIZER_AFFINE, 1);
    assert_int_equal(TN_QUANTIZER_AFFINE_CHANNEL, 2);
    assert_int_equal(TN_LAYOUT_STRIDED, 0);
    assert_int_equal(TN_LAYOUT_COO, 1);
    assert_int_equal(TN_LAYOUT_CSR, 2);
    assert_int_equal(TN_SPARSE_COALESCED, 1);
    assert_int_equal(TN_METADATA_MAX_KEYS, 64);
    assert_int_equal(TN_DOMAIN_NO_MANAGER, 1);
    assert_int_equal(TN_HANDLE_MAX_BYTES, 33408);
    assert_int_equal(TN_START_FORK, 0);
    assert_int_equal(TN_START_SPAWN, 1);
    assert_int_equal(TN_START_FORKSERVER, 2);
    assert_int_equal(TN_POOL_ROOM_BYTES, 4096);
    assert_int_equal(TN_PROCESS_DETACHED, 1);
    assert_int_equal(TN_FORKSERVER_MAX_BYTES, 65536);
    assert_int_equal(TN_QUEUE_REDELIVER, 0);
    assert_int_equal(TN_QUEUE_DROP, 1);
    assert_int_equal(TN_QUEUE_LEASE, 2);
    assert_int_equal(TN_PRODUCER, 1);
    assert_int_equal(TN_CONSUMER, 2);
    assert_int_equal(TN_MESSAGE_MAX_TENSORS, 1000000);
    assert_int_equal(TN_PUSH_MOVE, 1);
    assert_int_equal(TN_ORDER_AUTO, 0);
    assert_int_equal(TN_ORDER_DEPTH, 1);
    assert_int_equal(TN_ORDER_RANK, 2);
    assert_int_equal(TN_SCHED_VIRTUAL, 1);
    assert_int_equal(TN_TASK_DONE, 0);
    assert_int_equal(TN_TASK_PENDING, 1);
    assert_int_equal(TN_TASK_RETRY, 2);
    assert_int_equal(TN_VARIANTS, 4);
    assert_true(TN_TASK_OF_LIST(5) == UINT64_C(0x8000000000000005));
    assert_int_equal(TN_STRATEGY_DEFAULT, 0);
    assert_int_equal(TN_STRATEGY_ARENA, 1);
    assert_int_equal(TN_STRATEGY_FILE_DESCRIPTOR, 2);
    assert_int_equal(TN_STRATEGY_FILE_SYSTEM, 3);
    assert_int_equal(TN_TENSOR_WRITE_ONCE, 1);
    assert_int_equal(TN_SEND_READ_ONLY, 1);
    assert_int_equal(TN_SEMAPHORE_OWNED, 256);
    assert_int_equal(TN_LOCK_RECOVERED, 1);
    assert_int_equal(TN_MAX_NDIM, 32);
}

TN_TEST(the_numbers_of_errors_stay_as_they_are)
{
    assert_int_equal(TN_OK, 0);
    assert_int_equal(TN_ERR_INVALID, -1);
    assert_int_equal(TN_ERR_TIMED_OUT, -2);
    assert_int_equal(TN_ERR_UNSUPPORTED, -3);
    assert_int_equal(TN_ERR_NOT_FOUND, -4);
    assert_int_equal(TN_ERR_EXISTS, -5);
    assert_int_equal(TN_ERR_DENIED, -6);
    assert_int_equal(TN_ERR_INTERRUPTED, -7);
    assert_int_equal(TN_ERR_CLOSED, -20);
    assert_int_equal(TN_ERR_PEER_DIED, -21);
    assert_int_equal(TN_ERR_STALE, -22);
    assert_int_equal(TN_ERR_CHILD_FAILED, -23);
    assert_int_equal(TN_ERR_NO_MEMORY, -40);
    assert_int_equal(TN_ERR_FULL, -41);
    assert_int_equal(TN_ERR_SYSTEM, -42);
    assert_int_equal(TN_ERR_MANAGER, -43);
    assert_int_equal(TN_ERR_CORRUPT, -60);
    assert_int_equal(TN_ERR_VERSION, -61);
    assert_int_equal(TN_ERR_FORKED, -62);
}
