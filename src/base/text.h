/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text: cleans text of other processes (command lines, paths) before it is shown to a user.
 * This header includes no other header of the library, since the command-line tool uses it,
 * too.
 */
#ifndef TNI_BASE_TEXT_H
#define TNI_BASE_TEXT_H

#include <stddef.h>

/**
 * Bytes of the character at the beginning of a text that ends with NUL; 0: they are not valid
 * UTF-8, or are a control character.
 */
int tni_text_measure(const char *text);
/**
 * Replace with '?', in place, each byte that is not part of a valid UTF-8 character, and each
 * control character: a terminal would act on it, and JSON allows only UTF-8. @return `text`
 */
char *tni_text_clean(char *text);
/**
 * Copy text that another process may be writing, up to its NUL or `shared_bytes`, and clean it.
 * Text that does not fit is cut. @param size_bytes  of `text`, not 0
 */
void tni_text_copy(char *text, size_t size_bytes, const char *shared, size_t shared_bytes);

/**
 * Cut text in place that is longer than `most_bytes`, which is 8 or more: "..." replaces its
 * middle.
 */
void tni_text_shorten(char *text, size_t most_bytes);

#endif
