/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay: run files, and all files of folders, through a target, in the order of their names.
 * Prints TAP, one test for all of them. An input that crashes, or takes longer than LIMIT_S, is
 * named. No input at all is a failure.
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz.h"

enum { LIMIT_S = 30 };

static char current[4096];
static unsigned input_count;

#if defined(__SANITIZE_ADDRESS__)
void __sanitizer_set_death_callback(void (*callback)(void));
#endif

static void say_current(void)
{
    static const char before[] = "\nnot ok 1 - input ";
    ssize_t written = write(STDOUT_FILENO, before, sizeof before - 1);
    written += write(STDOUT_FILENO, current, strlen(current));
    written += write(STDOUT_FILENO, "\n", 1);
    (void)written;
}

static void die(int number)
{
    say_current();
    signal(number, SIG_DFL);
    raise(number);
}

static void watch_for_death(void)
{
    static const int numbers[] = {SIGALRM, SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    for (size_t i = 0; i < TNI_COUNT(numbers); i++) {
#if defined(__SANITIZE_ADDRESS__)
        __sanitizer_set_death_callback(say_current);
        if (numbers[i] != SIGALRM && numbers[i] != SIGABRT)
            continue; /* its own report says more */
#endif
        signal(numbers[i], die);
    }
}

static void run_file(const char *path, size_t size_bytes)
{
    FILE *file = fopen(path, "rbe");
    /* Its very size, so that a read behind its end is noticed. */
    uint8_t *bytes = malloc(size_bytes != 0 ? size_bytes : 1);
    if (file == NULL || bytes == NULL || fread(bytes, 1, size_bytes, file) != size_bytes)
        fuzz_fail("%s: %s", path, strerror(errno));
    fclose(file);
    snprintf(current, sizeof current, "%s", path);
    alarm(LIMIT_S);
    LLVMFuzzerTestOneInput(bytes, size_bytes);
    alarm(0);
    free(bytes);
    input_count++;
}

static void run(const char *path);

static void run_folder(const char *path)
{
    struct dirent **entries;
    int count = scandir(path, &entries, NULL, alphasort);
    if (count < 0)
        fuzz_fail("%s: %s", path, strerror(errno));
    for (int i = 0; i < count; i++) {
        char inner[4096];
        snprintf(inner, sizeof inner, "%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.')
            run(inner);
        free(entries[i]);
    }
    free(entries);
}

static void run(const char *path)
{
    struct stat status;
    if (stat(path, &status) != 0)
        fuzz_fail("%s: %s", path, strerror(errno));
    if (S_ISDIR(status.st_mode))
        run_folder(path);
    else
        run_file(path, (size_t)status.st_size);
}

int main(int argc, char **argv)
{
    const char *name = strrchr(argv[0], '/');
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("1..1\n");
    watch_for_death();
    for (int i = 1; i < argc; i++)
        run(argv[i]);
    bool passed = input_count > 0;
    printf("# %u inputs\n%s 1 - %s\n", input_count, passed ? "ok" : "not ok",
           name != NULL ? name + 1 : argv[0]);
    return passed ? 0 : 1;
}
