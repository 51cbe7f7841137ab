/* SPDX-License-Identifier: Apache-2.0 */
/* cmd: options, errors, lists of domains and JSON for all verbs. */
#include "cmd.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "text.h"

/* ---- options ----------------------------------------------------------------------------- */

error_t cmd_parse_help_key(int key, struct argp_state *state)
{
    switch (key) {
    case 'h':
    case '?':
        argp_state_help(state, stdout, ARGP_HELP_STD_HELP);
        return 0;
    case CMD_KEY_USAGE:
        argp_state_help(state, stdout, ARGP_HELP_USAGE | ARGP_HELP_EXIT_OK);
        return 0;
    case 'V':
        printf("tenon %s\n", tn_version());
        exit(CMD_FINE);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

char *cmd_filter_help(int key, const char *text, void *input)
{
    (void)input;
    /* Every reader of a help knows that -n takes the argument that --limit=N takes. */
    return key == ARGP_KEY_HELP_DUP_ARGS_NOTE ? NULL : (char *)text;
}

error_t cmd_parse_key(int key, char *argument, struct argp_state *state)
{
    struct cmd_arguments *arguments = state->input;

    switch (key) {
    case 'j':
        arguments->as_json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (arguments->takes == CMD_TAKES_NO_DOMAIN || state->arg_num > 0)
            argp_error(state, "'%s' is one argument too many", argument);
        arguments->domain = argument;
        return 0;
    case ARGP_KEY_NO_ARGS:
        if (arguments->takes == CMD_TAKES_A_DOMAIN)
            argp_error(state, "DOMAIN is missing");
        return 0;
    default:
        return cmd_parse_help_key(key, state);
    }
}

int cmd_parse(int argc, char **argv, const char *doc, const struct argp *argp,
              struct cmd_arguments *arguments)
{
    static const struct argp_option options[] = {CMD_COMMON_OPTIONS, {0}};
    static const char *const args_docs[] = {
        [CMD_TAKES_NO_DOMAIN] = NULL,        [CMD_TAKES_A_DOMAIN] = "DOMAIN",
        [CMD_TAKES_ONE_OR_ALL] = "[DOMAIN]", [CMD_TAKES_A_GRAPH] = "GRAPH.json [MACHINE.json]",
        [CMD_TAKES_FILES] = "NAME FILE...",  [CMD_TAKES_A_NAME] = "NAME"};
    struct argp whole = {.options = options, .parser = cmd_parse_key};

    if (argp != NULL)
        whole = *argp;
    whole.doc = doc;
    whole.args_doc = args_docs[arguments->takes];
    whole.help_filter = cmd_filter_help;
    return argp_parse(&whole, argc, argv, ARGP_NO_HELP, NULL, arguments) == 0 ? CMD_FINE
                                                                              : CMD_USAGE;
}

/* ---- errors ------------------------------------------------------------------------------ */

int cmd_fail(const char *verb, const char *subject, int status)
{
    const char *detail = tn_error_detail();
    fprintf(stderr, "tenon %s: %s%s%s\n", verb, subject != NULL ? subject : "",
            subject != NULL ? ": " : "",
            detail[0] != '\0' ? detail : tn_status_sentence(status));
    return status == TN_ERR_NOT_FOUND ? CMD_NO_DOMAIN
           : status == TN_ERR_INVALID ? CMD_USAGE
                                      : CMD_TROUBLE;
}

int cmd_no_memory(const char *verb)
{
    fprintf(stderr, "tenon %s: no memory\n", verb);
    return CMD_TROUBLE;
}

/* tenond is asked first, and has 5 s to answer, for example if it is stopped. */
static void tell_of_wait(int signal)
{
    static const char text[] =
        "tenon: the search for the domain takes long; a tenond that does "
        "not answer is waited for 5 s\n";
    (void)signal;
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
}

int cmd_inspect(const char *name, tn_inspector **ret_inspector)
{
    const struct sigaction action = {.sa_handler = tell_of_wait, .sa_flags = SA_RESTART};
    const struct itimerval after = {.it_value.tv_sec = 1}, never = {0};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &after, NULL);
    int status = tn_inspector_open(name, ret_inspector);
    setitimer(ITIMER_REAL, &never, NULL);
    return status;
}

int cmd_open(const char *verb, const char *name, tn_inspector **ret_inspector)
{
    int status = cmd_inspect(name, ret_inspector);
    return status == 0 ? CMD_FINE : cmd_fail(verb, name, status);
}

/* ---- domains ----------------------------------------------------------------------------- */

void cmd_hex_id(const tn_domain_entry *info, char id[CMD_ID_BYTES])
{
    for (size_t i = 0; i < sizeof info->id; i++)
        snprintf(id + 2 * i, 3, "%02x", info->id[i]);
}

const char *cmd_domain_label(const tn_domain_entry *info, char id[CMD_ID_BYTES])
{
    cmd_hex_id(info, id);
    return info->name[0] != '\0' ? info->name : id;
}

static int add_domain(const tn_domain_entry *info, void *context)
{
    struct cmd_domains *domains = context;
    tn_domain_entry *grown = reallocarray(domains->at, domains->count + 1, sizeof *grown);
    if (grown == NULL)
        return TN_ERR_NO_MEMORY;
    grown[domains->count++] = *info;
    domains->at = grown;
    return 0;
}

static int compare_domains(const void *one, const void *other)
{
    const tn_domain_entry *a = one, *b = other;
    int order = strcmp(a->name, b->name);
    return order != 0 ? order : memcmp(a->id, b->id, sizeof a->id);
}

int cmd_list_domains(struct cmd_domains *ret_domains)
{
    struct cmd_domains domains = {0};
    int status = tn_inspect_domains(add_domain, &domains);
    if (status != 0) {
        free(domains.at);
        return status;
    }
    if (domains.count > 0)
        qsort(domains.at, domains.count, sizeof *domains.at, compare_domains);
    *ret_domains = domains;
    return 0;
}

/* ---- JSON -------------------------------------------------------------------------------- */

json_t *cmd_json_count(uint64_t number)
{
    return json_integer(number > INT64_MAX ? INT64_MAX : (json_int_t)number);
}

json_t *cmd_json_text(const char *text)
{
    json_t *value = json_string(text); /* NULL: the text is not UTF-8 */
    char *copy = value == NULL ? strdup(text) : NULL;
    if (copy != NULL)
        value = json_string(tni_text_clean(copy));
    free(copy);
    return value;
}

void cmd_json_set(json_t *object, const char *key, json_t *value)
{
    /* If there is no memory, the document lacks the key. */
    (void)json_object_set_new(object, key, value);
}

json_t *cmd_json_block(uint32_t block)
{
    char text[9];
    snprintf(text, sizeof text, CMD_BLOCK_FORMAT, block);
    return json_string(text);
}

json_t *cmd_json_domain(const tn_domain_entry *info)
{
    char id[CMD_ID_BYTES];
    json_t *object = json_object();

    cmd_hex_id(info, id);
    cmd_json_set(object, "name", cmd_json_text(info->name));
    cmd_json_set(object, "id", json_string(id));
    cmd_json_set(object, "uid", cmd_json_count(info->uid));
    cmd_json_set(object, "creator_pid", json_integer(info->creator_pid));
    cmd_json_set(object, "seats_used", cmd_json_count(info->seats_used));
    cmd_json_set(object, "seats", cmd_json_count(info->seats));
    cmd_json_set(object, "committed_bytes", cmd_json_count(info->committed_bytes));
    cmd_json_set(object, "quota_bytes", cmd_json_count(info->quota_bytes));
    cmd_json_set(object, "age_ns", cmd_json_count(info->age_ns));
    cmd_json_set(object, "runtime_folder", cmd_json_text(info->runtime_folder));
    cmd_json_set(object, "other_layout", cmd_json_count(info->other_layout));
    return object;
}

json_t *cmd_json_seat(const tn_seat_entry *seat)
{
    json_t *object = json_object();

    cmd_json_set(object, "seat", cmd_json_count(seat->seat));
    cmd_json_set(object, "incarnation", cmd_json_count(seat->incarnation));
    cmd_json_set(object, "pid", json_integer(seat->pid));
    cmd_json_set(object, "state", cmd_json_text(seat->state));
    cmd_json_set(object, "is_manager", json_boolean(seat->is_manager));
    cmd_json_set(object, "command", cmd_json_text(seat->command));
    cmd_json_set(object, "age_ns", cmd_json_count(seat->age_ns));
    cmd_json_set(object, "blocks_held", cmd_json_count(seat->blocks_held));
    cmd_json_set(object, "bytes_held", cmd_json_count(seat->bytes_held));
    cmd_json_set(object, "device_bytes_held", cmd_json_count(seat->device_bytes_held));
    return object;
}

json_t *cmd_json_holders(const tn_holder *holders, uint32_t count)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < count; i++) {
        json_t *object = json_object();
        cmd_json_set(object, "seat", cmd_json_count(holders[i].seat));
        cmd_json_set(object, "pid", json_integer(holders[i].pid));
        cmd_json_set(object, "command", cmd_json_text(holders[i].command));
        json_array_append_new(list, object);
    }
    return list;
}

json_t *cmd_json_object(const tn_object_entry *info)
{
    char id[17];
    json_t *object = json_object();

    snprintf(id, sizeof id, "%016llx", (unsigned long long)info->id);
    cmd_json_set(object, "id", json_string(id));
    cmd_json_set(object, "kind", json_string(info->kind));
    cmd_json_set(object, "name", cmd_json_text(info->name));
    cmd_json_set(object, "count", cmd_json_count(info->count));
    cmd_json_set(object, "capacity", cmd_json_count(info->capacity));
    cmd_json_set(object, "leased", cmd_json_count(info->leased));
    cmd_json_set(object, "openers", cmd_json_count(info->openers));
    cmd_json_set(object, "producers", cmd_json_count(info->producers));
    cmd_json_set(object, "consumers", cmd_json_count(info->consumers));
    cmd_json_set(object, "owner_pid", json_integer(info->owner_pid));
    cmd_json_set(object, "owners", cmd_json_holders(info->owners, info->owner_count));
    cmd_json_set(object, "pushed", cmd_json_count(info->pushed));
    cmd_json_set(object, "redelivered", cmd_json_count(info->redelivered));
    cmd_json_set(object, "redeliveries", cmd_json_count(info->redeliveries));
    cmd_json_set(object, "ended", json_boolean(info->ended));
    cmd_json_set(object, "broken", json_boolean(info->broken));
    if (strcmp(info->kind, "channel") == 0) {
        cmd_json_set(object, "policy", json_string(info->policy));
        cmd_json_set(object, "subscribers", cmd_json_count(info->subscribers));
        cmd_json_set(object, "most_behind", cmd_json_count(info->most_behind));
        cmd_json_set(object, "slowest_pid", json_integer(info->slowest_pid));
        cmd_json_set(object, "dropped", cmd_json_count(info->dropped));
        cmd_json_set(object, "disconnected", cmd_json_count(info->disconnected));
    }
    if (strcmp(info->kind, "store") != 0)
        return object;
    cmd_json_set(object, "bytes", cmd_json_count(info->bytes));
    cmd_json_set(object, "budget_bytes", cmd_json_count(info->budget_bytes));
    cmd_json_set(object, "hits", cmd_json_count(info->hits));
    cmd_json_set(object, "misses", cmd_json_count(info->misses));
    cmd_json_set(object, "evictions", cmd_json_count(info->evictions));
    cmd_json_set(object, "is_kept", json_boolean(info->is_kept));
    return object;
}

int cmd_json_print(const char *verb, json_t *value)
{
    int status = value == NULL ? -1 : json_dumpf(value, stdout, JSON_INDENT(2));
    json_decref(value);
    if (status != 0)
        return ferror(stdout) ? CMD_TROUBLE
                              : cmd_no_memory(verb); /* main() reports a failed write */
    putchar('\n');
    return CMD_FINE;
}
