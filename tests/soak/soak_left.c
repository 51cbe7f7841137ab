/* SPDX-License-Identifier: Apache-2.0 */
/* What is left when no process has anything: blocks, bytes, tables, files, descriptors. */
#include "soak.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "harness/live_blocks.h"
#include "reaper/reaper.h"

enum { CLOSE_S = 20, FILE_LOOKS = 50 };
#define STORAGE_TARGET "/memfd:" TNI_STORAGE_PREFIX

static struct {
    uint32_t blocks, objects, descriptors;
    uint64_t live_bytes;
} baseline;

/* ---- looking ----------------------------------------------------------------------------- */

static uint32_t count_open(pid_t pid, const char *prefix)
{
    char path[64], target[320];
    uint32_t count = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *list = opendir(path);
    for (struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;) {
        ssize_t size = readlinkat(dirfd(list), entry->d_name, target, sizeof target - 1);
        target[size > 0 ? size : 0] = '\0';
        count += strncmp(target, prefix, strlen(prefix)) == 0;
    }
    if (list != NULL)
        closedir(list);
    return count;
}

uint32_t soak_count_files(const char *folder)
{
    uint32_t count = 0;
    DIR *list = opendir(folder);
    for (struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;)
        count += entry->d_name[0] != '.';
    if (list != NULL)
        closedir(list);
    return count;
}

static pid_t manager_pid(void)
{
    const struct tni_segment *s = &me.domain->segment;
    uint64_t who = atomic_load(&s->header->manager);
    return who == 0 ? 0 : atomic_load(&tni_seat_at(s, tni_who_seat(who))->pid);
}

static pid_t vault_pid(void)
{
    pid_t tree[256];
    uint32_t count = soak_list_tree(getpid(), tree, 256);
    for (uint32_t i = 0; i < count; i++) {
        char name[32], state = soak_process_state(tree[i]);
        soak_process_name(tree[i], name);
        if (strcmp(name, "tenond-vault") == 0 && state != 'Z')
            return tree[i];
    }
    return 0;
}

/* Wait as a survivor: reclaim, and start a tenond if there is none. */
static void survive(uint64_t ms)
{
    _Atomic uint32_t word = 0;
    tni_process_sleep(me.domain, &word, 0,
                      &(struct tni_wait){.deadline_ns = soak_until_ns(ms)});
    soak_crew_collect();
}

static void read_stat(tn_domain_stat *ret_stat)
{
    tn_inspector *inspector = NULL;
    int status = tn_inspector_open(soak->domain, &inspector);
    if (status == 0)
        status = tn_inspect_stat(inspector, ret_stat);
    if (status != 0)
        soak_fail_status(SOAK_ON_AUDIT, "tn_inspect_stat", status);
    tn_inspector_close(inspector);
}

/*
 * Sockets are not counted, since the connection to tenond comes and goes. Each child that
 * this process watches has two descriptors.
 */
static uint32_t count_descriptors(void)
{
    uint32_t all = count_open(getpid(), ""), sockets = count_open(getpid(), "socket:");
    return all - sockets - count_open(getpid(), "anon_inode:[pidfd]") -
           count_open(getpid(), "pipe:");
}

/* ---- what is left ------------------------------------------------------------------------ */

static int print_sentence(const char *sentence, bool repaired, void *context)
{
    char *text = context;
    size_t used = strlen(text);
    (void)repaired;
    if (used < SOAK_TEXT_BYTES / 2)
        snprintf(text + used, SOAK_TEXT_BYTES / 2 - used, "\n    %s", sentence);
    return 0;
}

static void audit_domain(void)
{
    static char text[SOAK_TEXT_BYTES];
    text[0] = '\0';
    int found = tn_domain_audit(me.domain, false, print_sentence, text, NULL);
    if (found < 0)
        soak_fail_status(SOAK_ON_AUDIT, "tn_domain_audit", found);
    if (found > 0)
        soak_fail(SOAK_ON_AUDIT, "the audit found %d:%s", found, text);
    soak_checked(SOAK_ON_AUDIT);
}

static void check_blocks(void)
{
    tn_domain_stat stat = {.struct_size = sizeof stat};
    read_stat(&stat);
    uint32_t blocks = live_blocks(me.domain);
    if (blocks != baseline.blocks || stat.outside_count != 0 || stat.outside_bytes != 0 ||
        stat.live_bytes != baseline.live_bytes)
        soak_fail(
            SOAK_ON_BLOCKS,
            "%u blocks live (should be %u), %llu bytes (%llu), %llu objects of %llu bytes",
            blocks, baseline.blocks, (unsigned long long)stat.live_bytes,
            (unsigned long long)baseline.live_bytes, (unsigned long long)stat.outside_count,
            (unsigned long long)stat.outside_bytes);
    soak_checked(SOAK_ON_BLOCKS);
    if (stat.tickets_used != 0 || stat.objects_used != baseline.objects ||
        stat.domain.seats_used != soak_crew_members() + 1)
        soak_fail(SOAK_ON_TABLES, "%u tickets (should be 0), %u objects (%u), %u seats (%u)",
                  stat.tickets_used, stat.objects_used, baseline.objects,
                  stat.domain.seats_used, soak_crew_members() + 1);
    soak_checked(SOAK_ON_TABLES);
}

/* No event tells when tenond has closed deposits that are over: wait as a survivor. */
static void check_descriptors(void)
{
    uint64_t deadline_ns = soak_now_ns() + CLOSE_S * SOAK_S_NS;
    for (;;) {
        pid_t manager = manager_pid(), vault = vault_pid();
        uint32_t ours = count_open(getpid(), STORAGE_TARGET);
        uint32_t managers = manager == 0 ? 1 : count_open(manager, STORAGE_TARGET);
        uint32_t vaults = vault == 0 ? 0 : count_open(vault, STORAGE_TARGET);
        if (ours == 0 && managers == 0 && vaults == 0)
            break;
        if (soak_now_ns() > deadline_ns) {
            soak_report_descriptors(manager);
            soak_report_descriptors(vault);
            soak_fail(SOAK_ON_DESCRIPTORS,
                      "memory objects are open: %u here, %u in tenond %d, %u in the vault %d",
                      ours, managers, (int)manager, vaults, (int)vault);
        }
        survive(110);
    }
    if (count_descriptors() > baseline.descriptors)
        soak_fail(SOAK_ON_DESCRIPTORS, "%u descriptors are open here, should be %u",
                  count_descriptors(), baseline.descriptors);
    soak_checked(SOAK_ON_DESCRIPTORS);
}

static int count_file_block(const tn_block_entry *block, void *context)
{
    *(uint32_t *)context += block->path != NULL;
    return 0;
}

/*
 * A process that ends a block removes its file first; tenond may be doing so for expired
 * tickets.
 */
void soak_check_files(void)
{
    uint32_t files = 0, blocks = 0;
    for (int i = 0; i < FILE_LOOKS; i++) {
        tn_inspector *inspector = NULL;
        blocks = 0;
        files = soak_count_files(soak->shm_folder);
        int status = tn_inspector_open(soak->domain, &inspector);
        if (status == 0)
            status = tn_inspect_blocks(inspector, count_file_block, &blocks);
        if (status != 0)
            soak_fail_status(SOAK_ON_FILES, "tn_inspect_blocks", status);
        tn_inspector_close(inspector);
        soak_checked(SOAK_ON_FILES);
        if (files == blocks)
            return;
        usleep(1000);
    }
    soak_fail(SOAK_ON_FILES, "%u files are in %s, and %u blocks have one", files,
              soak->shm_folder, blocks);
}

void soak_left_begin(void)
{
    tn_domain_stat stat = {.struct_size = sizeof stat};
    read_stat(&stat);
    baseline.blocks = live_blocks(me.domain);
    baseline.live_bytes = stat.live_bytes;
    baseline.objects = stat.objects_used;
    baseline.descriptors = count_descriptors();
}

void soak_check_left(void)
{
    audit_domain();
    check_blocks();
    soak_check_files();
    check_descriptors();
}

void soak_check_emptiness(void)
{
    audit_domain();
    if (live_blocks(me.domain) != 0)
        soak_fail(SOAK_ON_END, "%u blocks live at the end", live_blocks(me.domain));
}
