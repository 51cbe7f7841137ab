#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compare src/device/cuda_api.h and tests/gpu/facts/driver.h with NVIDIA's cuda.h: constants, layouts, parameters.

    dev/check-cuda.py [cuda.h]

Without an argument it takes cuda.h from $CUDA_HOME, from /usr/local/cuda, or from build/cuda, where dev/setup puts
PyPI's package nvidia-cuda-runtime. Where it finds none it says so and exits with 77: nothing was compared.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "build" / "cuda"
NOT_COMPARED = 77

# The real header's types, with the lists of cuda_api.h.
REAL = """
#include <cuda.h>
#define TNI_CUDA_REAL
#include "gpu/facts/driver.h"
#define VALUE(name, value) _Static_assert((int)(name) == (value), #name);
TNI_CUDA_VALUES(VALUE)
FACTS_VALUES(VALUE)
TNI_CUDA_ERRORS(VALUE)
#define FUNCTION(group, name, symbol, version, parameters) CUresult(*p_##symbol) parameters = &symbol;
TNI_CUDA_FUNCTIONS(FUNCTION)
FACTS_FUNCTIONS(FUNCTION)
#if CUDA_VERSION < 13000
FACTS_OLD_FUNCTIONS(FUNCTION)
#endif
tni_cuGetProcAddress_v2 *p_cuGetProcAddress_v2 = &cuGetProcAddress_v2;
"""
# The types whose layout counts, and fields; compiled with each of the two headers.
SIZES = """
CUresult CUdevice CUdeviceptr CUmemGenericAllocationHandle cuuint64_t CUcontext CUstream CUevent CUuuid CUipcMemHandle
CUipcEventHandle CUdevice_attribute CUpointer_attribute CUstreamCaptureStatus CUmemAllocationType
CUmemAllocationHandleType CUmemAllocationGranularity_flags CUmemLocationType CUmemAccess_flags
CUdriverProcAddressQueryResult CUmemLocation CUmemAllocationProp CUmemAccessDesc
CUmemorytype CUarray CUDA_MEMCPY2D CUmodule CUfunction CUmemoryPool CUmemPoolProps
""".split()
FIELDS = [
    ("CUmemLocation", "type"), ("CUmemLocation", "id"), ("CUmemAllocationProp", "type"),
    ("CUmemAllocationProp", "requestedHandleTypes"), ("CUmemAllocationProp", "location"),
    ("CUmemAllocationProp", "win32HandleMetaData"), ("CUmemAllocationProp", "allocFlags"),
    ("CUmemAccessDesc", "location"), ("CUmemAccessDesc", "flags"),
    ("CUDA_MEMCPY2D", "srcXInBytes"), ("CUDA_MEMCPY2D", "srcY"), ("CUDA_MEMCPY2D", "srcMemoryType"),
    ("CUDA_MEMCPY2D", "srcHost"), ("CUDA_MEMCPY2D", "srcDevice"), ("CUDA_MEMCPY2D", "srcPitch"),
    ("CUDA_MEMCPY2D", "dstXInBytes"), ("CUDA_MEMCPY2D", "dstY"), ("CUDA_MEMCPY2D", "dstMemoryType"),
    ("CUDA_MEMCPY2D", "dstHost"), ("CUDA_MEMCPY2D", "dstDevice"), ("CUDA_MEMCPY2D", "dstPitch"),
    ("CUDA_MEMCPY2D", "WidthInBytes"), ("CUDA_MEMCPY2D", "Height"),
    ("CUmemPoolProps", "allocType"), ("CUmemPoolProps", "handleTypes"), ("CUmemPoolProps", "location"),
]


def find_header():
    """Return the folder of cuda.h, or None."""
    homes = [os.environ.get("CUDA_HOME"), "/usr/local/cuda"]
    for folder in [pathlib.Path(home) / "include" for home in homes if home]:
        if (folder / "cuda.h").exists():
            return folder
    found = sorted(PACKAGE.glob("nvidia/*/include/cuda.h"))
    return found[-1].parent if found else None


def compile_with(folder, source, output):
    """Compile C; return the compiler's errors, "" if there are none."""
    command = [os.environ.get("CC", "cc"), "-std=c11", "-Wall", "-Werror", f"-I{ROOT / 'src'}", f"-I{ROOT / 'tests'}", *output, "-x", "c", "-"]
    if folder is not None:
        command.insert(1, f"-isystem{folder}")
    return subprocess.run(command, input=source, text=True, capture_output=True, check=False).stderr


def layouts(folder, include):
    """Compile and run a program that prints sizes and offsets; return its lines."""
    prints = [f'printf("sizeof {t}: %zu\\n", sizeof({t}));' for t in SIZES]
    prints += [f'printf("{t}.{f}: %zu\\n", offsetof({t}, {f}));' for t, f in FIELDS]
    source = f"#include <stdio.h>\n#include <stddef.h>\n{include}\nint main(void) {{ {' '.join(prints)} return 0; }}\n"
    with tempfile.TemporaryDirectory() as work:
        program = f"{work}/layouts"
        errors = compile_with(folder, source, ["-o", program])
        if errors:
            sys.exit(f"dev/check-cuda.py: {errors}")
        return subprocess.run([program], text=True, capture_output=True, check=True).stdout.splitlines()


def main():
    folder = pathlib.Path(sys.argv[1]).parent if len(sys.argv) > 1 else find_header()
    if folder is None:
        print("dev/check-cuda.py: there is no cuda.h here, and no package nvidia-cuda-runtime: nothing was compared")
        return NOT_COMPARED
    errors = compile_with(folder, REAL, ["-c", "-o", os.devnull])
    ours = layouts(None, '#include "gpu/facts/driver.h"')
    real = layouts(folder, "#include <cuda.h>")
    differences = [f"{mine}, in cuda.h {its}" for mine, its in zip(ours, real) if mine != its]
    if errors or differences:
        print(errors, *differences, sep="\n")
        print(f"dev/check-cuda.py: src/device/cuda_api.h or tests/gpu/facts/driver.h differs from {folder}/cuda.h")
        return 1
    print(f"dev/check-cuda.py: as {folder}/cuda.h: {len(ours)} layouts, and every constant and function")
    return 0


if __name__ == "__main__":
    sys.exit(main())
