/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli_break NAME BLOCK [SLAB]: raise the count of a block by one, as if a record was lost, so
 * that `tenon doctor` finds a discrepancy. With SLAB: let the span that begins with this block
 * of a device name that block as its slab, and print which block it named before. It uses the
 * inside of the library.
 */
#include <stdio.h>
#include <stdlib.h>

#include "reaper/reaper.h"

int main(int argc, char **argv)
{
    struct tni_segment segment;
    int control_fd, arena_fd;

    if (argc != 3 && argc != 4)
        return 2;
    tni_block block = {(uint32_t)strtoul(argv[2], NULL, 16)};
    if (tni_manager_find(argv[1], false, &control_fd, &arena_fd) != 0 ||
        tni_segment_attach(control_fd, arena_fd, false, &segment) != 0 ||
        !tni_geometry_has_block(&segment.geometry, block.id)) {
        fprintf(stderr, "cli_break: %s\n", tn_error_detail());
        return 1;
    }
    if (argc == 3)
        atomic_fetch_add(tni_word_at(&segment, block), TNI_WORD_INC);
    else
        printf("%08x\n", (unsigned)atomic_exchange(&tni_desc_at(&segment, block)->committed,
                                                   strtoul(argv[3], NULL, 16)));
    tni_segment_detach(&segment);
    return 0;
}
