/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_bench [--small | --quick] list | NAME: figures of tenon itself on device 0, through its
 * public API. It prints figures as gpu_facts does (facts.h).
 */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <tenon/tenon.h>

#include "gpu/facts/facts.h"

static const tn_device gpu = {TN_DEVICE_CUDA, 0};
static tn_domain *domain;
static tn_queue *queue;
static int
    ends[2]; /* one byte for each tensor that has arrived; the second end is the child's */

static void must(int status, const char *what)
{
    if (status < 0)
        unanswered("%s: %s: %s", what, tn_status_name(status), tn_error_detail());
}
#define MUST(call) must(call, #call)

static tn_deadline soon(void) { return tn_deadline_after(PATIENCE_MS * TN_MILLISECOND); }

static tn_tensor *make(uint64_t bytes)
{
    tn_tensor *tensor = NULL;
    const tn_tensor_options options = {.struct_size = sizeof options, .device = gpu};
    MUST(tn_tensor_create(domain, TN_UINT8, 1, (int64_t[]){(int64_t)bytes}, &options, &tensor));
    return tensor;
}

static tn_tensor *pop(void)
{
    tn_tensor *tensor = NULL;
    MUST(tn_queue_pop_tensor(queue, soon(), &tensor));
    return tensor;
}

static void push(tn_tensor *tensor) { MUST(tn_queue_push_tensor(queue, tensor, 0, soon())); }

/* A tensor of the host is the last that is sent. */
static void push_last(void)
{
    tn_tensor *last = NULL;
    MUST(tn_tensor_create(domain, TN_UINT8, 1, (int64_t[]){1}, NULL, &last));
    push(last);
    tn_tensor_unref(last);
}

static bool is_last(const tn_tensor *tensor)
{
    return tn_tensor_device(tensor).type == TN_DEVICE_CPU;
}

/* Open a domain, and fork a child before this process uses the driver. */
static tn_process *begin(int (*run)(tn_domain *domain, void *context))
{
    tn_process *child = NULL;
    const tn_queue_options options = {.struct_size = sizeof options, .capacity = 1024};
    MUST(tn_domain_open(NULL, NULL, 0, &domain));
    MUST(tn_queue_open(domain, NULL, &options, 0, &queue));
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        unanswered("socketpair failed");
    MUST(tn_process_fork(domain, run, NULL, 0, &child));
    close(ends[1]);
    return child;
}

static void end(tn_process *child)
{
    tn_process_status status = {.struct_size = sizeof status};
    close(ends[0]);
    MUST(tn_process_wait(child, soon(), &status));
    tn_process_close(child);
    tn_object_close(queue);
    tn_domain_close(domain);
}

static void arrived(void)
{
    if (write(ends[1], "", 1) != 1)
        _exit(3);
}

static void await_arrival(void)
{
    char byte;
    if (read(ends[0], &byte, 1) != 1)
        unanswered("the other process ended before it answered");
}

/* What there is room for, of bytes that are needed several times. */
static bool fits(uint64_t bytes, unsigned times)
{
    uint64_t free_bytes = 0;
    MUST(tn_device_get_free(gpu, &free_bytes));
    return bytes * times <= free_bytes / 10 * 9;
}

static unsigned size_count(unsigned all, unsigned small) { return is_small ? small : all; }

/* ---- gpu_import_bandwidth ------------------------------------------------------------------
 */

static const uint64_t bandwidth_bytes[] = {64u << 20, 256u << 20, UINT64_C(1) << 30};
enum { BANDWIDTH_SIZES = 3 };

static int make_sources(tn_domain *own, void *unused)
{
    (void)own, (void)unused;
    close(ends[0]);
    for (unsigned i = 0; i < size_count(BANDWIDTH_SIZES, 1); i++) {
        uint64_t bytes = is_small ? 4u << 20 : bandwidth_bytes[i];
        if (!fits(bytes, 3))
            break;
        tn_tensor *tensor = make(bytes);
        push(tensor);
        tn_tensor_unref(tensor);
    }
    push_last();
    return 0;
}

static double copy_ns(tn_tensor *to, const tn_tensor *from)
{
    uint64_t begun_ns = now_ns();
    MUST(tn_tensor_copy(to, from));
    return (double)(now_ns() - begun_ns);
}

static void compare_copies(tn_tensor *imported)
{
    static struct samples ratios, imports, owns;
    uint64_t bytes = (uint64_t)tn_tensor_count(imported);
    tn_tensor *own = make(bytes), *to = make(bytes);
    for (unsigned i = 0; i < sized(3, 1); i++)
        (void)(copy_ns(to, imported) + copy_ns(to, own));
    for (unsigned i = 0; i < sized(200, 5); i++) {
        double before = i % 2 ? copy_ns(to, own) : 0; /* each is as often the first */
        double from_import = copy_ns(to, imported);
        double from_own = i % 2 ? before : copy_ns(to, own);
        samples_add(&imports, (double)bytes / from_import);
        samples_add(&owns, (double)bytes / from_own);
        samples_add(&ratios, from_own / from_import);
    }
    figure("tn_tensor_copy() out of an imported tensor", bytes, &imports, "GB/s");
    figure("tn_tensor_copy() out of an own tensor", bytes, &owns, "GB/s");
    figure("imported over own", bytes, &ratios, "ratio");
    tn_tensor_unref(to);
    tn_tensor_unref(own);
}

static void measure_bandwidth(int unused)
{
    (void)unused;
    tn_process *child = begin(make_sources);
    tn_tensor *imported = pop();
    for (; !is_last(imported); imported = pop()) {
        compare_copies(imported);
        tn_tensor_unref(imported);
    }
    tn_tensor_unref(imported);
    end(child);
}

/* ---- gpu_share --------------------------------------------------------------------------- */

/* Sent once, and again while the receiver has it; sizes that slabs hold, and larger ones. */
static const uint64_t share_bytes[] = {
    1u << 20, 16u << 20, 256u << 20, UINT64_C(1) << 30, UINT64_C(4) << 30, UINT64_C(16) << 30};
enum { SHARE_SIZES = 6, AGAIN = 10 };

static int receive_rounds(tn_domain *own, void *unused)
{
    (void)own, (void)unused;
    close(ends[0]);
    for (;;) {
        tn_tensor *first = NULL;
        if (tn_queue_pop_tensor(queue, soon(), &first) < 0)
            return 3;
        if (is_last(first))
            break;
        arrived();
        for (int i = 0; i < AGAIN; i++) {
            tn_tensor *again = pop();
            arrived();
            tn_tensor_unref(again);
        }
        tn_tensor_unref(first);
    }
    return 0;
}

static double share_us(tn_tensor *tensor)
{
    uint64_t begun_ns = now_ns();
    push(tensor);
    await_arrival();
    return (double)(now_ns() - begun_ns) / 1e3;
}

static void share_rounds(uint64_t bytes)
{
    static struct samples firsts, agains;
    for (unsigned round = 0; round < sized(20, 2); round++) {
        tn_tensor *tensor = make(bytes);
        samples_add(&firsts, share_us(tensor));
        for (int i = 0; i < AGAIN; i++)
            samples_add(&agains, share_us(tensor));
        tn_tensor_unref(tensor);
    }
    figure("a tensor that the receiver does not have, until it has an address", bytes, &firsts,
           "us");
    figure("a tensor that the receiver has already", bytes, &agains, "us");
}

static void measure_share(int unused)
{
    (void)unused;
    tn_process *child = begin(receive_rounds);
    for (unsigned i = 0; i < size_count(SHARE_SIZES, 2) && fits(share_bytes[i], 2); i++)
        share_rounds(share_bytes[i]);
    push_last();
    end(child);
}

/* ---- N9, the first part ------------------------------------------------------------------ */

enum { SMALL = 4096, BATCH = 500, BATCHES = 20 };

static int receive_small(tn_domain *own, void *unused)
{
    (void)own, (void)unused;
    close(ends[0]);
    for (unsigned i = 0; i < BATCH * sized(BATCHES, 2); i++) {
        tn_tensor_unref(pop());
        if ((i + 1) % BATCH == 0)
            arrived();
    }
    return 0;
}

static void measure_small(int unused)
{
    static struct samples each;
    (void)unused;
    tn_process *child = begin(receive_small);
    for (unsigned batch = 0; batch < sized(BATCHES, 2); batch++) {
        uint64_t begun_ns = now_ns();
        for (int i = 0; i < BATCH; i++) {
            tn_tensor *tensor = make(SMALL);
            push(tensor);
            tn_tensor_unref(tensor);
        }
        await_arrival();
        samples_add(&each, (double)(now_ns() - begun_ns) / 1e3 / BATCH);
    }
    figure("a tensor of a slab, made, sent, received, freed; means of 500", SMALL, &each, "us");
    end(child);
}

/* ------------------------------------------------------------------------------------------ */

static const struct question questions[] = {
    {"gpu_import_bandwidth", "Copies out of an imported tensor", "", measure_bandwidth, 0},
    {"gpu_share", "The time to share a tensor", "", measure_share, 0},
    {"N9.1", "Small tensors of one slab", "", measure_small, 0},
    {0}};

int main(int argc, char **argv)
{
    int at = sizes_read(argc, argv);
    for (const struct question *q = questions; argc == at + 1 && q->number != NULL; q++) {
        if (strcmp(argv[at], "list") == 0)
            printf("%s\t%s\t%s\n", q->number, q->text, q->assumption);
        if (strcmp(argv[at], q->number) == 0)
            q->run(q->argument);
    }
    return 0;
}
