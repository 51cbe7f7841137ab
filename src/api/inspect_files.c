/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_files: files of storages that no process has any more. */
#include <stdio.h>

#include "api/inspect.h"
#include "reaper/reaper.h"

struct list {
    tn_audit_fn *each; /* may be NULL */
    void *context;
    uint32_t let_go; /* how many files of ended storages live domains have */
    int stop;
};

static void say(struct list *list, const char *path, const char *why)
{
    char sentence[TNI_PATH_BYTES + 64];

    if (list->each == NULL || list->stop != 0)
        return;
    snprintf(sentence, sizeof sentence, "%s %s, and nobody holds it", path, why);
    tni_text_clean(sentence);
    list->stop = list->each(sentence, false, list->context);
}

static void report(const char *path, int status, void *context)
{
    (void)status;
    say(context, path, "is of no living domain");
}

static void report_let_go(const char *path, int status, void *context)
{
    (void)status;
    say(context, path, "was let go by its domain");
}

/* Files that the audit of a domain reports are not reported twice. */
static int look_at_domain(const struct tni_segment *segment, void *context)
{
    struct list *list = context;
    int found = tni_files_let_go(segment, true, report_let_go, list);

    if (found == TN_ERR_CORRUPT || found == TN_ERR_NOT_FOUND)
        return 0;
    list->let_go += found > 0 ? (uint32_t)found : 0;
    return found < 0 ? found : list->stop;
}

int tn_inspect_files(tn_audit_fn *each, void *context)
{
    struct list list = {.each = each, .context = context};
    int found = tni_files_find(tni_manager_living, report, &list);

    if (found == TN_ERR_NOT_FOUND)
        return 0; /* there is no folder, and so no file */
    if (found < 0 || list.stop != 0)
        return found < 0 ? found : list.stop;
    int status = tni_inspect_for_each_segment(look_at_domain, NULL, &list);
    return status != 0 ? status : found + (int)list.let_go;
}
