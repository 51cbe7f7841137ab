/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENON_VERSION_H
#define TENON_VERSION_H

/*
 * Three versions, kept apart: the API (here), the soname (meson.build), the shared layout
 * (src/layout).
 */
#define TN_VERSION_MAJOR 0
#define TN_VERSION_MINOR 1
#define TN_VERSION_PATCH 0

#if defined(__cplusplus)
#define TN_BEGIN_DECLS extern "C" {
#define TN_END_DECLS   }
#else
#define TN_BEGIN_DECLS
#define TN_END_DECLS
#endif

#define TN_API       __attribute__((visibility("default")))
#define TN_NODISCARD __attribute__((warn_unused_result))

/*
 * A struct of options with its size set, in C:
 *
 *     tn_queue_open(domain, "frames", TN_OPTIONS(tn_queue_options, .capacity = 4), 0, &queue);
 *
 * Each struct that the caller provides begins with struct_size: options, and what a call fills
 * in. A program that was compiled with an older or newer header than the library works: options
 * that one side does not know have their defaults, and results that one side does not know are
 * left out, or 0. Setting an option that the library does not know is TN_ERR_UNSUPPORTED.
 */
#define TN_OPTIONS(type, ...) (&(type){.struct_size = sizeof(type), __VA_ARGS__})

TN_BEGIN_DECLS

/** The library's version at run time, as in "0.1.0". Threads: any. Blocks: never. Fork: yes. */
TN_API const char *tn_version(void);

TN_END_DECLS

#endif
