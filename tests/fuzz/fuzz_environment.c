/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_environment: what the library reads from the environment: which domain and parent a
 * program was started for, the strategy, folders. In a value, %c and %a stand for descriptors
 * of a domain, %w for a member, %p for the parent's pid.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuzz.h"
#include "process/process.h"

/* The library remembers the strategy that it read; this copy forgets it. */
#include "backing/strategy.c"

enum { VALUE_BYTES = 300 };

static const char *const variables[] = {
    "TENON_DOMAIN",  "TENON_PARENT",      "TENON_STRATEGY",
    "TENON_SHM_DIR", "TENON_RUNTIME_DIR", "TENON_RUNTIME_KEPT",
};

static int control_copy, arena_copy; /* what an inherited domain consumes */

static size_t expand(char place, const struct tni_segment *s, char *text, size_t size)
{
    uint64_t word = atomic_load(&tni_seat_at(s, 0)->word);
    switch (place) {
    case 'c':
        return (size_t)snprintf(text, size, "%d", control_copy);
    case 'a':
        return (size_t)snprintf(text, size, "%d", arena_copy);
    case 'w':
        return (size_t)snprintf(text, size, "%llx",
                                (unsigned long long)tni_who(0, tni_seat_incarnation(word)));
    case 'p':
        return (size_t)snprintf(text, size, "%d", (int)getppid());
    default:
        return 0;
    }
}

/* A value ends with a zero byte, or the input. */
static void set_variable(struct fuzz_input *in, const struct tni_segment *s)
{
    char value[VALUE_BYTES];
    const char *name = variables[fuzz_u8(in) % TNI_COUNT(variables)];
    size_t used = 0;
    while (fuzz_left(in) > 0 && used < sizeof value - 32) {
        char next = (char)fuzz_u8(in);
        if (next == '\0')
            break;
        if (next == '%')
            used += expand((char)fuzz_u8(in), s, value + used, sizeof value - used);
        else
            value[used++] = next;
    }
    value[used] = '\0';
    setenv(name, value, 1);
}

static bool is_ours_to_give(int fd)
{
    return fd == control_copy || fd == arena_copy || fcntl(fd, F_GETFD) < 0;
}

static void read_all(void)
{
    tn_domain *d;
    int control_fd, arena_fd;
    atomic_store(&tni_strategy_current, TN_STRATEGY_DEFAULT);
    FUZZ_CHECK(tn_strategy_name(tn_strategy_get()) != NULL);
    uint32_t strategy;
    if (tn_strategy_parse(getenv("TENON_STRATEGY"), &strategy) == 0)
        FUZZ_CHECK(tn_strategy_set(strategy) == 0);
    FUZZ_CHECK(tni_os_shm_folder()[0] != '\0');
    FUZZ_CHECK(strlen(tn_runtime_folder()) > 0);
    /* Other numbers may be descriptors of this program, which must stay open. */
    if (tni_process_parse_pass(getenv("TENON_DOMAIN"), &control_fd, &arena_fd) != 0 ||
        !is_ours_to_give(control_fd) || !is_ours_to_give(arena_fd))
        return;
    if (tn_domain_inherit(&d) == 0) {
        tn_domain_close(d);
        FUZZ_CHECK(fcntl(control_copy, F_GETFD) < 0 && fcntl(arena_copy, F_GETFD) < 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes)
{
    struct fuzz_input in = fuzz_input(bytes, size_bytes);
    struct tni_segment hand;
    fuzz_begin();
    fuzz_image_copy(&hand);
    FUZZ_CHECK(tni_os_duplicate(hand.control_fd, &control_copy) == 0);
    FUZZ_CHECK(tni_os_duplicate(hand.arena_fd, &arena_copy) == 0);
    while (fuzz_left(&in) > 0)
        set_variable(&in, &hand);
    read_all();
    for (size_t i = 0; i < TNI_COUNT(variables); i++)
        unsetenv(variables[i]);
    fuzz_restore_folders();
    if (fcntl(control_copy, F_GETFD) >= 0)
        close(control_copy);
    if (fcntl(arena_copy, F_GETFD) >= 0)
        close(arena_copy);
    tni_segment_detach(&hand);
    fuzz_end();
    return 0;
}
