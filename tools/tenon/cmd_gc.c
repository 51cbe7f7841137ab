/* SPDX-License-Identifier: Apache-2.0 */
/* tenon gc: reclaim the dead processes of every domain, and remove files that no process needs.
 */
#include "cmd.h"
#include "text.h"

struct report {
    json_t *actions; /* NULL: print text */
    unsigned failures;
};

static int hear(const char *sentence, bool is_done, void *context)
{
    struct report *report = context;
    char shown[CMD_SENTENCE_BYTES];

    snprintf(shown, sizeof shown, "%s", sentence);
    tni_text_clean(shown);
    report->failures += !is_done;
    if (report->actions != NULL) {
        json_t *action = json_object();
        cmd_json_set(action, "what", json_string(shown));
        cmd_json_set(action, "done", json_boolean(is_done));
        json_array_append_new(report->actions, action);
    } else if (is_done) {
        printf("%s\n", shown);
    } else {
        fprintf(stderr, "tenon gc: %s\n", shown);
    }
    return 0;
}

static int print_json(struct report *report, int reclaimed)
{
    json_t *root = json_object();
    cmd_json_set(root, "seats_reclaimed", json_integer(reclaimed));
    cmd_json_set(root, "failures", cmd_json_count(report->failures));
    cmd_json_set(root, "actions", report->actions);
    return cmd_json_print("gc", root);
}

int cmd_gc(int argc, char **argv)
{
    struct cmd_arguments arguments = {.takes = CMD_TAKES_NO_DOMAIN};
    struct report report = {0};
    int code = CMD_FINE;

    if (cmd_parse(argc, argv,
                  "Reclaim dead processes in every domain of this user, give free memory above "
                  "the watermark back to the system, and remove files: of storages that no "
                  "domain and no process has ($TENON_SHM_DIR, else /dev/shm), and of a tenond "
                  "that has died, in the runtime folder.",
                  NULL, &arguments) != CMD_FINE)
        return CMD_USAGE;
    if (arguments.as_json && (report.actions = json_array()) == NULL)
        return cmd_no_memory("gc");
    int reclaimed = tn_inspect_gc(hear, &report);
    if (reclaimed < 0) {
        json_decref(report.actions);
        cmd_fail("gc", NULL, reclaimed);
        return CMD_TROUBLE;
    }
    if (arguments.as_json)
        code = print_json(&report, reclaimed);
    else
        printf("%d dead %s reclaimed\n", reclaimed, reclaimed == 1 ? "seat" : "seats");
    return report.failures > 0 ? CMD_TROUBLE : code;
}
