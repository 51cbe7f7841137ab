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
    {"ls", cmd_ls},         {"stat", cmd_stat},       {"top", cmd_top},
    {"blocks", cmd_blocks}, {"tickets", cmd_tickets}, {"gc", cmd_gc},
    {"doctor", cmd_doctor},
};

static const char documentation[] =
    "Show and repair the domains in which processes share tensors."
    "\v"
    "Verbs:\n"
    "  ls               list the domains of this user\n"
    "  stat DOMAIN      show memory, tables, seats and objects of one domain\n"
    "  top [DOMAIN]     show the same again and again\n"
    "  blocks DOMAIN    list every block: bytes, tensor, age, holders\n"
    "  tickets DOMAIN   list what exported handles keep: uses, time left, issuer\n"
    "  gc               reclaim dead processes and remove their files, in every domain\n"
    "  doctor [DOMAIN]  recount everything and name every discrepancy\n"
    "\n"
    "`tenon VERB --help' describes a verb. DOMAIN is a name, or the 32 digits of an id.\n"
    "Exit status: 0 fine, 1 trouble, 2 wrong usage, 3 no such domain.";

struct call {
    const struct verb *verb;
    int argc;
    char **argv; /* begins with the verb */
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct call *call = state->input;

    switch (key) {
    case 'h':
        argp_state_help(state, stdout, ARGP_HELP_STD_HELP);
        return 0;
    case ARGP_KEY_ARG:
        for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++)
            if (strcmp(verbs[i].name, argument) == 0)
                call->verb = &verbs[i];
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
        return ARGP_ERR_UNKNOWN;
    }
}

static void print_version(FILE *file, struct argp_state *state)
{
    (void)state;
    fprintf(file, "tenon %s\n", tn_version());
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

/* argp ends the process after --help and --version, with exit(0). */
static void at_exit(void)
{
    if (!close_output())
        _exit(CMD_TROUBLE);
}

int main(int argc, char **argv)
{
    static const struct argp_option options[] = {CMD_HELP_OPTION, {0}};
    const struct argp argp = {.options = options,
                              .parser = parse,
                              .args_doc = "VERB [ARGUMENT...]",
                              .doc = documentation};
    struct call call = {0};
    char name[64];

    static bool is_registered; /* a test may call main() many times */
    if (!is_registered)
        is_registered = atexit(at_exit) == 0;
    argp_program_version_hook = print_version;
    argp_err_exit_status = CMD_USAGE;
    if (argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &call) != 0 || call.verb == NULL)
        return CMD_USAGE;
    snprintf(name, sizeof name, "tenon %s", call.verb->name);
    call.argv[0] = name;
    int code = call.verb->run(call.argc, call.argv);
    if (!close_output())
        _exit(code == CMD_FINE ? CMD_TROUBLE : code);
    return code;
}
