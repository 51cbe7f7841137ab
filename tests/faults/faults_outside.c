/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors that cross to processes outside of the domain. */
#include <sys/socket.h>
#include <unistd.h>

#include "faults.h"
#include "harness/tensor.h"

static tn_tensor *t;
static int ends[2], descriptor;
static char path[256];

static void unref_out(void) { tn_tensor_unref(*FAULTS_OUT(tn_tensor *)); }
static void make_pair(int type)
{
    faults_begin();
    t = faults_tensor_as(TN_STRATEGY_FILE_DESCRIPTOR, 0, 1000);
    TN_CHECK_OK(tn_tensor_set_name(t, "weights"));
    if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends) != 0)
        fail_msg("socketpair");
}
static void make(void) { make_pair(SOCK_SEQPACKET); }
static void make_stream(void) { make_pair(SOCK_STREAM); }
static void end(void)
{
    close(ends[0]);
    close(ends[1]);
    t = tn_tensor_unref(t);
    faults_end();
}
#define WITH_PAIR .prepare = make, .finish = end

/* ---- over a socket ----------------------------------------------------------------------- */

/* What was sent though the call failed, or twice, would be found here. */
static void receive_all(void)
{
    tn_tensor *received;
    while (tn_tensor_receive(ends[1], TN_NOW, &received) == 0)
        tn_tensor_unref(received);
}
static int send_it(void) { return tn_tensor_send(t, ends[0], 0, TN_NOW); }
static int send_read_only(void)
{
    return tn_tensor_send(t, ends[0], TN_SEND_READ_ONLY, tnt_deadline(2000));
}
FAULTS(tn_tensor_send, WITH_PAIR, .call = send_it, .undo = receive_all)
FAULTS_WHEN(tn_tensor_send, read_only_over_a_stream, .prepare = make_stream, .finish = end,
            .call = send_read_only, .undo = receive_all)

/* A packet is lost where its descriptor could not be had: the next one is as good. */
static void send_two(void)
{
    TN_CHECK_OK(send_it());
    TN_CHECK_OK(send_it());
}
static int receive(void) { return tn_tensor_receive(ends[1], TN_NOW, FAULTS_OUT(tn_tensor *)); }
static void unref_and_drain(void)
{
    unref_out();
    receive_all();
}
FAULTS(tn_tensor_receive, WITH_PAIR, .before = send_two, .call = receive,
       .undo = unref_and_drain)

static int receive_late(void)
{
    return tn_tensor_receive(ends[1], tnt_deadline(2), FAULTS_OUT(tn_tensor *));
}
FAULTS_WHEN(tn_tensor_receive, asleep, WITH_PAIR, .expected = TN_ERR_TIMED_OUT,
            .call = receive_late)

/* ---- by a descriptor --------------------------------------------------------------------- */

static int get_descriptor(void) { return tn_tensor_descriptor(t, 0, FAULTS_OUT(int)); }
static int get_read_only(void)
{
    return tn_tensor_descriptor(t, TN_SEND_READ_ONLY, FAULTS_OUT(int));
}
static void close_out(void) { close(*FAULTS_OUT(int)); }
FAULTS(tn_tensor_descriptor, WITH_PAIR, .call = get_descriptor, .undo = close_out)
FAULTS_WHEN(tn_tensor_descriptor, read_only, WITH_PAIR, .call = get_read_only,
            .undo = close_out)

static void make_descriptor(void)
{
    make();
    TN_CHECK_OK(tn_tensor_descriptor(t, 0, &descriptor));
}
static void end_descriptor(void)
{
    close(descriptor);
    end();
}
static int from_descriptor(void)
{
    return tn_tensor_from_descriptor(descriptor, FAULTS_OUT(tn_tensor *));
}
FAULTS(tn_tensor_from_descriptor, .prepare = make_descriptor, .finish = end_descriptor,
       .call = from_descriptor, .undo = unref_out)

/* ---- by a path --------------------------------------------------------------------------- */

static void make_file(void)
{
    faults_begin();
    t = faults_tensor_as(TN_STRATEGY_FILE_SYSTEM, 0, 1000);
    snprintf(path, sizeof path, "%s", tnt_info(t).path);
}
static void end_file(void)
{
    t = tn_tensor_unref(t);
    faults_end();
}
static int open_path(void) { return tn_tensor_open_path(path, FAULTS_OUT(tn_tensor *)); }
FAULTS(tn_tensor_open_path, .prepare = make_file, .finish = end_file, .call = open_path,
       .undo = unref_out)
