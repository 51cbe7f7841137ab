/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of children share for every start method. */
#ifndef TENON_TESTS_CHILDREN_H
#define TENON_TESTS_CHILDREN_H

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "harness/harness.h"

static const uint64_t second_ns = UINT64_C(1000000000);

/* A domain without tenond: a child must end without its help. */
static inline tn_domain *open_domain(uint32_t seats)
{
    tn_domain_options options = {.struct_size = sizeof options,
                                 .quota_bytes = 16 << 20,
                                 .seats = seats,
                                 .blocks = 1024,
                                 .flags = TN_DOMAIN_NO_MANAGER};
    return tnt_domain(&options);
}

static inline tn_forkserver *open_server(tn_domain *domain)
{
    tn_forkserver *server = NULL;
    TN_CHECK_OK(tn_forkserver_start(domain, &server));
    return server;
}

static inline tn_process *start(tn_forkserver *server, tn_process_fn *run, const void *argument,
                                size_t size_bytes)
{
    tn_process *process = NULL;
    TN_CHECK_OK(tn_forkserver_fork(server, run, argument, size_bytes, 0, &process));
    return process;
}

static inline tn_process_status await_end(tn_process *process)
{
    tn_process_status status = {.struct_size = sizeof status};
    TN_CHECK_OK(tn_process_wait(process, tnt_deadline(10000), &status));
    return status;
}

static inline int end_of(tn_process *process)
{
    int code = await_end(process).exit_code;
    tn_process_close(process);
    return code;
}

static inline void close_domain(tn_domain *domain)
{
    TN_CHECK_OK(tn_domain_reap(domain, NULL));
    TNT_AUDIT(domain);
    tn_domain_close(domain);
}

static inline int pidfd_of(pid_t pid) { return (int)syscall(434, pid, 0); } /* pidfd_open */

static inline bool ends_within(int pid_fd, int ms)
{
    struct pollfd poll_fd = {.fd = pid_fd, .events = POLLIN};
    return poll(&poll_fd, 1, ms) == 1;
}

static inline int pause_for_ever(void)
{
    while (pause() == -1) {
    }
    return 0;
}

#endif
