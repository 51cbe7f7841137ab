/* SPDX-License-Identifier: Apache-2.0 */
/* window: maps only parts of an arena (I3). Private to the room segment. */
#ifndef TNI_SEGMENT_WINDOW_H
#define TNI_SEGMENT_WINDOW_H

#include "segment/segment.h"

/**
 * Map the control segment, and nothing of the arena yet. pre: all of the segment's other fields
 * are set
 * @param fail  the parameter of tni_segment_attach_sparse()
 */
int tni_window_map(struct tni_segment *segment, void (*fail)(void));
/** Unmap all windows. Does nothing for a segment without windows. */
void tni_window_unmap(struct tni_segment *segment);

#endif
