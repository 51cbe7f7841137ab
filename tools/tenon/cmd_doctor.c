/* SPDX-License-Identifier: Apache-2.0 */
/* tenon doctor: recount everything, name every discrepancy, repair on request. */
#include <stdlib.h>

#include "cmd.h"

struct arguments {
    const char *domain; /* NULL: all */
    bool as_json;
    bool fix;
};

static const struct argp_option options[] = {
    CMD_JSON_OPTION,
    {"fix", 'f', NULL, 0, "Repair what is found; takes a seat in the domain", 0},
    {0}};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct arguments *arguments = state->input;

    switch (key) {
    case 'j':
        arguments->as_json = true;
        return 0;
    case 'f':
        arguments->fix = true;
        return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num > 0)
            argp_error(state, "'%s' is one argument too many", argument);
        arguments->domain = argument;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* What was found in one domain. */
struct findings {
    const char *label;
    json_t *list; /* NULL: print text */
    int found, repaired;
};

static int hear(const char *sentence, bool repaired, void *context)
{
    struct findings *findings = context;

    findings->found++;
    findings->repaired += repaired;
    if (findings->list != NULL) {
        json_t *object = json_object();
        cmd_json_set(object, "what", json_string(sentence));
        cmd_json_set(object, "repaired", json_boolean(repaired));
        json_array_append_new(findings->list, object);
    } else {
        printf("%s: %s%s\n", findings->label, sentence, repaired ? " (repaired)" : "");
    }
    return 0;
}

static void report(const struct findings *findings, json_t *ret_list)
{
    int left = findings->found - findings->repaired;

    if (ret_list == NULL) {
        printf("%s: %d %s", findings->label, findings->found,
               findings->found == 1 ? "discrepancy" : "discrepancies");
        if (findings->repaired > 0)
            printf(", %d repaired", findings->repaired);
        printf("\n");
        return;
    }
    json_t *object = json_object();
    cmd_json_set(object, "domain", json_string(findings->label));
    cmd_json_set(object, "discrepancies", json_integer(findings->found));
    cmd_json_set(object, "repaired", json_integer(findings->repaired));
    cmd_json_set(object, "left", json_integer(left));
    cmd_json_set(object, "findings", json_incref(findings->list));
    json_array_append_new(ret_list, object);
}

/* @return an exit code: CMD_TROUBLE while something is wrong and was not repaired */
static int examine(const struct arguments *arguments, const char *name, const char *label,
                   json_t *ret_list)
{
    struct findings findings = {.label = label};
    tn_inspector *inspector;
    int status = tn_inspector_open(name, &inspector), code;

    /* Of all domains, one that ended since they were listed has nothing wrong with it. */
    if (status == TN_ERR_NOT_FOUND && arguments->domain == NULL)
        return CMD_FINE;
    if (status != 0)
        return cmd_fail("doctor", label, status);
    findings.list = ret_list != NULL ? json_array() : NULL;
    int found = tn_inspect_audit(inspector, arguments->fix, hear, &findings);
    tn_inspector_close(inspector);
    if (found < 0) {
        cmd_fail("doctor", label, found);
        code = CMD_TROUBLE;
    } else {
        findings.found = found > findings.found ? found : findings.found;
        report(&findings, ret_list);
        code = findings.found > findings.repaired ? CMD_TROUBLE : CMD_FINE;
    }
    json_decref(findings.list);
    return code;
}

static int examine_all(const struct arguments *arguments, json_t *ret_list)
{
    struct cmd_domains domains;
    char id[CMD_ID_BYTES];
    int worst = CMD_FINE, status = cmd_list_domains(&domains);

    if (status != 0)
        return cmd_fail("doctor", NULL, status);
    if (domains.count == 0 && ret_list == NULL)
        printf("no domains\n");
    for (size_t i = 0; i < domains.count; i++) {
        const char *label = cmd_domain_label(&domains.at[i], id);
        cmd_hex_id(&domains.at[i], id);
        if (examine(arguments, id, label, ret_list) != CMD_FINE)
            worst = CMD_TROUBLE;
    }
    free(domains.at);
    return worst;
}

int cmd_doctor(int argc, char **argv)
{
    const struct argp argp = {.options = options,
                              .parser = parse,
                              .args_doc = "[DOMAIN]",
                              .doc =
                                  "Recount everything in one domain, or in all, and name every "
                                  "discrepancy."};
    struct arguments arguments = {0};
    json_t *list = NULL;

    if (argp_parse(&argp, argc, argv, 0, NULL, &arguments) != 0)
        return CMD_USAGE;
    if (arguments.as_json && (list = json_array()) == NULL)
        return cmd_no_memory("doctor");
    int code = arguments.domain != NULL
                   ? examine(&arguments, arguments.domain, arguments.domain, list)
                   : examine_all(&arguments, list);
    if (list != NULL && code <= CMD_TROUBLE) {
        int printed = cmd_json_print("doctor", list);
        return code != CMD_FINE ? code : printed;
    }
    json_decref(list);
    return code;
}
