/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of tenon/process.h. */
#undef NDEBUG
#include "must.h"

#include <assert.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* show: tn_process_fork tn_process_wait tn_process_close */
static int work(tn_domain *domain, void *argument)
{
    (void)domain; /* valid here: the child is a member */
    return *(const int *)argument;
}

static void fork_one(tn_domain *domain)
{
    int code = 7;
    tn_process *process;
    tn_process_status status = {.struct_size = sizeof status};
    must(tn_process_fork(domain, work, &code, 0, &process));
    must(tn_process_wait(process, TN_FOREVER, &status));
    printf("pid %d ended with %d\n", status.pid, status.exit_code);
    process = tn_process_close(process); /* NULL; kills the child if it still runs */
}
/* end */

static int sleep_long(tn_domain *domain, void *argument)
{
    (void)domain, (void)argument;
    while (pause() < 0)
        continue;
    return 0;
}

static void kill_one(tn_domain *domain)
{
    tn_process *process;
    tn_process_status status = {.struct_size = sizeof status};
    must(tn_process_fork(domain, sleep_long, NULL, 0, &process));
    /* show: tn_process_pid tn_process_kill */
    printf("ending %d\n", tn_process_pid(process));
    must(tn_process_kill(process, SIGTERM));
    must(tn_process_wait(process, TN_FOREVER, &status));
    assert(status.exit_code == -1 && status.signal == SIGTERM);
    /* end */
    tn_process_close(process);
}

/* show: tn_process_fail */
static int fail(tn_domain *domain, void *argument)
{
    (void)domain, (void)argument;
    tn_process_fail("cannot read the camera"); /* exits with code 1 */
}
/* end */

static void run_program(tn_domain *domain, const char *program)
{
    tn_process_status status = {.struct_size = sizeof status};
    /* show: tn_process_exec */
    tn_process *process;
    must(tn_process_exec(domain, (const char *[]){program, "camera", NULL},
                         (const char *[]){"CAMERA=1", NULL}, 0, &process));
    /* The program calls tn_domain_inherit(). */
    /* end */
    must(tn_process_wait(process, TN_FOREVER, &status));
    assert(status.exit_code == 0);
    tn_process_close(process);
}

static int be_program(void)
{
    tn_domain *domain;
    must(tn_domain_inherit(&domain));
    pid_t parent = getppid();
    /* show: tn_process_follow */
    must(tn_process_follow(domain, parent)); /* this process ends when that member ends */
    /* end */
    tn_domain_close(domain);
    return strcmp(getenv("CAMERA"), "1");
}

static void use_server(tn_domain *domain)
{
    tn_process_status status = {.struct_size = sizeof status};
    /* show: tn_forkserver_start tn_forkserver_fork tn_forkserver_pid tn_forkserver_close */
    tn_forkserver *server; /* early in main(), before threads and large memory */
    tn_process *process;
    must(tn_forkserver_start(domain, &server));
    printf("pid %d forks for us\n", tn_forkserver_pid(server));

    int code = 3; /* the child gets a copy */
    must(tn_forkserver_fork(server, work, &code, sizeof code, 0, &process));
    must(tn_process_wait(process, TN_FOREVER, &status));
    server = tn_forkserver_close(server);
    /* end */
    assert(status.exit_code == 3);
    tn_process_close(process);
}

/* show: tn_group_create tn_group_fork tn_group_wait tn_group_close */
static int train(tn_domain *domain, uint32_t index, void *argument)
{
    (void)domain, (void)argument;
    if (index == 2)
        tn_process_fail("no data for part 2");
    for (;;)
        pause(); /* until the group ends it */
}

static void run_group(tn_domain *domain)
{
    tn_group *group;
    tn_process_status first = {.struct_size = sizeof first};
    must(tn_group_create(domain, &group));
    must(tn_group_fork(group, 4, train, NULL));
    int status = tn_group_wait(group, 2 * TN_SECOND, TN_FOREVER, &first);
    if (status == TN_ERR_CHILD_FAILED)
        printf("child %u: %s\n", first.index, first.message); /* child 2: no data for part 2 */
    group = tn_group_close(group);
}
/* end */

static void gather(tn_domain *domain)
{
    tn_process *process;
    tn_process_status first = {.struct_size = sizeof first};
    tn_group *group;
    must(tn_group_create(domain, &group));
    /* show: tn_group_add tn_group_get */
    must(tn_process_fork(domain, fail, NULL, 0, &process));
    must(tn_group_add(group, process)); /* the group closes it */
    for (uint32_t i = 0; (process = tn_group_get(group, i)) != NULL; i++)
        printf("pid %d\n", tn_process_pid(process));
    /* end */
    assert(tn_group_wait(group, 0, TN_FOREVER, &first) == TN_ERR_CHILD_FAILED);
    assert(strcmp(first.message, "cannot read the camera") == 0);
    tn_group_close(group);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return be_program();
    tn_domain *domain;
    setvbuf(stdout, NULL, _IOLBF, 0); /* a child has no copy of what is not printed yet */
    must(tn_domain_open(NULL, NULL, 0, &domain));
    fork_one(domain);
    kill_one(domain);
    run_program(domain, argv[0]);
    use_server(domain);
    run_group(domain);
    gather(domain);
    tn_domain_close(domain);
    return 0;
}
