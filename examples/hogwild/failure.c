/* SPDX-License-Identifier: Apache-2.0 */
#include "failure.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <tenon/tenon.h>

static bool is_worker;

void failure_in_worker(void) { is_worker = true; }

void fail(const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (is_worker)
        tn_process_fail(text);
    fflush(stdout);
    fprintf(stderr, "\nhogwild: %s\n", text);
    exit(1);
}

int must(int status, const char *what)
{
    if (status < 0)
        fail("%s: %s: %s", what, tn_status_sentence(status), tn_error_detail());
    return status;
}
