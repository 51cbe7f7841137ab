/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pass: writes and reads environment variables that tell an exec'ed program its domain and its
 * parent.
 *
 *   TENON_DOMAIN=<control descriptor>,<arena descriptor>    decimal
 *   TENON_PARENT=<who>,<pid>                                hexadecimal tni_who(), decimal pid
 *
 * A child compares <pid> with the pid of its parent. In a grandchild that inherited the
 * environment, the two pids differ.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "process/process.h"

enum { LAST_STREAM = 2 }; /* standard error */

int tni_process_write_pass(const struct tn_domain *d, char *value, size_t size_bytes)
{
    int status = tni_segment_check_descriptors(&d->segment);
    if (status != 0)
        return status;
    int len = snprintf(value, size_bytes, "%d,%d", d->segment.control_fd, d->segment.arena_fd);
    if (len > 0 && (size_t)len < size_bytes)
        return 0;
    return tni_fail(TN_ERR_INVALID,
                    "the value of " TNI_DOMAIN_VARIABLE " does not fit in %zu bytes",
                    size_bytes);
}

int tni_process_pass(struct tn_domain *d, char *value, size_t size_bytes)
{
    int status = tni_process_write_pass(d, value, size_bytes);
    if (status == 0)
        status = tni_os_keep_on_exec(d->segment.control_fd);
    if (status == 0)
        status = tni_os_keep_on_exec(d->segment.arena_fd);
    return status;
}

/*
 * Parse a number of digits only, without sign and space, at most INT32_MAX.
 * @return the text behind the digits; NULL: the text is malformed
 */
static const char *parse_descriptor(const char *text, int *ret_fd)
{
    int64_t number = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9' && number <= INT32_MAX; at++)
        number = number * 10 + (*at - '0');
    if (at == text || number > INT32_MAX)
        return NULL;
    *ret_fd = (int)number;
    return at;
}

int tni_process_parse_pass(const char *value, int *ret_control_fd, int *ret_arena_fd)
{
    int control_fd = -1, arena_fd = -1;
    if (value == NULL)
        return tni_fail(TN_ERR_NOT_FOUND, TNI_DOMAIN_VARIABLE " is not set");
    const char *at = parse_descriptor(value, &control_fd);
    if (at != NULL && *at == ',')
        at = parse_descriptor(at + 1, &arena_fd);
    else
        at = NULL;
    bool is_two = at != NULL && *at == '\0' && control_fd != arena_fd;
    if (is_two && TNI_MIN(control_fd, arena_fd) <= LAST_STREAM)
        return tni_fail(TN_ERR_CORRUPT,
                        TNI_DOMAIN_VARIABLE "='%.40s' names a standard stream, 0 to 2", value);
    if (!is_two)
        return tni_fail(TN_ERR_CORRUPT,
                        TNI_DOMAIN_VARIABLE "='%.40s' does not name two descriptors", value);
    *ret_control_fd = control_fd;
    *ret_arena_fd = arena_fd;
    return 0;
}

int tni_process_write_parent(const struct tn_domain *d, char *value, size_t size_bytes)
{
    int len = snprintf(value, size_bytes, "%" PRIx64 ",%" PRId32, d->who, tni_os_pid());
    if (len > 0 && (size_t)len < size_bytes)
        return 0;
    return tni_fail(TN_ERR_INVALID,
                    "the value of " TNI_PARENT_VARIABLE " does not fit in %zu bytes",
                    size_bytes);
}

int tni_process_bind_to_parent(struct tn_domain *d, uint64_t parent)
{
    atomic_store(&d->me->parent, parent);
    atomic_fetch_or(&d->me->flags, TNI_SEAT_ENDS_WITH_PARENT);
    TNI_KILL_POINT("process_bound_to_parent");
    /*
     * Check the parent after setting the flag: either the process that reclaims the parent sees
     * the flag, or this process sees that the parent has ended.
     */
    if (tni_process_who_runs(&d->segment, parent))
        return 0;
    return tni_fail(TN_ERR_PEER_DIED, "the process that started this one, seat %u, has ended",
                    tni_who_seat(parent));
}

int tni_process_inherit_parent(struct tn_domain *d)
{
    const char *value = tni_os_environment(TNI_PARENT_VARIABLE);
    uint64_t who = 0;
    int32_t pid = 0;
    if (value == NULL || value[0] == '\0')
        return 0;
    if (sscanf(value, "%" SCNx64 ",%" SCNd32, &who, &pid) != 2)
        return tni_fail(TN_ERR_CORRUPT, TNI_PARENT_VARIABLE "='%.40s' does not name a process",
                        value);
    if (pid != tni_os_parent_pid() && tni_process_who_runs(&d->segment, who))
        return 0; /* a grandchild that inherited its parent's environment */
    int status = tni_process_bind_to_parent(d, who);
    if (status == 0)
        tni_os_die_with_process(pid);
    return status;
}
