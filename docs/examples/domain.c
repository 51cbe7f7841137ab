/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of tenon/domain.h. */
#undef NDEBUG
#include "must.h"

#include <assert.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

static void open_and_look(const char *program, const char *name)
{
    /* show: tn_domain_open tn_domain_close */
    tn_domain *domain;
    must(tn_domain_open(name,
                        TN_OPTIONS(tn_domain_options, .quota_bytes = 1u << 30, .seats = 32),
                        TN_OPEN_NEW, &domain));
    domain = tn_domain_close(domain); /* NULL */
    /* end */
    must(tn_domain_open(NULL, NULL, 0, &domain));

    /* show: tn_domain_get_info tn_domain_has_member */
    tn_domain_info info = {.struct_size = sizeof info};
    must(tn_domain_get_info(domain, &info));
    printf("seat %u of %u in the domain '%s'\n", info.seat, info.seats, info.name);
    assert(tn_domain_has_member(domain, info.member)); /* any member may ask this */
    /* end */

    /* show: tn_domain_pass */
    pid_t pid = fork(); /* tn_process_exec() does all this */
    if (pid == 0) {
        char value[64];
        must(tn_domain_pass(domain, value, sizeof value));
        setenv("TENON_DOMAIN", value, 1);
        execl(program, program, "child", (char *)NULL);
        _exit(127);
    }
    /* end */
    int status;
    assert(waitpid(pid, &status, 0) == pid && status == 0);
    tn_domain_close(domain);
}

static int child(void)
{
    /* show: tn_domain_inherit */
    tn_domain *domain; /* in the program that was started */
    must(tn_domain_inherit(&domain));
    /* end */
    tn_domain_close(domain);
    return 0;
}

static void limit_memory(tn_domain *domain)
{
    /* show: tn_domain_set_quota tn_domain_set_watermark tn_domain_trim */
    uint64_t freed;
    must(tn_domain_set_quota(domain, 512u << 20));    /* for all members */
    must(tn_domain_set_watermark(domain, 64u << 20)); /* keep at most 64 MiB of free memory */
    must(tn_domain_trim(domain, 0, &freed));          /* and none just now */
    /* end */
    /* show: tn_domain_set_device_quota */
    must(tn_domain_set_device_quota(domain, UINT64_C(8) << 30)); /* on each device */
    /* end */
}

static void reclaim(tn_domain *domain)
{
    /* show: tn_domain_reap */
    uint32_t reaped;
    int status = tn_domain_reap(domain, &reaped);
    if (status == TN_ERR_TIMED_OUT)
        printf("a member is stopped in the middle of a call: try again later\n");
    else
        must(status);
    /* end */
}

/* show: tn_domain_poll_fd tn_domain_poll_clear */
static void drain(tn_queue *queue)
{
    tn_message message;
    while (tn_queue_pop(queue, TN_NOW, &message) == 0)
        tn_message_fini(&message);
}

static struct pollfd begin(tn_domain *domain, tn_queue *queue)
{
    struct pollfd polled = {.events = POLLIN};
    must(tn_domain_poll_fd(domain, &polled.fd));
    must(tn_object_watch(queue, true));
    drain(queue); /* what was pushed before does not make the descriptor readable */
    return polled;
}

static void wait_with_poll(tn_domain *domain, tn_queue *queue, struct pollfd *polled)
{
    poll(polled, 1, -1); /* beside sockets and timers of the program */
    tn_domain_poll_clear(domain);
    drain(queue);
}
/* end */

int main(int argc, char **argv)
{
    if (argc > 1)
        return child();
    open_and_look(argv[0], "example-domain");
    tn_domain *domain;
    tn_queue *queue;
    must(tn_domain_open(NULL, NULL, 0, &domain));
    limit_memory(domain);
    reclaim(domain);
    must(tn_queue_open(domain, NULL, NULL, 0, &queue));
    struct pollfd polled = begin(domain, queue);
    must(tn_queue_push(queue, &(tn_message){.bytes = "hello", .size_bytes = 5}, 0, TN_NOW));
    wait_with_poll(domain, queue, &polled);
    tn_object_close(queue);
    tn_domain_close(domain);
    return 0;
}
