/* SPDX-License-Identifier: Apache-2.0 */
/*
 * screen: show frames. On a terminal each frame replaces the last one, by ANSI sequences. On
 * any other output, and where TERM is "dumb" or not set, the frames follow one another.
 */
#ifndef TENON_TOOL_SCREEN_H
#define TENON_TOOL_SCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Prepare the terminal, if standard output is one; screen_close() restores it. */
void screen_open(void);
void screen_close(void);
/** The number of columns of the terminal; SIZE_MAX: standard output is not a terminal. */
size_t screen_columns(void);
/**
 * Show a text in place of the last one. Lines that do not fit in the window are left out, and a
 * line that is too long ends with an ellipsis.
 */
void screen_show(const char *text);
/** Wait. @return whether to end: q was pressed, the input ended, or a signal came */
bool screen_wait(uint64_t duration_ns);

#endif
