/* SPDX-License-Identifier: Apache-2.0 */
/* audit_report: report a discrepancy, and tell a lasting one from an operation in progress. */
#include <stdarg.h>
#include <stdio.h>

#include "reaper/audit.h"

enum { SENTENCE_BYTES = 512, PAUSE_NS = 2 * 1000 * 1000 };

void tni_audit_report(struct tni_audit *a, bool repaired, const char *format, ...)
{
    char sentence[SENTENCE_BYTES];
    va_list arguments;

    a->found++;
    if (a->each == NULL || a->stop != 0)
        return;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    /* Names and paths come from shared memory: remove what a terminal would obey. */
    tni_text_clean(sentence);
    a->stop = a->each(sentence, repaired, a->context);
}

bool tni_audit_stays_wrong(struct tni_audit *a, tni_audit_wrong_fn *wrong, const void *subject)
{
    enum { TRIES = 25, FEW_TRIES = 2, PATIENT = 32 };
    bool is_patient = a->stayed < PATIENT;
    for (uint32_t i = 0; i < (is_patient ? TRIES : FEW_TRIES); i++) {
        if (!wrong(a, subject))
            return false;
        if (is_patient)
            tni_os_sleep_until(tni_os_now_ns() + PAUSE_NS);
        else
            tni_os_yield();
    }
    bool stays = wrong(a, subject);
    a->stayed += stays;
    return stays;
}
