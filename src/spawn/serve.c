/* SPDX-License-Identifier: Apache-2.0 */
/* serve: the main loop of a fork server, which forks on request. Invariants: server.c. */
#include <stdlib.h>
#include <string.h>

#include "spawn/serve.h"

static bool is_withdrawn(const struct tni_place *place, uint64_t number)
{
    return atomic_load(&place->claim) == tni_claim_word(number, TNI_CLAIM_WITHDRAWN);
}

/*
 * In the child: claim the request. If the word names a later request, this request was not
 * withdrawn, because a withdrawn request stays in flight while its child lives. So its asker
 * has the pid of this child already, and the child may run the function.
 * @return whether the child runs the function
 */
static bool take_claim(struct tni_place *place, uint64_t number)
{
    uint64_t word = tni_claim_word(number, TNI_CLAIM_OPEN);
    return atomic_compare_exchange_strong(&place->claim, &word,
                                          tni_claim_word(number, TNI_CLAIM_TAKEN)) ||
           word != tni_claim_word(number, TNI_CLAIM_WITHDRAWN);
}

/* Send an answer. @return whether the parent can still read answers */
static bool give_answer(int fd, uint64_t number, int status)
{
    struct tni_fork_answer answer = {.number = number, .status = status};
    if (status < 0)
        strncpy(answer.text, tn_error_detail(), sizeof answer.text - 1);
    return tni_os_send(fd, &answer, sizeof answer, NULL, 0) == 0;
}

static int check_request(const struct tni_fork_request *request, size_t got, uint32_t fd_count)
{
    if (got >= sizeof *request && request->magic == TNI_FORK_MAGIC &&
        request->verb == TNI_VERB_FORK && fd_count == 1 && request->run != NULL &&
        request->size_bytes == got - sizeof *request)
        return 0;
    return tni_fail(TN_ERR_CORRUPT, "the fork server received an invalid request of %zu bytes",
                    got);
}

/* Fork for one request. @return the child's pid, or TN_ERR_* */
static int fork_one(struct tn_domain *domain, const struct tni_service *service,
                    struct tni_fork_request *request, int message_fd)
{
    struct tni_place *place = service->place;
    if (is_withdrawn(place, request->number))
        return tni_fail(TN_ERR_INTERRUPTED, "the caller of the request gave up");
    int pid = tni_os_fork_sibling(&place->forked);
    if (pid == 0) {
        if (!take_claim(place, request->number))
            tni_os_exit(1);
        TNI_KILL_POINT("forkserver_claimed");
        tni_os_unmap(place, sizeof *place);
        tni_os_close(service->socket_fd);
        tni_os_signals_restore();
        tni_child_run(domain, request->run, request + 1, request->flags, &service->origin,
                      message_fd);
    }
    TNI_KILL_POINT("forkserver_forked");
    return pid;
}

int tni_serve(struct tn_domain *domain, void *argument)
{
    const struct tni_service *service = argument;
    int fd = service->socket_fd;
    struct tni_fork_request *request = malloc(sizeof *request + TN_FORKSERVER_MAX_BYTES);
    if (request == NULL)
        return 1;
    tni_os_signals_serve();
    for (bool is_read = true; is_read;) {
        int message_fd = -1;
        uint32_t fd_count = 0;
        request->magic = 0;
        int got = tni_os_receive(
            fd,
            &(struct tni_os_buffer){request, sizeof *request + TN_FORKSERVER_MAX_BYTES,
                                    &message_fd, 1},
            TNI_FOREVER, &fd_count);
        if (got == 0 || (got == (int)sizeof *request && request->verb == TNI_VERB_END))
            break;
        int status = got < 0 ? got : check_request(request, (size_t)got, fd_count);
        if (status == 0)
            status = fork_one(domain, service, request, message_fd);
        tni_os_close(fd_count == 1 ? message_fd : -1); /* I2 */
        /* A request whose descriptor is missing fails, but its number is known. */
        bool is_known = request->magic == TNI_FORK_MAGIC;
        is_read = give_answer(fd, is_known ? request->number : 0, status);
    }
    free(request);
    return 0;
}
