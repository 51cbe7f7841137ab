/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: the bytes that go between processes outside of the shared layout. Members of one
 * version meet a tenond of another, and a handle may lie in a file for a while.
 */
#include <string.h>

#include "harness/harness.h"
#include "reaper/reaper.h"
#include "spawn/pool.h"

#define PIN(type, field, offset) assert_int_equal(offsetof(struct type, field), offset)

TN_TEST(a_request_to_tenond_stays_as_it_is)
{
    assert_int_equal(TNI_REQUEST_MAGIC, 0x74656e6f);
    assert_int_equal(TNI_REQUEST_VERSION, 2);
    assert_int_equal(sizeof(struct tni_request), 88);
    PIN(tni_request, magic, 0);
    PIN(tni_request, version, 4);
    PIN(tni_request, verb, 8);
    PIN(tni_request, block, 12);
    PIN(tni_request, generation, 16);
    PIN(tni_request, reserved, 20);
    PIN(tni_request, name, 24);
    const int verbs[] = {TNI_REQUEST_REGISTER, TNI_REQUEST_FIND, TNI_REQUEST_GC,
                         TNI_REQUEST_DEPOSIT, TNI_REQUEST_FETCH};
    for (int i = 0; i < 5; i++)
        assert_int_equal(verbs[i], i + 1);
    assert_string_equal(TNI_MANAGER_SOCKET, "tenond-10.2.sock");
    assert_string_equal(TNI_MANAGER_LOCK, "tenond-10.2.lock");
    assert_string_equal(TNI_VAULT_SOCKET, "vault-10.2.sock");
}

TN_TEST(a_reply_of_tenond_stays_as_it_is_in_every_version)
{
    assert_int_equal(sizeof(struct tni_reply), 16);
    PIN(tni_reply, magic, 0);
    PIN(tni_reply, status, 4);
    PIN(tni_reply, pid, 8);
    PIN(tni_reply, limit, 12);
}

TN_TEST(what_a_pool_and_its_workers_tell_each_other_stays_as_it_is)
{
    assert_int_equal(sizeof(struct tni_pool_job_head), 16);
    PIN(tni_pool_job_head, job, 0);
    assert_int_equal(sizeof(struct tni_pool_result_head), 32);
    PIN(tni_pool_result_head, job, 0);
    PIN(tni_pool_result_head, status, 8);
    PIN(tni_pool_result_head, pid, 12);
    PIN(tni_pool_result_head, worker, 16);
    PIN(tni_pool_result_head, attempt, 20);
    PIN(tni_pool_result_head, kind, 24);
    PIN(tni_pool_result_head, detail_bytes, 28);
    assert_int_equal(TNI_POOL_ROW_JOB, 0);
    assert_int_equal(TNI_POOL_ROW_BEGUN, 1);
    assert_int_equal(TNI_POOL_ROW, 8);
    assert_string_equal(TNI_POOL_VARIABLE, "TENON_POOL");
    assert_string_equal(TNI_DOMAIN_VARIABLE, "TENON_DOMAIN");
    assert_string_equal(TNI_PARENT_VARIABLE, "TENON_PARENT");
    assert_string_equal(TNI_MESSAGE_VARIABLE, "TENON_MESSAGE_FD");
}

/* The first ticket of a domain, for its first block of 64 bytes; but for the domain's id. */
TN_TEST(a_handle_is_written_as_it_always_was)
{
    static const uint8_t head[] = {'T', 'E', 'N', 'O', 'N', 'H', 'D', 'L',
                                   1,   0,   48,  0,   0,   0,   0,   0};
    static const uint8_t rest[] = {
        1, 0,  0, 0, 0,  0, 0, 0, /* generation of the ticket */
        0, 0,  0, 0, 40, 0, 1, 0, /* its index, bytes of the view, strategy */
        0, 0,  0, 7, 1,  0, 0, 0, /* block, and its generation */
        0, 0,  0, 0, 0,  0, 0, 0, /* byte offset */
        0, 16, 1, 0, 2,  1, 0, 0, /* int16, 1 lane, 2 axes, row by row, no attributes */
        3, 0,  0, 0, 0,  0, 0, 0, /* shape */
        2, 0,  0, 0, 0,  0, 0, 0};
    static const tn_domain_options options = {.struct_size = sizeof options,
                                              .flags = TN_DOMAIN_NO_MANAGER};
    tn_domain *domain = tnt_domain(&options);
    uint8_t bytes[TN_HANDLE_MAX_BYTES];
    uint64_t hash;
    size_t used;
    tn_tensor *tensor;
    TN_CHECK_OK(tn_tensor_create(domain, TN_INT16, 2, (int64_t[]){3, 2},
                                 TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED),
                                 &tensor));
    TN_CHECK_OK(tn_handle_export(tensor, NULL, bytes, sizeof bytes, &used));
    tn_tensor_unref(tensor);

    assert_int_equal(used, 96);
    assert_memory_equal(bytes, head, sizeof head);
    assert_memory_equal(bytes + 16, domain->segment.header->id, 16);
    assert_memory_equal(bytes + 32, rest, sizeof rest);
    memcpy(&hash, bytes + 88, sizeof hash);
    assert_int_equal(hash, tni_hash(bytes, 88));
    TN_CHECK_OK(tn_handle_import(domain, bytes, used, &tensor));
    tn_tensor_unref(tensor);
    tn_domain_close(domain);
}

TN_TEST(a_hash_is_what_it_always_was)
{
    assert_int_equal(tni_hash("", 0), UINT64_C(0xcbf29ce484222325));
    assert_int_equal(tni_hash("foobar", 6), UINT64_C(0x85944171f73967e8));
}
