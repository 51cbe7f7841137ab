/* SPDX-License-Identifier: Apache-2.0 */
/* top_schedulers: the schedulers of a sample, as a table and as JSON. */
#ifndef TENON_TOOL_TOP_SCHEDULERS_H
#define TENON_TOOL_TOP_SCHEDULERS_H

#include "samples.h"
#include "table.h"

/* In which order table_fit() leaves columns of the table out. */
#define TOP_SCHEDULERS_ORDER "521743"
/** @param before  may be NULL. @return owned by the caller; NULL: no memory */
struct table *top_schedulers_table(const struct sample *before, const struct sample *sample);
/** @param before  may be NULL. @return an array, or NULL: no memory */
json_t *top_schedulers_json(const struct sample *before, const struct sample *sample);

#endif
