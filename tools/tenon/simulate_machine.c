/* SPDX-License-Identifier: Apache-2.0 */
/* simulate_machine: reads the machine that a graph runs on. */
#include <string.h>

#include "simulate.h"

static int read_order(const struct simulate_file *file, const json_t *root, uint32_t *ret_order)
{
    static const char *const names[] = {
        [TN_ORDER_AUTO] = "auto", [TN_ORDER_DEPTH] = "depth", [TN_ORDER_RANK] = "rank"};
    const char *text = names[TN_ORDER_AUTO];
    int code = simulate_get_text(file, root, "order", &text);
    for (uint32_t i = 0; code == CMD_FINE && i < sizeof names / sizeof names[0]; i++)
        if (strcmp(text, names[i]) == 0) {
            *ret_order = i;
            return CMD_FINE;
        }
    return code != CMD_FINE
               ? code
               : simulate_fail(file, "order is '%.64s': it is auto, depth or rank", text);
}

int simulate_machine_read(const char *path, struct simulate_machine *ret_machine)
{
    static const char *const keys[] = {"$schema", "resources", "memories", "links",
                                       "order",   "skips",     "skew",     NULL};
    static const struct simulate_number skips = {"skips", 1, UINT32_MAX, true};
    /* 0 would be the default of the library. */
    static const struct simulate_number skew = {"skew", 0.001, 1000, false};
    const struct simulate_file file = {.path = path};
    struct simulate_machine machine = {.path = path};
    double number = 0;
    int code = simulate_load(&file, &machine.root);

    if (code == CMD_FINE)
        code = simulate_check_keys(&file, machine.root, keys);
    if (code == CMD_FINE)
        code = simulate_get_text(&file, machine.root, "resources", &machine.resources);
    if (code == CMD_FINE && machine.resources == NULL)
        code = simulate_fail(&file, "resources is missing");
    if (code == CMD_FINE)
        code = simulate_get_text(&file, machine.root, "memories", &machine.memories);
    if (code == CMD_FINE)
        code = simulate_get_text(&file, machine.root, "links", &machine.links);
    if (code == CMD_FINE)
        code = read_order(&file, machine.root, &machine.order);
    if (code == CMD_FINE)
        code = simulate_get_number(&file, machine.root, &skips, &number);
    machine.skips = (uint32_t)number;
    if (code == CMD_FINE)
        code = simulate_get_number(&file, machine.root, &skew, &machine.skew);
    if (code != CMD_FINE) {
        json_decref(machine.root);
        return code;
    }
    *ret_machine = machine;
    return CMD_FINE;
}
