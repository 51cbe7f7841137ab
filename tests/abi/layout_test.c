/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: every byte that two processes read is where this layout version has it.
 *
 * When one of these fails, the shared layout has changed: processes of the old and the new
 * library would misread each other. Undo the change, or raise TNI_LAYOUT_VERSION and put the
 * new numbers here.
 */
#include "harness/harness.h"
#include "layout/layout.h"
#include <tenon/share.h>

#define PIN(type, field, offset) assert_int_equal(offsetof(struct tni_##type, field), offset)
#define PIN_SIZE(type, size, alignment)                                                        \
    do {                                                                                       \
        assert_int_equal(sizeof(struct tni_##type), size);                                     \
        assert_int_equal(_Alignof(struct tni_##type), alignment);                              \
    } while (0)

TN_TEST(these_numbers_are_of_this_layout_version) { assert_int_equal(TNI_LAYOUT_VERSION, 10); }

TN_TEST(atomics_of_the_layout_need_no_lock)
{
    assert_true(__atomic_always_lock_free(sizeof(uint32_t), 0));
    assert_true(__atomic_always_lock_free(sizeof(uint64_t), 0));
    assert_int_equal(sizeof(_Atomic uint64_t), 8);
    assert_int_equal(sizeof(_Atomic uint32_t), 4);
}

TN_TEST(header_stays_where_it_is)
{
    PIN_SIZE(header, 448, 64);
    PIN(header, magic, 0);
    PIN(header, layout_version, 8);
    PIN(header, byte_order, 12);
    PIN(header, page_bytes, 16);
    PIN(header, must_understand, 20);
    PIN(header, may_ignore, 24);
    PIN(header, uid, 28);
    PIN(header, control_bytes, 32);
    PIN(header, arena_bytes, 40);
    PIN(header, arena_inode, 48);
    PIN(header, seats, 56);
    PIN(header, blocks, 60);
    PIN(header, objects, 64);
    PIN(header, tickets, 68);
    PIN(header, quota_limit_bytes, 72);
    PIN(header, id, 80);
    PIN(header, name, 96);
    PIN(header, created_ns, 160);
    PIN(header, creator_pid, 168);
    PIN(header, flags, 172);
    PIN(header, runtime, 176);
    PIN(header, quota_bytes, 192);
    PIN(header, watermark_bytes, 200);
    PIN(header, manager, 208);
    PIN(header, free_bytes, 216);
    PIN(header, device_quota_bytes, 232);
    PIN(header, device_slab_bytes, 240);
    PIN(header, slabs_ended, 248);
    PIN(header, memory_wait, 256);
    PIN(header, seat_limit, 260);
    PIN(header, object_limit, 264);
    PIN(header, ticket_limit, 268);
    PIN(header, timeline_limit, 272);
    PIN(header, lease_limit, 276);
    PIN(header, foreign_copies, 280);
    PIN(header, foreign_copied_bytes, 288);
    PIN(header, registry, 320);
    PIN(header, registry_wait, 328);
    PIN(header, registry_object, 332);
    PIN(header, deaths, 336);
    PIN(header, manager_starts, 344);
    PIN(header, registry_turns, 352);
    PIN(header, ring, 356);
    PIN(header, names_lost, 360);
    PIN(header, recount, 384);
    PIN(header, recounted, 392);
    PIN(header, suspects_added, 400);
    PIN(header, suspects_done, 408);
    PIN(header, objects_added, 416);
    PIN(header, objects_done, 424);
}

TN_TEST(seat_stays_where_it_is)
{
    PIN_SIZE(seat, 128, 8);
    PIN(seat, word, 0);
    PIN(seat, pid, 8);
    PIN(seat, flags, 12);
    PIN(seat, start_time, 16);
    PIN(seat, image, 24);
    PIN(seat, pid_space, 32);
    PIN(seat, joined_ns, 40);
    PIN(seat, parent, 48);
    PIN(seat, bell_number, 56);
    PIN(seat, bell, 64);
    PIN(seat, bell_fd_armed, 68);
    PIN(seat, command, 72);
    PIN(seat, reserved, 120);
}

TN_TEST(announce_stays_where_it_is)
{
    PIN_SIZE(announce, 64, 8);
    PIN(announce, block, 0);
    PIN(announce, span, 4);
    PIN(announce, commit_bytes, 8);
    PIN(announce, object, 16);
    PIN(announce, outer, 20);
    PIN(announce, reserved, 24);
}

TN_TEST(class_stays_where_it_is)
{
    PIN_SIZE(class, 64, 4);
    PIN(class, frontier, 0);
    PIN(class, sweep, 4);
    PIN(class, cursor, 8);
    PIN(class, full, 12);
    PIN(class, reserved, 16);
}

TN_TEST(desc_stays_where_it_is)
{
    PIN_SIZE(desc, 128, 8);
    PIN(desc, committed, 0);
    PIN(desc, generation, 8);
    PIN(desc, creator_seat, 12);
    PIN(desc, kind, 14);
    PIN(desc, ndim, 15);
    PIN(desc, bytes, 16);
    PIN(desc, born_ns, 24);
    PIN(desc, dtype, 32);
    PIN(desc, creator_pid, 36);
    PIN(desc, shape, 40);
    PIN(desc, attributes, 104);
    PIN(desc, flags, 108);
    PIN(desc, sent, 112);
    PIN(desc, copied, 116);
    PIN(desc, memory_end, 120);
}

TN_TEST(view_stays_where_it_is)
{
    PIN_SIZE(view, 24, 8);
    PIN(view, block, 0);
    PIN(view, generation, 4);
    PIN(view, byte_offset, 8);
    PIN(view, code, 16);
    PIN(view, bits, 17);
    PIN(view, lanes, 18);
    PIN(view, ndim, 20);
    PIN(view, flags, 21);
    PIN(view, attribute_bytes, 22);
    PIN(view, extents, 24);
}

TN_TEST(attribute_stays_where_it_is)
{
    PIN_SIZE(attribute, 8, 4);
    PIN(attribute, kind, 0);
    PIN(attribute, reserved, 2);
    PIN(attribute, bytes, 4);
    PIN_SIZE(attribute_part, 16, 8);
    PIN(attribute_part, layout, 0);
    PIN(attribute_part, flags, 4);
    PIN(attribute_part, part, 8);
    PIN(attribute_part, parts, 10);
    PIN(attribute_part, ndim, 12);
    PIN(attribute_part, extents, 16);
}

TN_TEST(backing_stays_where_it_is)
{
    PIN_SIZE(backing, 464, 8);
    PIN(backing, strategy, 0);
    PIN(backing, flags, 4);
    PIN(backing, object_bytes, 8);
    PIN(backing, data_bytes, 16);
    PIN(backing, inode, 24);
    PIN(backing, device, 32);
    PIN(backing, owner, 40);
    PIN(backing, depositary, 48);
    PIN(backing, path, 56);
    PIN(backing, device_type, 312);
    PIN(backing, device_flags, 316);
    PIN(backing, device_uuid, 320);
    PIN(backing, dirtied, 336);
    PIN(backing, settled, 344);
    PIN(backing, handle, 352);
    PIN(backing, allocation, 416);
    PIN(backing, allocation_bytes, 424);
    PIN(backing, allocation_at, 432);
    PIN(backing, data_off, 440);
    PIN(backing, buffer_id, 448);
    PIN(backing, moved, 456);
    PIN(backing, piece_count, 460);
}

#define PIN_PUBLIC(field, offset) assert_int_equal(offsetof(tn_storage_header, field), offset)
TN_TEST(storage_header_stays_where_it_is)
{
    assert_int_equal(sizeof(tn_storage_header), 1144);
    PIN_PUBLIC(magic, 0);
    PIN_PUBLIC(version, 8);
    PIN_PUBLIC(must_understand, 12);
    PIN_PUBLIC(object_bytes, 16);
    PIN_PUBLIC(data_offset, 24);
    PIN_PUBLIC(data_bytes, 32);
    PIN_PUBLIC(uid, 40);
    PIN_PUBLIC(strategy, 44);
    PIN_PUBLIC(block, 48);
    PIN_PUBLIC(generation, 52);
    PIN_PUBLIC(domain, 56);
    PIN_PUBLIC(creator_pid, 72);
    PIN_PUBLIC(flags, 76);
    PIN_PUBLIC(creator_start, 80);
    PIN_PUBLIC(pid_space, 88);
    PIN_PUBLIC(created_unix_ns, 96);
    PIN_PUBLIC(dtype_code, 104);
    PIN_PUBLIC(dtype_bits, 105);
    PIN_PUBLIC(dtype_lanes, 106);
    PIN_PUBLIC(ndim, 108);
    PIN_PUBLIC(byte_offset, 112);
    PIN_PUBLIC(shape, 120);
    PIN_PUBLIC(strides, 376);
    PIN_PUBLIC(holders, 632);
}

TN_TEST(records_stays_where_it_is)
{
    PIN_SIZE(records, 32, 8);
    PIN(records, count, 0);
    PIN(records, limit, 4);
    PIN(records, views_bytes, 8);
    PIN(records, payload_block, 12);
    PIN(records, bytes_count, 16);
    PIN(records, tensor_count, 24);
    PIN(records, reserved, 28);
    PIN(records, block, 32);
}

TN_TEST(seat_set_stays_where_it_is)
{
    PIN_SIZE(seat_set, 128, 8);
    PIN(seat_set, word, 0);
}

TN_TEST(scheduler_stays_where_it_is)
{
    PIN_SIZE(scheduler, 1152, 8);
    PIN(scheduler, made_for, 0);
    PIN(scheduler, version, 4);
    PIN(scheduler, name, 8);
    PIN(scheduler, changed_ns, 56);
    PIN(scheduler, tasks, 64);
    PIN(scheduler, ended, 72);
    PIN(scheduler, ready, 80);
    PIN(scheduler, running, 84);
    PIN(scheduler, threads, 88);
    PIN(scheduler, resource_count, 92);
    PIN(scheduler, resources, 96);
    PIN(scheduler, moved_bytes, 1120);
    PIN(scheduler, evicted_bytes, 1128);
    PIN(scheduler, card_bytes, 1136);
    PIN(scheduler, card_capacity, 1144);
}

TN_TEST(scheduler_resource_stays_where_it_is)
{
    PIN_SIZE(scheduler_resource, 64, 8);
    PIN(scheduler_resource, name, 0);
    PIN(scheduler_resource, total, 32);
    PIN(scheduler_resource, free, 40);
    PIN(scheduler_resource, busy_ns, 48);
    PIN(scheduler_resource, waiting, 56);
    PIN(scheduler_resource, reserved, 60);
}

TN_TEST(object_stays_where_it_is)
{
    PIN_SIZE(object, 1024, 64);
    PIN(object, word, 0);
    PIN(object, flags, 8);
    PIN(object, capacity, 12);
    PIN(object, slot_bytes, 16);
    PIN(object, ring, 20);
    PIN(object, name, 24);
    PIN(object, name_next, 72);
    PIN(object, redeliveries, 76);
    PIN(object, death, 128);
    PIN(object, death_pid, 152);
    PIN(object, ended, 164);
    PIN(object, unpushed, 168);
    PIN(object, head, 192);
    PIN(object, tail, 256);
    PIN(object, items, 320);
    PIN(object, room, 384);
    PIN(object, value, 448);
    PIN(object, value2, 456);
    PIN(object, suspects_added, 464);
    PIN(object, suspects_done, 468);
    PIN(object, openers, 512);
    PIN(object, producers, 640);
    PIN(object, consumers, 768);
    PIN(object, watchers, 896);
}

TN_TEST(slot_stays_where_it_is)
{
    PIN_SIZE(slot, 24, 8);
    PIN(slot, word, 0);
    PIN(slot, block, 8);
    PIN(slot, bytes_count, 12);
    PIN(slot, view_bytes, 16);
    PIN(slot, form, 18);
    PIN(slot, is_tensor, 19);
    PIN(slot, attempt, 20);
    PIN(slot, producer, 22);
    PIN(slot, data, 24);
}

TN_TEST(channel_stays_where_it_is)
{
    PIN_SIZE(channel, 192, 64);
    PIN(channel, last, 0);
    PIN(channel, released, 64);
    PIN(channel, space, 72);
    PIN(channel, dropped, 128);
    PIN(channel, disconnected, 136);
    PIN(channel, limit, 144);
    PIN_SIZE(subscriber, 128, 64);
    PIN(subscriber, cursor, 0);
    PIN(subscriber, owner, 64);
    PIN(subscriber, dropped, 72);
    PIN(subscriber, pid, 80);
    PIN_SIZE(channel_slot, 64, 64);
    PIN(channel_slot, word, 0);
    PIN(channel_slot, view, 8);
    assert_true(tni_channel_word(UINT64_C(0x700000009), 5) == UINT64_C(0x900000005));
}

TN_TEST(store_change_stays_where_it_is)
{
    PIN_SIZE(store_change, 32, 8);
    PIN(store_change, version, 0);
    PIN(store_change, key, 8);
}

TN_TEST(store_stays_where_it_is)
{
    PIN_SIZE(store, 8704, 64);
    PIN(store, version, 0);
    PIN(store, epoch, 8);
    PIN(store, is_settled, 12);
    PIN(store, free, 16);
    PIN(store, count, 20);
    PIN(store, bytes, 24);
    PIN(store, expires_ns, 32);
    PIN(store, puts, 40);
    PIN(store, deletes, 48);
    PIN(store, evictions, 56);
    PIN(store, expirations, 64);
    PIN(store, clock, 128);
    PIN(store, hits, 192);
    PIN(store, misses, 200);
    PIN(store, victims_used, 256);
    PIN(store, victim_count, 264);
    PIN(store, victims, 268);
    PIN(store, changes, 512);
}

TN_TEST(store_entry_stays_where_it_is)
{
    PIN_SIZE(store_entry, 32, 8);
    PIN(store_entry, word, 0);
    PIN(store_entry, hash, 8);
    PIN(store_entry, used, 16);
    PIN(store_entry, next, 24);
    PIN(store_entry, flags, 28);
}

TN_TEST(store_item_stays_where_it_is)
{
    PIN_SIZE(store_item, 48, 8);
    PIN(store_item, version, 0);
    PIN(store_item, expires_ns, 8);
    PIN(store_item, bytes, 16);
    PIN(store_item, maker, 24);
    PIN(store_item, key_bytes, 32);
    PIN(store_item, maker_pid, 36);
    PIN(store_item, tensors, 40);
    PIN(store_item, reserved, 44);
}

TN_TEST(a_lease_has_these_fields)
{
    PIN_SIZE(lease, 32, 8);
    PIN(lease, holder, 0);
    PIN(lease, maker, 8);
    PIN(lease, allocation, 16);
    PIN(lease, wanted, 24);
    assert_true(TNI_LEASE_OVER == UINT64_MAX);
    assert_int_equal(TNI_MOVING, 1);
    assert_int_equal(TNI_MOVED, 2);
}

TN_TEST(timeline_stays_where_it_is)
{
    PIN_SIZE(timeline, 128, 8);
    PIN(timeline, owner, 0);
    PIN(timeline, issued, 8);
    PIN(timeline, losses, 16);
    PIN(timeline, reserved, 20);
    PIN(timeline, lost, 24);
    PIN(timeline, reserved2, 120);
    PIN_SIZE(loss, 24, 8);
    PIN(loss, to, 0);
    PIN(loss, from, 8);
    PIN(loss, pid, 16);
    PIN(loss, seat, 20);
    assert_int_equal(TNI_TIMELINES, 512);
    assert_int_equal(TNI_LEASES, 4096);
    assert_int_equal(TNI_LOSSES, 4);
}

TN_TEST(ticket_stays_where_it_is)
{
    PIN_SIZE(ticket, 64, 8);
    PIN(ticket, word, 0);
    PIN(ticket, block, 8);
    PIN(ticket, generation, 12);
    PIN(ticket, expires_ns, 16);
    PIN(ticket, issuer, 24);
    PIN(ticket, issuer_pid, 32);
    PIN(ticket, reserved, 36);
}

TN_TEST(the_words_of_the_layout_stay_as_they_are)
{
    assert_int_equal(TNI_MAGIC, UINT64_C(0x314E4F4E4554));
    assert_int_equal(TNI_THREADS, 32);
    assert_int_equal(TNI_CLASSES, 80);
    assert_int_equal(TNI_NO_SEAT, 0xffff);
    assert_int_equal(TNI_MESSAGE_CLASSES, 5);
    assert_int_equal(TNI_BACKING_CLASS, 6);
    assert_int_equal(TNI_SMALL_CLASS, 7);
    assert_int_equal(TNI_STORE_CHANGES, 256);
    assert_int_equal(TNI_STORE_CHANGE_BYTES, 23);
    assert_int_equal(TNI_STORE_VICTIMS, 60);
    assert_int_equal(TNI_STORE_PINNED, 1);
    const int seat[] = {TNI_SEAT_FREE, TNI_SEAT_JOINING, TNI_SEAT_ALIVE, TNI_SEAT_LEAVING,
                        TNI_SEAT_REAPING};
    const int slot[] = {TNI_SLOT_EMPTY, TNI_SLOT_CLAIMED, TNI_SLOT_FULL,
                        TNI_SLOT_TAKEN, TNI_SLOT_LEASED,  TNI_SLOT_RETURNING};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(seat[i], i);
        assert_int_equal(slot[i], i);
    }
    const int ticket[] = {TNI_TICKET_FREE, TNI_TICKET_MAKING,  TNI_TICKET_LIVE,
                          TNI_TICKET_USED, TNI_TICKET_REVOKED, TNI_TICKET_EXPIRED};
    for (int i = 0; i < 6; i++)
        assert_int_equal(ticket[i], i);
    const int kind[] = {TNI_OBJECT_FREE,      TNI_OBJECT_QUEUE, TNI_OBJECT_EVENT,
                        TNI_OBJECT_SEMAPHORE, TNI_OBJECT_LOCK,  TNI_OBJECT_CONDITION,
                        TNI_OBJECT_BARRIER,   TNI_OBJECT_STORE, TNI_OBJECT_CHANNEL};
    for (int i = 0; i < TNI_OBJECT_KINDS; i++)
        assert_int_equal(kind[i], i);
    assert_int_equal(tni_who(3, 5), UINT64_C(0x0000000500030001));
    assert_int_equal(tni_block_make(7, 9).id, 0x07000009);
}

/* ---- where everything lies --------------------------------------------------------------- */

struct place {
    struct tni_limits limits;
    uint32_t page_bytes, class_count, total_blocks;
    uint64_t seats_off, announces_off, classes_off, words_off, descs_off, hints_off,
        suspects_off;
    uint64_t rows_off, row_bytes, objects_off, tickets_off, names_off, opens_off, loose_off,
        issues_off, opens_bytes, issues_bytes, values_off, timelines_off, leases_off,
        control_bytes, arena_bytes;
};

static const struct place places[] = {
    {{1, 1, 1, 1, 1 << 20},
     4096,
     49,
     3072,
     4096,
     8192,
     12288,
     20480,
     45056,
     438272,
     442368,
     450560,
     4096,
     454656,
     458752,
     462848,
     466944,
     471040,
     475136,
     192,
     192,
     479232,
     483328,
     548864,
     679936,
     56623104},
    {{256, 65536, 1024, 4096, UINT64_C(4) << 30},
     4096,
     61,
     2673664,
     4096,
     36864,
     561152,
     569344,
     21958656,
     364187648,
     364523520,
     365195264,
     335872,
     451178496,
     452227072,
     452489216,
     452493312,
     452558848,
     452562944,
     256,
     192,
     452612096,
     452616192,
     452681728,
     452812800,
     177127555072},
    {{1024, 1 << 20, 65536, 1 << 20, UINT64_C(1) << 40},
     65536,
     69,
     39879872,
     65536,
     196608,
     2293760,
     2359296,
     321454080,
     5426118656,
     5431164928,
     5441257472,
     5046272,
     10608640000,
     10675748864,
     10742857728,
     10743119872,
     10751639552,
     10751705088,
     8320,
     2176,
     10753933312,
     10753998848,
     10754064384,
     10754195456,
     51211881414656},
};

TN_TEST(equal_numbers_put_every_section_where_this_version_has_it)
{
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        const struct place *p = &places[i];
        struct tni_geometry g;
        TN_CHECK_OK(tni_geometry_init(&p->limits, p->page_bytes, &g));
        assert_int_equal(g.class_count, p->class_count);
        assert_int_equal(g.total_blocks, p->total_blocks);
        assert_int_equal(g.seats_off, p->seats_off);
        assert_int_equal(g.announces_off, p->announces_off);
        assert_int_equal(g.classes_off, p->classes_off);
        assert_int_equal(g.words_off, p->words_off);
        assert_int_equal(g.descs_off, p->descs_off);
        assert_int_equal(g.hints_off, p->hints_off);
        assert_int_equal(g.suspects_off, p->suspects_off);
        assert_int_equal(g.rows_off, p->rows_off);
        assert_int_equal(g.row_bytes, p->row_bytes);
        assert_int_equal(g.objects_off, p->objects_off);
        assert_int_equal(g.tickets_off, p->tickets_off);
        assert_int_equal(g.names_off, p->names_off);
        assert_int_equal(g.opens_off, p->opens_off);
        assert_int_equal(g.loose_off, p->loose_off);
        assert_int_equal(g.issues_off, p->issues_off);
        assert_int_equal(g.opens_bytes, p->opens_bytes);
        assert_int_equal(g.issues_bytes, p->issues_bytes);
        assert_int_equal(g.values_off, p->values_off);
        assert_int_equal(g.timelines_off, p->timelines_off);
        assert_int_equal(g.leases_off, p->leases_off);
        assert_int_equal(g.control_bytes, p->control_bytes);
        assert_int_equal(g.arena_bytes, p->arena_bytes);
    }
}

/* A class: {size, offset in the arena, blocks, base, span}, every fifth one and the last. */
static const uint64_t classes[][6] = {
    {1, 1024, 0, 65536, 0, 64},
    {6, 512, 22085107712, 65536, 215168, 128},
    {11, 384, 22160605184, 65536, 542848, 512},
    {16, 2048, 22437429248, 65536, 870528, 32},
    {21, 32768, 24652021760, 65536, 1198208, 2},
    {26, 1048576, 56868470784, 8193, 1444096, 1},
    {31, 33554432, 99851698176, 257, 1460288, 1},
    {38, 4294967296, 164242653184, 3, 1461184, 1},
};

TN_TEST(blocks_of_equal_numbers_lie_where_this_version_puts_them)
{
    struct tni_geometry g;
    TN_CHECK_OK(tni_geometry_init(&places[1].limits, places[1].page_bytes, &g));
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        const struct tni_class_geometry *c = &g.classes[classes[i][0]];
        assert_int_equal(c->size_bytes, classes[i][1]);
        assert_int_equal(c->arena_off, classes[i][2]);
        assert_int_equal(c->capacity, classes[i][3]);
        assert_int_equal(c->base, classes[i][4]);
        assert_int_equal(c->span, classes[i][5]);
    }
}
