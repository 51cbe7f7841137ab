/* SPDX-License-Identifier: Apache-2.0 */
/* tenon doctor: recount everything, name every discrepancy, repair on request. */
#include <stdlib.h>

#include "cmd.h"
#include "table.h"
#include "text.h"

struct arguments {
    struct cmd_arguments common;
    bool fix;
};

static const struct argp_option options[] = {
    CMD_COMMON_OPTIONS,
    {"fix", 'f', NULL, 0, "Repair what is found; takes a seat in the domain", 0},
    {0}};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct arguments *arguments = state->input;

    if (key != 'f')
        return cmd_parse_key(key, argument, state);
    arguments->fix = true;
    return 0;
}

/* What was found in one domain. */
struct findings {
    const char *label; /* the domain's, or "files" */
    bool is_files;     /* files that no domain and no process has */
    json_t *list;      /* NULL: print text */
    int found, repaired;
    uint32_t unchecked; /* blocks that other processes used, or of which tenond told nothing */
};

static int hear(const char *sentence, bool repaired, void *context)
{
    struct findings *findings = context;
    char shown[CMD_SENTENCE_BYTES];

    snprintf(shown, sizeof shown, "%s", sentence);
    tni_text_clean(shown);
    findings->found++;
    findings->repaired += repaired;
    if (findings->list != NULL) {
        json_t *object = json_object();
        cmd_json_set(object, "what", json_string(shown));
        cmd_json_set(object, "repaired", json_boolean(repaired));
        json_array_append_new(findings->list, object);
    } else {
        printf("%s: %s%s\n", findings->label, shown, repaired ? " (repaired)" : "");
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
        if (findings->unchecked > 0)
            printf("; %u %s not checked: in use all the time, or tenond does not answer",
                   findings->unchecked, findings->unchecked == 1 ? "block was" : "blocks were");
        printf("\n");
        return;
    }
    json_t *object = json_object();
    cmd_json_set(object, "domain",
                 findings->is_files ? json_null() : cmd_json_text(findings->label));
    cmd_json_set(object, "discrepancies", json_integer(findings->found));
    cmd_json_set(object, "repaired", json_integer(findings->repaired));
    cmd_json_set(object, "left", json_integer(left));
    cmd_json_set(object, "unchecked", json_integer(findings->unchecked));
    cmd_json_set(object, "findings", json_incref(findings->list));
    json_array_append_new(ret_list, object);
}

/*
 * @param found  the result of the search: the number of findings, or an error
 * @return an exit code: CMD_TROUBLE if a finding was not repaired
 */
static int conclude(struct findings *findings, int found, json_t *ret_list)
{
    int code = CMD_TROUBLE;

    if (found < 0) {
        cmd_fail("doctor", findings->label, found);
    } else {
        findings->found = found > findings->found ? found : findings->found;
        if (findings->found > 0 || !findings->is_files)
            report(findings, ret_list);
        code = findings->found > findings->repaired ? CMD_TROUBLE : CMD_FINE;
    }
    json_decref(findings->list);
    return code;
}

static int examine(const struct arguments *arguments, const char *name, const char *label,
                   json_t *ret_list)
{
    struct findings findings = {.label = label};
    tn_inspector *inspector;
    int status = cmd_inspect(name, &inspector);

    /* A domain may end after it was listed. That is no error, unless the user named it. */
    if (status == TN_ERR_NOT_FOUND && arguments->common.domain == NULL)
        return CMD_FINE;
    if (status != 0)
        return cmd_fail("doctor", label, status);
    findings.list = ret_list != NULL ? json_array() : NULL;
    int found =
        tn_inspect_audit(inspector, arguments->fix, hear, &findings, &findings.unchecked);
    tn_inspector_close(inspector);
    return conclude(&findings, found, ret_list);
}

/* Files of storages that belong to no live domain, or that have ended in their domain. */
static int examine_files(json_t *ret_list)
{
    struct findings findings = {
        .label = "files", .is_files = true, .list = ret_list != NULL ? json_array() : NULL};
    return conclude(&findings, tn_inspect_files(hear, &findings), ret_list);
}

/* ---- devices ----------------------------------------------------------------------------- */

static const char *type_name(int32_t type) { return type == TN_DEVICE_ROCM ? "rocm" : "cuda"; }

static json_t *describe_device(const tn_device_info *info)
{
    json_t *object = json_object();
    cmd_json_set(object, "type", json_string(type_name(info->device.type)));
    cmd_json_set(object, "id", json_integer(info->device.id));
    cmd_json_set(object, "uuid", json_string(info->uuid_text));
    cmd_json_set(object, "name", cmd_json_text(info->name));
    cmd_json_set(object, "bytes", cmd_json_count(info->memory_bytes));
    cmd_json_set(object, "driver_version", json_integer(info->driver_version));
    cmd_json_set(object, "pci", cmd_json_text(info->pci));
    cmd_json_set(object, "numa_node",
                 info->numa_node >= 0 ? json_integer(info->numa_node) : json_null());
    cmd_json_set(object, "shares", json_boolean((info->flags & TN_DEVICE_SHARES) != 0));
    return object;
}

static void print_device(const tn_device_info *info)
{
    char bytes[TABLE_TEXT_BYTES], name[sizeof info->name];
    snprintf(name, sizeof name, "%s", info->name);
    tni_text_clean(name);
    bool is_rocm = info->device.type == TN_DEVICE_ROCM;
    int version = info->driver_version;
    printf("%s:%d: %s, %s, %s, %s %d.%d%s\n", type_name(info->device.type), info->device.id,
           name, info->uuid_text, table_bytes(bytes, info->memory_bytes),
           is_rocm ? "ROCm" : "CUDA", is_rocm ? version / 10000000 : version / 1000,
           is_rocm ? version % 10000000 / 100000 : version % 1000 / 10,
           (info->flags & TN_DEVICE_SHARES) != 0 ? "" : ": processes cannot share its memory");
}

/* @return how many there are of this type, or the status of tn_device_count() */
static int show_type(int32_t type, json_t *devices)
{
    int count = tn_device_count(type);
    for (int32_t id = 0; id < count; id++) {
        tn_device_info info = {.struct_size = sizeof info};
        int status = tn_device_get_info((tn_device){type, id}, &info);
        if (status != 0)
            cmd_fail("doctor", type_name(type), status);
        else if (devices != NULL)
            json_array_append_new(devices, describe_device(&info));
        else
            print_device(&info);
    }
    return count;
}

/*
 * Say which devices this process sees, or why it sees none. Neither is a discrepancy. Of ROCm
 * it says nothing where there is none: most machines have none.
 */
static void show_devices(json_t *ret_list)
{
    json_t *devices = ret_list != NULL ? json_array() : NULL, *why = json_null();
    if (show_type(TN_DEVICE_CUDA, devices) < 0) {
        if (ret_list == NULL)
            printf("cuda: none: %s\n", tn_error_detail());
        else
            why = cmd_json_text(tn_error_detail());
    }
    int count = show_type(TN_DEVICE_ROCM, devices);
    if (count < 0 && count != TN_ERR_UNSUPPORTED)
        cmd_fail("doctor", "rocm", count);
    if (ret_list == NULL)
        return;
    json_t *object = json_object();
    cmd_json_set(object, "domain", json_null());
    cmd_json_set(object, "discrepancies", json_integer(0));
    cmd_json_set(object, "devices", devices);
    cmd_json_set(object, "no_devices", why);
    json_array_append_new(ret_list, object);
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
        if (domains.at[i].other_layout != 0) {
            if (ret_list == NULL)
                printf("%s: not checked, because another version of tenon made it (shared "
                       "layout %u)\n",
                       label, domains.at[i].other_layout);
            continue;
        }
        if (examine(arguments, id, label, ret_list) != CMD_FINE)
            worst = CMD_TROUBLE;
    }
    free(domains.at);
    show_devices(ret_list);
    return examine_files(ret_list) != CMD_FINE ? CMD_TROUBLE : worst;
}

int cmd_doctor(int argc, char **argv)
{
    const struct argp argp = {.options = options, .parser = parse};
    struct arguments arguments = {.common.takes = CMD_TAKES_ONE_OR_ALL};
    json_t *list = NULL;

    if (cmd_parse(argc, argv,
                  "Recount everything in one domain, or in all, and name every discrepancy.",
                  &argp, &arguments.common) != CMD_FINE)
        return CMD_USAGE;
    const char *domain = arguments.common.domain;
    if (arguments.common.as_json && (list = json_array()) == NULL)
        return cmd_no_memory("doctor");
    int code = domain != NULL ? examine(&arguments, domain, domain, list)
                              : examine_all(&arguments, list);
    if (list != NULL && code <= CMD_TROUBLE) {
        int printed = cmd_json_print("doctor", list);
        return code != CMD_FINE ? code : printed;
    }
    json_decref(list);
    return code;
}
