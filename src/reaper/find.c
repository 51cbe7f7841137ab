/* SPDX-License-Identifier: Apache-2.0 */
/*
 * find: find a domain by its name or id.
 *
 * Nouns: wanted (what is searched for), place (a domain of that name, and its runtime
 * folder).
 * I1  A tenond registers the names of one runtime folder. A process that did not choose its
 *     folder by TENON_RUNTIME_DIR searches its own folder first, and then all domains of
 *     its user: a shell and a cron job of one user mean the same domain by a name.
 * I2  A process with TENON_RUNTIME_DIR sees the names of that folder only.
 * I3  If a name could mean two domains, neither is taken, and the error names both ids.
 *     Only a join prefers the domain of its own folder.
 * Callers: api, tools. Death: leaves nothing.
 */
#include <stdio.h>
#include <string.h>

#include "reaper/manager.h"

#define MS_NS UINT64_C(1000000)
enum { ANSWER_MS = 5000, MAX_PLACES = 2, ID_TEXT_BYTES = 33 };

struct place {
    uint8_t id[16];
    int32_t pid;
    char folder[TNI_FOLDER_BYTES]; /* "": unknown */
};

struct wanted {
    const char *name;
    uint32_t runtime;
    bool read_only;
    bool is_exact; /* a domain of our folder is not preferred */
    int control_fd, arena_fd;
    struct place places[MAX_PLACES];
    uint32_t place_count;
    uint32_t other_layout; /* layout version of a wanted domain that this library cannot use; 0:
                              none */
};

/* ---- ids --------------------------------------------------------------------------------- */

static int parse_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

bool tni_manager_has_id_form(const char *name)
{
    size_t digits = 0;
    while (parse_digit(name[digits]) >= 0)
        digits++;
    return digits == 32 && name[digits] == '\0';
}

bool tni_manager_is_id(const char *name, const uint8_t id[16])
{
    if (strlen(name) != 32)
        return false;
    for (size_t i = 0; i < 16; i++) {
        int high = parse_digit(name[2 * i]), low = parse_digit(name[2 * i + 1]);
        if (high < 0 || low < 0 || (high << 4 | low) != id[i])
            return false;
    }
    return true;
}

static const char *write_id(const uint8_t id[16], char text[ID_TEXT_BYTES])
{
    for (size_t i = 0; i < 16; i++)
        snprintf(text + 2 * i, 3, "%02x", id[i]);
    return text;
}

/* ---- search ------------------------------------------------------------------------------ */

static void note_place(struct wanted *wanted, const struct tni_found *found)
{
    uint32_t i = 0;
    while (i < wanted->place_count && memcmp(wanted->places[i].id, found->id, 16) != 0)
        i++;
    if (i == MAX_PLACES)
        return;
    struct place *place = &wanted->places[i];
    if (i == wanted->place_count) {
        *place = (struct place){.pid = found->pid};
        memcpy(place->id, found->id, sizeof place->id);
        wanted->place_count++;
    }
    if (place->folder[0] == '\0')
        tni_folder_of_tenond(found->pid, found->runtime, place->folder);
}

/* A domain whose header->runtime is 0 has no registered name; only its id finds it. */
static int open_or_note(const struct tni_found *found, void *context)
{
    struct wanted *wanted = context;
    bool is_named = strcmp(found->name, wanted->name) == 0 && found->runtime != 0;
    bool is_here = found->runtime == wanted->runtime;

    if (found->layout_version != TNI_LAYOUT_VERSION) {
        if (tni_manager_is_id(wanted->name, found->id) ||
            (is_named && (is_here || !tni_os_runtime_is_chosen())))
            wanted->other_layout = found->layout_version;
        return 0;
    }
    if (!tni_manager_is_id(wanted->name, found->id) &&
        !(is_named && is_here && !wanted->is_exact)) {
        if (is_named)
            note_place(wanted, found);
        return 0;
    }
    int status = tni_manager_open_found(found, wanted->read_only, &wanted->control_fd,
                                        &wanted->arena_fd);
    return status == 0 ? 1 : tni_manager_unless_gone(status);
}

static int fail_elsewhere(const struct wanted *wanted)
{
    const struct place *place = &wanted->places[0];
    return tni_fail(TN_ERR_NOT_FOUND,
                    "no domain is named '%s' in %s, which TENON_RUNTIME_DIR names; process %d "
                    "has one of that name in %s",
                    wanted->name, tni_os_runtime_folder(), place->pid,
                    place->folder[0] != '\0' ? place->folder : "another folder");
}

static int fail_ambiguous(const struct wanted *wanted)
{
    char one[ID_TEXT_BYTES], other[ID_TEXT_BYTES];
    return tni_fail(TN_ERR_INVALID,
                    "two domains are named '%s', in different runtime folders; say which by "
                    "its id: %s, which process %d has open, or %s, which "
                    "process %d has open",
                    wanted->name, write_id(wanted->places[0].id, one), wanted->places[0].pid,
                    write_id(wanted->places[1].id, other), wanted->places[1].pid);
}

static int fail_unknown(const struct wanted *wanted)
{
    return tni_fail(TN_ERR_NOT_FOUND,
                    "no domain is named '%s' in the runtime folder %s, and no other process of "
                    "this user has one",
                    wanted->name, tni_os_runtime_folder());
}

/* @return 1: opened */
static int search(struct wanted *wanted)
{
    char id[ID_TEXT_BYTES];
    int status = tni_manager_search(open_or_note, wanted);
    if (status != 0)
        return status;
    if (wanted->place_count == 0 && wanted->other_layout != 0)
        return tni_fail(TN_ERR_VERSION,
                        "the domain '%s' has the shared layout %u, and this library needs %u",
                        wanted->name, wanted->other_layout, (unsigned)TNI_LAYOUT_VERSION);
    if (wanted->place_count == 0)
        return fail_unknown(wanted);
    if (tni_os_runtime_is_chosen())
        return fail_elsewhere(wanted);
    if (wanted->place_count > 1)
        return fail_ambiguous(wanted);
    struct wanted by_id = {.name = write_id(wanted->places[0].id, id),
                           .runtime = wanted->runtime,
                           .read_only = wanted->read_only};
    if ((status = tni_manager_search(open_or_note, &by_id)) == 0)
        return fail_unknown(wanted);
    wanted->control_fd = by_id.control_fd;
    wanted->arena_fd = by_id.arena_fd;
    return status;
}

static int find_without_tenond(const char *name, bool read_only, int *ret_control_fd,
                               int *ret_arena_fd)
{
    struct wanted wanted = {.name = name,
                            .runtime = tni_manager_runtime(),
                            .read_only = read_only,
                            .is_exact = read_only && !tni_os_runtime_is_chosen()};
    int status = search(&wanted);
    if (status < 0)
        return status;
    *ret_control_fd = wanted.control_fd;
    *ret_arena_fd = wanted.arena_fd;
    return 0;
}

int tni_manager_find(const char *name, bool read_only, int *ret_control_fd, int *ret_arena_fd)
{
    struct tni_inquiry inquiry = {.wanted_fds = 2};
    struct tni_reply reply;
    int fds[2];

    if (name == NULL || name[0] == 0 || strlen(name) >= TNI_NAME_BYTES)
        return tni_fail(TN_ERR_INVALID, "the name of a domain has 1 to %d bytes",
                        TNI_NAME_BYTES - 1);
    tni_manager_follow();
    if (read_only && !tni_os_runtime_is_chosen()) /* I3 */
        return find_without_tenond(name, read_only, ret_control_fd, ret_arena_fd);
    tni_manager_fill(&inquiry.request, TNI_REQUEST_FIND, name);
    int status =
        tni_manager_exchange(&inquiry, tni_os_now_ns() + ANSWER_MS * MS_NS, &reply, fds);
    /* There is no tenond, or it does not know the name: search the open domains. */
    if (status != 0 || reply.status == TN_ERR_NOT_FOUND)
        return find_without_tenond(name, read_only, ret_control_fd, ret_arena_fd);
    if (reply.status != 0)
        return tni_manager_fail_reply(&reply, name);
    *ret_control_fd = fds[0];
    *ret_arena_fd = fds[1];
    return 0;
}
