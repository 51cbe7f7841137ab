/* SPDX-License-Identifier: Apache-2.0 */
/* Domains: making, joining, leaving; the library's own words. */
#include <stdlib.h>
#include <unistd.h>

#include "faults.h"
#include "harness/tensor.h"
#include "reaper/reaper.h"

static tn_domain *d;

/* ---- making ------------------------------------------------------------------------------ */

static int create_alone(void)
{
    tn_domain_options options = {
        .struct_size = sizeof options, .quota_bytes = 1 << 20, .flags = TN_DOMAIN_NO_MANAGER};
    return tn_domain_open(NULL, &options, 0, FAULTS_OUT(tn_domain *));
}
static int create_named(void)
{
    tn_domain_options options = {.struct_size = sizeof options, .quota_bytes = 1 << 20};
    return tn_domain_open("named", &options, TN_OPEN_NEW, FAULTS_OUT(tn_domain *));
}
static void close_out(void) { tn_domain_close(*FAULTS_OUT(tn_domain *)); }

FAULTS(tn_domain_open, .call = create_alone, .undo = close_out)
FAULTS_WHEN(tn_domain_open, as_the_first_call, .is_cold = true, .call = create_alone,
            .undo = close_out)

/* tenond runs for another domain. */
static void make_other(void) { faults_begin_managed("other"); }
#define WITH_OTHER .prepare = make_other, .finish = faults_end, .makes_files = true

/* tenond lets a name go a moment after its domain has ended: the next one has another. */
static unsigned number;
static char name[32];
static void choose_name(void) { snprintf(name, sizeof name, "named-%u", ++number); }
static int create_chosen(void)
{
    tn_domain_options options = {.struct_size = sizeof options, .quota_bytes = 1 << 20};
    return tn_domain_open(name, &options, TN_OPEN_NEW, FAULTS_OUT(tn_domain *));
}
FAULTS_WHEN(tn_domain_open, with_tenond, WITH_OTHER, .before = choose_name,
            .call = create_chosen, .undo = close_out)

/* Each in a process of its own, whose runtime folder has no tenond yet. */
static void choose_folder(void)
{
    char folder[] = "/tmp/tnt-faults-XXXXXX";
    if (mkdtemp(folder) == NULL)
        fail_msg("mkdtemp");
    setenv("TENON_RUNTIME_DIR", folder, 1);
}
static void leave_folder(void)
{
    char path[128];
    const char *folder = getenv("TENON_RUNTIME_DIR");
    /* tenond ends by itself; its files are removed here, as it may not get to it. */
    snprintf(path, sizeof path, "%s/" TNI_MANAGER_SOCKET, folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/" TNI_MANAGER_LOCK, folder);
    unlink(path);
    rmdir(folder);
}
FAULTS_WHEN(tn_domain_open, starting_tenond, .is_cold = true, .makes_files = true,
            .prepare = choose_folder, .call = create_named, .undo = close_out,
            .finish = leave_folder)

/* ---- joining ----------------------------------------------------------------------------- */

static int join(void)
{
    return tn_domain_open("other", NULL, TN_OPEN_EXISTING, FAULTS_OUT(tn_domain *));
}
static int open_it(void) { return tn_domain_open("other", NULL, 0, FAULTS_OUT(tn_domain *)); }
FAULTS_WHEN(tn_domain_open, it_exists, WITH_OTHER, .searches = true, .call = join,
            .undo = close_out)
FAULTS_WHEN(tn_domain_open, it_may_exist, WITH_OTHER, .searches = true, .call = open_it,
            .undo = close_out)

static int pass(void) { return tn_domain_pass(faults_d, FAULTS_OUT(char), 64); }
FAULTS(tn_domain_pass, .prepare = faults_begin, .finish = faults_end, .has_no_calls = true,
       .call = pass)

/* The call takes over the descriptors that it is told of, once it succeeds. */
static void inherit_copies(void)
{
    char value[64];
    snprintf(value, sizeof value, "%d,%d", dup(faults_d->segment.control_fd),
             dup(faults_d->segment.arena_fd));
    setenv("TENON_DOMAIN", value, 1);
}
static int inherit(void) { return tn_domain_inherit(FAULTS_OUT(tn_domain *)); }
FAULTS(tn_domain_inherit, .prepare = faults_begin, .finish = faults_end,
       .before = inherit_copies, .call = inherit, .undo = close_out)

static void create_d(void)
{
    TN_CHECK_OK(create_alone());
    d = *FAULTS_OUT(tn_domain *);
}
static int close_d(void) { return d = tn_domain_close(d), 0; }
FAULTS(tn_domain_close, .never_fails = true, .before = create_d, .call = close_d)

static void join_d(void)
{
    TN_CHECK_OK(join());
    d = *FAULTS_OUT(tn_domain *);
}
FAULTS_WHEN(tn_domain_close, of_one_that_lives_on, WITH_OTHER, .never_fails = true,
            .before = join_d, .call = close_d)

/* ---- in a domain ------------------------------------------------------------------------- */

#define WITH_DOMAIN .prepare = faults_begin, .finish = faults_end
static int reap(void) { return tn_domain_reap(faults_d, FAULTS_OUT(uint32_t)); }
static int ask_info(void)
{
    tn_domain_info info = tnt_domain_info(faults_d);
    return info.name[0] == '\0' && info.member != 0 && info.quota_bytes != 0 ? 0
                                                                             : TN_ERR_CORRUPT;
}
static int ask_has_member(void)
{
    return !tn_domain_has_member(faults_d, tnt_member(faults_d));
}
static int set_device_quota(void) { return tn_domain_set_device_quota(faults_d, 1 << 20); }
static int set_quota(void) { return tn_domain_set_quota(faults_d, 1 << 20); }
static int set_watermark(void) { return tn_domain_set_watermark(faults_d, 1 << 20); }
static int poll_fd(void) { return tn_domain_poll_fd(d, FAULTS_OUT(int)); }
static void close_now(void) { d = tn_domain_close(d); }
static int poll_clear(void) { return tn_domain_poll_clear(faults_d), 0; }
static void poll_now(void)
{
    int fd;
    faults_begin();
    TN_CHECK_OK(tn_domain_poll_fd(faults_d, &fd));
}
FAULTS(tn_domain_get_info, WITH_DOMAIN, .has_no_calls = true, .call = ask_info)
FAULTS(tn_domain_has_member, WITH_DOMAIN, .never_fails = true, .call = ask_has_member)
FAULTS(tn_domain_set_device_quota, WITH_DOMAIN, .has_no_calls = true, .call = set_device_quota)
FAULTS(tn_domain_set_quota, WITH_DOMAIN, .has_no_calls = true, .call = set_quota)
FAULTS(tn_domain_set_watermark, WITH_DOMAIN, .has_no_calls = true, .call = set_watermark)
FAULTS(tn_domain_poll_fd, .before = create_d, .call = poll_fd, .undo = close_now)
FAULTS(tn_domain_poll_clear, .prepare = poll_now, .finish = faults_end, .call = poll_clear)

/* Memory that is free, and a member that died. */
static void free_large(void)
{
    const int64_t bytes = 4 << 20;
    tn_tensor *t = faults_tensor(bytes);
    tn_tensor_unref(t);
}
static int trim(void) { return tn_domain_trim(faults_d, 0, FAULTS_OUT(uint64_t)); }
FAULTS(tn_domain_trim, WITH_DOMAIN, .before = free_large, .call = trim)

static int die_with_a_tensor(void *unused)
{
    (void)unused;
    faults_tensor(1000);
    faults_tensor_as(TN_STRATEGY_FILE_SYSTEM, 0, 1000);
    _exit(0);
}
static void have_one_die(void) { tnt_wait(tnt_fork(die_with_a_tensor, NULL)); }
static void reap_now(void) { TN_CHECK_OK(tn_domain_reap(faults_d, NULL)); }
FAULTS(tn_domain_reap, WITH_DOMAIN, .ends_files = true, .before = have_one_die, .call = reap,
       .undo = reap_now)

/* ---- the library ------------------------------------------------------------------------- */

static int version(void) { return tn_version()[0] == '0' ? 0 : TN_ERR_CORRUPT; }
static int deadline(void) { return tn_deadline_after(1).ns > 0 ? 0 : TN_ERR_CORRUPT; }
static const tn_device the_cpu = {TN_DEVICE_CPU, 0};
static int device_count(void)
{
    return tn_device_count(TN_DEVICE_CPU) == 1 ? 0 : TN_ERR_CORRUPT;
}
static int device_info(void)
{
    return tn_device_get_info(the_cpu, FAULTS_OUT_STRUCT(tn_device_info));
}
static int device_free(void) { return tn_device_get_free(the_cpu, FAULTS_OUT(uint64_t)); }
static int device_find(void) { return tn_device_find("cpu", FAULTS_OUT(tn_device)); }
static int device_address(void) { return tn_device_find_address("x", FAULTS_OUT(tn_device)); }
static int device_wait(void) { return tn_device_wait(the_cpu, NULL); }
static int detail(void) { return tn_error_detail() != NULL ? 0 : TN_ERR_CORRUPT; }
static int peer(void) { return tn_error_peer().pid == 0 ? 0 : TN_ERR_CORRUPT; }
static int status_name(void) { return tn_status_name(0) != NULL ? 0 : TN_ERR_CORRUPT; }
static int sentence(void) { return tn_status_sentence(0) != NULL ? 0 : TN_ERR_CORRUPT; }
FAULTS(tn_version, .has_no_calls = true, .call = version)
FAULTS(tn_deadline_after, .has_no_calls = true, .call = deadline)
FAULTS(tn_device_count, .has_no_calls = true, .call = device_count)
FAULTS(tn_device_get_info, .call = device_info)
FAULTS(tn_device_get_free, .call = device_free)
FAULTS(tn_device_find, .has_no_calls = true, .call = device_find)
FAULTS(tn_device_find_address, .depends = true, .keeps_memory = true,
       .expected = TN_ERR_UNSUPPORTED, .call = device_address)
FAULTS(tn_device_wait, .has_no_calls = true, .call = device_wait)
FAULTS(tn_error_detail, .has_no_calls = true, .call = detail)
FAULTS(tn_error_peer, .has_no_calls = true, .call = peer)
FAULTS(tn_status_name, .has_no_calls = true, .call = status_name)
FAULTS(tn_status_sentence, .has_no_calls = true, .call = sentence)

/* Without memory for a hook there is none; nodes are kept, so each failure is a process's first
 * call.
 */
static void log_line(int level, const char *line, void *context)
{
    (void)level, (void)line, (void)context;
}
static void log_quietly(void) { tn_log_set(NULL, NULL); }
static int log_set(void) { return tn_log_set(log_line, &number), 0; }
static void log_before(void) { tn_log_set(log_line, NULL); }
FAULTS(tn_log_set, .is_cold = true, .keeps_memory = true, .prepare = log_before,
       .call = log_set, .undo = log_quietly)

static int ends_no_wait(void *context)
{
    (void)context;
    return 0;
}
static void interrupt_off(void) { tn_interrupt_set(NULL, NULL); }
static int interrupt_set(void) { return tn_interrupt_set(ends_no_wait, &number), 0; }
FAULTS(tn_interrupt_set, .is_cold = true, .keeps_memory = true, .call = interrupt_set,
       .undo = interrupt_off)
