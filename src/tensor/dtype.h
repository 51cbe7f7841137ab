/* SPDX-License-Identifier: Apache-2.0 */
/* dtype: types as text. Inside the room tensor; numbers and sizes are in <tenon/tensor.h>. */
#ifndef TNI_TENSOR_DTYPE_H
#define TNI_TENSOR_DTYPE_H

#include <tenon/dlpack.h>
#include <tenon/tensor.h>

#include "base/base.h"

enum { TNI_DTYPE_NAME_BYTES = 32 };

/** The name, or the three numbers of a type that has none: for error details. */
void tni_dtype_describe(tn_dtype dtype, char text[TNI_DTYPE_NAME_BYTES]);

#endif
