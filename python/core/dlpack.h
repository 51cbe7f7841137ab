/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The capsules of DLPack's protocol for Python: their names, and the struct that DLPack had
 * before 1.0.
 */
#ifndef TENON_CORE_DLPACK_H
#define TENON_CORE_DLPACK_H

#include "tensor.h"

#define VERSIONED        "dltensor_versioned"
#define USED_VERSIONED   "used_dltensor_versioned"
#define UNVERSIONED      "dltensor"
#define USED_UNVERSIONED "used_dltensor"

/* DLManagedTensor of DLPack before 1.0. */
struct tnp_unversioned {
    DLTensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct tnp_unversioned *self);
};

#endif
