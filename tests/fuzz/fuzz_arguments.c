/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_arguments: the command lines of tenon and tenond, and what tenon prints of domains that
 * make no sense. Both are this program's; the library's inspector is replaced by one that says
 * what the input says, and tenond stops once its arguments are read. An error of usage, which
 * would end the process, ends the input.
 */
#include <argp.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "os/os.h"

enum { MOST_ARGUMENTS = 7, MOST_FRAMES = 3, MOST_ENTRIES = 3 };

int tenon_main(int argc, char **argv);
int tenond_main(int argc, char **argv);

static jmp_buf usage;
static struct fuzz_input world; /* what the inspector says */
static uint32_t frames;

/* ---- argp -------------------------------------------------------------------------------- */

/* What argp would have freed, had it not been left by a jump. */
void __lsan_disable(void) __attribute__((weak));
void __lsan_enable(void) __attribute__((weak));
static bool is_parsing;

static void note_parsing(bool now)
{
    if (__lsan_disable != NULL && now && !is_parsing)
        __lsan_disable();
    if (__lsan_enable != NULL && !now && is_parsing)
        __lsan_enable();
    is_parsing = now;
}

static void end_usage(void) __attribute__((noreturn));
static void end_usage(void)
{
    note_parsing(false);
    longjmp(usage, 1);
}

error_t __real_argp_parse(const struct argp *argp, int argc, char **argv, unsigned flags,
                          int *ret_index, void *input);
error_t __wrap_argp_parse(const struct argp *argp, int argc, char **argv, unsigned flags,
                          int *ret_index, void *input);
error_t __wrap_argp_parse(const struct argp *argp, int argc, char **argv, unsigned flags,
                          int *ret_index, void *input)
{
    /* argp's own --HANG sleeps for as long as it says */
    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], "--H", 3) == 0)
            longjmp(usage, 1);
    note_parsing(true);
    error_t error = __real_argp_parse(argp, argc, argv, flags | ARGP_NO_EXIT, ret_index, input);
    if (error != 0)
        end_usage();
    note_parsing(false);
    return error;
}

void __wrap_argp_error(const struct argp_state *state, const char *format, ...);
void __wrap_argp_error(const struct argp_state *state, const char *format, ...)
{
    char line[1024];
    va_list arguments;
    (void)state;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    end_usage();
}

void __wrap_argp_usage(const struct argp_state *state);
void __wrap_argp_usage(const struct argp_state *state)
{
    (void)state;
    end_usage();
}

static bool is_running; /* whether main() of the command runs */

/* --version, and --help of the command, end the process. The fuzzer ends it by exit(), too. */
void __real_exit(int code) __attribute__((noreturn));
void __wrap_exit(int code) __attribute__((noreturn));
void __wrap_exit(int code)
{
    if (!is_running)
        __real_exit(code);
    end_usage();
}

/* ---- the inspector ----------------------------------------------------------------------- */

struct tn_inspector {
    int is_open;
};
static struct tn_inspector inspector;

/* A status now and then. */
static int some_status(void)
{
    static const int statuses[] = {TN_ERR_NOT_FOUND, TN_ERR_INVALID, TN_ERR_CORRUPT};
    uint32_t what = fuzz_u8(&world);
    return what < 240 ? 0 : statuses[what % 3];
}

int __wrap_tn_inspector_open(const char *name, tn_inspector **ret_inspector);
int __wrap_tn_inspector_open(const char *name, tn_inspector **ret_inspector)
{
    int status = some_status();
    if (status != 0)
        return tni_fail(status, "no domain is named '%s'", name);
    inspector.is_open++;
    *ret_inspector = &inspector;
    return 0;
}

tn_inspector *__wrap_tn_inspector_close(tn_inspector *of);
tn_inspector *__wrap_tn_inspector_close(tn_inspector *of)
{
    FUZZ_CHECK(of == NULL || of->is_open-- > 0);
    return NULL;
}

/* Texts end somewhere: that much the library promises. */
#define END_TEXT(text) ((text)[sizeof(text) - 1] = '\0')

static const char *some_text(char text[32])
{
    fuzz_fill(&world, text, 31);
    text[31] = '\0';
    return text;
}

static void end_texts(tn_domain_entry *info)
{
    END_TEXT(info->name);
    END_TEXT(info->runtime_folder);
}

static void some_domain(tn_domain_entry *info)
{
    fuzz_fill(&world, info, sizeof *info);
    end_texts(info);
}

int __wrap_tn_inspect_domains(tn_domain_entry_fn *each, void *context);
int __wrap_tn_inspect_domains(tn_domain_entry_fn *each, void *context)
{
    int status = some_status();
    for (uint32_t n = fuzz_u8(&world) % MOST_ENTRIES; n > 0 && status == 0; n--) {
        tn_domain_entry info;
        some_domain(&info);
        status = each(&info, context);
    }
    return status;
}

int __wrap_tn_inspect_stat(tn_inspector *of, tn_domain_stat *ret_stat);
int __wrap_tn_inspect_stat(tn_inspector *of, tn_domain_stat *ret_stat)
{
    (void)of;
    fuzz_fill(&world, (char *)ret_stat + sizeof ret_stat->struct_size,
              sizeof *ret_stat - sizeof ret_stat->struct_size);
    end_texts(&ret_stat->domain);
    END_TEXT(ret_stat->huge_pages);
    return some_status();
}

int __wrap_tn_inspect_seats(tn_inspector *of, tn_seat_entry_fn *each, void *context);
int __wrap_tn_inspect_seats(tn_inspector *of, tn_seat_entry_fn *each, void *context)
{
    int status = some_status();
    (void)of;
    for (uint32_t n = fuzz_u8(&world) % MOST_ENTRIES; n > 0 && status == 0; n--) {
        tn_seat_entry info;
        fuzz_fill(&world, &info, sizeof info);
        info.is_manager = (fuzz_u8(&world) & 1) != 0;
        END_TEXT(info.command);
        END_TEXT(info.state);
        status = each(&info, context);
    }
    return status;
}

int __wrap_tn_inspect_blocks(tn_inspector *of, tn_block_entry_fn *each, void *context);
int __wrap_tn_inspect_blocks(tn_inspector *of, tn_block_entry_fn *each, void *context)
{
    int status = some_status();
    (void)of;
    for (uint32_t n = fuzz_u8(&world) % MOST_ENTRIES; n > 0 && status == 0; n--) {
        static char strategy[32], kind[32]; /* words that last, as the library's do */
        char path[32], attributes[32];
        tn_holder holders[2];
        tn_block_entry info;
        fuzz_fill(&world, &info, sizeof info);
        fuzz_fill(&world, holders, sizeof holders);
        END_TEXT(holders[0].command);
        END_TEXT(holders[1].command);
        info.strategy = some_text(strategy);
        info.path = some_text(path);
        info.kind = some_text(kind);
        info.attributes = some_text(attributes);
        info.is_write_once = (fuzz_u8(&world) & 1) != 0;
        info.is_copy = (fuzz_u8(&world) & 1) != 0;
        info.ndim = (int32_t)((uint32_t)info.ndim % (TN_MAX_NDIM + 1));
        info.holder_count %= 3;
        info.holders = holders;
        END_TEXT(info.device);
        status = each(&info, context);
    }
    return status;
}

int __wrap_tn_inspect_devices(tn_inspector *of, tn_device_entry_fn *each, void *context);
int __wrap_tn_inspect_devices(tn_inspector *of, tn_device_entry_fn *each, void *context)
{
    int status = some_status();
    (void)of;
    for (uint32_t n = fuzz_u8(&world) % MOST_ENTRIES; n > 0 && status == 0; n--) {
        tn_device_entry info;
        tn_device_holder holders[2];
        fuzz_fill(&world, &info, sizeof info);
        fuzz_fill(&world, holders, sizeof holders);
        END_TEXT(info.uuid);
        END_TEXT(holders[0].command);
        END_TEXT(holders[1].command);
        info.holder_count %= 3;
        info.holders = holders;
        status = each(&info, context);
    }
    return status;
}

int __wrap_tn_inspect_schedulers(tn_inspector *of, tn_scheduler_entry_fn *each, void *context);
int __wrap_tn_inspect_schedulers(tn_inspector *of, tn_scheduler_entry_fn *each, void *context)
{
    int status = some_status();
    (void)of;
    for (uint32_t n = fuzz_u8(&world) % MOST_ENTRIES; n > 0 && status == 0; n--) {
        tn_scheduler_entry info;
        fuzz_fill(&world, &info, sizeof info);
        END_TEXT(info.name);
        info.info.resource_count %= 17;
        for (uint32_t i = 0; i < info.info.resource_count; i++) {
            tn_resource_info *its = &info.info.resources[i];
            END_TEXT(its->name);
            its->total = (double)fuzz_u64(&world) / 10000;
            its->free = (double)fuzz_u64(&world) / 10000;
            its->busy_ns = (double)fuzz_u64(&world);
        }
        status = each(&info, context);
    }
    return status;
}

int __wrap_tn_inspect_objects(tn_inspector *of, tn_object_entry_fn *each, void *context);
int __wrap_tn_inspect_objects(tn_inspector *of, tn_object_entry_fn *each, void *context)
{
    int status = some_status();
    (void)of;
    for (uint32_t n = fuzz_u8(&world) % MOST_ENTRIES; n > 0 && status == 0; n--) {
        char kind[32];
        tn_holder owners[2];
        tn_object_entry info;
        fuzz_fill(&world, &info, sizeof info);
        fuzz_fill(&world, owners, sizeof owners);
        END_TEXT(owners[0].command);
        END_TEXT(owners[1].command);
        info.kind = some_text(kind);
        info.ended = (fuzz_u8(&world) & 1) != 0;
        info.broken = (fuzz_u8(&world) & 1) != 0;
        info.owner_count %= 3;
        info.owners = owners;
        END_TEXT(info.name);
        status = each(&info, context);
    }
    return status;
}

int __wrap_tn_inspect_tickets(tn_inspector *of, tn_ticket_entry_fn *each, void *context);
int __wrap_tn_inspect_tickets(tn_inspector *of, tn_ticket_entry_fn *each, void *context)
{
    int status = some_status();
    (void)of;
    for (uint32_t n = fuzz_u8(&world) % MOST_ENTRIES; n > 0 && status == 0; n--) {
        tn_ticket_entry info;
        fuzz_fill(&world, &info, sizeof info);
        status = each(&info, context);
    }
    return status;
}

static int say_some(tn_audit_fn *each, void *context)
{
    int status = some_status();
    for (uint32_t n = fuzz_u8(&world) % MOST_ENTRIES; n > 0 && status == 0; n--) {
        char text[32];
        status = each(some_text(text), (fuzz_u8(&world) & 1) != 0, context);
    }
    return status != 0 ? status : fuzz_u8(&world) % 3;
}

int __wrap_tn_inspect_audit(tn_inspector *of, bool repair, tn_audit_fn *each, void *context);
int __wrap_tn_inspect_audit(tn_inspector *of, bool repair, tn_audit_fn *each, void *context)
{
    (void)of;
    (void)repair;
    return say_some(each, context);
}

int __wrap_tn_inspect_files(tn_audit_fn *each, void *context);
int __wrap_tn_inspect_files(tn_audit_fn *each, void *context)
{
    return say_some(each, context);
}

int __wrap_tn_inspect_gc(tn_audit_fn *each, void *context);
int __wrap_tn_inspect_gc(tn_audit_fn *each, void *context) { return say_some(each, context); }

/* ---- the screen, and tenond's start ------------------------------------------------------ */

void __wrap_screen_open(void);
void __wrap_screen_open(void) {}

void __wrap_screen_close(void);
void __wrap_screen_close(void) {}

bool __real_screen_wait(uint64_t duration_ns);
bool __wrap_screen_wait(uint64_t duration_ns);
bool __wrap_screen_wait(uint64_t duration_ns)
{
    uint64_t some_ns = TNI_MIN(duration_ns, UINT64_C(60000000000)); /* a day is no hang */
    return ++frames >= MOST_FRAMES || __real_screen_wait(some_ns);
}

int __wrap_tni_os_runtime_prepare(void);
int __wrap_tni_os_runtime_prepare(void) { return tni_fail(TN_ERR_DENIED, "not here"); }

/* `tenon load` of a file that Python reads */
int __wrap_execvp(const char *file, char *const argv[]);
int __wrap_execvp(const char *file, char *const argv[])
{
    (void)file, (void)argv;
    errno = ENOENT;
    return -1;
}

int __wrap_vault_run(int listen_fd, uint64_t file);
int __wrap_vault_run(int listen_fd, uint64_t file)
{
    (void)file;
    tni_os_close(listen_fd); /* as the vault does when it ends */
    return 0;
}

/* ---- one input --------------------------------------------------------------------------- */

struct command_line {
    int argc;
    char *argv[MOST_ARGUMENTS + 2];
    char *owned[MOST_ARGUMENTS + 1]; /* the same, whatever main() made of those */
};

/* Arguments are texts that end with a zero byte; the first byte says how many. */
static void take_arguments(struct fuzz_input *in, const char *name, struct command_line *line)
{
    *line = (struct command_line){.argc = 1};
    line->owned[0] = line->argv[0] = strdup(name);
    for (uint32_t count = fuzz_u8(in) % (MOST_ARGUMENTS + 1); count > 0; count--) {
        size_t size = fuzz_left(in) == 0 ? 0 : strnlen((const char *)in->at, fuzz_left(in));
        line->owned[line->argc] = line->argv[line->argc] = fuzz_text(in, size);
        (void)fuzz_u8(in);
        line->argc++;
    }
}

static void run(struct command_line *line, bool is_tenond)
{
    is_running = true;
    if (setjmp(usage) == 0)
        (void)(is_tenond ? tenond_main(line->argc, line->argv)
                         : tenon_main(line->argc, line->argv));
    is_running = false;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes)
{
    struct fuzz_input in = fuzz_input(bytes, size_bytes);
    static FILE *nowhere;
    FILE *output = stdout, *errors = stderr;
    if (nowhere == NULL)
        nowhere = fopen("/dev/null", "we");
    fuzz_begin();
    fflush(stdout);
    stdout = stderr = nowhere;
    frames = 0;
    inspector.is_open = 0;
    bool is_tenond = (fuzz_u8(&in) & 7) == 7;
    struct command_line line;
    take_arguments(&in, is_tenond ? "tenond" : "tenon", &line);
    world = in;
    run(&line, is_tenond);
    for (int i = 0; i < MOST_ARGUMENTS + 1; i++)
        free(line.owned[i]);
    tn_log_set(NULL, NULL);
    fflush(nowhere);
    stdout = output;
    stderr = errors;
    fuzz_end();
    return 0;
}
