/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of tenon/status.h. */
#undef NDEBUG
#include "must.h"

#include <assert.h>
#include <signal.h>

/* show: tn_status_name tn_status_sentence tn_error_detail */
static void report(int status)
{
    /* TN_ERR_NOT_FOUND (nothing has this name or number): no object is called frames */
    fprintf(stderr, "%s (%s): %s\n", tn_status_name(status), tn_status_sentence(status),
            tn_error_detail());
}
/* end */

/* show: tn_log_set */
static void print_line(int level, const char *line, void *file)
{
    fprintf(file, "tenon, level %d: %s\n", level, line);
}

static void begin_logging(void) { tn_log_set(print_line, stderr); }
/* end */

/* show: tn_interrupt_set */
static volatile sig_atomic_t was_asked_to_stop;

static void remember(int signal)
{
    (void)signal;
    was_asked_to_stop = 1; /* a handler calls nothing of tenon */
}

static int check(void *context)
{
    (void)context;
    return was_asked_to_stop; /* not 0 ends waits with TN_ERR_INTERRUPTED */
}

static void begin_answering(void)
{
    signal(SIGTERM, remember);
    tn_interrupt_set(check, NULL);
}
/* end */

static int die(tn_domain *domain, void *queue)
{
    (void)domain;
    must(tn_queue_attach(queue, TN_PRODUCER));
    return raise(SIGKILL);
}

int main(void)
{
    tn_domain *domain;
    tn_queue *queue;
    tn_process *process;
    tn_message message;
    begin_logging();
    tn_log_set(NULL, NULL);
    begin_answering();
    must(tn_domain_open(NULL, NULL, 0, &domain));
    must(tn_queue_open(domain, "frames", NULL, 0, &queue));
    must(tn_process_fork(domain, die, queue, 0, &process));

    /* show: tn_error_peer */
    int status = tn_queue_pop(queue, TN_FOREVER, &message);
    if (status == TN_ERR_PEER_DIED)
        printf("process %d died\n", tn_error_peer().pid);
    /* end */
    assert(status == TN_ERR_PEER_DIED);
    raise(SIGTERM);
    status = tn_queue_pop(queue, TN_FOREVER, &message);
    assert(status == TN_ERR_INTERRUPTED);
    report(status);
    tn_process_close(process);
    tn_object_close(queue);
    tn_domain_close(domain);
    return 0;
}
