/* SPDX-License-Identifier: Apache-2.0 */
/* tn_deadline_after(): a deadline from a duration. */
#include <tenon/deadline.h>

#include "base/base.h"
#include "os/os.h"

tn_deadline tn_deadline_after(uint64_t duration_ns)
{
    uint64_t ns;
    return tni_add_size(tni_os_now_ns(), duration_ns, &ns) ? (tn_deadline){ns} : TN_FOREVER;
}
