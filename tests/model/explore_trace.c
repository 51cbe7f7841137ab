/* SPDX-License-Identifier: Apache-2.0 */
/*
 * explore_trace: describe the failing run. If there is too little room, the first lines are
 * dropped.
 */
#include "explore.h"

#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct line {
    struct transition transition;
    struct op op;
    const char *point;
};
enum { MOST_LINES = 1 << 20, LINE_BYTES = 320 };
static struct line *lines;
static uint32_t length;

void trace_clear(void)
{
    if (lines == NULL)
        lines = malloc(MOST_LINES * sizeof *lines);
    length = 0;
}

void trace_push(struct transition transition, const struct op *op, const char *point)
{
    if (lines != NULL && length < MOST_LINES)
        lines[length++] = (struct line){transition, *op, point};
}

void trace_result(uint64_t result)
{
    if (length > 0)
        lines[length - 1].op.result = result;
}

void trace_cut(uint32_t to) { length = to < length ? to : length; }
uint32_t trace_length(void) { return length; }

/* ---- places in the source ---------------------------------------------------------------- */

static int find_base(struct dl_phdr_info *info, size_t size, void *ret)
{
    (void)size;
    *(uint64_t *)ret = info->dlpi_addr; /* the first entry is the program */
    return 1;
}

const char *trace_place(const void *from, char *text, size_t size_bytes)
{
    char command[128], line[512] = "";
    uint64_t base = 0;
    snprintf(text, size_bytes, "%p", from);
    if (from == NULL)
        return text;
    dl_iterate_phdr(find_base, &base);
    snprintf(command, sizeof command, "addr2line -p -s -f -i -e /proc/%d/exe 0x%llx 2>&1",
             getpid(), (unsigned long long)((uint64_t)from - base - 1));
    FILE *pipe = popen(command, "r");
    if (pipe == NULL)
        return text;
    if (fgets(line, sizeof line, pipe) != NULL && strstr(line, " at ") != NULL) {
        line[strcspn(line, "\n")] = 0;
        char *detail = strstr(line, " (");
        if (detail != NULL)
            *detail = 0;
        snprintf(text, size_bytes, "%.150s", line);
    }
    if (fgets(line, sizeof line, pipe) != NULL) { /* the function that it was inlined into */
        char *of = strstr(line, "(inlined by) ");
        line[strcspn(line, "\n")] = 0;
        size_t used = strlen(text);
        if (of != NULL)
            snprintf(text + used, size_bytes - used, ", in %.80s", of + 13);
    }
    pclose(pipe);
    return text;
}

/* ---- words ------------------------------------------------------------------------------- */

static const char *const op_names[] = {
    "start", "load",  "store", "modify", "swap",  "fence",  "plain read", "plain write",
    "on",    "sleep", "sleep", "wake",   "yield", "choose", "look",       "end",
};
static const char *const what_names[] = {
    "", "KILLED before: ", "is seen dead: ", "store becomes visible: ", "timeout: "};

static void write_line(const struct line *line, char *text, size_t size_bytes)
{
    char place[256] = "", where[64] = "";
    const struct op *op = &line->op;
    if (op->from != NULL)
        trace_place(op->from, place, sizeof place);
    if (op->at >= WORLD_BASE && op->at < WORLD_END)
        world_name(op->at, where, sizeof where);
    snprintf(text, size_bytes, "%u: %s%s %s %llx", line->transition.process,
             what_names[line->transition.what], op_names[op->kind], where,
             (unsigned long long)op->result);
    size_t used = strlen(text);
    if (op->kind == OP_STORE || op->kind == OP_RMW || op->kind == OP_CAS)
        snprintf(text + used, size_bytes - used, " <- %llx", (unsigned long long)op->operand);
    used = strlen(text);
    snprintf(text + used, size_bytes - used, "  %s%s%s\n", place,
             line->point != NULL ? "  after " : "", line->point != NULL ? line->point : "");
}

void trace_write(char *text, size_t size_bytes)
{
    char line[LINE_BYTES];
    size_t start = size_bytes - 1, used;
    text[start] = 0;
    for (uint32_t i = length; i-- > 0;) {
        write_line(&lines[i], line, sizeof line);
        used = strlen(line);
        if (used > start)
            break;
        start -= used;
        memcpy(text + start, line, used);
    }
    memmove(text, text + start, size_bytes - start);
}
