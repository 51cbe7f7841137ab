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
 * A struct of options, or one that a call fills, with its size set, in C:
 *
 *     tn_queue_open(domain, "frames", NULL, TN_OPEN_EXISTING, TN_OPTIONS(tn_queue_options,
 * .capacity = 4));
 */
#define TN_OPTIONS(type, ...) (&(type){.struct_size = sizeof(type), __VA_ARGS__})

TN_BEGIN_DECLS

/** The library's version at run time, as in "0.1.0". Threads: any. Blocks: never. Fork: yes. */
TN_API const char *tn_version(void);

TN_END_DECLS

#endif
