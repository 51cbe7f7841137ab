/* SPDX-License-Identifier: Apache-2.0 */
/* The command tenon: find the verb of the command line, and run it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd.h"

static const struct verb {
    const char *name;
    cmd_fn *run;
} verbs[] = {
    {"ls", cmd_ls},         {"stat", cmd_stat},         {"top", cmd_top},
    {"blocks", cmd_blocks}, {"tickets", cmd_tickets},   {"gc", cmd_gc},
    {"doctor", cmd_doctor}, {"simulate", cmd_simulate}, {"load", cmd_load},
    {"unload", cmd_unload},
};

static const char documentation[] =
    "Show and repair the domains in which processes share tensors, and simulate graphs of "
    "tasks."
    "\v"
    "Verbs:\n"
    "  ls               list the domains of this user\n"
    "  stat DOMAIN      show memory, tables, seats and objects of one domain\n"
    "  top [DOMAIN]     show the same again and again\n"
    "  blocks DOMAIN    list every block: bytes, tensor, age, holders\n"
    "  tickets DOMAIN   list what exported handles keep: uses, time left, issuer\n"
    "  gc               reclaim dead processes in every domain, remove their files\n"
    "  doctor [DOMAIN]  recount everything and name every discrepancy\n"
    "  load NAME FILE   read the weights of a model into memory for all processes\n"
    "  unload NAME      remove them\n"
    "  simulate GRAPH   run a graph of tasks in virtual time, beside lower bounds\n"
    "  help [VERB]      print this help, or that of a verb, as `tenon VERB --help' does\n"
    "\n"
    "DOMAIN is a name, or the 32 digits of an id.\n"
    "Exit status: 0 fine, 1 trouble, 2 wrong usage, 3 no such domain.";

static char help_name[] = "help";

struct call {
    const struct verb *verb;
    bool is_help; /* print the help of the verb */
    int argc;
    char **argv; /* begins with the verb */
};

static const struct verb *find_verb(const char *name)
{
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++)
        if (strcmp(verbs[i].name, name) == 0)
            return &verbs[i];
    return NULL;
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct call *call = state->input;

    switch (key) {
    case ARGP_KEY_ARG:
        if (strcmp(argument, help_name) == 0) {
            call->is_help = true;
            if (state->next == state->argc)
                argp_state_help(state, stdout, ARGP_HELP_STD_HELP);
            argument = state->argv[state->next++];
            if (state->next < state->argc)
                argp_error(state, "'%s' is one argument too many", state->argv[state->next]);
        }
        call->verb = find_verb(argument);
        if (call->verb == NULL)
            argp_error(state, "no verb is called '%s'", argument);
        call->argc = state->argc - state->next + 1;
        call->argv = &state->argv[state->next - 1];
        state->next = state->argc;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "a verb is missing");
        return EINVAL;
    default:
        return cmd_parse_help_key(key, state);
    }
}

/* Flush standard output. @return false: that failed, and a sentence on standard error says so
 */
static bool close_output(void)
{
    bool has_failed = ferror(stdout) != 0;
    errno = 0;
    if (fflush(stdout) == 0 && !has_failed)
        return true;
    if (has_failed && errno == 0) { /* an earlier write: one more tells the reason */
        fputc('\n', stdout);
        fflush(stdout);
    }
    fprintf(stderr, "tenon: standard output cannot be written%s%s\n", errno != 0 ? ": " : "",
            errno != 0 ? strerror(errno) : "");
    return false;
}

/* --help and --version end the process with exit(0). */
static void at_exit(void)
{
    if (!close_output())
        _exit(CMD_TROUBLE);
}

int main(int argc, char **argv)
{
    static const struct argp_option options[] = {CMD_HELP_OPTIONS, {0}};
    const struct argp argp = {.options = options,
                              .parser = parse,
                              .args_doc = "VERB [ARGUMENT...]",
                              .doc = documentation,
                              .help_filter = cmd_filter_help};
    static char own_name[] = "tenon", help_option[] = "--help";
    struct call call = {0};
    char name[64];

    static bool is_registered; /* a test may call main() many times */
    if (!is_registered)
        is_registered = atexit(at_exit) == 0;
    argp_err_exit_status = CMD_USAGE;
    if (argc > 0)
        argv[0] = own_name; /* getopt() would begin its errors with a path */
    if (argp_parse(&argp, argc, argv, ARGP_IN_ORDER | ARGP_NO_HELP, NULL, &call) != 0 ||
        call.verb == NULL)
        return CMD_USAGE;
    snprintf(name, sizeof name, "tenon %s", call.verb->name);
    call.argv[0] = name;
    char *help_argv[] = {name, help_option, NULL};
    int code =
        call.is_help ? call.verb->run(2, help_argv) : call.verb->run(call.argc, call.argv);
    if (!close_output())
        _exit(code == CMD_FINE ? CMD_TROUBLE : code);
    return code;
}
