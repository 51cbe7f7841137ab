/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_error: what the driver's errors mean, and what a driver lacks. */
#include "device/cuda.h"
#include "device/hip_api.h"

static int status_of(CUresult result)
{
    switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
    case HIP_ERROR_RUNTIME_MEMORY:
        return TN_ERR_NO_MEMORY;
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_PEER_ACCESS_UNSUPPORTED:
        return TN_ERR_UNSUPPORTED;
    default:
        return TN_ERR_DEVICE;
    }
}

const char *tni_cuda_symbol(const struct tni_cuda *cuda, const char *function)
{
    const char *symbol =
        cuda->differences->symbol != NULL ? cuda->differences->symbol(function) : NULL;
    return symbol != NULL ? symbol : function;
}

int tni_cuda_check(const struct tni_cuda *cuda, CUresult result, const char *function)
{
    const char *name = NULL, *text = NULL;
    if (TNI_LIKELY(result == 0))
        return 0;
    if (cuda->cuGetErrorName(result, &name) != 0 || name == NULL)
        name = "an unknown error";
    if (cuda->cuGetErrorString(result, &text) != 0 || text == NULL)
        text = "no text";
    return tni_fail(status_of(result), "%s() failed with %s (%d): %s%s",
                    tni_cuda_symbol(cuda, function), name, result, text,
                    tni_cuda_is_lost(result)
                        ? "; this process has to be started anew to use the device again"
                        : "");
}

bool tni_cuda_is_lost(CUresult result)
{
    switch (result) {
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
        return true;
    default:
        return false;
    }
}

int tni_cuda_need(const struct tni_cuda *cuda, enum tni_cuda_group group, const char *what)
{
    const struct tni_cuda_differences *differences = cuda->differences;
    if ((cuda->missing >> group & 1) == 0)
        return 0;
    return tni_fail(TN_ERR_UNSUPPORTED, "the driver, of %s %d.%d, is too old for %s",
                    differences->product, cuda->version / differences->major,
                    cuda->version % differences->major / differences->minor, what);
}
