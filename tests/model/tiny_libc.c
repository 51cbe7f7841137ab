/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tiny_libc: see small.h. Each process gets private memory from one piece, which is never
 * given back; a process that asks for the same memory again, in another run, gets the same
 * addresses.
 */
#include <stdint.h>

#include "model.h"
#include "tiny_os.h"

enum { HEAP_BYTES = 32 << 10 };

static uint8_t *heaps[MODEL_MOST_PROCESSES + 1];
static uint64_t *heap_used; /* private to each process */

void tiny_heap_begin(void)
{
    heap_used = model_private((MODEL_MOST_PROCESSES + 1) * sizeof *heap_used, 8);
    for (uint32_t i = 0; i <= MODEL_MOST_PROCESSES; i++)
        heaps[i] = model_private(HEAP_BYTES, 64);
}

void *tiny_aligned_alloc(size_t alignment, size_t size_bytes)
{
    unsigned self = model_self();
    uint64_t from = (heap_used[self] + alignment - 1) / alignment * alignment;
    model_require(from + size_bytes <= HEAP_BYTES, "private memory of the model suffices");
    heap_used[self] = from + size_bytes;
    return heaps[self] + from;
}

void *tiny_calloc(size_t count, size_t size_bytes)
{
    return tiny_memset(tiny_aligned_alloc(16, count * size_bytes), 0, count * size_bytes);
}

void tiny_free(void *at) { (void)at; }

/* volatile, so that the compiler does not replace this loop by a call of this function */
void *tiny_memcpy(void *to, const void *from, size_t size_bytes)
{
    volatile uint8_t *into = to;
    const volatile uint8_t *out = from;
    size_t i = 0;
    if (((uintptr_t)to | (uintptr_t)from) % 8 == 0)
        for (; i + 8 <= size_bytes; i += 8)
            *(volatile uint64_t *)(void *)((uint8_t *)to + i) =
                *(const volatile uint64_t *)(const void *)((const uint8_t *)from + i);
    for (; i < size_bytes; i++)
        into[i] = out[i];
    return to;
}

void *tiny_memset(void *to, int byte, size_t size_bytes)
{
    volatile uint8_t *into = to;
    size_t i = 0;
    if ((uintptr_t)to % 8 == 0)
        for (; i + 8 <= size_bytes; i += 8)
            *(volatile uint64_t *)(void *)((uint8_t *)to + i) =
                (uint8_t)byte * UINT64_C(0x0101010101010101);
    for (; i < size_bytes; i++)
        into[i] = (uint8_t)byte;
    return to;
}

int tiny_strncmp(const char *a, const char *b, size_t most)
{
    for (size_t i = 0; i < most; i++) {
        char from_a = ((const volatile char *)a)[i], from_b = ((const volatile char *)b)[i];
        if (from_a != from_b)
            return (uint8_t)from_a - (uint8_t)from_b;
        if (from_a == 0)
            return 0;
    }
    return 0;
}

int tiny_snprintf(char *text, size_t size_bytes, const char *format, ...)
{
    char whole[256];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(whole, sizeof whole, format, arguments);
    va_end(arguments);
    if (size_bytes == 0 || length < 0)
        return length;
    size_t count = (size_t)length < size_bytes ? (size_t)length : size_bytes - 1;
    tiny_memcpy(text, whole, count);
    text[count] = 0;
    return length;
}
