/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text: bytes of others (command lines, paths) that are shown to somebody. It needs no other
 * header of the library, as the command shares it.
 */
#ifndef TNI_BASE_TEXT_H
#define TNI_BASE_TEXT_H

#include <stddef.h>

/**
 * Replace by '?', in place, each byte that is not part of a whole UTF-8 character, and each
 * control character: terminals obey those, and JSON takes only UTF-8. @return `text`
 */
char *tni_text_clean(char *text);
/**
 * Copy text that others may be writing now, up to its NUL or `shared_bytes`, and clean it.
 * What has no room is cut. @param size_bytes  of `text`, not 0
 */
void tni_text_copy(char *text, size_t size_bytes, const char *shared, size_t shared_bytes);

#endif
