/* SPDX-License-Identifier: Apache-2.0 */
/* size: how much of a device tensors of a domain take, and may take. */
#include "backing/backing.h"
#include "show/show.h"

uint64_t tni_show_device_bytes(const struct tn_domain *d, uint64_t size_bytes)
{
    enum { PIECE = 2 << 20 }; /* the driver's granularity on all cards so far */
    uint32_t class_id = tni_geometry_device_class(&d->segment.geometry, size_bytes);
    return class_id != 0 && tni_backing_part(d)->depot != NULL
               ? d->segment.geometry.classes[class_id].size_bytes
               : tni_align_up(size_bytes, PIECE);
}

uint64_t tni_show_device_quota(const struct tn_domain *d)
{
    return atomic_load(&d->segment.header->device_quota_bytes);
}
