/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image: a small domain with a bit of everything in it, made once with real processes.
 *
 * Seat 0 is this process, alive. Seats 1 and 2 are dead and not reclaimed: they held blocks,
 * leases, a lock and a permit, and announced. Each copy is two new memory objects with the
 * bytes of the first ones, so an input begins with the same domain whatever the one before did.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fuzz.h"
#include "harness/tensor.h"
#include "queue/queue.h"

enum { MOST_PAGES = 64, SEATS = 6, LIVE = 2, FILE_BYTES = 1 << 16 };

struct page {
    uint64_t offset;
    uint8_t bytes[4096];
};

static tn_domain *original;
static tn_tensor *kept[32]; /* of seat 0 [kept_count] */
static uint32_t kept_count;
static uint8_t *control;
static struct page *pages; /* of the arena [page_count] */
static uint32_t page_count;
static struct fuzz_handle handles[FUZZ_HANDLES];
static char file_path[TNI_PATH_BYTES];
static char kept_path[TNI_PATH_BYTES + 8]; /* another name of the same file */
static uint8_t file_bytes[FILE_BYTES];
static size_t file_size;

#define MUST(call)                                                                             \
    do {                                                                                       \
        if ((call) < 0)                                                                        \
            fuzz_fail("%s: %s", #call, tn_error_detail());                                     \
    } while (0)

/* ---- members ----------------------------------------------------------------------------- */

static tn_tensor *make(tn_domain *d, uint32_t strategy, int64_t count)
{
    const tn_tensor_options options = {.struct_size = sizeof options, .strategy = strategy};
    tn_tensor *t;
    MUST(tn_tensor_create(d, TN_FLOAT32, 2, (int64_t[]){count, 3}, &options, &t));
    if (kept_count < TNI_COUNT(kept))
        kept[kept_count++] = t;
    memset(tn_tensor_data(t), 1, TNI_MIN(tnt_info(t).size_bytes, (uint64_t)256));
    return t;
}

static void push(tn_queue *queue, uint32_t count, tn_tensor **tensors, size_t size_bytes)
{
    static const char bytes[2000] = "what was said";
    const tn_message message = {
        .bytes = bytes, .size_bytes = size_bytes, .tensors = tensors, .tensor_count = count};
    MUST(tn_queue_push(queue, &message, 0, TN_NOW));
}

static void export(tn_tensor *t, struct fuzz_handle *ret_handle)
{
    const tn_handle_options options = {
        .struct_size = sizeof options, .uses = 1000, .lifetime_ns = TN_NO_EXPIRY};
    MUST(tn_handle_export(t, &options, ret_handle->bytes, sizeof ret_handle->bytes,
                          &ret_handle->size_bytes));
}

static void make_queues(tn_domain *d)
{
    static const char *const names[] = {"redeliver", "drop", "lease"};
    for (uint32_t i = 0; i < 3; i++) {
        const tn_queue_options options = {
            .struct_size = sizeof options, .capacity = 4, .inline_bytes = 96, .policy = i};
        tn_queue *queue;
        tn_tensor *pair[] = {make(d, TN_STRATEGY_ARENA, 5), make(d, TN_STRATEGY_ARENA, 9000)};
        MUST(tn_queue_open(d, names[i], &options, TN_OPEN_NEW, &queue));
        push(queue, 1, pair, 0);
        push(queue, 2, pair, 1500);
        push(queue, 0, NULL, 20);
    }
}

static void make_objects(tn_domain *d)
{
    tn_event *event;
    tn_semaphore *semaphore;
    tn_lock *lock;
    tn_condition *condition;
    tn_barrier *barrier;
    MUST(tn_event_open(d, "event", TN_OPEN_NEW | TN_EVENT_AUTO_RESET, &event));
    MUST(tn_semaphore_open(d, "semaphore", 2, TN_OPEN_NEW | TN_SEMAPHORE_OWNED, &semaphore));
    MUST(tn_lock_open(d, "lock", TN_OPEN_NEW, &lock));
    MUST(tn_condition_open(d, "condition", TN_OPEN_NEW, &condition));
    MUST(tn_barrier_open(d, "barrier", 2, TN_OPEN_NEW, &barrier));
}

static void make_tensors(tn_domain *d)
{
    tn_tensor *t = make(d, TN_STRATEGY_ARENA, 7);
    MUST(tn_tensor_set_flags(t, TN_REQUIRES_GRAD));
    MUST(tn_tensor_set_name(t, "weight"));
    MUST(tn_tensor_set_axis_names(t, (const char *const[]){"row", "column"}));
    MUST(tn_tensor_set_metadata(t, "key", "value", 5));
    export(t, &handles[0]);
    t = make(d, TN_STRATEGY_FILE_SYSTEM, 100);
    export(t, &handles[1]);
    snprintf(file_path, sizeof file_path, "%s", tnt_info(t).path);
    t = make(d, TN_STRATEGY_FILE_DESCRIPTOR, 100);
    export(t, &handles[2]);
    struct tni_os_memory memory;
    int fd;
    MUST(tn_tensor_descriptor(t, 0, &fd));
    MUST(tni_os_memory_stat(fd, &memory));
    fuzz_let_find(fd, memory.inode);
    export(make(d, TN_STRATEGY_ARENA, 60000), &handles[3]);
}

/* Dies in the middle of things. */
static void live_and_die(tn_domain *d, uint32_t number)
{
    tn_queue *queue;
    tn_message message;
    tn_lock *lock;
    tn_semaphore *semaphore;
    tn_barrier *barrier;
    struct fuzz_handle handle;
    MUST(tn_queue_open(d, number == 0 ? "redeliver" : "lease", NULL, TN_OPEN_EXISTING, &queue));
    MUST(tn_queue_pop(queue, TN_NOW, &message));
    MUST(tn_lock_open(d, "lock", TN_OPEN_EXISTING, &lock));
    MUST(tn_semaphore_open(d, "semaphore", 0, TN_OPEN_EXISTING, &semaphore));
    MUST(tn_barrier_open(d, "barrier", 0, TN_OPEN_EXISTING, &barrier));
    MUST(tn_semaphore_acquire(semaphore, TN_NOW));
    if (number == 0) {
        MUST(tn_lock_acquire(lock, TN_NOW));
        (void)!tn_barrier_wait(barrier, TN_NOW);
    }
    tn_tensor *t = make(d, TN_STRATEGY_ARENA, 11);
    export(t, &handle);
    struct tni_announce *announce = tni_announce_at(&d->segment, d->seat, number);
    atomic_store(&announce->span, 1);
    atomic_store(&announce->block, t->storage->block.id);
    kill(getpid(), SIGKILL);
}

static void make_the_dead(tn_domain *d)
{
    for (uint32_t i = 0; i < LIVE; i++) {
        pid_t child = fork();
        if (child == 0) {
            live_and_die(d, i);
            _exit(1);
        }
        int status = 0;
        if (child < 0 || waitpid(child, &status, 0) != child || !WIFSIGNALED(status))
            fuzz_fail("a member of the image did not die as it should (%d)", status);
    }
}

/* ---- keeping it -------------------------------------------------------------------------- */

static void keep_arena(const struct tni_segment *s)
{
    pages = calloc(MOST_PAGES, sizeof *pages);
    for (off_t at = 0; (at = lseek(s->arena_fd, at, SEEK_DATA)) >= 0; at += 4096) {
        struct page page = {.offset = (uint64_t)at};
        memcpy(page.bytes, s->arena + at, sizeof page.bytes);
        if (page.bytes[0] == 0 && memcmp(page.bytes, page.bytes + 1, 4095) == 0)
            continue;
        if (pages == NULL || page_count == MOST_PAGES)
            fuzz_fail("the image's arena has more than %d pages", MOST_PAGES);
        pages[page_count++] = page;
    }
}

static void keep_file(void)
{
    int fd = open(file_path, O_RDONLY | O_CLOEXEC);
    ssize_t got = read(fd, file_bytes, sizeof file_bytes);
    if (got <= 0)
        fuzz_fail("%s: %s", file_path, strerror(errno));
    file_size = (size_t)got;
    close(fd);
    snprintf(kept_path, sizeof kept_path, "%s", file_path);
    for (int up = 0; up < 2; up++)
        *strrchr(kept_path, '/') = '\0'; /* beside the folder of named memory */
    strcat(kept_path, "/kept");
    if (link(file_path, kept_path) != 0)
        fuzz_fail("%s: %s", kept_path, strerror(errno));
}

static void remove_file(void)
{
    unlink(file_path);
    unlink(kept_path);
}

static void make_image(void)
{
    const tn_domain_options options = {.struct_size = sizeof options,
                                       .quota_bytes = 8 << 20,
                                       .seats = SEATS,
                                       .blocks = 64,
                                       .objects = 12,
                                       .tickets = 16,
                                       .flags = TN_DOMAIN_NO_MANAGER};
    atexit(remove_file);
    MUST(tn_domain_open(NULL, &options, 0, &original));
    const struct tni_segment *s = &original->segment;
    make_tensors(original);
    make_queues(original);
    make_objects(original);
    make_the_dead(original);
    control = malloc(s->geometry.control_bytes);
    if (control == NULL)
        fuzz_fail("no memory");
    memcpy(control, s->header, s->geometry.control_bytes);
    keep_arena(s);
    keep_file();
}

/* An input may have had it removed, or changed; the last to leave a copy removes it. */
static void renew_file(void)
{
    if (link(kept_path, file_path) != 0 && errno != EEXIST)
        fuzz_fail("%s: %s", file_path, strerror(errno));
    int fd = open(file_path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || pwrite(fd, file_bytes, file_size, 0) != (ssize_t)file_size)
        fuzz_fail("%s: %s", file_path, strerror(errno));
    close(fd);
}

/* ---- copies ------------------------------------------------------------------------------ */

void fuzz_image_copy(struct tni_segment *ret_segment)
{
    if (original == NULL) {
        fuzz_leave_world();
        make_image();
        fuzz_begin();
    }
    renew_file();
    const struct tni_geometry *g = &original->segment.geometry;
    struct tni_os_memory memory;
    struct tni_header *h = (void *)control;
    int control_fd, arena_fd;
    MUST(tni_os_memory_create(TNI_CONTROL_PREFIX, g->control_bytes, &control_fd));
    MUST(tni_os_memory_create(TNI_ARENA_PREFIX, g->arena_bytes, &arena_fd));
    MUST(tni_os_memory_stat(arena_fd, &memory));
    h->arena_inode = memory.inode;
    MUST(tni_os_write_at(control_fd, 0, control, g->control_bytes));
    for (uint32_t i = 0; i < page_count; i++)
        MUST(tni_os_write_at(arena_fd, pages[i].offset, pages[i].bytes, sizeof pages[i].bytes));
    MUST(tni_segment_attach(control_fd, arena_fd, false, ret_segment));
}

const struct fuzz_handle *fuzz_image_handle(uint32_t index)
{
    return &handles[index % FUZZ_HANDLES];
}

int fuzz_image_join(const struct tni_segment *s, tn_domain **ret_domain)
{
    char value[64];
    int control_fd, arena_fd;
    MUST(tni_os_duplicate(s->control_fd, &control_fd));
    MUST(tni_os_duplicate(s->arena_fd, &arena_fd));
    snprintf(value, sizeof value, "%d,%d", control_fd, arena_fd);
    setenv("TENON_DOMAIN", value, 1);
    int status = tn_domain_inherit(ret_domain);
    unsetenv("TENON_DOMAIN");
    if (status != 0) {
        close(control_fd);
        close(arena_fd);
    }
    return status;
}

/* ---- damage ------------------------------------------------------------------------------ */

struct field {
    uint8_t *at;
    uint64_t bytes; /* of the struct */
};

static tni_block some_block(const struct tni_geometry *g, struct fuzz_input *in)
{
    uint32_t c = 1 + fuzz_u8(in) % (g->host_classes - 1);
    return tni_block_make(c, fuzz_u8(in) % g->classes[c].capacity);
}

/* Where a queue has its slots, whatever the table says by now. */
static struct field some_slot(const struct tni_segment *s, struct fuzz_input *in)
{
    const struct tni_object *object =
        tni_object_at(&original->segment, fuzz_u8(in) % s->geometry.objects);
    tni_block ring = {atomic_load(&object->ring)};
    if (!tni_geometry_has_payload(&s->geometry, ring.id))
        ring = tni_block_make(1, 0);
    uint64_t bytes = TNI_MIN(tni_block_bytes(&s->geometry, ring), UINT64_C(1024));
    return (struct field){tni_payload_at(s, ring), bytes};
}

static struct field some_field(const struct tni_segment *s, struct fuzz_input *in)
{
    const struct tni_geometry *g = &s->geometry;
    uint32_t table = fuzz_u8(in) % 12;
#define FIELD(pointer) ((struct field){(uint8_t *)(pointer), sizeof *(pointer)})
    switch (table) {
    case 0:
        return FIELD(s->header);
    case 1:
        return FIELD(tni_seat_at(s, fuzz_u8(in) % g->seats));
    case 2: {
        uint32_t seat = fuzz_u8(in) % g->seats;
        return FIELD(tni_announce_at(s, seat, fuzz_u8(in) % TNI_THREADS));
    }
    case 3:
        return FIELD(tni_class_at(s, fuzz_u8(in) % g->host_classes));
    case 4:
        return FIELD(tni_word_at(s, some_block(g, in)));
    case 5:
        return FIELD(tni_desc_at(s, some_block(g, in)));
    case 6:
        return FIELD(tni_hints_at(s, tni_block_position(g, some_block(g, in))));
    case 7: {
        uint32_t seat = fuzz_u8(in) % g->seats;
        return FIELD(tni_row_at(s, seat, tni_block_position(g, some_block(g, in))));
    }
    case 8:
        return FIELD(tni_object_at(s, fuzz_u8(in) % g->objects));
    case 9:
        return FIELD(tni_ticket_at(s, fuzz_u8(in) % g->tickets));
    case 10:
        return some_slot(s, in);
    default: {
        tni_block block = some_block(g, in);
        uint64_t bytes = TNI_MIN(tni_block_bytes(g, block), UINT64_C(512));
        return (struct field){tni_payload_at(s, block), bytes};
    }
    }
#undef FIELD
}

static uint64_t some_value(const struct tni_segment *s, struct fuzz_input *in)
{
    uint32_t kind = fuzz_u8(in) % 4;
    if (kind == 0) {
        uint32_t seat = fuzz_u8(in) % s->geometry.seats;
        uint64_t word = atomic_load(&tni_seat_at(s, seat)->word);
        return tni_who(seat, tni_seat_incarnation(word));
    }
    if (kind == 1)
        return some_block(&s->geometry, in).id;
    return fuzz_number(in);
}

void fuzz_image_patch(const struct tni_segment *s, struct fuzz_input *in)
{
    struct field field = some_field(s, in);
    uint64_t bytes = UINT64_C(1) << (fuzz_u8(in) & 3);
    bytes = TNI_MIN(bytes, field.bytes);
    uint64_t offset = fuzz_u16(in) % (field.bytes / bytes) * bytes;
    uint64_t value = some_value(s, in), old = 0;
    if ((fuzz_u8(in) & 1) != 0) {
        memcpy(&old, field.at + offset, bytes);
        value ^= old;
    }
    memcpy(field.at + offset, &value, bytes);
}
