/* SPDX-License-Identifier: Apache-2.0 */
/* Processes, as /proc has them: parents, states, names. */
#include "soak.h"

#include <stdio.h>
#include <string.h>

static uint32_t list_children(pid_t pid, pid_t *ret_list, uint32_t size)
{
    char path[64];
    uint32_t count = 0;
    int child;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
    FILE *file = fopen(path, "re");
    while (file != NULL && count < size && fscanf(file, "%d", &child) == 1)
        ret_list[count++] = child;
    if (file != NULL)
        fclose(file);
    return count;
}

uint32_t soak_list_tree(pid_t pid, pid_t *ret_list, uint32_t size)
{
    uint32_t count = list_children(pid, ret_list, size);
    for (uint32_t i = 0; i < count; i++)
        count += list_children(ret_list[i], ret_list + count, size - count);
    return count;
}

static size_t read_stat(pid_t pid, char *text, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    size_t used = file != NULL ? fread(text, 1, size - 1, file) : 0;
    text[used] = '\0';
    if (file != NULL)
        fclose(file);
    return used;
}

char soak_process_state(pid_t pid)
{
    char text[512];
    const char *close = read_stat(pid, text, sizeof text) > 0 ? strrchr(text, ')') : NULL;
    return close != NULL && close[1] == ' ' ? close[2] : 0;
}

pid_t soak_process_parent(pid_t pid)
{
    char text[512];
    const char *close = read_stat(pid, text, sizeof text) > 0 ? strrchr(text, ')') : NULL;
    int parent = 0;
    return close != NULL && sscanf(close + 1, " %*c %d", &parent) == 1 ? parent : 0;
}

void soak_process_name(pid_t pid, char name[32])
{
    char text[512];
    name[0] = '\0';
    if (read_stat(pid, text, sizeof text) == 0)
        return;
    char *open = strchr(text, '('), *close = strrchr(text, ')');
    if (open != NULL && close != NULL) {
        *close = '\0';
        snprintf(name, 32, "%s", open + 1);
    }
}
