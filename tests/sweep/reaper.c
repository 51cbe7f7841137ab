/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sweep of the reaper: a victim dies at a kill point of its operation, a member reclaims it
 * and is killed at each of its own instructions, and another member reclaims both.
 */
#include <string.h>

#include "sweep/sweep.h"

static bool is_one_of(const char *name, const char *const *names, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

bool sweep_has_child(const struct crash_op *op)
{
    static const char *const forking[] = {"fork_while_holding_much", "process_fork",
                                          "process_exec", "storage_write_once_and_fork",
                                          "forkserver"};
    return is_one_of(op->name, forking, sizeof forking / sizeof forking[0]);
}

bool sweep_has_points(const struct crash_op *op)
{
    static const char *const without[] = {"pop_nothing", "pop_of_another_form",
                                          "queue_wait_any", "process_exec"};
    return !is_one_of(op->name, without, sizeof without / sizeof without[0]);
}

void sweep_reaper(const struct crash_op *op, const struct sweep_plan *plan,
                  struct sweep_row *row)
{
    static struct crash_points points;
    struct sweep_plan each = *plan;
    memset(&points, 0, sizeof points);
    crash_learn(op, &points);
    unsigned count = points.count, stride = 1;
    if (plan->scenes > 0 && plan->scenes < count)
        stride = (count + plan->scenes - 1) / plan->scenes;
    for (unsigned i = (unsigned)(plan->seed % stride); i < count; i += stride, each.seed++) {
        struct scene scene = {.op = op, .point = points.point[i].name};
        if (plan->point != NULL && strcmp(plan->point, scene.point) != 0)
            continue;
        snprintf(scene.name, sizeof scene.name, "%.40s:reaper --point %.40s", op->name,
                 scene.point);
        sweep_scene(&scene, &each, row);
    }
}
