/* SPDX-License-Identifier: Apache-2.0 */
/*
 * screen: show frames. On a terminal each frame replaces the last one, by ANSI sequences. On
 * any other output the frames follow one another.
 */
#ifndef TENON_TOOL_SCREEN_H
#define TENON_TOOL_SCREEN_H

#include <stdbool.h>
#include <stdint.h>

/** Prepare the terminal, if standard output is one; screen_close() restores it. */
void screen_open(void);
void screen_close(void);
/** Show a text in place of the last one. What does not fit in the window is cut. */
void screen_show(const char *text);
/** Wait. @return whether to end: q was pressed, the input ended, or a signal came */
bool screen_wait(uint64_t duration_ns);

#endif
