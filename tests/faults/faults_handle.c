/* SPDX-License-Identifier: Apache-2.0 */
/* Handles and tickets. */
#include "faults.h"
#include "share/share.h"

static tn_tensor *t;
static uint8_t handle[TN_HANDLE_MAX_BYTES];
static size_t used;
static uint64_t ticket;

static void make_tensor(void)
{
    faults_begin();
    t = faults_tensor(1000);
    TN_CHECK_OK(tn_tensor_set_name(t, "weights"));
}
static void end_tensor(void)
{
    t = tn_tensor_unref(t);
    faults_end();
}
#define WITH_TENSOR .prepare = make_tensor, .finish = end_tensor

static int export(void)
{
    return tn_handle_export(t, NULL, handle, sizeof handle, FAULTS_OUT(size_t));
}
static void revoke_now(void) { TN_CHECK_OK(tni_ticket_revoke(faults_d, ticket)); }
static void revoke_out(void)
{
    TN_CHECK_OK(tni_handle_ticket(handle, *FAULTS_OUT(size_t), &ticket));
    revoke_now();
}
FAULTS(tn_handle_export, WITH_TENSOR, .has_no_calls = true, .call = export, .undo = revoke_out)

static void export_now(void)
{
    TN_CHECK_OK(tn_handle_export(t, NULL, handle, sizeof handle, &used));
    TN_CHECK_OK(tni_handle_ticket(handle, used, &ticket));
}
static int import(void)
{
    return tn_handle_import(faults_d, handle, used, FAULTS_OUT(tn_tensor *));
}
static void unref_out(void) { tn_tensor_unref(*FAULTS_OUT(tn_tensor *)); }
FAULTS(tn_handle_import, WITH_TENSOR, .before = export_now, .call = import, .undo = unref_out)

static void export_storage(uint32_t strategy)
{
    tn_tensor *s = faults_tensor_as(strategy, 0, 1000);
    TN_CHECK_OK(tn_handle_export(s, NULL, handle, sizeof handle, &used));
    TN_CHECK_OK(tni_handle_ticket(handle, used, &ticket));
    tn_tensor_unref(s);
}
static void export_descriptor(void) { export_storage(TN_STRATEGY_FILE_DESCRIPTOR); }
static void export_file(void) { export_storage(TN_STRATEGY_FILE_SYSTEM); }
FAULTS_WHEN(tn_handle_import, with_a_descriptor_to_map, WITH_TENSOR, .searches = true,
            .before = export_descriptor, .call = import, .undo = unref_out)
FAULTS_WHEN(tn_handle_import, with_a_file_to_map, WITH_TENSOR, .before = export_file,
            .call = import, .undo = unref_out)

static int revoke_it(void) { return tn_handle_revoke(faults_d, handle, used); }
FAULTS(tn_handle_revoke, WITH_TENSOR, .has_no_calls = true, .before = export_now,
       .call = revoke_it)
FAULTS_WHEN(tn_handle_revoke, of_the_last_reference, WITH_TENSOR, .never_fails = true,
            .ends_files = true, .before = export_file, .call = revoke_it)
