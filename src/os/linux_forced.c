/* SPDX-License-Identifier: Apache-2.0 */
/* Fallbacks that TENON_FORCE_FALLBACK forces, for tests (R8). */
#include <stdlib.h>
#include <string.h>

#include "os/linux.h"

static uint32_t read_forced(void)
{
    static const char *const names[TNI_LINUX_CALL_COUNT] = {
        "populate_write", "noexec_seal", "close_range", "fallocate", "witness", "tmpfile"};
    const char *list = tni_os_environment("TENON_FORCE_FALLBACK");
    uint32_t forced = 0;
    for (uint32_t i = 0; list != NULL && i < TNI_LINUX_CALL_COUNT; i++)
        forced |= tni_linux_has_word(list, names[i]) ? 1u << i : 0;
    return forced;
}

/* Read once in each process: the low half of `cache` has the bits, the high half the pid. */
bool tni_linux_is_forced(enum tni_linux_call call)
{
    static _Atomic uint64_t cache;
    uint64_t pid = (uint32_t)tni_os_pid();
    uint64_t known = atomic_load_explicit(&cache, memory_order_relaxed);
    if (known >> 32 != pid) {
        known = pid << 32 | read_forced();
        atomic_store_explicit(&cache, known, memory_order_relaxed);
    }
    return (known >> (uint32_t)call & 1) != 0;
}
