/* SPDX-License-Identifier: Apache-2.0 */
/* The functions that libfakecuda exports as the driver does. */
#ifndef TENON_TESTS_FAKE_EXPORTS_H
#define TENON_TESTS_FAKE_EXPORTS_H

#include "fakecuda/fake.h"

#define EXPORTED(group, name, symbol, version, parameters) FAKE_API CUresult symbol parameters;
TNI_CUDA_FUNCTIONS(EXPORTED)
TNI_CUDA_OLD_UUID(EXPORTED)
#undef EXPORTED
FAKE_API tni_cuGetProcAddress_v2 cuGetProcAddress_v2;

#endif
