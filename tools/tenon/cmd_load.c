/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tenon load: read the weights of a model into shared memory, where tenond keeps them for all
 * processes; and tenon unload.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "load.h"
#include "table.h"

struct arguments {
    struct cmd_arguments common;
    const char *domain, *name;
    char *const *files;
    size_t file_count;
    uint64_t lifetime_ns; /* 0: until it is unloaded */
    bool is_quiet;
};

/* ---- options ----------------------------------------------------------------------------- */

static const struct argp_option load_options[] = {
    {"domain", 'd', "NAME", 0, "The domain that has the models, in place of 'models'", 0},
    {"for", 'f', "TIME", 0, "Unload the model after this time, as in 90s, 30m, 12h or 7d", 0},
    {"quiet", 'q', NULL, 0, "Show no progress, and print nothing if all went well", 0},
    CMD_COMMON_OPTIONS,
    {0}};
static const struct argp_option unload_options[] = {
    {"domain", 'd', "NAME", 0, "The domain that has the models, in place of 'models'", 0},
    CMD_COMMON_OPTIONS,
    {0}};

/* @return 0: the text is no time */
static uint64_t parse_time(const char *text)
{
    static const struct {
        char letter;
        uint64_t seconds;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
    enum { MOST_DAYS = 36500 };
    char *end;
    errno = 0;
    unsigned long number = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || errno != 0 || end[0] == '\0' || end[1] != '\0')
        return 0;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (*end == units[i].letter)
            return number <= MOST_DAYS * UINT64_C(86400) / units[i].seconds
                       ? number * units[i].seconds * UINT64_C(1000000000)
                       : 0;
    return 0;
}

static error_t parse_load(int key, char *argument, struct argp_state *state)
{
    struct arguments *arguments = state->input;

    switch (key) {
    case 'd':
        arguments->domain = argument;
        return 0;
    case 'f':
        arguments->lifetime_ns = parse_time(argument);
        if (arguments->lifetime_ns == 0)
            argp_error(state, "'%s' is no time such as 90s, 30m, 12h or 7d", argument);
        return 0;
    case 'q':
        arguments->is_quiet = true;
        return 0;
    case ARGP_KEY_ARG:
        arguments->name = argument;
        arguments->files = &state->argv[state->next];
        arguments->file_count = (size_t)(state->argc - state->next);
        if (arguments->file_count == 0)
            argp_error(state, "FILE is missing");
        state->next = state->argc;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "NAME and FILE are missing");
        return 0;
    default:
        return cmd_parse_key(key, argument, state);
    }
}

static error_t parse_unload(int key, char *argument, struct argp_state *state)
{
    struct arguments *arguments = state->input;

    switch (key) {
    case 'd':
        arguments->domain = argument;
        return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num > 0)
            argp_error(state, "'%s' is one argument too many", argument);
        arguments->name = argument;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "NAME is missing");
        return 0;
    default:
        return cmd_parse_key(key, argument, state);
    }
}

/* ---- reading ----------------------------------------------------------------------------- */

enum { PART_BYTES = 256 << 10 };

/* The model while it is read. */
struct reading {
    const struct arguments *arguments;
    tn_arena *arena;
    uint64_t arena_off;  /* of the next tensor */
    void *buffer;        /* [PART_BYTES] */
    tn_tensor **tensors; /* [count] so far */
    uint32_t count;
    uint64_t read_bytes, all_bytes, begun_ns;
    int percent; /* shown last; -1: none */
};

static uint64_t now_ns(void)
{
    return tn_deadline_after(0).ns; /* the time of deadlines is that of CLOCK_MONOTONIC */
}

static void show_progress(struct reading *r)
{
    char done[TABLE_TEXT_BYTES], all[TABLE_TEXT_BYTES], rate[TABLE_TEXT_BYTES];
    int percent =
        r->all_bytes != 0 ? (int)(100.0 * (double)r->read_bytes / (double)r->all_bytes) : 100;
    if (r->arguments->is_quiet || !isatty(STDERR_FILENO) || percent == r->percent)
        return;
    double seconds = (double)(now_ns() - r->begun_ns) / 1e9;
    uint64_t per_second = seconds > 0 ? (uint64_t)((double)r->read_bytes / seconds) : 0;
    r->percent = percent;
    fprintf(stderr, "\r%s: %3d %%, %s of %s, %s/s   ", r->arguments->name, percent,
            table_bytes(done, r->read_bytes), table_bytes(all, r->all_bytes),
            table_bytes(rate, per_second));
}

/*
 * Copy a part from the file into the arena. The buffer stays in the processor's cache. A
 * mapping of the file as source of the write is no faster, is slower if the disk has to be
 * read, and cannot say what is wrong with the file.
 */
static int copy_part(const struct safetensors *file, const struct safetensors_tensor *tensor,
                     struct safetensors_part part, struct reading *r)
{
    char error[SAFETENSORS_ERROR_BYTES];
    bool is_read = safetensors_read_part(file, tensor, part, r->buffer, error) == 0;
    if (is_read &&
        tn_arena_write(r->arena, r->arena_off + part.off, r->buffer, part.bytes) == 0)
        return 0;
    fprintf(stderr, "%stenon load: %s%s%s\n", r->percent >= 0 ? "\n" : "",
            is_read ? tensor->name : error, is_read ? ": " : "",
            is_read ? tn_error_detail() : "");
    return CMD_TROUBLE;
}

/* Copy a tensor into the place where processes find it. */
static int read_tensor(const struct safetensors *file, const struct safetensors_tensor *tensor,
                       void *context)
{
    struct reading *r = context;
    uint64_t size = safetensors_size(tensor);
    (void)posix_fadvise(file->fd, 0, 0, POSIX_FADV_SEQUENTIAL); /* reads further ahead */
    for (struct safetensors_part part = {0}; part.off < size; part.off += part.bytes) {
        part.bytes = size - part.off < PART_BYTES ? size - part.off : PART_BYTES;
        int code = copy_part(file, tensor, part, r);
        if (code != 0)
            return code;
        r->read_bytes += part.bytes;
        show_progress(r);
    }
    r->arena_off += load_files_room(tensor);
    r->read_bytes = r->arena_off; /* with what aligns the next tensor: all of it is 100 % */
    show_progress(r);
    return 0;
}

/* Make a tensor of the sealed arena. Its bytes are there. */
static int make_tensor(const struct safetensors *file, const struct safetensors_tensor *tensor,
                       void *context)
{
    struct reading *r = context;
    (void)file;
    int status = tn_arena_allocate(r->arena, tensor->dtype, tensor->ndim, tensor->shape,
                                   &r->tensors[r->count]);
    if (status != 0)
        return cmd_fail("load", tensor->name, status);
    r->count++;
    return 0;
}

static int read_all(const struct load_files *files, struct reading *r)
{
    r->begun_ns = now_ns();
    r->buffer = malloc(PART_BYTES);
    if (r->buffer == NULL)
        return cmd_no_memory("load");
    int code = load_files_for_each(files, read_tensor, r);
    free(r->buffer);
    if (code == 0 && r->percent >= 0)
        fprintf(stderr, "\r%*s\r", 78, "");
    if (code != 0)
        return code;
    int status = tn_arena_seal(r->arena);
    return status != 0 ? cmd_fail("load", r->arguments->name, status)
                       : load_files_for_each(files, make_tensor, r);
}

/* ---- load -------------------------------------------------------------------------------- */

/* @param description  of the files, from before they were read */
static int put(tn_store *store, const struct arguments *arguments, const char *description,
               const struct reading *r)
{
    const tn_message value = {.bytes = description,
                              .size_bytes = strlen(description),
                              .tensors = r->tensors,
                              .tensor_count = r->count};
    int status = tn_store_put(store, arguments->name, &value,
                              TN_OPTIONS(tn_store_put_options, .flags = TN_PUT_PINNED,
                                         .lifetime_ns = arguments->lifetime_ns,
                                         .deadline = tn_deadline_after(10 * TN_SECOND)),
                              NULL);
    if (status == 0)
        status = tn_store_set_kept(store, true);
    return status == 0 ? CMD_FINE : cmd_fail("load", arguments->name, status);
}

/* What was read while a file changed may be partly old and partly new. */
static int check_unchanged(const struct load_files *files, const char *name,
                           const char *description)
{
    char *now = load_files_describe(files);
    if (now == NULL)
        return cmd_no_memory("load");
    bool is_same = strcmp(now, description) == 0;
    free(now);
    if (!is_same)
        fprintf(stderr, "tenon load: %s: a file was changed while it was read\n", name);
    return is_same ? CMD_FINE : CMD_TROUBLE;
}

static int load_into(tn_domain *domain, tn_store *store, const struct arguments *arguments,
                     const struct load_files *files)
{
    char *description = load_files_describe(files);
    struct reading r = {.arguments = arguments,
                        .all_bytes = files->arena_bytes,
                        .tensors = calloc(files->tensor_count + 1, sizeof *r.tensors),
                        .percent = -1};
    if (r.tensors == NULL || description == NULL) {
        free(description);
        free(r.tensors);
        return cmd_no_memory("load");
    }
    int status = tn_arena_create_unsealed(
        domain, files->arena_bytes != 0 ? files->arena_bytes : 1, TN_NOW, &r.arena);
    int code = status == 0 ? read_all(files, &r) : cmd_fail("load", arguments->name, status);
    if (code == 0)
        code = check_unchanged(files, arguments->name, description);
    if (code == 0)
        code = put(store, arguments, description, &r);
    for (uint32_t i = 0; i < r.count; i++)
        tn_tensor_unref(r.tensors[i]);
    tn_arena_close(r.arena);
    free(r.tensors);
    free(description);
    return code;
}

/* @param is_new  this call has loaded the model */
static int report(const struct arguments *arguments, const struct load_files *files,
                  bool is_new)
{
    char bytes[TABLE_TEXT_BYTES];
    if (arguments->common.as_json) {
        json_t *model = json_object();
        cmd_json_set(model, "name", cmd_json_text(arguments->name));
        cmd_json_set(model, "domain", cmd_json_text(arguments->domain));
        cmd_json_set(model, "is_new", json_boolean(is_new));
        cmd_json_set(model, "tensors", cmd_json_count(files->tensor_count));
        cmd_json_set(model, "bytes", cmd_json_count(files->arena_bytes));
        return cmd_json_print("load", model);
    }
    if (!arguments->is_quiet)
        printf("%s %s: %zu %s, %s\n", arguments->name,
               is_new ? "is loaded" : "was loaded before", files->tensor_count,
               files->tensor_count == 1 ? "tensor" : "tensors",
               table_bytes(bytes, files->arena_bytes));
    return CMD_FINE;
}

static int load_once(tn_domain *domain, tn_store *store, const struct arguments *arguments,
                     const struct load_files *files)
{
    tn_message value;
    int status = tn_store_get_or_make(store, arguments->name, TN_FOREVER, &value);
    if (status < 0)
        return cmd_fail("load", arguments->name, status);
    if (status == TN_STORE_MAKE) {
        int code = load_into(domain, store, arguments, files);
        if (code != CMD_FINE && (status = tn_store_give_up(store, arguments->name)) < 0 &&
            status != TN_ERR_NOT_FOUND)
            cmd_fail("load", arguments->name, status);
        return code == CMD_FINE ? report(arguments, files, true) : code;
    }
    bool is_same = load_files_made(files, &value);
    tn_message_fini(&value);
    if (is_same)
        return report(arguments, files, false);
    fprintf(stderr,
            "tenon load: %s was loaded before, from other files or before they changed: "
            "`tenon unload %s' removes that\n",
            arguments->name, arguments->name);
    return CMD_TROUBLE;
}

static int load(const struct arguments *arguments, const struct load_files *files)
{
    tn_domain *domain;
    tn_store *store;
    /* As many as the Python package asks for: whoever comes first makes the domain. */
    int status = tn_domain_open(arguments->domain,
                                TN_OPTIONS(tn_domain_options, .seats = 1024, .objects = 16384),
                                0, &domain);
    if (status != 0)
        return cmd_fail("load", arguments->domain, status);
    status = tn_store_open(domain, LOAD_STORE, NULL, 0, &store);
    int code = status == 0 ? load_once(domain, store, arguments, files)
                           : cmd_fail("load", arguments->domain, status);
    if (status == 0)
        tn_object_close(store);
    tn_domain_close(domain);
    return code;
}

/* A model that Python reads is one file. */
static int load_by_python(const struct arguments *arguments)
{
    for (size_t i = 0; i < arguments->file_count && arguments->file_count > 1; i++)
        if (load_python_reads(arguments->files[i])) {
            fprintf(stderr, "tenon load: %s: a file of NumPy or PyTorch is a model by itself\n",
                    arguments->files[i]);
            return CMD_USAGE;
        }
    return load_python_run(&(struct load_python){.domain = arguments->domain,
                                                 .name = arguments->name,
                                                 .path = arguments->files[0],
                                                 .lifetime_ns = arguments->lifetime_ns,
                                                 .form = arguments->common.as_json ? "json"
                                                         : arguments->is_quiet     ? "quiet"
                                                                                   : "text"});
}

static bool is_for_python(const struct arguments *arguments)
{
    for (size_t i = 0; i < arguments->file_count; i++)
        if (load_python_reads(arguments->files[i]))
            return true;
    return false;
}

int cmd_load(int argc, char **argv)
{
    const struct argp argp = {.options = load_options, .parser = parse_load};
    struct arguments arguments = {.common.takes = CMD_TAKES_FILES, .domain = LOAD_DOMAIN};
    struct load_files files;

    if (cmd_parse(argc, argv,
                  "Read the weights of a model into shared memory, once for all processes: "
                  "files of the format safetensors, or the index of several; or one file of "
                  "NumPy (.npz) or PyTorch (.pt, .pth), which the Python package reads. tenond "
                  "keeps them until `tenon unload NAME'. No process can change them.",
                  &argp, &arguments.common) != CMD_FINE)
        return CMD_USAGE;
    if (is_for_python(&arguments))
        return load_by_python(&arguments);
    int code = load_files_open(arguments.files, arguments.file_count, &files);
    if (code != CMD_FINE)
        return code;
    code = load(&arguments, &files);
    load_files_close(&files);
    return code;
}

/* ---- unload ------------------------------------------------------------------------------ */

static int unload(const struct arguments *arguments, tn_domain *domain)
{
    tn_store *store;
    int status = tn_store_open(domain, LOAD_STORE, NULL, TN_OPEN_EXISTING, &store);
    if (status == 0) {
        status = tn_store_delete(store, arguments->name, 0);
        tn_object_close(store);
    }
    if (status == TN_ERR_NOT_FOUND) {
        fprintf(stderr, "tenon unload: no model of the domain '%s' is called '%s'\n",
                arguments->domain, arguments->name);
        return CMD_TROUBLE;
    }
    if (status != 0)
        return cmd_fail("unload", arguments->name, status);
    if (!arguments->common.as_json)
        return CMD_FINE;
    json_t *model = json_object();
    cmd_json_set(model, "name", cmd_json_text(arguments->name));
    cmd_json_set(model, "domain", cmd_json_text(arguments->domain));
    return cmd_json_print("unload", model);
}

int cmd_unload(int argc, char **argv)
{
    const struct argp argp = {.options = unload_options, .parser = parse_unload};
    struct arguments arguments = {.common.takes = CMD_TAKES_A_NAME, .domain = LOAD_DOMAIN};
    tn_domain *domain;

    if (cmd_parse(argc, argv,
                  "Remove a model that `tenon load' has loaded. Processes that use it keep it "
                  "until they let go of it.",
                  &argp, &arguments.common) != CMD_FINE)
        return CMD_USAGE;
    int status = tn_domain_open(arguments.domain, NULL, TN_OPEN_EXISTING, &domain);
    if (status != 0)
        return cmd_fail("unload", NULL, status);
    int code = unload(&arguments, domain);
    tn_domain_close(domain);
    return code;
}
