/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manager: our side of tenond: register a domain, ring, replace it; and every domain that a
 * process of this user has open. find.c finds one by name.
 *
 * Nouns: request and reply (one packet each way), bell, found domain.
 * I1  tenond is told facts that it could find itself: a lost request or ring costs time, no
 *     memory.
 * I2  A domain belongs to the runtime folder whose hash is in its header; only the tenond of
 *     that folder looks after it, and only members with that folder start one. A member whose
 *     tenond went on in another folder follows it, before it asks or starts a tenond. The
 *     header alone moves nobody: see follow().
 * I3  Nothing of a reply or of another process's descriptor is used before it was checked.
 * Callers: api, every room that sleeps (survive), tenond. Death: leaves a connection that
 * tenond closes. Descriptors that tenond keeps are in depot.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reaper/manager.h"
#include "reaper/recount.h"

#ifndef TNI_TENOND_PATH
#define TNI_TENOND_PATH "/usr/local/libexec/tenond"
#endif

#define MS_NS UINT64_C(1000000)
enum { RESTART_MS = 200, FIRST_STEP_US = 500, MOST_STEP_US = 20000 };

/*
 * A tenond has this process's limits. It has a dozen descriptors of its own, two for each
 * domain, and one for each member and connection: with fewer than this it could not answer.
 */
enum { TENOND_DESCRIPTORS = 64 };

uint32_t tni_manager_runtime(void) { return tni_manager_hash_folder(tni_os_runtime_folder()); }

uint32_t tni_manager_hash_folder(const char *folder)
{
    uint64_t hash = tni_hash(folder, strlen(folder));
    uint32_t half = (uint32_t)(hash ^ hash >> 32);
    return half != 0 ? half : 1;
}

static int is_runtime(const char *folder, void *runtime)
{
    return tni_manager_hash_folder(folder) == *(const uint32_t *)runtime;
}

bool tni_manager_is_ours(uint32_t runtime)
{
    return runtime != 0 && tni_os_runtime_keep(is_runtime, &runtime);
}

/* Where a domain is, as its header says. */
struct place {
    uint32_t runtime;
    const struct tni_segment *segment;
};

/* Anybody can write into the header, but only the tenond of a folder has the lock of it. */
static int is_place_of_tenond(const char *folder, void *context)
{
    const struct place *place = context;
    return tni_manager_hash_folder(folder) == place->runtime &&
           (!tni_manager_is_alive(place->segment) ||
            tni_manager_is_in_folder(place->segment, folder));
}

/*
 * I2. A domain that was never of our folder does not say which one is ours. Nor does a header
 * that names another folder than the tenond that lives has: that tenond puts the header right.
 * Of one that died after it went on, only the header is left to tell.
 */
static void follow(struct tn_domain *d)
{
    struct place place = {atomic_load(&d->segment.header->runtime), &d->segment};
    uint32_t before = atomic_load(&d->runtime);
    bool is_managed = (d->segment.flags & TN_DOMAIN_NO_MANAGER) == 0;
    if (d->is_manager || !is_managed || place.runtime == 0 || place.runtime == before)
        return;
    bool is_ours = before != 0 ? tni_os_runtime_follow(is_place_of_tenond, &place)
                               : tni_manager_is_ours(place.runtime);
    if (is_ours)
        atomic_store(&d->runtime, place.runtime);
}

void tni_manager_follow(void) { tni_process_for_each(follow); }

static const char *tenond_path(void)
{
    const char *path = getenv("TENON_TENOND");
    return path != NULL && path[0] != 0 ? path : TNI_TENOND_PATH;
}

static int start_tenond(void)
{
    const char *path = tenond_path();
    const char *const argv[] = {path, NULL};
    if (path[0] != '/')
        return tni_fail(TN_ERR_MANAGER, "TENON_TENOND=%s is not an absolute path", path);
    uint64_t limit = tni_os_hard_descriptor_limit();
    if (limit < TENOND_DESCRIPTORS)
        return tni_fail(TN_ERR_MANAGER,
                        "tenond cannot be started: it would have this process's hard limit of "
                        "%llu descriptors (ulimit -Hn), and needs %d; a domain with "
                        "TN_DOMAIN_NO_MANAGER needs no tenond",
                        (unsigned long long)limit, TENOND_DESCRIPTORS);
    int status = tni_os_start_detached(path, argv);
    switch (status) {
    case 0:
        return 0;
    case TN_ERR_NOT_FOUND:
        return tni_fail(TN_ERR_MANAGER, "tenond is missing: %s (TENON_TENOND names another)",
                        path);
    default: {
        char why[160];
        snprintf(why, sizeof why, "%s", tn_error_detail());
        return status == TN_ERR_DENIED
                   ? tni_fail(TN_ERR_MANAGER,
                              "tenond cannot be executed: %s (TENON_TENOND names another): %s",
                              path, why)
                   : tni_fail(TN_ERR_MANAGER, "tenond could not be started: %s", why);
    }
    }
}

/* ---- one exchange ------------------------------------------------------------------------ */

void tni_manager_fill(struct tni_request *request, uint32_t verb, const char *name)
{
    *request = (struct tni_request){
        .magic = TNI_REQUEST_MAGIC, .version = TNI_REQUEST_VERSION, .verb = verb};
    snprintf(request->name, sizeof request->name, "%s", name);
}

/* I3. @return 0: a whole reply */
static int receive_reply(int socket_fd, uint64_t deadline_ns, struct tni_reply *ret_reply,
                         int got_fds[2], uint32_t *ret_fd_count)
{
    int got = tni_os_receive(socket_fd, ret_reply, sizeof *ret_reply, got_fds, 2, ret_fd_count,
                             deadline_ns);
    if (got == 0)
        return tni_fail(TN_ERR_CLOSED, "tenond closed the connection");
    if (got < 0)
        return got;
    if (got != (int)sizeof *ret_reply || ret_reply->magic != TNI_REQUEST_MAGIC)
        return tni_fail(TN_ERR_MANAGER, "tenond sent an answer of %d bytes that makes no sense",
                        got);
    return 0;
}

int tni_manager_talk(int socket_fd, const struct tni_request *request, const int *fds,
                     uint32_t fd_count, uint64_t deadline_ns, struct tni_reply *ret_reply,
                     int *ret_fds, uint32_t wanted_fds)
{
    struct tni_reply reply = {0};
    int got_fds[2] = {-1, -1};
    uint32_t got_count = 0;
    int status = tni_os_send(socket_fd, request, sizeof *request, fds, fd_count);
    if (status == 0)
        status = receive_reply(socket_fd, deadline_ns, &reply, got_fds, &got_count);
    bool has_fds = status == 0 && reply.status == 0 && wanted_fds > 0;
    if (has_fds && got_count != wanted_fds)
        status = tni_fail(TN_ERR_MANAGER, "tenond answered with %u descriptors, not %u",
                          got_count, wanted_fds);
    if (has_fds && status == 0) {
        memcpy(ret_fds, got_fds, wanted_fds * sizeof *got_fds);
    } else {
        tni_os_close(got_fds[0]);
        tni_os_close(got_fds[1]);
    }
    if (status == 0)
        *ret_reply = reply;
    return status;
}

int tni_manager_exchange(const struct tni_request *request, const int *fds, uint32_t fd_count,
                         uint64_t deadline_ns, struct tni_reply *ret_reply, int *ret_fds)
{
    int socket_fd;
    int status = tni_os_connect(TNI_MANAGER_SOCKET, &socket_fd);
    if (status != 0)
        return status;
    status = tni_manager_talk(socket_fd, request, fds, fd_count, deadline_ns, ret_reply,
                              ret_fds, ret_fds != NULL ? 2 : 0);
    tni_os_close(socket_fd);
    return status;
}

/* ---- register ---------------------------------------------------------------------------- */

static int is_socket_of_other(const char *name, void *context)
{
    const char *end = strrchr(name, '.');
    (void)context;
    return end != NULL && strcmp(end, ".sock") == 0 && strcmp(name, TNI_MANAGER_SOCKET) != 0;
}

static int fail_silent(void)
{
    return tni_fail(TN_ERR_MANAGER, "tenond (%s) was started, but does not answer in %s%s",
                    tenond_path(), tni_os_runtime_folder(),
                    tni_os_file_for_each(TNI_MANAGER_PREFIX, is_socket_of_other, NULL)
                        ? ", where one of another version does"
                        : "");
}

int tni_manager_connect(uint64_t deadline_ns, int *ret_fd)
{
    uint64_t start_ns = 0, step_ns = FIRST_STEP_US * UINT64_C(1000);
    for (;;) {
        int status = tni_os_connect(TNI_MANAGER_SOCKET, ret_fd);
        uint64_t now_ns = tni_os_now_ns();
        if (status != TN_ERR_NOT_FOUND)
            return status;
        if (now_ns >= deadline_ns)
            return fail_silent();
        /*
         * Again now and then: the one we started may have found another that was about to end.
         */
        if (now_ns >= start_ns) {
            if ((status = start_tenond()) != 0)
                return status;
            start_ns = tni_os_now_ns() + RESTART_MS * MS_NS;
        }
        tni_os_sleep_until(now_ns + step_ns);
        step_ns = TNI_MIN(step_ns * 2, MOST_STEP_US * UINT64_C(1000));
    }
}

/* Ask the tenond that listens, or a new one. One that was just ending is asked no more. */
static int exchange_starting(const struct tni_request *request, const int *fds,
                             uint32_t fd_count, struct tni_reply *ret_reply)
{
    uint64_t deadline_ns = tni_os_now_ns() + TNI_MANAGER_START_NS;
    for (;;) {
        int socket_fd;
        int status = tni_manager_connect(deadline_ns, &socket_fd);
        if (status == 0) {
            status = tni_manager_talk(socket_fd, request, fds, fd_count, deadline_ns, ret_reply,
                                      NULL, 0);
            tni_os_close(socket_fd);
        }
        if (status != TN_ERR_CLOSED && status != TN_ERR_TIMED_OUT)
            return status;
        uint64_t now_ns = tni_os_now_ns();
        if (now_ns >= deadline_ns)
            return fail_silent();
        tni_os_sleep_until(now_ns + FIRST_STEP_US * UINT64_C(1000));
    }
}

int tni_manager_fail_reply(const struct tni_reply *reply, const char *name)
{
    switch (reply->status) {
    case TN_ERR_EXISTS:
        return tni_fail(TN_ERR_EXISTS, "a domain named '%s' lives already", name);
    case TN_ERR_FULL:
        return tni_fail(TN_ERR_FULL, "the domain has no seat left for tenond");
    case TN_ERR_NOT_FOUND:
        return tni_fail(TN_ERR_NOT_FOUND, "no domain is named '%s'", name);
    case TN_ERR_DENIED:
        return tni_fail(TN_ERR_DENIED,
                        "the tenond of %s (process %d) may not look after this domain: it runs "
                        "in another user namespace, where this process's user has another "
                        "number. Set TENON_RUNTIME_DIR to another folder, which has its own "
                        "tenond",
                        tni_os_runtime_folder(), reply->pid);
    case TN_ERR_MANAGER:
        return tni_fail(TN_ERR_MANAGER,
                        "another tenond than that of %s (process %d) looks after the domain",
                        tni_os_runtime_folder(), reply->pid);
    case TN_ERR_VERSION:
        return tni_fail(TN_ERR_VERSION,
                        "the tenond of %s (process %d) is of another version than this library",
                        tni_os_runtime_folder(), reply->pid);
    default:
        return tni_fail(TN_ERR_MANAGER, "tenond (process %d) answered: %s", reply->pid,
                        tn_status_sentence(reply->status));
    }
}

int tni_manager_register(struct tn_domain *d)
{
    const struct tni_segment *s = &d->segment;
    struct tni_request request;
    struct tni_reply reply;

    if (s->flags & TN_DOMAIN_NO_MANAGER)
        return 0;
    tni_manager_follow();
    int status = tni_os_runtime_prepare();
    if (status != 0)
        return status;
    tni_manager_fill(&request, TNI_REQUEST_REGISTER, s->name);
    const int fds[2] = {s->control_fd, s->arena_fd};
    status = exchange_starting(&request, fds, 2, &reply);
    if (status == 0 && reply.status != 0)
        status = tni_manager_fail_reply(&reply, s->name);
    if (status == 0)
        follow(d);
    return status;
}

/* ---- searching without tenond ------------------------------------------------------------ */

struct search {
    tni_found_fn *each;
    void *context;
};

/*
 * A header that was looked at through one read-only page. Of any version of the layout, in
 * which all up to `runtime` stands where it does in this one. @return 1, 0: it is none, or an
 * error
 */
static int peek(int control_fd, struct tni_found *found)
{
    uint64_t page_bytes = tni_os_page_bytes();
    struct tni_os_memory memory;
    void *page;

    if (tni_os_memory_stat(control_fd, &memory) != 0 || memory.size_bytes < page_bytes ||
        !memory.is_sealed || memory.uid != tni_os_uid())
        return 0;
    int status = tni_os_map(control_fd, page_bytes, page_bytes, true, &page);
    if (status != 0)
        return status;
    const struct tni_header *h = page;
    bool is_header = __atomic_load_n(&h->magic, __ATOMIC_ACQUIRE) == TNI_MAGIC;
    if (is_header) {
        memcpy(found->name, h->name, sizeof found->name);
        memcpy(found->id, h->id, sizeof found->id);
        found->layout_version = h->layout_version;
        found->uid = h->uid;
        found->creator_pid = h->creator_pid;
        found->runtime = atomic_load(&h->runtime);
        found->arena_inode = h->arena_inode;
        is_header = memchr(found->name, 0, sizeof found->name) != NULL;
    }
    tni_os_unmap(page, page_bytes);
    return is_header;
}

static int look_at_control(int32_t pid, int fd_number, const char *name, uint64_t inode,
                           void *context)
{
    const struct search *search = context;
    struct tni_found found = {.pid = pid, .control_number = fd_number, .control_inode = inode};
    int control_fd;

    (void)name;
    int status = tni_os_memory_open(pid, fd_number, true, &control_fd);
    if (status != 0)
        return tni_manager_unless_gone(status);
    status = peek(control_fd, &found);
    tni_os_close(control_fd);
    return status == 1 ? search->each(&found, search->context) : status;
}

int tni_manager_search(tni_found_fn *each, void *context)
{
    struct search search = {.each = each, .context = context};
    return tni_os_memory_for_each(TNI_CONTROL_PREFIX, look_at_control, &search);
}

struct living {
    uint8_t (*ids)[16]; /* [room] */
    uint32_t count, room;
};

static int add_id(const struct tni_found *found, void *context)
{
    struct living *living = context;
    if (living->count == living->room) {
        uint32_t room = 2 * living->room + 16;
        void *grown = reallocarray(living->ids, room, sizeof *living->ids);
        if (grown == NULL)
            return tni_fail(TN_ERR_NO_MEMORY, "no private memory for %u open domains", room);
        living->ids = grown;
        living->room = room;
    }
    memcpy(living->ids[living->count++], found->id, sizeof found->id);
    return 0;
}

int tni_manager_living(uint8_t (**ret_ids)[16], uint32_t *ret_count)
{
    struct living living = {0};
    int status = tni_manager_search(add_id, &living);
    if (status != 0) {
        free(living.ids);
        return status;
    }
    *ret_ids = living.ids;
    *ret_count = living.count;
    return 0;
}

struct arena_search {
    const struct tni_found *found;
    bool read_only;
    int arena_fd;
};

static int look_at_arena(int32_t pid, int fd_number, const char *name, uint64_t inode,
                         void *context)
{
    struct arena_search *search = context;
    (void)name;
    if (inode != search->found->arena_inode)
        return 0;
    int status = tni_os_memory_open(pid, fd_number, search->read_only, &search->arena_fd);
    return status == 0 ? 1 : tni_manager_unless_gone(status);
}

static int find_arena(struct arena_search *search)
{
    int found = tni_os_memory_for_each(TNI_ARENA_PREFIX, look_at_arena, search);
    if (found == 0)
        return tni_fail(TN_ERR_NOT_FOUND, "nobody has the arena of the domain '%s' open",
                        search->found->name);
    return found == 1 ? 0 : found;
}

int tni_manager_open_found(const struct tni_found *found, bool read_only, int *ret_control_fd,
                           int *ret_arena_fd)
{
    struct arena_search search = {.found = found, .read_only = read_only, .arena_fd = -1};
    struct tni_os_memory memory;
    int control_fd;
    int status = tni_os_memory_open(found->pid, found->control_number, read_only, &control_fd);
    if (status != 0)
        return status;
    if (tni_os_memory_stat(control_fd, &memory) != 0 || memory.inode != found->control_inode)
        status =
            tni_fail(TN_ERR_NOT_FOUND, "process %d no longer has the domain open", found->pid);
    else
        status = find_arena(&search);
    if (status != 0) {
        tni_os_close(control_fd);
        return status;
    }
    *ret_control_fd = control_fd;
    *ret_arena_fd = search.arena_fd;
    return 0;
}

/* ---- ring -------------------------------------------------------------------------------- */

/*
 * Forks come by hundreds a second, and each ring wakes tenond: so one rings for all who come a
 * moment later. Death: of the one that is about to ring leaves these to the look that tenond
 * takes by itself, once a second.
 */
TNI_AROUND_FORK void tni_manager_ring(struct tn_domain *d)
{
    const struct tni_segment *s = &d->segment;
    uint64_t manager = atomic_load(&s->header->manager);
    uint32_t seat = tni_who_seat(manager);

    if (d->is_manager || manager == 0 || !tni_geometry_has_seat(&s->geometry, seat))
        return;
    uint64_t bell = atomic_load(&tni_seat_at(s, seat)->bell_number);
    uint64_t now_ns = tni_os_shared_ns(), seen_ns = atomic_load(&s->header->rung_ns);
    if (bell == 0 || now_ns - seen_ns < TNI_MANAGER_RUNG_NS ||
        !atomic_compare_exchange_strong(&s->header->rung_ns, &seen_ns, now_ns))
        return; /* another member rings, or rang less than TNI_MANAGER_RUNG_NS ago */
    TNI_KILL_POINT("manager_rings");
    tni_os_bell_ring(bell);
}

/* ---- leave ------------------------------------------------------------------------------- */

/* Where no tenond looks after a domain, whoever is the last in it ends its files. */
static bool has_files_to_end(const struct tn_domain *d)
{
    return (d->segment.flags & TN_DOMAIN_NO_MANAGER) != 0 &&
           tni_frontier(&d->segment, TNI_BACKING_CLASS) > 0;
}

void tni_manager_leave(struct tn_domain *d)
{
    bool has_files = tni_process_has_seat(d) && has_files_to_end(d);
    if (has_files)
        tni_reaper_settle_all(d); /* who died in it is not a member */
    tni_reaper_leave(d);
    tni_process_leave(d);
    if (has_files && tni_process_count(&d->segment) == 0) {
        tni_files_end_domain(&d->segment);
        /* And what other domains left, of which all members were killed. */
        (void)tni_files_collect(tni_manager_living, NULL, NULL);
    }
    tni_manager_ring(d);
}

/* ---- survive ----------------------------------------------------------------------------- */

/*
 * Shares of our time that go into looking after others: with a tenond that lives, next to none.
 */
enum {
    LEAST_MS = 50,
    MOST_MS = 50, /* of one go: the caller has a deadline of its own */
    MANAGED_LEAST_MS = 1000,
    SHARE = 20,
    MANAGED_SHARE = 2000,
    RETRY_START_MS = 1000
};

bool tni_manager_is_alive(const struct tni_segment *s)
{
    uint64_t manager = atomic_load(&s->header->manager);
    uint32_t seat = tni_who_seat(manager);
    return tni_process_who_lives(s, manager) &&
           (atomic_load(&tni_seat_at(s, seat)->flags) & TNI_SEAT_MANAGER) != 0 &&
           tni_process_seat_state(s, seat) != TNI_OS_DEAD;
}

/* I2. A tenond that starts adopts what it finds open; one that runs already must be told. */
static int replace_tenond(struct tn_domain *d)
{
    struct tni_request request;
    int socket_fd;
    int status = tni_os_runtime_prepare();
    if (status != 0)
        return status;
    if ((status = tni_os_connect(TNI_MANAGER_SOCKET, &socket_fd)) == TN_ERR_NOT_FOUND)
        return start_tenond();
    if (status != 0)
        return status;
    /* Not waiting for its answer: the caller has a deadline of its own. */
    tni_manager_fill(&request, TNI_REQUEST_REGISTER, d->segment.name);
    const int fds[2] = {d->segment.control_fd, d->segment.arena_fd};
    status = tni_os_send(socket_fd, &request, sizeof request, fds, 2);
    tni_os_close(socket_fd);
    return status;
}

/* Files that the domain let go, and that somebody held who was killed. tenond looks as well. */
static void end_files_let_go(struct tn_domain *d)
{
    enum { SHARE_OF_FILES = 100, FILES_LEAST_MS = 1000 };
    uint64_t begun_ns = tni_os_now_ns(), due_ns = atomic_load(&d->files_ns);
    if ((d->segment.flags & TN_DOMAIN_NO_MANAGER) == 0 || begun_ns < due_ns)
        return;
    (void)tni_files_let_go(&d->segment, false, NULL, NULL);
    uint64_t done_ns = tni_os_now_ns();
    uint64_t pause_ns =
        tni_pause_ns(done_ns - begun_ns, SHARE_OF_FILES, FILES_LEAST_MS * MS_NS);
    atomic_store(&d->files_ns, done_ns + pause_ns);
}

/*
 * What tenond does for a domain, as far as any member can.
 * @return what came back, or less than 0: some of the dead are left
 */
static int look_after(struct tn_domain *d, uint64_t deadline_ns)
{
    tni_process_clear_idle(d);
    int settled = tni_reaper_settle_until(d, deadline_ns);
    uint32_t ended = tni_ticket_expire_due(d);
    tni_backing_sweep(d);
    end_files_let_go(d);
    return settled < 0 ? settled : settled + (int)ended;
}

/* Somebody else, or another thread of ours, is about to give back what the dead had. */
static bool is_being_settled(const struct tn_domain *d)
{
    const struct tni_segment *s = &d->segment;
    uint32_t seat = 0, limit = tni_seat_limit(s);
    if (atomic_load(&d->reaping) == d->who ||
        (atomic_load(&s->header->recount) != 0 && tni_recount_has_suspects(s)))
        return true;
    while (seat < limit &&
           tni_seat_state(atomic_load(&tni_seat_at(s, seat)->word)) != TNI_SEAT_REAPING)
        seat++;
    return seat < limit;
}

/* Rises with each seat and with each row of suspects that somebody has dealt with. */
static uint64_t given_back(const struct tn_domain *d)
{
    const struct tni_header *h = d->segment.header;
    return atomic_load(&h->deaths) + atomic_load(&h->suspects_done);
}

/*
 * While others settle the dead we wait for them, and take over from those who die. Who finds
 * nothing does not look again for a few times as long as that took: a program may ask for what
 * is not there as often as it likes.
 */
static bool relieve(struct tn_domain *d)
{
    enum { REST = 4 };
    uint64_t begun_ns = tni_os_now_ns(), deadline_ns = begun_ns + MOST_MS * MS_NS;
    if (d->is_closed || d->seat == TNI_NO_SEAT || begun_ns < atomic_load(&d->relieve_ns))
        return false;
    uint64_t before = given_back(d);
    int came_back = look_after(d, deadline_ns);
    for (uint32_t tries = 0; came_back <= 0 && given_back(d) == before && is_being_settled(d) &&
                             tni_os_now_ns() < deadline_ns;
         tries++) {
        tni_os_back_off(tries);
        came_back = tni_reaper_settle_until(d, deadline_ns);
    }
    bool has_found = came_back > 0 || given_back(d) != before;
    uint64_t done_ns = tni_os_now_ns(), pause_ns = tni_pause_ns(done_ns - begun_ns, REST, 0);
    atomic_store(&d->relieve_ns, has_found ? 0 : done_ns + pause_ns);
    return true;
}

/* A tenond that died as it gave the name up did not see us. */
static bool is_ours(const struct tn_domain *d)
{
    uint32_t runtime = atomic_load(&d->segment.header->runtime);
    return runtime == 0 ? d->segment.name[0] != 0 : tni_manager_is_ours(runtime);
}

void tni_manager_survive(struct tn_domain *d)
{
    uint64_t begun_ns = tni_os_now_ns(), due_ns = atomic_load(&d->survive_ns);

    if (d->is_manager || d->is_closed || d->seat == TNI_NO_SEAT || begun_ns < due_ns ||
        !atomic_compare_exchange_strong(&d->survive_ns, &due_ns, begun_ns + LEAST_MS * MS_NS))
        return;
    look_after(d, begun_ns + MOST_MS * MS_NS);
    follow(d);
    bool is_managed = (d->segment.flags & TN_DOMAIN_NO_MANAGER) == 0;
    bool has_manager = is_managed && tni_manager_is_alive(&d->segment);
    uint64_t spent_ns = tni_os_now_ns() - begun_ns, pause_ns;

    if (!has_manager)
        tni_alloc_trim_idle(d);
    if (has_manager)
        pause_ns = tni_pause_ns(spent_ns, MANAGED_SHARE, MANAGED_LEAST_MS * MS_NS);
    else
        pause_ns = tni_pause_ns(spent_ns, SHARE, LEAST_MS * MS_NS);
    if (is_managed && !has_manager && is_ours(d)) {
        int status = replace_tenond(d);
        if (status != 0)
            tni_log(TNI_LOG_WARNING, "domain '%s' has no tenond: %s", d->segment.name,
                    tn_error_detail());
        pause_ns = TNI_MAX(pause_ns, (status != 0 ? RETRY_START_MS : RESTART_MS) * MS_NS);
    }
    atomic_store(&d->survive_ns, tni_os_now_ns() + pause_ns);
    if (has_manager)
        tni_depot_catch_up(d);
}

void tni_reaper_init(struct tn_domain *d)
{
    d->survive = tni_manager_survive;
    d->relieve = relieve;
    follow(d); /* from now on */
    tni_depot_init(d);
    tni_process_set_joined(tni_manager_ring);
}
