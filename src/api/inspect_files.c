/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_files: files of storages that belong to no living domain. */
#include <stdio.h>

#include "api/inspect.h"
#include "reaper/reaper.h"

struct list {
    tn_audit_fn *each; /* may be NULL */
    void *context;
    int stop;
};

static void report(const char *path, int status, void *context)
{
    struct list *list = context;
    char sentence[TNI_PATH_BYTES + 64];

    (void)status;
    if (list->each == NULL || list->stop != 0)
        return;
    snprintf(sentence, sizeof sentence, "%s is of no living domain, and nobody holds it", path);
    list->stop = list->each(sentence, false, list->context);
}

int tn_inspect_files(tn_audit_fn *each, void *context)
{
    struct list list = {.each = each, .context = context};
    int found = tni_files_find(tni_manager_living, report, &list);

    if (found == TN_ERR_NOT_FOUND)
        return 0; /* no folder, no file */
    return list.stop != 0 ? list.stop : found;
}
