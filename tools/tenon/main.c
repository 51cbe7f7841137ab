/* SPDX-License-Identifier: Apache-2.0 */
/* tenon: see who shares what, and repair what the dead left. Finds the verb and runs it. */
#include <stdlib.h>
#include <string.h>

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
    "  stat DOMAIN      memory, tables, seats and objects of one domain\n"
    "  top [DOMAIN]     the same, live\n"
    "  blocks DOMAIN    every block: size, type, shape, holders, age\n"
    "  tickets DOMAIN   what exported handles keep: uses, time left, issuer\n"
    "  gc               give back what dead processes left, in every domain\n"
    "  doctor [DOMAIN]  recount everything and name every discrepancy\n"
    "\n"
    "`tenon VERB --help' tells more of each. DOMAIN is a name, or the 32 digits of an id.\n"
    "Exit status: 0 fine, 1 trouble, 2 wrong usage, 3 no such domain.";

struct call {
    const struct verb *verb;
    int argc;
    char **argv; /* from the verb on */
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

int main(int argc, char **argv)
{
    static const struct argp_option options[] = {CMD_HELP_OPTION, {0}};
    const struct argp argp = {.options = options,
                              .parser = parse,
                              .args_doc = "VERB [ARGUMENT...]",
                              .doc = documentation};
    struct call call = {0};
    char name[64];

    argp_program_version_hook = print_version;
    argp_err_exit_status = CMD_USAGE;
    if (argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &call) != 0 || call.verb == NULL)
        return CMD_USAGE;
    snprintf(name, sizeof name, "tenon %s", call.verb->name);
    call.argv[0] = name;
    int code = call.verb->run(call.argc, call.argv);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        perror("tenon: standard output");
        code = code == CMD_FINE ? CMD_TROUBLE : code;
    }
    return code;
}
