/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENON_DEVICE_H
#define TENON_DEVICE_H

#include <stddef.h>
#include <tenon/status.h>

TN_BEGIN_DECLS

/**
 * Devices: the host, and cards with memory of their own.
 *
 * A device is a type and a number, as in DLPack. The number is that of the driver in this
 * process, and another process may count otherwise; the UUID names the card everywhere. The
 * driver is loaded at the first call that needs it, and no program needs it to start: without a
 * driver, or without a card, there are no devices of that type, and everything else works. The
 * environment variable TENON_CUDA_LIBRARY names another file than libcuda.so.1, and
 * TENON_HIP_LIBRARY another one than libamdhip64.so, that of ROCm 6 or 7. Where a process sees
 * devices of both types, those of CUDA come first.
 *
 * A forked child of a process that has used a driver cannot use it: its calls fail with
 * TN_ERR_FORKED.
 */
enum { TN_DEVICE_CPU = 1, TN_DEVICE_CUDA = 2, TN_DEVICE_ROCM = 10 };

typedef struct tn_device {
    int32_t type; /* TN_DEVICE_*, DLPack's numbers */
    int32_t id;   /* from 0; the CPU is 0 */
} tn_device;

/** What tn_device_info.flags says. */
enum {
    /* Processes can share memory that tenon makes on the device. */
    TN_DEVICE_SHARES = 1u << 0,
    /* The device is a part of a card (MIG), and the UUID is that of the part. */
    TN_DEVICE_IS_PART = 1u << 1,
    /* The device's memory is the host's. */
    TN_DEVICE_INTEGRATED = 1u << 2,
    /* The card lets only one process use it at a time (compute mode). */
    TN_DEVICE_EXCLUSIVE = 1u << 3
};

typedef struct tn_device_info {
    size_t struct_size; /* sizeof(tn_device_info), set by the caller */
    tn_device device;
    uint32_t flags;         /* TN_DEVICE_SHARES, ... */
    int32_t driver_version; /* as the driver states it: 13000 is CUDA 13.0, and
                               70100000 is ROCm 7.1; 0: the CPU */
    uint64_t memory_bytes;  /* of the whole device */
    uint8_t uuid[16];       /* zeros: the CPU */
    char uuid_text[48];     /* "GPU-" or "MIG-" and the UUID in lower case; "": the CPU */
    char name[64];          /* of the model, cut if it is longer */
    char pci[16];           /* its address on the PCI bus, as in "0000:3b:00.0"; "": the CPU, or
                               the driver does not know it */
    int32_t numa_node; /* of the host's memory, the node nearest to it, as the kernel numbers
                          nodes; -1: the CPU, or the kernel does not know it */
    uint32_t reserved;
} tn_device_info;

/**
 * How many devices of a type this process sees.
 * @return the number, 1 for the CPU; TN_ERR_UNSUPPORTED: there is no driver, it cannot be used,
 *         or it has no device, and tn_error_detail() says which; TN_ERR_INVALID: there is no
 *         such type; TN_ERR_FORKED
 *
 * Threads: any.   Blocks: while the driver starts, once in a process.
 */
TN_API TN_NODISCARD int tn_device_count(int32_t type);

/**
 * Describe a device.
 * @param ret_info  its struct_size says how much is filled in; untouched on failure
 * @return 0; TN_ERR_NOT_FOUND: no device has this number; TN_ERR_DEVICE: the driver failed; as
 *         tn_device_count(); TN_ERR_INVALID: ret_info is NULL, or struct_size is out of range
 *
 * Threads: any.   Blocks: as tn_device_count().
 */
TN_API TN_NODISCARD int tn_device_get_info(tn_device device, tn_device_info *ret_info);

/**
 * Get how many bytes of a device's memory are free now, for all processes together.
 *
 * A process that has not used the device yet makes a context on it for this call, which takes
 * some tenths of a second and some hundred MB of the device while it lasts.
 *
 * @return 0; TN_ERR_NO_MEMORY: the device has no room for a context; as tn_device_get_info();
 *         TN_ERR_INVALID: ret_bytes is NULL; TN_ERR_SYSTEM: the system does not say how much
 *         of the CPU's memory is free
 *
 * Threads: any.   Blocks: as above.
 */
TN_API TN_NODISCARD int tn_device_get_free(tn_device device, uint64_t *ret_bytes);

/**
 * Find a device by its text: "cpu", "cuda", "cuda:1", "rocm:0", or a UUID as in
 * tn_device_info.uuid_text, in letters of any case. A type without a number is device 0.
 *
 * @param text  borrowed
 * @return 0; TN_ERR_NOT_FOUND: this process sees no such device; TN_ERR_INVALID: the text is
 *         NULL or malformed, or ret_device is NULL; as tn_device_count()
 *
 * Threads: any.   Blocks: as tn_device_count().
 */
TN_API TN_NODISCARD int tn_device_find(const char *text, tn_device *ret_device);

/**
 * Find the device that has the memory at an address, whichever library of this process made it.
 *
 * @param address  of memory of a device, as this process's calls of the driver have it
 * @return 0; TN_ERR_NOT_FOUND: no device that this process sees has memory there, as if it is
 *         memory of the host; TN_ERR_UNSUPPORTED: as tn_device_count(), or the driver does not
 *         tell; TN_ERR_INVALID: an argument is NULL; TN_ERR_DEVICE; TN_ERR_FORKED
 *
 * Threads: any.   Blocks: as tn_device_count().
 */
TN_API TN_NODISCARD int tn_device_find_address(const void *address, tn_device *ret_device);

/**
 * Wait until a stream has done all that it was given before the call.
 *
 * @param stream  a CUstream, borrowed, of the primary context of the device; NULL is the legacy
 *                default stream. Ignored for the CPU, for which there is nothing to wait for
 * @return 0; TN_ERR_INVALID: the stream is of another device or context, or is being captured
 *         into a graph; TN_ERR_NOT_FOUND: no device has this number; TN_ERR_DEVICE: the driver
 *         failed; as tn_device_count()
 *
 * Threads: any.   Blocks: until then, without a deadline.
 */
TN_API TN_NODISCARD int tn_device_wait(tn_device device, void *stream);

TN_END_DECLS

#endif
