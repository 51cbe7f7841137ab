/* SPDX-License-Identifier: Apache-2.0 */
/*
 * screen: frames on a terminal with plain ANSI sequences; on anything else, one after the
 * other.
 */
#ifndef TENON_TOOL_SCREEN_H
#define TENON_TOOL_SCREEN_H

#include <stdbool.h>
#include <stdint.h>

/** Take the terminal, if standard output is one; screen_close() gives it back. */
void screen_open(void);
void screen_close(void);
/** Show a text in place of the last one, cut to the window. */
void screen_show(const char *text);
/** Wait. @return whether it is over: q, end of input, or a signal that ends us */
bool screen_wait(uint64_t duration_ns);

#endif
