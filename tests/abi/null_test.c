/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: each public function takes NULL in the place of each of its pointers: it does without,
 * or says what is missing, and never crashes. null_calls.h is written from the headers.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/harness.h"

#define THE_CPU ((tn_device){TN_DEVICE_CPU, 0})
enum { OUT_BYTES = 1 << 16, MOST_SECONDS = 20 };

/* Where results go, and what is read: all zero but for a size of a struct. */
static _Alignas(64) uint8_t out[OUT_BYTES];
static _Alignas(64) uint8_t in[OUT_BYTES];
static tn_domain *domain;

struct null_call {
    const char *function;
    const char *parameter; /* the pointer that is NULL */
    int (*call)(void);
};

static int do_nothing(void) { return 0; }

/* ---- what the calls need, made in the child that calls ----------------------------------- */

static tn_domain *give_domain(void) { return domain; }

static tn_tensor *give_tensor(void)
{
    tn_tensor *tensor;
    TN_CHECK_OK(tn_tensor_create(domain, TN_FLOAT32, 1, (int64_t[]){4}, NULL, &tensor));
    return tensor;
}

static tn_tensor **give_tensors(void)
{
    static tn_tensor *tensors[1];
    tensors[0] = give_tensor();
    return tensors;
}

static tn_queue *give_queue(void)
{
    tn_queue *queue;
    TN_CHECK_OK(tn_queue_open(domain, NULL, NULL, 0, &queue));
    return queue;
}

__attribute__((unused)) static tn_queue **give_queues(void)
{
    static tn_queue *queues[1];
    queues[0] = give_queue();
    return queues;
}

static const char *const *give_strings(void)
{
    static const char *const strings[] = {"true", NULL};
    return strings;
}

/* A struct that is zero but for its size, with which it begins. */
static void *give_sized(uint8_t *at, size_t size_bytes)
{
    memcpy(at, &size_bytes, sizeof size_bytes);
    return at;
}

static tn_object *give_object(void) { return give_queue(); }

#define GIVE(type, name, open)                                                                 \
    __attribute__((unused)) static type *give_##name(void)                                     \
    {                                                                                          \
        type *it;                                                                              \
        TN_CHECK_OK(open);                                                                     \
        return it;                                                                             \
    }
GIVE(tn_event, event, tn_event_open(domain, NULL, 0, &it))
GIVE(tn_semaphore, semaphore, tn_semaphore_open(domain, NULL, 1, 0, &it))
GIVE(tn_lock, lock, tn_lock_open(domain, NULL, 0, &it))
GIVE(tn_condition, condition, tn_condition_open(domain, NULL, 0, &it))
GIVE(tn_barrier, barrier, tn_barrier_open(domain, NULL, 2, 0, &it))
GIVE(tn_store, store, tn_store_open(domain, NULL, NULL, 0, &it))
GIVE(tn_channel, channel, tn_channel_open(domain, NULL, NULL, 0, &it))
GIVE(tn_arena, arena, tn_arena_create(domain, 4096, TN_NOW, &it))
GIVE(tn_group, group, tn_group_create(domain, &it))
GIVE(tn_forkserver, forkserver, tn_forkserver_start(domain, &it))

static int end_at_once(tn_domain *of, void *argument)
{
    (void)of, (void)argument;
    return 0;
}
GIVE(tn_process, process, tn_process_fork(domain, end_at_once, NULL, 0, &it))

static int do_no_job(tn_domain *of, const tn_pool_job *job, tn_message *ret_result,
                     void *context)
{
    (void)of, (void)job, (void)ret_result, (void)context;
    return 0;
}
GIVE(tn_pool, pool,
     tn_pool_create(domain, TN_OPTIONS(tn_pool_options, .workers = 1), do_no_job, NULL, &it))

static int do_no_task(const tn_task_call *call)
{
    (void)call;
    return 0;
}
static const tn_variant variant = {.run = do_no_task};
GIVE(tn_sched, sched, tn_sched_create(NULL, &it))
GIVE(tn_kind, kind,
     tn_kind_create(give_sched(),
                    TN_OPTIONS(tn_kind_options, .variants = &variant, .variant_count = 1), &it))
GIVE(tn_graph, graph, tn_graph_create(give_sched(), &it))

static tn_inspector *give_inspector(void)
{
    tn_domain_info info = {.struct_size = sizeof info};
    tn_inspector *inspector;
    char id[33];
    TN_CHECK_OK(tn_domain_get_info(domain, &info));
    for (size_t i = 0; i < sizeof info.id; i++)
        snprintf(id + 2 * i, 3, "%02x", info.id[i]);
    TN_CHECK_OK(tn_inspector_open(id, &inspector));
    return inspector;
}

#include "null_calls.h"

/* ---- each call in a child of its own ------------------------------------------------------
 */

/* Whether the sentence says that this parameter, and no other, is NULL. */
static bool names_the_parameter(const char *sentence, const char *parameter)
{
    const char *at = strstr(sentence, " is NULL");
    size_t length = strlen(parameter);
    return at != NULL && (size_t)(at - sentence) >= length &&
           memcmp(at - length, parameter, length) == 0 &&
           (at - length == sentence || at[-(ptrdiff_t)length - 1] == ' ');
}

static void call_and_exit(const struct null_call *it)
{
    signal(SIGALRM, SIG_DFL);
    alarm(MOST_SECONDS);
    int status = it->call();
    if (status == TN_ERR_INVALID && !names_the_parameter(tn_error_detail(), it->parameter)) {
        printf("# %s, %s is NULL: '%s'\n", it->function, it->parameter, tn_error_detail());
        fflush(stdout);
        _exit(2);
    }
    _exit(0);
}

TN_TEST_WITHIN(each_function_takes_null_for_each_pointer, 300)
{
    unsigned crashes = 0;
    domain = tnt_domain(&(tn_domain_options){.struct_size = sizeof(tn_domain_options),
                                             .flags = TN_DOMAIN_NO_MANAGER});
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        int status;
        fflush(stdout);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
            call_and_exit(&calls[i]);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (WIFSIGNALED(status) || (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != 1)) {
            tnt_note("%s, %s is NULL: %s %d", calls[i].function, calls[i].parameter,
                     WIFSIGNALED(status) ? "signal" : "exit code",
                     WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
            crashes++;
        }
        TN_CHECK_OK(tn_domain_reap(domain, NULL));
    }
    assert_int_equal(crashes, 0);
    tn_domain_close(domain);
}
