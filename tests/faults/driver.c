/* SPDX-License-Identifier: Apache-2.0 */
/* One row: each call that it makes fails in turn, and what must hold afterwards is checked. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "alloc/alloc.h"
#include "base/base.h"
#include "faults.h"
#include "faults_documented.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum {
    IS_SANITIZED = 1
}; /* functions whose allocations do not fail, nor those of this program under the same names */
#else
enum { IS_SANITIZED = 0 };
#endif

#define STALE "the detail of an earlier call"
enum {
    POISON = 0xa5,
    MOST_ROWS = 512,
    MOST_WRONG = 12,
    MOST_KEPT = 256,
    MOST_DENSE = 150,
    FEW_DENSE = 8
};

_Alignas(64) uint8_t faults_out[FAULTS_OUT_BYTES];
size_t faults_out_stated;
struct faults_control *faults_control;
tn_domain *faults_d;

/* ---- worlds ------------------------------------------------------------------------------ */

static void begin(const char *name, uint32_t flags)
{
    tn_domain_options options = {.struct_size = sizeof options,
                                 .quota_bytes = 32 << 20,
                                 .seats = 8,
                                 .blocks = 256,
                                 .objects = 16,
                                 .tickets = 16,
                                 .flags = flags};
    TN_CHECK_OK(tn_domain_open(name, &options, TN_OPEN_NEW, &faults_d));
    /* No search for unused memory: its table, made once, would count as left. */
    atomic_store(&tni_alloc_part(faults_d)->idle_ns, UINT64_MAX);
}

void faults_begin(void) { begin(NULL, TN_DOMAIN_NO_MANAGER); }

void faults_begin_managed(const char *name) { begin(name, 0); }

void faults_end(void) { faults_d = tn_domain_close(faults_d); }

tn_tensor *faults_tensor(int64_t bytes)
{
    tn_tensor *tensor;
    TN_CHECK_OK(tn_tensor_create(faults_d, TN_UINT8, 1, &bytes,
                                 TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED),
                                 &tensor));
    return tensor;
}

tn_tensor *faults_tensor_as(uint32_t strategy, uint32_t flags, int64_t bytes)
{
    tn_tensor_options options = {
        .struct_size = sizeof options, .strategy = strategy, .flags = flags};
    tn_tensor *tensor;
    TN_CHECK_OK(tn_tensor_create(faults_d, TN_UINT8, 1, &bytes, &options, &tensor));
    return tensor;
}

/* ---- which functions there are ----------------------------------------------------------- */

static const char *rows[MOST_ROWS];
static unsigned row_count;

void faults_register(const char *function)
{
    if (row_count < MOST_ROWS)
        rows[row_count++] = function;
}

static bool has_row(const char *function)
{
    for (unsigned i = 0; i < row_count; i++)
        if (strcmp(rows[i], function) == 0)
            return true;
    return false;
}

static const struct faults_documented *find_documented(const char *function)
{
    for (size_t i = 0; i < sizeof documented / sizeof documented[0]; i++)
        if (strcmp(documented[i].function, function) == 0)
            return &documented[i];
    return NULL;
}

TN_TEST(each_exported_function_has_a_row_and_each_row_a_function)
{
    unsigned wrong = 0;
    for (size_t i = 0; i < sizeof documented / sizeof documented[0]; i++)
        if (!has_row(documented[i].function)) {
            printf("%s has no row\n", documented[i].function);
            wrong++;
        }
    for (unsigned i = 0; i < row_count; i++)
        if (find_documented(rows[i]) == NULL) {
            printf("%s is not in the version script\n", rows[i]);
            wrong++;
        }
    assert_int_equal(wrong, 0);
    tnt_note("%zu functions, %u rows", sizeof documented / sizeof documented[0], row_count);
}

/* ---- one call ---------------------------------------------------------------------------- */

struct outcome {
    int status;
    char detail[256];
};

static void describe(const struct faults_row *row, const struct outcome *outcome)
{
    static const char *const kinds[] = {"system call", "allocation", "system call of a child",
                                        "allocation of a child"};
    const struct faults_control *c = faults_control;
    bool is_call = c->plan.kind == FAULTS_CALLS || c->plan.kind == FAULTS_CHILD_CALLS;
    printf("%s: %s %u, %s, gave %s%s: it returned %s (%s)\n", row->function,
           kinds[c->plan.kind], c->plan.n,
           !c->was_injected ? "nothing"
           : is_call        ? faults_call_name(c->call)
                            : c->name,
           c->was_injected ? strerrorname_np(c->error) : "no error",
           c->lasts ? " from then on" : "",
           outcome->status < 0 ? tn_status_name(outcome->status) : "no error", outcome->detail);
}

/* Said, and gone on from: the next failure begins from what there is now. */
static void fail_row(const struct faults_row *row, const struct outcome *outcome,
                     const char *why)
{
    describe(row, outcome);
    printf("  %s\n", why);
    faults_control->wrong++;
}

static void finish_undone(void)
{
    struct faults_control *c = faults_control;
    for (uint32_t i = 0; i < c->unmap_count; i++)
        munmap((void *)c->unmaps[i].address, c->unmaps[i].bytes);
    for (uint32_t i = 0; i < c->unlink_count; i++)
        unlink(c->unlinks[i]);
    c->unmap_count = c->unlink_count = 0;
}

static void forget_last(struct faults_control *c)
{
    c->count = c->variants = c->unmap_count = c->unlink_count = 0;
    c->was_injected = c->lasts = false;
    c->call = c->error = 0;
    c->name[0] = '\0';
}

static struct outcome call_failing(const struct faults_row *row)
{
    struct outcome outcome;
    forget_last(faults_control);
    memset(faults_out, POISON, sizeof faults_out);
    faults_out_stated = 0;
    tni_fail(TN_ERR_SYSTEM, STALE);
    faults_begin_calls();
    outcome.status = row->call();
    faults_end_calls();
    snprintf(outcome.detail, sizeof outcome.detail, "%s", tn_error_detail());
    finish_undone();
    return outcome;
}

static bool is_success(const struct faults_row *row, int status)
{
    return status >= 0 || status == row->expected;
}

static void check_error(const struct faults_row *row, const struct outcome *outcome)
{
    const struct faults_documented *d = find_documented(row->function);
    if (row->never_fails)
        fail_row(row, outcome, "this one must not fail");
    if (d == NULL || (d->errors >> -outcome->status & 1) == 0)
        fail_row(row, outcome, "its header does not document this error");
    if (outcome->detail[0] == '\0' || strcmp(outcome->detail, STALE) == 0)
        fail_row(row, outcome, "no detail says what went wrong");
    size_t at = faults_out_stated != 0 && *FAULTS_OUT(size_t) == faults_out_stated
                    ? sizeof faults_out_stated
                    : 0;
    for (size_t i = at; i < sizeof faults_out; i++)
        if (faults_out[i] != POISON) {
            fail_row(row, outcome, "results are not untouched");
            break;
        }
}

static void compare_states(const struct faults_row *row, const struct outcome *outcome,
                           const struct faults_state *before, bool is_final,
                           uint64_t allocations, const char *why)
{
    struct faults_state now;
    faults_state_take(row, is_final, &now);
    if (faults_state_compare(before, &now) == 0)
        return;
    if (now.allocations > before->allocations)
        faults_print_allocations(allocations);
    fail_row(row, outcome, why);
}

/* The same call, with nothing failing, and undone. */
static void call_well(const struct faults_row *row)
{
    int status = row->call();
    if (!is_success(row, status)) {
        printf("%s: %s: %s\n", row->function, tn_status_name(status), tn_error_detail());
        fail_msg("it fails with nothing failing");
    }
    if (row->undo != NULL)
        row->undo();
}

static void round_of(const struct faults_row *row)
{
    struct faults_state first, prepared;
    uint64_t allocations = faults_allocation_mark();
    faults_state_take(row, !row->is_cold, &first);
    if (row->before != NULL)
        row->before();
    faults_state_take(row, false, &prepared);
    struct outcome outcome = call_failing(row);
    struct faults_control *c = faults_control;
    if (is_success(row, outcome.status)) {
        c->fallbacks += c->was_injected;
        if (row->undo != NULL)
            row->undo();
    } else {
        if (!c->was_injected) {
            describe(row, &outcome);
            fail_msg("it fails with nothing failing");
        }
        c->errors++;
        check_error(row, &outcome);
        compare_states(row, &outcome, &prepared, false, allocations,
                       "the failed call left or took something");
        call_well(row);
    }
    compare_states(row, &outcome, &first, !row->is_cold, allocations,
                   "something is left after all");
}

/* ---- the plan ---------------------------------------------------------------------------- */

static bool is_kind_wanted(const struct faults_row *row, uint32_t kind)
{
    return kind < FAULTS_CHILD_CALLS ? !row->only_children : row->forks;
}

/* A search makes the same calls for each descriptor of this machine, however many these are. */
static uint32_t next_n(const struct faults_row *row, uint32_t n)
{
    if (faults_is_deep())
        return row->searches && n > MOST_DENSE ? n + n / 8 : n + 1;
    return n <= (row->searches ? FEW_DENSE : MOST_DENSE) ? n + 1 : 2 * n + 1;
}

/* After a round. */
static void advance(const struct faults_row *row)
{
    struct faults_control *c = faults_control;
    struct faults_plan *plan = &c->plan;
    c->injected[plan->kind] += c->was_injected;
    if (c->count >= plan->n && plan->variant + 1 < c->variants) {
        plan->variant++;
        return;
    }
    bool is_over = c->count < plan->n;
    plan->variant = 0;
    plan->n = next_n(row, plan->n);
    if (!is_over)
        return;
    plan->n = 1;
    do
        plan->kind++;
    while (plan->kind < FAULTS_KINDS && !is_kind_wanted(row, plan->kind));
    c->is_over = plan->kind == FAULTS_KINDS;
}

static void check_is_first_kind_complete(const struct faults_row *row)
{
    const struct faults_control *c = faults_control;
    uint32_t sum = 0;
    for (uint32_t kind = 0; kind < FAULTS_KINDS; kind++)
        sum += c->injected[kind];
    if (row->has_no_calls && sum > 0)
        fail_msg("%s has calls that can fail: its row says that it has none", row->function);
    if (!IS_SANITIZED && !row->has_no_calls && !row->depends && row->expected == 0 && sum == 0)
        fail_msg("%s has no call that can fail: its row must say so", row->function);
}

/* The library keeps the socket that it rings with; before any test, which it would be left of.
 */
__attribute__((constructor)) static void keep_a_socket(void) { tni_os_bell_ring(1); }

/* The library keeps some ended tensors, to report their later use: fill that store. */
static void fill_what_is_kept(void)
{
    const int64_t none = 0;
    tn_tensor *tensor, *view;
    for (int i = 0; i < MOST_KEPT; i++) {
        TN_CHECK_OK(tn_tensor_create_private(TN_UINT8, 1, &none, &tensor));
        TN_CHECK_OK(tn_tensor_view(tensor, TN_UINT8, 1, &none, NULL, 0, &view));
        tn_tensor_unref(view);
        tn_tensor_unref(tensor);
    }
}

static void be_subject(const struct faults_row *row)
{
    fill_what_is_kept();
    if (row->prepare != NULL)
        row->prepare();
    if (!row->is_cold) {
        /* What a process sets up once is there from now on. */
        if (row->before != NULL)
            row->before();
        call_well(row);
    }
    do {
        round_of(row);
        advance(row);
        if (faults_control->wrong >= MOST_WRONG)
            faults_control->is_over = true;
    } while (!row->is_cold && !faults_control->is_over);
    if (row->finish != NULL)
        row->finish();
}

static void run_subject(const struct faults_row *row)
{
    int ends[2];
    if (pipe(ends) != 0)
        fail_msg("pipe: %s", strerror(errno));
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        char byte;
        if (read(ends[0], &byte, 1) != 1)
            _exit(1);
        close(ends[0]);
        close(ends[1]);
        be_subject(row);
        fflush(NULL);
        _exit(0);
    }
    int status = faults_trace(pid, ends[1]);
    close(ends[0]);
    close(ends[1]);
    if (WIFSIGNALED(status))
        printf("plan: kind %u, call %u, error %u; %s gave errno %d\n",
               faults_control->plan.kind, faults_control->plan.n, faults_control->plan.variant,
               faults_control->name[0] != '\0' ? faults_control->name
                                               : faults_call_name(faults_control->call),
               faults_control->error);
    if (status != 0)
        fail_msg("the subject ended with status %#x", (unsigned)status);
}

void faults_run(const struct faults_row *row)
{
    struct faults_control *c =
        mmap(NULL, sizeof *c, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (c == MAP_FAILED)
        fail_msg("mmap: %s", strerror(errno));
    faults_control = c;
    c->plan.n = 1;
    c->plan.kind = row->only_children ? FAULTS_CHILD_CALLS : FAULTS_CALLS;
    uint64_t begin_ns = tni_os_now_ns();
    c->spared_call = row->spared_call;
    while (!c->is_over)
        run_subject(row);
    if (c->wrong > 0)
        fail_msg("%u times something was wrong", c->wrong);
    check_is_first_kind_complete(row);
    tnt_note("%s: %u system calls and %u allocations failed here, %u and %u in children; "
             "%u errors, %u times it got by; %u ms",
             tnt_name(), c->injected[0], c->injected[1], c->injected[2], c->injected[3],
             c->errors, c->fallbacks, (unsigned)((tni_os_now_ns() - begin_ns) / 1000000));
    faults_control = NULL;
    munmap(c, sizeof *c);
}
