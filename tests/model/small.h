/* SPDX-License-Identifier: Apache-2.0 */
/*
 * small: included before each file of src/ that the models of the domain compile, and before
 * the models. Of what there is many times over it leaves one: threads of a seat, words of a
 * set of seats. Sizes depend on these numbers, and no line of the protocols.
 */
#ifndef TENON_TESTS_MODEL_SMALL_H
#define TENON_TESTS_MODEL_SMALL_H

/*
 * All of libc that is used, included before this header pretends that the machine is another
 * one.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

/* Compile the source as for other machines than x86, with all its fences. */
#if defined(MODEL_NOT_X86)
#undef __x86_64__
#endif

/* Before any struct, as some have a member of this name. */
void tiny_free(void *at);
#define free tiny_free

#include "layout/layout.h"

#define TNI_THREADS    1
#define TNI_SEAT_WORDS 1

/*
 * Accesses that libc makes to shared memory would be no steps, so these functions are
 * compiled with instrumentation.
 */
void *tiny_memcpy(void *to, const void *from, size_t size_bytes);
void *tiny_memset(void *to, int byte, size_t size_bytes);
int tiny_strncmp(const char *a, const char *b, size_t most);
int tiny_snprintf(char *text, size_t size_bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#define memcpy   tiny_memcpy
#define memset   tiny_memset
#define strncmp  tiny_strncmp
#define snprintf tiny_snprintf

/* Memory that an explored room allocates is private memory of the running process. */
void *tiny_calloc(size_t count, size_t size_bytes);
void *tiny_aligned_alloc(size_t alignment, size_t size_bytes);
#define calloc        tiny_calloc
#define aligned_alloc tiny_aligned_alloc

#endif
