/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device: kinds of memory. One table of operations for each: the host, CUDA, ROCm; and one for
 * a type that tenon does not know.
 *
 * Device addresses are numbers of this process that only the device can follow. A stream is the
 * driver's pointer; NULL is its legacy default stream. Every function fails with TN_ERR_FORKED
 * in a forked child of a process that used the driver, and never reaches the driver there.
 */
#ifndef TNI_DEVICE_H
#define TNI_DEVICE_H

#include <tenon/device.h>

#include "os/os.h"

/* Memory of a device that this process has mapped. */
struct tni_device_memory {
    tn_device device;
    uint64_t address;
    uint64_t bytes;
    bool is_read_only; /* the device refuses writes of this process */
};

enum {
    TNI_COPY_TO_DEVICE,
    TNI_COPY_FROM_DEVICE,
    TNI_COPY_ON_DEVICE,
    TNI_COPY_BETWEEN_DEVICES /* of one kind; the stream is of the one to which it goes */
};
struct tni_device_copy {
    int direction;     /* TNI_COPY_* */
    int32_t from_id;   /* of BETWEEN_DEVICES: the device that has the bytes */
    void *stream;      /* of the device whose context the copy uses */
    uint64_t to, from; /* addresses of the device, or of this process's own memory */
    uint64_t bytes;    /* of a row */
    uint64_t rows;     /* 0 is 1. Memory of several rows on one device does not overlap */
    uint64_t to_pitch; /* bytes from a row to the next, `bytes` at least */
    uint64_t from_pitch;
};

/* How other processes can reach memory that another allocator made. */
enum {
    TNI_FOREIGN_COPY,   /* not at all: `why` says why not */
    TNI_FOREIGN_HANDLE, /* through a handle, while the allocation is not freed */
    TNI_FOREIGN_PIECES  /* through a descriptor of each piece that its allocator mapped */
};
struct tni_device_foreign {
    tn_device device;
    int way;              /* TNI_FOREIGN_* */
    const char *why;      /* of COPY: why it is not shared; borrowed */
    uint64_t base;        /* of the whole allocation, or of the first piece; 0: unknown */
    uint64_t bytes;       /* of that, or of all pieces that the memory lies in */
    uint64_t buffer_id;   /* the driver never gives two allocations of a process the same */
    uint32_t piece_count; /* of PIECES; they have one size, and lie side by side */
};
enum { TNI_DEVICE_HANDLE_BYTES = 64, TNI_DEVICE_PIECES = 128 };

/* A 64-bit word in memory of the host that streams write, and wait for. */
struct tni_device_word {
    void *stream;
    uint64_t address; /* as the device reaches it: words_at() */
    uint64_t value;
};

/*
 * The operations of a kind. An operation that a kind does not have is NULL. `id` is the number
 * of a device that tni_device_check() has found.
 */
struct tni_memory_kind {
    int32_t type;
    const char *name; /* as tn_device_find() reads it */
    struct tni_cuda *driver;
    int (*count)(const struct tni_memory_kind *kind);
    int (*describe)(const struct tni_memory_kind *kind, int32_t id, tn_device_info *ret_info);
    /**
     * Keep what the driver needs to use a device, which takes long to make, until unuse(). Each
     * other operation would make and free it again.
     */
    int (*use)(const struct tni_memory_kind *kind, int32_t id);
    void (*unuse)(const struct tni_memory_kind *kind, int32_t id);
    int (*count_free)(const struct tni_memory_kind *kind, int32_t id, uint64_t *ret_bytes);
    /**
     * Make `memory->bytes` bytes that other processes can map through a descriptor, and map
     * them. The memory lives while any process has it mapped or has a copy of the descriptor.
     * Its bytes are undefined.
     * @param memory  its device and bytes are set; `bytes` is a multiple of granularity()
     * @param ret_fd  owned by the caller
     * @return 0, TN_ERR_NO_MEMORY, TN_ERR_UNSUPPORTED, TN_ERR_FULL (descriptors)
     */
    int (*make)(const struct tni_memory_kind *kind, struct tni_device_memory *memory,
                int *ret_fd);
    /**
     * Map memory that a process made on this device: one piece of memory, or several of one
     * size side by side.
     * @param memory  its device, bytes and is_read_only are set
     * @param fds     [count], borrowed: of the pieces
     * @return 0, TN_ERR_CORRUPT (a descriptor is of something else, or the memory is smaller),
     *         TN_ERR_NO_MEMORY, TN_ERR_UNSUPPORTED
     */
    int (*map)(const struct tni_memory_kind *kind, struct tni_device_memory *memory,
               const int *fds, uint32_t count);
    /**
     * Find out what memory is that another allocator of this process made.
     * @return 0, TN_ERR_INVALID (it is not of this device, or reaches beyond its allocation)
     */
    int (*classify)(const struct tni_memory_kind *kind, int32_t id, uint64_t address,
                    uint64_t bytes, struct tni_device_foreign *ret_foreign);
    /** Find the device of an address. TN_ERR_NOT_FOUND: it is of none that is visible. */
    int (*locate)(const struct tni_memory_kind *kind, uint64_t address, int32_t *ret_id);
    /** Get the handle of a whole allocation. pre: classify() said HANDLE */
    int (*export)(const struct tni_memory_kind *kind, const struct tni_device_foreign *foreign,
                  uint8_t ret_handle[TNI_DEVICE_HANDLE_BYTES]);
    /**
     * Get a descriptor of each piece. pre: classify() said PIECES
     * @param ret_fds  [piece_count], owned by the caller
     */
    int (*export_pieces)(const struct tni_memory_kind *kind,
                         const struct tni_device_foreign *foreign, int *ret_fds);
    /**
     * Map a whole allocation of another process.
     * @param memory  its device is set, and how many bytes it has at least
     * @return 0, TN_ERR_NOT_FOUND (it was freed), TN_ERR_EXISTS (this process has freed memory
     *         open that was at the same place), TN_ERR_UNSUPPORTED, TN_ERR_CORRUPT (it is
     *         smaller), TN_ERR_NO_MEMORY
     */
    int (*open)(const struct tni_memory_kind *kind, struct tni_device_memory *memory,
                const uint8_t handle[TNI_DEVICE_HANDLE_BYTES]);
    /** End that. pre: as unmap() */
    void (*close)(const struct tni_memory_kind *kind, const struct tni_device_memory *memory);
    /** Unmap memory. pre: no work of this process on devices that uses it: drain() */
    void (*unmap)(const struct tni_memory_kind *kind, const struct tni_device_memory *memory);
    /** Bytes of memory come in multiples of this. */
    int (*granularity)(const struct tni_memory_kind *kind, int32_t id, uint64_t *ret_bytes);
    /** Copy in the order of the stream. The caller waits where it needs the bytes. */
    int (*copy)(const struct tni_memory_kind *kind, int32_t id,
                const struct tni_device_copy *copy);
    /** Set every byte of a part of a memory, in the order of the stream. */
    int (*fill)(const struct tni_memory_kind *kind, const struct tni_device_memory *part,
                uint8_t value, void *stream);
    /**
     * Have the device do some new work of this process, and wait for it. What a process that
     * has ended had given the device is over then.
     */
    int (*settle)(const struct tni_memory_kind *kind, int32_t id);
    /**
     * Wait until all work that this process gave the devices of this kind has ended. Work for
     * one of them may reach the memory of another. 0 also if a device lost the work of this
     * process, and so does none of it any more.
     */
    int (*drain)(const struct tni_memory_kind *kind);
    /** Wait until everything that the stream was given has ended. */
    int (*wait)(const struct tni_memory_kind *kind, int32_t id, void *stream);
    /**
     * Let the devices of this kind reach memory of this process without the processor, so that
     * copies go at full speed. TN_ERR_EXISTS: some of it is registered already.
     */
    int (*pin)(const struct tni_memory_kind *kind, void *start, uint64_t bytes);
    int (*unpin)(const struct tni_memory_kind *kind, void *start);
    /**
     * Check that a stream takes work that has an order: it is of the primary context of the
     * device, which the caller keeps in use, and is not being captured into a graph.
     * TN_ERR_INVALID.
     */
    int (*check_stream)(const struct tni_memory_kind *kind, int32_t id, void *stream);
    /** Whether streams of the device can write words, and wait for them. TN_ERR_UNSUPPORTED. */
    int (*check_words)(const struct tni_memory_kind *kind, int32_t id);
    /**
     * Let streams of all devices of this kind reach words in memory of this process. The device
     * stays in use until close_words().
     */
    int (*open_words)(const struct tni_memory_kind *kind, int32_t id, void *start,
                      uint64_t bytes);
    int (*close_words)(const struct tni_memory_kind *kind, int32_t id, void *start);
    /** Where streams of a device find the words. */
    int (*words_at)(const struct tni_memory_kind *kind, int32_t id, void *start,
                    uint64_t *ret_address);
    /** Write the word, after all that the stream was given before. */
    int (*signal)(const struct tni_memory_kind *kind, int32_t id,
                  const struct tni_device_word *word);
    /**
     * Let the stream do what it is given later only once the word has reached the value.
     * pre: a stream was given the value to write before. Then no stream waits for ever.
     */
    int (*await)(const struct tni_memory_kind *kind, int32_t id,
                 const struct tni_device_word *word);
};

/** Write a UUID as in tn_device_info.uuid_text. @param is_part  TN_DEVICE_IS_PART */
enum { TNI_UUID_TEXT_BYTES = 48 };
void tni_device_write_uuid(const uint8_t uuid[16], bool is_part,
                           char text[TNI_UUID_TEXT_BYTES]);

/** The kind of a type. For an unknown type a kind whose operations fail or are NULL. */
const struct tni_memory_kind *tni_memory_kind(int32_t type);

/**
 * The kind whose driver registers memory of the host: CUDA if it has devices, else ROCm.
 * @return 0, or as tn_device_count() of CUDA
 */
int tni_device_kind_of_pins(const struct tni_memory_kind **ret_kind);
/** Whether this process sees the device. TN_ERR_NOT_FOUND, or as tn_device_count(). */
int tni_device_check(tn_device device);
/**
 * Wait until all work that this process gave its devices has ended. 0 also if it has not used
 * any; TN_ERR_DEVICE: the driver does not let it wait now.
 */
int tni_device_drain(void);
/**
 * The number of the device of this type with this UUID. TN_ERR_NOT_FOUND: none is visible.
 * @param flags  of the device, TN_DEVICE_*: for the prefix of the UUID in the error
 */
int tni_device_by_uuid(int32_t type, const uint8_t uuid[16], uint32_t flags,
                       tn_device *ret_device);

#endif
