/* SPDX-License-Identifier: Apache-2.0 */
/* text: bytes of others (command lines, paths) that are shown to somebody. */
#ifndef TENON_TOOL_TEXT_H
#define TENON_TOOL_TEXT_H

/**
 * Replace by '?', in place, each byte that is not part of a whole UTF-8 character, and each
 * control character: terminals obey those, and JSON takes only UTF-8. @return `text`
 */
char *text_clean(char *text);

#endif
