/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text.h"

#include <stdint.h>
#include <string.h>

#include "base/base.h"

static int is_continuation(unsigned char byte) { return (byte & 0xc0) == 0x80; }

/* The NUL at the end of the text is no continuation byte, so no byte after the NUL is read. */
int tni_text_measure(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    static const uint32_t least[] = {0, 0, 0xa0, 0x800, 0x10000}; /* 0x80 to 0x9f: controls */
    int length = at[0] < 0x80 ? 1 : at[0] < 0xc0 ? 0 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
    if (length <= 1)
        return at[0] >= ' ' && at[0] != 0x7f ? length : 0;
    uint32_t number = at[0] & (0xffU >> (length + 1));
    for (int i = 1; i < length; i++) {
        if (!is_continuation(at[i]))
            return 0;
        number = number << 6 | (at[i] & 0x3fU);
    }
    if (at[0] >= 0xf8 || number < least[length] || number > 0x10ffff ||
        (number >= 0xd800 && number <= 0xdfff))
        return 0;
    return length;
}

char *tni_text_clean(char *text)
{
    for (char *at = text; *at != '\0';) {
        int length = tni_text_measure(at);
        if (length == 0)
            *at = '?';
        at += length > 0 ? length : 1;
    }
    return text;
}

void tni_text_copy(char *text, size_t size_bytes, const char *shared, size_t shared_bytes)
{
    size_t room = shared_bytes < size_bytes ? shared_bytes : size_bytes - 1, i = 0;

    for (; i < room; i++) {
        char c = TNI_LOOK(shared[i]);
        if (c == '\0')
            break;
        text[i] = c;
    }
    text[i] = '\0';
    tni_text_clean(text);
}

void tni_text_shorten(char *text, size_t most_bytes)
{
    static const char mark[] = "...";
    size_t length = strlen(text), kept = most_bytes - (sizeof mark - 1);
    if (length <= most_bytes)
        return;
    size_t end = kept / 2, begin = kept - end;
    memcpy(text + begin, mark, sizeof mark - 1);
    memmove(text + begin + sizeof mark - 1, text + length - end, end + 1);
}
