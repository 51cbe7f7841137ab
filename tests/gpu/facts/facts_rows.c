/* SPDX-License-Identifier: Apache-2.0 */
/* F12: copies of rows: of single elements, with pitches that the driver did not choose. */
#include <stdlib.h>

#include "gpu/facts/facts.h"

enum { ON_DEVICE, TO_DEVICE, FROM_DEVICE };
enum { ELEMENT = 4, FROM_PITCH = 12, TO_PITCH = 20 };

static uint32_t *make_elements(unsigned count, size_t pitch)
{
    size_t step = pitch / ELEMENT;
    uint32_t *elements = calloc(count, pitch);
    if (elements == NULL)
        unanswered("no memory of the host");
    for (unsigned i = 0; i < count; i++)
        elements[i * step] = i + 1;
    return elements;
}

/* How many elements are wrong, or changed between them. */
static unsigned count_wrong(const uint32_t *found, unsigned count)
{
    unsigned wrong = 0, step = TO_PITCH / ELEMENT;
    for (unsigned i = 0; i < count * step; i++)
        wrong += found[i] != (i % step == 0 ? i / step + 1 : 0);
    return wrong;
}

/* Every third element becomes every fifth one. */
static void ask_elements(int direction)
{
    unsigned count = sized(1 << 20, 1 << 10);
    driver_enter();
    struct memory from = memory_make((size_t)16 * GRANULE), to = memory_make(from.bytes);
    uint32_t *here = make_elements(count, FROM_PITCH), *back = calloc(count, TO_PITCH);
    if (back == NULL)
        unanswered("no memory of the host");
    CALL(cuMemcpyHtoDAsync, from.at, here, (size_t)count * FROM_PITCH, NULL);
    memory_fill(to.at, to.bytes, 0);
    const CUDA_MEMCPY2D rows = {
        .srcMemoryType = direction == TO_DEVICE ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
        .srcHost = here,
        .srcDevice = from.at,
        .srcPitch = FROM_PITCH,
        .dstMemoryType = direction == FROM_DEVICE ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
        .dstHost = back,
        .dstDevice = to.at,
        .dstPitch = TO_PITCH,
        .WidthInBytes = ELEMENT,
        .Height = count};
    uint64_t begun = now_ns();
    CUresult code = CODE(cuMemcpy2DAsync, &rows, NULL);
    uint64_t returned = now_ns();
    say("%u elements of %d bytes: %s", count, ELEMENT, driver_text(code));
    if (code != 0) {
        agree(code == CUDA_ERROR_INVALID_VALUE);
        return;
    }
    CALL(cuStreamSynchronize, NULL);
    double ms = (double)(now_ns() - begun) / 1e6;
    say("it returned after %.3f ms, and was done after %.3f ms",
        (double)(returned - begun) / 1e6, ms);
    if (direction != FROM_DEVICE)
        CALL(cuMemcpyDtoHAsync, back, to.at, (size_t)count * TO_PITCH, NULL);
    CALL(cuStreamSynchronize, NULL);
    unsigned wrong = count_wrong(back, count);
    say("%u elements are wrong", wrong);
    agree(wrong == 0);
    free(back);
    free(here);
    memory_end(&to);
    memory_end(&from);
}

#define WHOLE "yes, or it returns error 1"
const struct question row_questions[] = {
    {"F12.1", "Does cuMemcpy2DAsync() copy rows of one element within a device, at any pitch?",
     WHOLE, ask_elements, ON_DEVICE},
    {"F12.2", "The same from memory of the host that is not registered?", WHOLE, ask_elements,
     TO_DEVICE},
    {"F12.3", "The same to memory of the host?", WHOLE, ask_elements, FROM_DEVICE},
    {0}};
