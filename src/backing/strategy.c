/* SPDX-License-Identifier: Apache-2.0 */
/* strategy: the strategy that this process uses for new storages. */
#include <stdlib.h>
#include <string.h>

#include "backing/backing.h"

static const char *const names[] = {NULL, "arena", "file_descriptor", "file_system", NULL};
/* Strategies that this build or system does not have. */
static const char *const absent[] = {"hip_vmm", "hip_ipc"};
static const char on_cuda[] = "cuda_vmm", foreign[] = "cuda_ipc";

_Atomic uint32_t tni_strategy_current; /* TN_STRATEGY_DEFAULT: not decided yet */

const char *tn_strategy_name(uint32_t strategy)
{
    if (strategy == TN_STRATEGY_CUDA_VMM)
        return on_cuda;
    if (strategy == TN_STRATEGY_CUDA_IPC)
        return foreign;
    return strategy < TNI_COUNT(names) ? names[strategy] : NULL;
}

static uint32_t find(const char *name)
{
    for (uint32_t i = 1; names[i] != NULL; i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    return TN_STRATEGY_DEFAULT;
}

int tn_strategy_parse(const char *name, uint32_t *ret_strategy)
{
    if (name == NULL || ret_strategy == NULL)
        return tni_fail_null(name == NULL ? "name" : "ret_strategy");
    uint32_t strategy = strcmp(name, on_cuda) == 0   ? (uint32_t)TN_STRATEGY_CUDA_VMM
                        : strcmp(name, foreign) == 0 ? (uint32_t)TN_STRATEGY_CUDA_IPC
                                                     : find(name);
    for (size_t i = 0; strategy == TN_STRATEGY_DEFAULT && i < TNI_COUNT(absent); i++)
        if (strcmp(name, absent[i]) == 0)
            return tni_fail(TN_ERR_UNSUPPORTED, "this system lacks the strategy '%s'", name);
    if (strategy == TN_STRATEGY_DEFAULT)
        return tni_fail(TN_ERR_INVALID,
                        "no strategy is called '%.64s': the strategies are arena, "
                        "file_descriptor and file_system",
                        name);
    *ret_strategy = strategy;
    return 0;
}

int tn_strategy_set(uint32_t strategy)
{
    if (strategy == TN_STRATEGY_DEFAULT)
        return tni_fail(TN_ERR_INVALID, "TN_STRATEGY_DEFAULT cannot be set: it stands for the "
                                        "strategy that is set");
    if (tn_strategy_name(strategy) == NULL)
        return tni_fail(TN_ERR_INVALID, "no strategy has the number %u", strategy);
    if (strategy >= TN_STRATEGY_CUDA_VMM)
        return tni_fail(TN_ERR_INVALID,
                        "the strategy '%s' is that of tensors on devices: "
                        "tn_strategy_set() sets the strategy of tensors on the host",
                        tn_strategy_name(strategy));
    atomic_store_explicit(&tni_strategy_current, strategy, memory_order_relaxed);
    return 0;
}

static uint32_t decide(void)
{
    const char *name = tni_os_environment("TENON_STRATEGY");
    uint32_t expected = TN_STRATEGY_DEFAULT, strategy = TN_STRATEGY_ARENA;
    if (name != NULL && name[0] != 0) {
        strategy = find(name);
        if (strategy == TN_STRATEGY_DEFAULT) {
            strategy = TN_STRATEGY_ARENA;
            tni_log(TNI_LOG_WARNING,
                    "TENON_STRATEGY=%.64s is not a strategy of this system: arena is used",
                    name);
        }
    }
    /* Another thread may have set a strategy meanwhile. */
    atomic_compare_exchange_strong(&tni_strategy_current, &expected, strategy);
    return atomic_load(&tni_strategy_current);
}

uint32_t tn_strategy_get(void)
{
    uint32_t strategy = atomic_load_explicit(&tni_strategy_current, memory_order_relaxed);
    return TNI_LIKELY(strategy != TN_STRATEGY_DEFAULT) ? strategy : decide();
}
