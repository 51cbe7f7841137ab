#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compare src/device/hip_api.h with AMD's hip_runtime_api.h: constants, layouts, and each function's parameters.

    dev/check-hip.py [hip_runtime_api.h]

Without an argument it takes the header from $ROCM_PATH, from /opt/rocm, or from build/hip, where this command puts
the copy that PyPI's package triton has: pip install --no-deps --target build/hip triton
Where it finds none it says so and exits with 77: nothing was compared.

HIP has types of its own with the sizes of CUDA's, so what is compared is how a parameter is passed: its size, and for
a pointer the size of what it points to.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "build" / "hip" / "triton" / "backends" / "amd" / "include"
HEADER = pathlib.Path("hip") / "hip_runtime_api.h"
NOT_COMPARED = 77

# tenon's name, and HIP's.
CONSTANTS = {
    "HIP_ATTRIBUTE_COMPUTE_MODE": "hipDeviceAttributeComputeMode",
    "HIP_ATTRIBUTE_INTEGRATED": "hipDeviceAttributeIntegrated",
    "HIP_ATTRIBUTE_PCI_BUS_ID": "hipDeviceAttributePciBusId",
    "HIP_ATTRIBUTE_PCI_DEVICE_ID": "hipDeviceAttributePciDeviceId",
    "HIP_ATTRIBUTE_PCI_DOMAIN_ID": "hipDeviceAttributePciDomainID",
    "HIP_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED": "hipDeviceAttributeVirtualMemoryManagementSupported",
    "HIP_ERROR_INVALID_DEVICE_POINTER": "hipErrorInvalidDevicePointer",
    "HIP_ERROR_RUNTIME_MEMORY": "hipErrorRuntimeMemory",
    "CU_COMPUTEMODE_EXCLUSIVE_PROCESS": "hipComputeModeExclusiveProcess",
    "CU_POINTER_ATTRIBUTE_MEMORY_TYPE": "HIP_POINTER_ATTRIBUTE_MEMORY_TYPE",
    "CU_POINTER_ATTRIBUTE_BUFFER_ID": "HIP_POINTER_ATTRIBUTE_BUFFER_ID",
    "CU_POINTER_ATTRIBUTE_IS_MANAGED": "HIP_POINTER_ATTRIBUTE_IS_MANAGED",
    "CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL": "HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL",
    "CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE": "HIP_POINTER_ATTRIBUTE_IS_LEGACY_HIP_IPC_CAPABLE",
    "CU_POINTER_ATTRIBUTE_MAPPED": "HIP_POINTER_ATTRIBUTE_MAPPED",
    "CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES": "HIP_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES",
    "CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE": "HIP_POINTER_ATTRIBUTE_MEMPOOL_HANDLE",
    "CU_MEMORYTYPE_HOST": "hipMemoryTypeHost",
    "CU_MEMORYTYPE_DEVICE": "hipMemoryTypeDevice",
    "CU_MEM_ALLOCATION_TYPE_PINNED": "hipMemAllocationTypePinned",
    "CU_MEM_LOCATION_TYPE_DEVICE": "hipMemLocationTypeDevice",
    "CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR": "hipMemHandleTypePosixFileDescriptor",
    "CU_MEM_ACCESS_FLAGS_PROT_READ": "hipMemAccessFlagsProtRead",
    "CU_MEM_ACCESS_FLAGS_PROT_READWRITE": "hipMemAccessFlagsProtReadWrite",
    "CU_MEM_ALLOC_GRANULARITY_MINIMUM": "hipMemAllocationGranularityMinimum",
    "CU_MEMHOSTREGISTER_PORTABLE": "hipHostRegisterPortable",
    "CU_MEMHOSTREGISTER_DEVICEMAP": "hipHostRegisterMapped",
    "CU_MEMHOSTREGISTER_READ_ONLY": "hipHostRegisterReadOnly",
    "CU_STREAM_NON_BLOCKING": "hipStreamNonBlocking",
    "CU_STREAM_CAPTURE_STATUS_NONE": "hipStreamCaptureStatusNone",
    "CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS": "hipIpcMemLazyEnablePeerAccess",
    "CUDA_ERROR_INVALID_VALUE": "hipErrorInvalidValue",
    "CUDA_ERROR_OUT_OF_MEMORY": "hipErrorOutOfMemory",
    "CUDA_ERROR_NOT_INITIALIZED": "hipErrorNotInitialized",
    "CUDA_ERROR_DEINITIALIZED": "hipErrorDeinitialized",
    "CUDA_ERROR_NO_DEVICE": "hipErrorNoDevice",
    "CUDA_ERROR_INVALID_DEVICE": "hipErrorInvalidDevice",
    "CUDA_ERROR_INVALID_CONTEXT": "hipErrorInvalidContext",
    "CUDA_ERROR_MAP_FAILED": "hipErrorMapFailed",
    "CUDA_ERROR_ALREADY_MAPPED": "hipErrorAlreadyMapped",
    "CUDA_ERROR_ECC_UNCORRECTABLE": "hipErrorECCNotCorrectable",
    "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED": "hipErrorPeerAccessUnsupported",
    "CUDA_ERROR_OPERATING_SYSTEM": "hipErrorOperatingSystem",
    "CUDA_ERROR_INVALID_HANDLE": "hipErrorInvalidHandle",
    "CUDA_ERROR_NOT_FOUND": "hipErrorNotFound",
    "CUDA_ERROR_NOT_READY": "hipErrorNotReady",
    "CUDA_ERROR_ILLEGAL_ADDRESS": "hipErrorIllegalAddress",
    "CUDA_ERROR_LAUNCH_TIMEOUT": "hipErrorLaunchTimeOut",
    "CUDA_ERROR_CONTEXT_IS_DESTROYED": "hipErrorContextIsDestroyed",
    "CUDA_ERROR_ASSERT": "hipErrorAssert",
    "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED": "hipErrorHostMemoryAlreadyRegistered",
    "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED": "hipErrorHostMemoryNotRegistered",
    "CUDA_ERROR_LAUNCH_FAILED": "hipErrorLaunchFailure",
    "CUDA_ERROR_NOT_SUPPORTED": "hipErrorNotSupported",
    "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED": "hipErrorStreamCaptureUnsupported",
    "CUDA_ERROR_UNKNOWN": "hipErrorUnknown",
}
# tenon's structure, HIP's, and fields with one name, or tenon's=HIP's.
STRUCTURES = [
    ("CUuuid", "hipUUID", "bytes"),
    ("CUipcMemHandle", "hipIpcMemHandle_t", "reserved"),
    ("CUmemLocation", "hipMemLocation", "type id"),
    ("CUmemAllocationProp", "hipMemAllocationProp",
     "type requestedHandleTypes=requestedHandleType location win32HandleMetaData allocFlags"),
    ("CUmemAccessDesc", "hipMemAccessDesc", "location flags"),
    ("CUDA_MEMCPY2D", "hip_Memcpy2D",
     "srcXInBytes srcY srcMemoryType srcHost srcDevice srcArray srcPitch "
     "dstXInBytes dstY dstMemoryType dstHost dstDevice dstArray dstPitch WidthInBytes Height"),
]
COMPARE = """
#include <cstddef>
#include <cstdint>
#include <type_traits>
#define __HIP_PLATFORM_AMD__
#define __HIP_DISABLE_CPP_FUNCTIONS__ /* templates with the names of functions */
#include <hip/hip_runtime_api.h>
namespace ours {
#include "device/hip_api.h"
#define MEMBER(group, name, symbol, version, parameters) CUresult (*name) parameters;
struct driver { TNI_CUDA_FUNCTIONS(MEMBER) };
#define OTHER(symbol, parameters) CUresult (*symbol) parameters;
struct others { TNI_HIP_OTHER(OTHER) };
}
/* 0: no pointer, or one to what is not known */
template <class T, class = void> struct size_behind : std::integral_constant<std::size_t, 0> {};
template <class P> struct size_behind<P *, std::enable_if_t<std::is_object_v<P> && sizeof(P) != 0>>
    : std::integral_constant<std::size_t, sizeof(P)> {};
/* HIP has pointers where CUDA has numbers. */
template <class A, class B> constexpr bool passes()
{
    return sizeof(A) == sizeof(B) && std::is_class_v<A> == std::is_class_v<B> &&
           (size_behind<A>::value == 0 || size_behind<B>::value == 0 || size_behind<A>::value == size_behind<B>::value);
}
template <class... A> struct list {};
template <class A, class B> struct same : std::false_type {};
template <class... A, class... B> struct same<list<A...>, list<B...>> {
    static constexpr bool compare()
    {
        if constexpr (sizeof...(A) != sizeof...(B))
            return false;
        else
            return (passes<A, B>() && ...);
    }
    static constexpr bool value = compare();
};
template <class F> struct parameters;
template <class R, class... A> struct parameters<R (*)(A...)> { using of = list<A...>; };
template <class F, class G> constexpr bool agree = same<typename parameters<F>::of, typename parameters<G>::of>::value;
#define SAME(name, symbol) \\
    static_assert(agree<decltype(ours::driver::name), decltype(&::symbol)>, "parameters of " #symbol);
TNI_HIP_SAME(SAME)
#undef OTHER
#define OTHER(symbol, unused) \\
    static_assert(agree<decltype(ours::others::symbol), decltype(&::symbol)>, "parameters of " #symbol);
TNI_HIP_OTHER(OTHER)
"""


def find_header():
    """Return the folder that has hip/, or None."""
    homes = [os.environ.get("ROCM_PATH"), "/opt/rocm"]
    folders = [pathlib.Path(home) / "include" for home in homes if home] + [PACKAGE]
    return next((folder for folder in folders if (folder / HEADER).exists()), None)


def assertion(condition, text):
    return f'static_assert({condition}, "{text}");'


def make_source():
    """C++ that compiles if all is equal, and how much it compares."""
    lines = [assertion(f"(long)ours::{mine} == (long){its}", f"{mine} is not {its}") for mine, its in CONSTANTS.items()]
    for mine, its, fields in STRUCTURES:
        lines.append(assertion(f"sizeof(ours::{mine}) == sizeof(::{its})", f"sizeof {its}"))
        for field in fields.split():
            one, _, other = field.partition("=")
            lines.append(assertion(
                f"offsetof(ours::{mine}, {one}) == offsetof(::{its}, {other or one})", f"{its}.{other or one}"))
    return "\n".join([COMPARE, *lines]), len(lines)


def compile_with(folder, source, output):
    command = [os.environ.get("CXX", "c++"), "-std=c++17", "-Wall", "-Werror", "-Wno-deprecated-declarations",
               "-Wno-invalid-offsetof", f"-isystem{folder}", f"-I{ROOT / 'src'}", *output, "-x", "c++", "-"]
    return subprocess.run(command, input=source, text=True, capture_output=True, check=False).stderr


def version_of(folder):
    source = ('#include <cstdio>\n#include <hip/hip_version.h>\n'
              'int main() { std::printf("%d.%d", HIP_VERSION_MAJOR, HIP_VERSION_MINOR); }')
    with tempfile.TemporaryDirectory() as work:
        if compile_with(folder, source, ["-o", f"{work}/version"]):
            return "an unknown version"
        return subprocess.run([f"{work}/version"], text=True, capture_output=True, check=True).stdout


def main():
    folder = pathlib.Path(sys.argv[1]).resolve().parent.parent if len(sys.argv) > 1 else find_header()
    if folder is None:
        print("dev/check-hip.py: there is no hip_runtime_api.h here: nothing was compared")
        return NOT_COMPARED
    source, count = make_source()
    errors = compile_with(folder, source, ["-fsyntax-only"])
    if errors:
        print(errors)
        print(f"dev/check-hip.py: src/device/hip_api.h differs from {folder / HEADER}")
        return 1
    print(f"dev/check-hip.py: as {folder / HEADER}, version {version_of(folder)}: {count} constants and layouts, and every function")
    return 0


if __name__ == "__main__":
    sys.exit(main())
