/* SPDX-License-Identifier: Apache-2.0 */
/* Find what a test left behind in its own process and in the file system. */
#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/harness.h"
#include "harness/inside.h"

enum { TARGET_BYTES = 256 };

static unsigned mark_descriptors(bool *is_open)
{
    unsigned count = 0;
    DIR *list = opendir("/proc/self/fd");
    for (struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;) {
        long fd = strtol(entry->d_name, NULL, 10);
        if (entry->d_name[0] == '.' || fd == dirfd(list))
            continue;
        count++;
        if (is_open != NULL && fd < TNT_MAX_FDS)
            is_open[fd] = true;
    }
    if (list != NULL)
        closedir(list);
    return count;
}

unsigned tnt_descriptor_count(void) { return mark_descriptors(NULL); }

static unsigned count_mappings(bool print)
{
    char line[512];
    unsigned count = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        if (strstr(line, "memfd:tenon") == NULL)
            continue;
        count++;
        if (print)
            printf("left mapped: %s", line);
    }
    if (maps != NULL)
        fclose(maps);
    return count;
}

unsigned tnt_mapping_count(void) { return count_mappings(false); }

void tnt_traces_take(struct tnt_traces *traces)
{
    memset(traces, 0, sizeof *traces);
    mark_descriptors(traces->is_open);
    traces->mappings = count_mappings(false);
}

static void read_target(int fd, char target[TARGET_BYTES])
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(path, target, TARGET_BYTES - 1);
    target[size > 0 ? size : 0] = '\0';
}

/*
 * The driver of a GPU keeps descriptors until its process ends: of its devices, and of pipes,
 * sockets and counters. Memory of tenon leads to a file, except for that of the GPU itself.
 */
static bool may_be_drivers(const char *target)
{
    static const char *const kinds[] = {"/dev/nvidia", "anon_inode:", "pipe:", "socket:"};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strncmp(target, kinds[i], strlen(kinds[i])) == 0)
            return getenv("TENON_TEST_REAL_GPU") != NULL;
    return false;
}

static bool is_left_open(int fd)
{
    char target[TARGET_BYTES];
    read_target(fd, target);
    if (may_be_drivers(target))
        return false;
    printf("left open: descriptor %d, %s\n", fd, target);
    return true;
}

unsigned tnt_traces_compare(const struct tnt_traces *before)
{
    struct tnt_traces now;
    tnt_traces_take(&now);
    unsigned more = 0;
    for (int fd = 0; fd < TNT_MAX_FDS; fd++) {
        if (now.is_open[fd] && !before->is_open[fd] && is_left_open(fd))
            more++;
    }
    if (now.mappings > before->mappings) {
        count_mappings(true);
        more += now.mappings - before->mappings;
    }
    return more;
}

/*
 * Each test has its own folder: the number of files in /dev/shm changes with every program
 * that runs at the same time.
 */
bool tnt_shm_make(char folder[TNT_FOLDER_BYTES])
{
    memcpy(folder, "/dev/shm/tnt-XXXXXX", sizeof "/dev/shm/tnt-XXXXXX");
    if (mkdtemp(folder) != NULL)
        return true;
    memcpy(folder, "/tmp/tnt-shm-XXXXXX", sizeof "/tmp/tnt-shm-XXXXXX");
    return mkdtemp(folder) != NULL;
}

unsigned tnt_shm_list(const char *folder, int fd)
{
    unsigned count = 0;
    DIR *list = opendir(folder);
    for (struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;) {
        if (strncmp(entry->d_name, "tenon-", 6) != 0)
            continue;
        dprintf(fd, "left in %s: %s\n", folder, entry->d_name);
        count++;
    }
    if (list != NULL)
        closedir(list);
    return count;
}

static int remove_entry(const char *path, const struct stat *stat, int kind, struct FTW *place)
{
    (void)stat, (void)kind, (void)place;
    return remove(path);
}

void tnt_remove_folder(const char *folder)
{
    chmod(folder, 0700); /* a test may have made it read-only */
    nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}
