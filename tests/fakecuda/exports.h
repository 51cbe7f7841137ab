/* SPDX-License-Identifier: Apache-2.0 */
/* The functions that libfakecuda exports as the driver does. */
#ifndef TENON_TESTS_FAKE_EXPORTS_H
#define TENON_TESTS_FAKE_EXPORTS_H

#include "fakecuda/fake.h"

/* libfakehip exports HIP's functions in their place: hip.c. */
#ifdef FAKE_HIP
#define DRIVER_API
#else
#define DRIVER_API FAKE_API
#endif

#define EXPORTED(group, name, symbol, version, parameters)                                     \
    DRIVER_API CUresult symbol parameters;
TNI_CUDA_FUNCTIONS(EXPORTED)
TNI_CUDA_OLD_UUID(EXPORTED)
#undef EXPORTED
DRIVER_API tni_cuGetProcAddress_v2 cuGetProcAddress_v2;

#endif
