/* SPDX-License-Identifier: Apache-2.0 */
/* What a failed call must leave as it was, and how to tell. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/inspect.h"
#include "backing/backing.h"
#include "faults.h"
#include "reaper/reaper.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { IS_SANITIZED = 1 }; /* which map private memory as they like */
#else
enum { IS_SANITIZED = 0 };
#endif

static uint64_t hash_text(uint64_t hash, const char *text)
{
    for (; *text != '\0'; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return hash;
}

static void take_fds(struct faults_state *s)
{
    for (int fd = 0; fd < FAULTS_FDS; fd++) {
        struct stat stat;
        if (fstat(fd, &stat) == 0)
            s->fds[fd] = 1 + stat.st_ino + ((uint64_t)stat.st_dev << 40);
    }
}

/* A process that begins maps what it keeps: cold rows leave private memory out. */
static void take_mappings(const struct faults_row *row, struct faults_state *s)
{
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        unsigned long first, end;
        char rights[8] = "";
        if (sscanf(line, "%lx-%lx %7s", &first, &end, rights) != 3)
            continue;
        if (rights[3] == 's')
            s->shared_bytes += end - first;
        else if (!IS_SANITIZED && !row->is_cold && strstr(line, "[heap]") == NULL &&
                 strstr(line, "[stack]") == NULL)
            s->private_bytes += end - first;
    }
    if (maps != NULL)
        fclose(maps);
}

static bool is_child_of_ours(const char *name)
{
    char path[300], text[512];
    snprintf(path, sizeof path, "/proc/%s/stat", name);
    FILE *stat = fopen(path, "re");
    bool has_text = stat != NULL && fgets(text, sizeof text, stat) != NULL;
    if (stat != NULL)
        fclose(stat);
    const char *close = has_text ? strrchr(text, ')') : NULL;
    int parent = 0;
    return close != NULL && sscanf(close + 1, " %*c %d", &parent) == 1 && parent == getpid();
}

static void take_children(struct faults_state *s)
{
    siginfo_t info;
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 && errno == ECHILD)
        return;
    DIR *proc = opendir("/proc");
    for (struct dirent *entry; proc != NULL && (entry = readdir(proc)) != NULL;)
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
            s->children += is_child_of_ours(entry->d_name);
    if (proc != NULL)
        closedir(proc);
}

static uint64_t files_of(const char *folder)
{
    uint64_t sum = 0;
    DIR *list = opendir(folder);
    for (struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;)
        sum += hash_text(UINT64_C(0xcbf29ce484222325), entry->d_name);
    if (list != NULL)
        closedir(list);
    return sum;
}

static int print_discrepancy(const char *sentence, bool repaired, void *context)
{
    (void)repaired, (void)context;
    printf("  audit: %s\n", sentence);
    return 0;
}

static void take_domain(struct faults_state *s)
{
    const struct tni_segment *segment = &faults_d->segment;
    uint64_t outside;
    for (uint32_t c = 1; c < segment->geometry.class_count; c++)
        for (uint32_t i = 0; i < tni_frontier(segment, c); i++)
            s->blocks +=
                tni_word_state(atomic_load(tni_word_at(segment, tni_block_make(c, i)))) !=
                TNI_BLOCK_FREE;
    for (uint32_t i = 0; i < tni_object_limit(segment); i++)
        s->objects +=
            tni_object_kind(atomic_load(&tni_object_at(segment, i)->word)) != TNI_OBJECT_FREE;
    for (uint32_t i = 0; i < tni_ticket_limit(segment); i++)
        s->tickets += tni_ticket_is_live(tni_ticket_at(segment, i));
    s->seats = tni_process_count(segment);
    s->outside_bytes = tni_inspect_outside_bytes(segment, &outside);
    int found =
        tni_audit(segment, NULL, false,
                  &(struct tni_audit_report){.each = print_discrepancy, .context = NULL});
    if (found < 0)
        fail_msg("audit: %s", tn_error_detail());
    s->discrepancies = (uint64_t)found;
}

/* What a thread's record keeps for the next tensor is no tensor's. */
static uint64_t spare_allocations(void)
{
    uint64_t count = 0;
    if (faults_d != NULL && faults_d->seat != TNI_NO_SEAT)
        for (uint32_t t = 0; t < TNI_THREADS; t++)
            count += faults_d->threads[t].spare_count;
    return count;
}

void faults_state_take(const struct faults_row *row, bool is_final, struct faults_state *s)
{
    memset(s, 0, sizeof *s);
    s->allocations =
        row->keeps_memory && !is_final ? 0 : faults_live_allocations() - spare_allocations();
    take_fds(s);
    take_mappings(row, s);
    take_children(s);
    /* What tenond does once a second, and the last to leave. */
    if (row->ends_files && tni_files_let_go(&faults_d->segment, false, NULL, NULL) < 0)
        fail_msg("files: %s", tn_error_detail());
    s->files = files_of(tnt_shm_folder());
    if (!row->makes_files)
        s->files += 3 * files_of(tnt_folder());
    if (faults_d != NULL && faults_d->seat != TNI_NO_SEAT) {
        take_domain(s);
        /* The line to tenond is kept between calls, and dropped when it failed. */
        if (tni_backing_part(faults_d)->depot_connection.number != 0 &&
            tni_backing_part(faults_d)->depot_connection.fd < FAULTS_FDS)
            s->fds[tni_backing_part(faults_d)->depot_connection.fd] = 0;
    }
    if (row->measure != NULL)
        s->measure = row->measure();
}

static unsigned compare(const char *what, uint64_t before, uint64_t now)
{
    if (before == now)
        return 0;
    printf("  %s: %llu before, %llu now\n", what, (unsigned long long)before,
           (unsigned long long)now);
    return 1;
}

static unsigned compare_fd(int fd, uint64_t before, uint64_t now)
{
    char path[64], target[256] = "";
    if (before == now)
        return 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(path, target, sizeof target - 1);
    printf("  descriptor %d: %s (%s)\n", fd,
           before == 0 ? "left open"
           : now == 0  ? "closed"
                       : "another file",
           size > 0 ? target : "none");
    return 1;
}

unsigned faults_state_compare(const struct faults_state *before, const struct faults_state *now)
{
    unsigned wrong = 0;
    for (int fd = 0; fd < FAULTS_FDS; fd++)
        wrong += compare_fd(fd, before->fds[fd], now->fds[fd]);
    wrong += compare("shared mappings, bytes", before->shared_bytes, now->shared_bytes);
    wrong += compare("private mappings, bytes", before->private_bytes, now->private_bytes);
    wrong += compare("allocations", before->allocations, now->allocations);
    wrong += compare("children", before->children, now->children);
    wrong += compare("names of files", before->files, now->files);
    wrong += compare("seats", before->seats, now->seats);
    wrong += compare("blocks", before->blocks, now->blocks);
    wrong += compare("objects", before->objects, now->objects);
    wrong += compare("tickets", before->tickets, now->tickets);
    wrong += compare("bytes outside of the arena", before->outside_bytes, now->outside_bytes);
    wrong += compare("the row's measure", before->measure, now->measure);
    wrong += compare("discrepancies", 0, now->discrepancies);
    return wrong;
}
