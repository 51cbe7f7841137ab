/* SPDX-License-Identifier: Apache-2.0 */
/* parse: reads the words of resources and requests. Part of the door plan.h. */
#ifndef TNI_PLAN_PARSE_H
#define TNI_PLAN_PARSE_H

#include "plan/resource.h"

/* One NAME=VALUE of a text. */
struct tni_word {
    const char *name, *value;
    int name_len, value_len;
};

/**
 * Find the next NAME=VALUE of a text; white space, commas outside of parentheses and semicolons
 * part them. @return 1, 0: there is none, or TN_ERR_INVALID
 */
int tni_word_next(const char **at, struct tni_word *ret_word);
/** Read a number of at least 0 with at most four decimals, in 1/10000. TN_ERR_INVALID. */
int tni_word_amount(const struct tni_word *word, uint64_t *ret_amount);
/** Write an amount as a user writes it, as in "1.5". @return `text` */
char *tni_amount_print(uint64_t amount, char *text, size_t size_bytes);

enum { TNI_AMOUNT_BYTES = 24 };

#endif
