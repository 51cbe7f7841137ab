/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manager_model: processes that become tenond, and names of domains.
 *
 * These processes meet in the kernel only: at a lock file, at a socket, in /proc. So this file
 * describes the steps, each with the name of the function that takes it, and
 * the_steps_of_this_model_are_those_of_the_source looks for each name, and for the order of the
 * calls, in the source.
 *
 * Two processes become tenond whenever a maker starts one; two makers make a domain of one name
 * and register it. One tenond is killed, once, between what it does for a request and its
 * answer. TN_MODEL_DEEP: both register at once; a tenond is killed also before it listens, or
 * it ends in order when it manages no domain; and one of the four is killed before any step.
 */
#include "harness/harness.h"
#include "tiny.h"

enum { MANAGERS = 2, MAKERS = 2, ALL = MANAGERS + MAKERS };
enum { REPLY_NONE, REPLY_OK, REPLY_EXISTS };
/*
 * The maker has it open; header->runtime says that it is managed; its maker was told that it
 * has the name.
 */
enum { IS_OPEN = 1, IS_MANAGED = 2, IS_NAMED = 4 };

/* What the kernel keeps, and what is open: the memory of no process. */
struct kernel {
    _Atomic uint32_t files;   /* the lock file: see below */
    _Atomic uint32_t sockets; /* {managers that serve:8, process + 1 that has the path:8} */
    _Atomic uint32_t control; /* {makers that are done:8, tenonds that were started:8} */
    _Atomic uint32_t domain[MAKERS];  /* IS_* */
    _Atomic uint32_t request[MAKERS]; /* {connection:24, process + 1 that is asked:8} */
    _Atomic uint32_t reply[MAKERS];   /* {connection:24, REPLY_*:8} */
};
static struct kernel *kernel;

static bool *has_one_ended; /* private: reading it is no step of a process */

static void setup(void)
{
    kernel = model_shared(sizeof *kernel, 64);
    has_one_ended = model_private(sizeof *has_one_ended, 8);
}

static uint32_t serving(uint32_t manager) { return 1u << (8 + manager); }

/* ---- tenond ------------------------------------------------------------------------------ */

static bool is_maker_alive(uint32_t maker) { return !model_is_dead(MANAGERS + maker); }

/*
 * The lock file, in one word, as each system call is one step: which inode has the name,
 * which one each tenond has open, and which one it has locked; 4 bits each, 0 is none. An
 * inode that a process has open is not used again.
 */
enum { NAMED = 0, OPEN = 4, LOCKED = 12 };
static uint32_t get(uint32_t files, uint32_t at) { return files >> at & 15; }
static uint32_t set(uint32_t files, uint32_t at, uint32_t inode)
{
    return (files & ~(15u << at)) | inode << at;
}
static uint32_t own(uint32_t at) { return at + 4 * model_self(); }

static uint32_t unused_inode(uint32_t files)
{
    for (uint32_t inode = 1;; inode++) {
        bool is_used = false;
        for (uint32_t at = NAMED; at < LOCKED + 4 * MANAGERS; at += 4)
            is_used |= get(files, at) == inode;
        if (!is_used)
            return inode;
    }
}

static void open_lock(void)
{
    uint32_t files = atomic_load(&kernel->files), next;
    do {
        uint32_t named = get(files, NAMED), inode = named != 0 ? named : unused_inode(files);
        next = set(set(files, NAMED, inode), own(OPEN), inode);
    } while (!atomic_compare_exchange_strong(&kernel->files, &files, next));
}

static bool flock_it(void)
{
    uint32_t files = atomic_load(&kernel->files), other = 1 - model_self();
    uint32_t next;
    do {
        uint32_t inode = get(files, own(OPEN));
        if (get(files, LOCKED + 4 * other) == inode && !model_is_dead(other))
            return false;
        next = set(files, own(LOCKED), inode);
    } while (!atomic_compare_exchange_strong(&kernel->files, &files, next));
    return true;
}

static bool is_still_named(void)
{
    uint32_t files = atomic_load(&kernel->files);
    return get(files, NAMED) == get(files, own(OPEN));
}

static void change_files(uint32_t at, uint32_t and_at)
{
    uint32_t files = atomic_load(&kernel->files);
    while (!atomic_compare_exchange_strong(&kernel->files, &files,
                                           set(set(files, at, 0), and_at, 0)))
        ;
}
static void close_lock(void) { change_files(own(OPEN), own(LOCKED)); }

/* @return false: another process has the lock */
static bool try_lock(void)
{
    for (;;) {
        open_lock();
        bool is_locked = flock_it();
        if (is_locked && is_still_named())
            return true;
        close_lock();
        if (!is_locked)
            return false;
    }
}

/* A live domain keeps its name. @return false: EXISTS */
static bool make_room(uint32_t *domains, uint32_t maker)
{
    uint32_t other = 1 - maker;
    if ((*domains >> other & 1) == 0)
        return true;
    if (is_maker_alive(other) && (atomic_load(&kernel->domain[other]) & IS_OPEN) != 0)
        return false;
    *domains &= ~(1u << other);
    return true;
}

static bool tenond_add(uint32_t *domains, uint32_t maker)
{
    if ((*domains >> maker & 1) != 0) /* find_same() */
        return true;
    if (!make_room(domains, maker))
        return false;
    atomic_fetch_or(&kernel->domain[maker], IS_MANAGED); /* tenond_become_manager() */
    *domains |= 1u << maker;
    return true;
}

/* Read /proc: one process after another. */
static void tenond_adopt(uint32_t *domains)
{
    for (uint32_t maker = 0; maker < MAKERS; maker++)
        if (is_maker_alive(maker) && (atomic_load(&kernel->domain[maker]) &
                                      ~(uint32_t)IS_NAMED) == (IS_OPEN | IS_MANAGED))
            (void)tenond_add(domains, maker);
}

static void look(uint32_t *domains)
{
    for (uint32_t maker = 0; maker < MAKERS; maker++)
        if ((*domains >> maker & 1) != 0 &&
            (!is_maker_alive(maker) || (atomic_load(&kernel->domain[maker]) & IS_OPEN) == 0))
            *domains &= ~(1u << maker);
}

/* No process will send a request any more. */
static bool is_over(uint32_t control)
{
    for (uint32_t maker = 0; maker < MAKERS; maker++)
        if ((control >> (8 + maker) & 1) == 0 && is_maker_alive(maker))
            return false;
    return true;
}

/* One tenond ends early, once; else the model would never end. */
static bool ends_early(void)
{
    if (*has_one_ended || model_choose(2) == 0)
        return false;
    *has_one_ended = true;
    return true;
}

/* Die: what the kernel closes is closed, and nothing else is done. */
static bool dies_here(void)
{
    if (!ends_early())
        return false;
    atomic_fetch_and(&kernel->sockets, ~serving(model_self()));
    close_lock();
    return true;
}

enum served { IDLE, SERVED, KILLED };

static enum served serve(uint32_t *domains)
{
    for (uint32_t maker = 0; maker < MAKERS; maker++) {
        uint32_t request = atomic_load(&kernel->request[maker]);
        if ((request & 0xff) != model_self() + 1)
            continue;
        uint32_t reply = tenond_add(domains, maker) ? REPLY_OK : REPLY_EXISTS;
        if (dies_here())
            return KILLED;
        atomic_compare_exchange_strong(&kernel->request[maker], &request, 0);
        atomic_store(&kernel->reply[maker], (request & ~0xffu) | reply);
        return SERVED;
    }
    return IDLE;
}

/* tni_os_listen() */
static void listen_there(void)
{
    uint32_t sockets = atomic_load(&kernel->sockets), next;
    do
        next = (sockets & ~0xffu) | serving(model_self()) | (model_self() + 1);
    while (!atomic_compare_exchange_strong(&kernel->sockets, &sockets, next));
}

/* @return false: it was killed */
static bool tenond_run(void)
{
    uint32_t domains = 0;
    tenond_adopt(&domains);
    if (tiny_is_deep() && dies_here())
        return false;
    listen_there();
    for (;;) {
        uint32_t control = atomic_load(&kernel->control);
        enum served served = serve(&domains);
        if (served == KILLED)
            return false;
        if (served == SERVED)
            continue;
        look(&domains);
        if (is_over(control) ||
            (tiny_is_deep() && domains == 0 && ends_early())) /* idle_due() */
            break;
        model_yield();
    }
    atomic_fetch_and(&kernel->sockets, ~(serving(model_self()) | 0xff)); /* close_all() */
    return true;
}

static void run_manager(void)
{
    for (;;) {
        uint32_t control = atomic_load(&kernel->control);
        if ((control & 0xff) == 0 && is_over(control))
            return;
        if ((control & 0xff) == 0) {
            model_yield();
            continue;
        }
        if (!atomic_compare_exchange_strong(&kernel->control, &control, control - 1))
            continue;
        if (!try_lock())
            continue; /* another tenond has the folder: this one exits */
        if (!tenond_run())
            continue;
        change_files(NAMED, NAMED); /* tni_os_file_remove() */
        close_lock();
    }
}

/* ---- processes that make a domain -------------------------------------------------------- */

static void start_tenond(void)
{
    uint32_t control = atomic_load(&kernel->control);
    if ((control & 0xff) == 0) /* a second tenond would find the lock taken */
        atomic_compare_exchange_strong(&kernel->control, &control, control + 1);
}

/* One request. @return REPLY_NONE: no tenond listens, or it ended without a reply */
static uint32_t exchange(uint32_t maker, uint32_t connection)
{
    uint32_t sockets = atomic_load(&kernel->sockets), listener = sockets & 0xff;
    if (listener == 0 || (sockets & serving(listener - 1)) == 0)
        return REPLY_NONE;
    atomic_store(&kernel->request[maker], connection << 8 | listener);
    for (;;) {
        bool is_closed = model_is_dead(listener - 1) ||
                         (atomic_load(&kernel->sockets) & serving(listener - 1)) == 0;
        uint32_t reply = atomic_load(&kernel->reply[maker]);
        bool is_ours = reply >> 8 == connection && (reply & 0xff) != REPLY_NONE;
        if (!is_ours && !is_closed) {
            model_yield();
            continue;
        }
        atomic_store(&kernel->request[maker], 0);
        atomic_store(&kernel->reply[maker], 0);
        return is_ours ? reply & 0xff : REPLY_NONE;
    }
}

static void make_domain(uint32_t maker)
{
    atomic_fetch_or(&kernel->domain[maker], IS_OPEN);
    for (uint32_t connection = 1;; connection ^= 1) { /* exchange_starting() */
        uint32_t reply = exchange(maker, connection);
        if (reply == REPLY_OK) {
            atomic_fetch_or(&kernel->domain[maker], IS_NAMED);
            return;
        }
        if (reply == REPLY_EXISTS) {
            atomic_fetch_and(&kernel->domain[maker], ~(uint32_t)IS_OPEN); /* take_apart() */
            return;
        }
        start_tenond();
        model_yield_timed();
    }
}

static void run_maker(uint32_t maker)
{
    make_domain(maker);
    atomic_fetch_or(&kernel->control, 1u << (8 + maker));
}
static void run_first(void) { run_maker(0); }
/* In the small model the second maker begins when the first has its reply. */
static void run_second(void)
{
    while (!tiny_is_deep() && (atomic_load(&kernel->control) >> 8 & 1) == 0)
        model_yield();
    run_maker(1);
}

/* ---- what must hold ---------------------------------------------------------------------- */

__attribute__((no_sanitize("thread"), noinline)) static uint32_t peek(const void *at)
{
    return *(const volatile uint32_t *)at;
}

static void one_each(void)
{
    uint32_t named = 0, serving_count = 0;
    for (uint32_t i = 0; i < MAKERS; i++)
        named += is_maker_alive(i) && (peek(&kernel->domain[i]) & IS_NAMED) != 0;
    for (uint32_t i = 0; i < MANAGERS; i++)
        serving_count += !model_is_dead(i) && (peek(&kernel->sockets) & serving(i)) != 0;
    model_require(named <= 1, "no two domains that live have one name");
    model_require(serving_count <= 1, "no two tenonds look after one folder");
}

static void check(void)
{
    uint32_t named = 0, alive = 0;
    for (uint32_t i = 0; i < MAKERS; i++) {
        alive += is_maker_alive(i);
        named += (peek(&kernel->domain[i]) & IS_NAMED) != 0;
    }
    model_require(named > 0 || alive < MAKERS, "of two who make a name, one gets it");
}

static void run_nobody(void) {}

/* One of the two makers is done before the model begins. */
static void setup_one_maker(void)
{
    setup();
    atomic_store(&kernel->control, 1u << (8 + 1));
    *has_one_ended = !tiny_is_deep();
}

static void explore(const char *name, bool has_second_manager, bool has_second_maker)
{
    tiny_explore_in_order(
        &(struct model){.name = name,
                        .process_count = ALL,
                        .kills = tiny_is_deep() ? 1 : 0,
                        .setup = has_second_maker ? setup : setup_one_maker,
                        .run = {run_manager, has_second_manager ? run_manager : run_nobody,
                                run_first, has_second_maker ? run_second : run_nobody},
                        .check = check,
                        .invariant = one_each,
                        .most_states = UINT64_C(200000000)});
}

TN_TEST_WITHIN(only_one_tenond_at_a_time_manages_a_domain, 600)
{
    explore("one_manager", true, tiny_is_deep());
}

TN_TEST_WITHIN(one_of_two_domains_gets_a_name, 600)
{
    explore("one_has_the_name", false, true);
}

/* ---- the source -------------------------------------------------------------------------- */

/*
 * In this file of the source, `first` stands before `second`; the steps of the model have the
 * same order.
 */
static const struct {
    const char *file, *first, *second;
} order[] = {
    {"tools/tenond/main.c", "tni_os_file_lock(TNI_MANAGER_LOCK", "tenond_run(stop_pipe"},
    {"tools/tenond/main.c", "tenond_run(stop_pipe", "tni_os_file_remove(TNI_MANAGER_LOCK)"},
    {"tools/tenond/main.c", "tni_os_file_remove(TNI_MANAGER_LOCK)", "tni_os_close(lock_fd)"},
    {"tools/tenond/loop.c", "tenond_adopt(t);", "tenond_folder_listen(t)"},
    {"tools/tenond/loop.c", "tenond_folder_close(t);", "tenond_drop(t, t->domains)"},
    {"tools/tenond/loop.c", "static uint64_t idle_due(", "now_ns >= idle_due(t)"},
    {"tools/tenond/adopt.c", "find_same(t, &segment) != NULL", "status = make_room(t, name)"},
    {"tools/tenond/adopt.c", "status = make_room(t, name)", "status = take_seat(t, &segment)"},
    {"tools/tenond/adopt.c", "atomic_store(&h->runtime, t->runtime)",
     "atomic_store(&h->manager, domain->who)"},
    {"tools/tenond/adopt.c", "tenond_become_manager(t, d);", "status = take_seat(t, &segment)"},
    {"tools/tenond/adopt.c", "found->runtime != t->runtime", "status = add(t, control_fd"},
    {"tools/tenond/clients.c", "status = tenond_add(t, e->fds[0], e->fds[1])",
     "tni_os_send(client->fd"},
    {"src/os/linux_file.c", "flock(fd, LOCK_EX | LOCK_NB)", "is_still_named(fd, path)"},
    {"src/reaper/contact.c", "status = tni_os_connect(TNI_MANAGER_SOCKET",
     "status = start_tenond()"},
    {"src/reaper/contact.c", "status = tni_manager_connect(&socket_fd)",
     "if (status != TN_ERR_CLOSED && status != TN_ERR_TIMED_OUT)"},
    {"src/api/api.c", "status = take_seat(&segment, &d)", "status = tni_manager_register(d)"},
};

static char *read_source(const char *file)
{
    static char text[200000];
    char path[512];
    (void)(snprintf)(path, sizeof path, "%s/%s", MODEL_SOURCE, file);
    FILE *source = fopen(path, "r");
    if (source == NULL)
        fail_msg("%s is not there", path);
    size_t length = fread(text, 1, sizeof text - 1, source);
    fclose(source);
    text[length] = 0;
    return text;
}

TN_TEST(the_steps_of_this_model_are_those_of_the_source)
{
    for (size_t i = 0; i < TNI_COUNT(order); i++) {
        const char *text = read_source(order[i].file);
        const char *first = strstr(text, order[i].first);
        const char *second = strstr(text, order[i].second);
        if (first == NULL || second == NULL || first > second)
            fail_msg("%s: '%s' does not stand before '%s'", order[i].file, order[i].first,
                     order[i].second);
    }
}
