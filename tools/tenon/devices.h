/* SPDX-License-Identifier: Apache-2.0 */
/* devices: what a domain has on devices, and who holds it: for ls, stat and top. */
#ifndef TENON_TOOL_DEVICES_H
#define TENON_TOOL_DEVICES_H

#include "cmd.h"
#include "table.h"

struct devices {
    tn_device_entry *at; /* [count]; each owns its holders */
    size_t count;
};

/**
 * List the devices on which a domain has memory.
 * @param devices  empty; what was listed before a failure stays there, for devices_free()
 * @return 0, or a TN_ERR_* that cmd_fail() can name
 */
int devices_list(tn_inspector *inspector, struct devices *devices);
void devices_free(struct devices *devices);
/** @return an array, or NULL: no memory */
json_t *devices_json(const struct devices *devices);

enum { DEVICES_HOLDERS_BYTES = 640 };
/** Print the holders of a device, as in "1383 ./trainer (1.5 MiB) and 2 more". @return text */
const char *devices_holders(char text[DEVICES_HOLDERS_BYTES], const tn_device_entry *device);

/* In which order table_fit() leaves columns of a table without domains out. */
#define DEVICES_ORDER "42301"
/**
 * Make a table with a row for each device.
 * @param has_domains  the first column is the domain
 * @return owned by the caller; NULL: no memory
 */
struct table *devices_table(bool has_domains);
/** @param domain  for the first column; NULL: the table has no such column */
void devices_add_rows(struct table *table, const char *domain, const struct devices *devices);

#endif
