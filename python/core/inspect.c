/* SPDX-License-Identifier: Apache-2.0 */
/* inspect: what a domain holds, as dicts with the names of tenon/inspect.h. */
#include "core.h"

#include <string.h>

enum { RAISED = INT32_MAX }; /* a callback has raised */

/* Append an item, which is consumed. @return 0, or RAISED */
static int append(PyObject *list, PyObject *item)
{
    int failed = item == NULL || PyList_Append(list, item) < 0;
    Py_XDECREF(item);
    return failed ? RAISED : 0;
}

static PyObject *hexadecimal(const uint8_t id[16])
{
    char text[33];
    for (int i = 0; i < 16; i++)
        snprintf(text + 2 * i, 3, "%02x", id[i]);
    return PyUnicode_FromString(text);
}

/* Text of another process, which may not be valid UTF-8. */
static PyObject *text_of(const char *text)
{
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

static PyObject *domain_dict(const tn_domain_entry *d)
{
    return Py_BuildValue(
        "{sNsNsIsisIsIsKsKsKsNsI}", "name", text_of(d->name), "id", hexadecimal(d->id), "uid",
        d->uid, "creator_pid", d->creator_pid, "seats_used", d->seats_used, "seats", d->seats,
        "committed_bytes", (unsigned long long)d->committed_bytes, "quota_bytes",
        (unsigned long long)d->quota_bytes, "age_ns", (unsigned long long)d->age_ns,
        "runtime_folder", text_of(d->runtime_folder), "other_layout", d->other_layout);
}

static int note_domain(const tn_domain_entry *domain, void *context)
{
    return append(context, domain_dict(domain));
}

static PyObject *inspect_domains(PyObject *module, PyObject *unused)
{
    PyObject *list = PyList_New(0);
    (void)module, (void)unused;
    if (list == NULL)
        return NULL;
    int status = tn_inspect_domains(note_domain, list);
    if (status == 0)
        return list;
    Py_DECREF(list);
    return status < 0 ? tnp_raise(status) : NULL;
}

static int note_seat(const tn_seat_entry *s, void *context)
{
    return append(context,
                  Py_BuildValue("{sIsIsisNsNsNsKsKsK}", "seat", s->seat, "incarnation",
                                s->incarnation, "pid", s->pid, "state", text_of(s->state),
                                "is_manager", PyBool_FromLong(s->is_manager), "command",
                                text_of(s->command), "age_ns", (unsigned long long)s->age_ns,
                                "blocks_held", (unsigned long long)s->blocks_held, "bytes_held",
                                (unsigned long long)s->bytes_held));
}

static PyObject *holders_list(const tn_holder *holders, uint32_t count)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < count; i++) {
        const tn_holder *h = &holders[i];
        if (append(list, Py_BuildValue("{sIsisN}", "seat", h->seat, "pid", h->pid, "command",
                                       text_of(h->command))) != 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *dtype_text(tn_dtype dtype)
{
    char name[32];
    if (TN_DTYPE_BITS(dtype) == 0 || tn_dtype_name(dtype, name, sizeof name) != 0)
        Py_RETURN_NONE;
    return PyUnicode_FromString(name);
}

static PyObject *text_or_none(const char *text)
{
    if (text == NULL)
        Py_RETURN_NONE;
    return text_of(text);
}

static int note_block(const tn_block_entry *b, void *context)
{
    int32_t known = b->ndim < 0 ? 0 : b->ndim < 8 ? b->ndim : 8;
    return append(
        context,
        Py_BuildValue(
            "{sIsKsKsssKszsNsNsKsIsisssNsisNsNsIsIsIsNsNsNsN}", "block", b->block, "bytes",
            (unsigned long long)b->bytes, "block_bytes", (unsigned long long)b->block_bytes,
            "strategy", b->strategy, "object_bytes", (unsigned long long)b->object_bytes,
            "path", b->path, "is_write_once", PyBool_FromLong(b->is_write_once), "is_copy",
            PyBool_FromLong(b->is_copy), "age_ns", (unsigned long long)b->age_ns,
            "creator_seat", b->creator_seat, "creator_pid", b->creator_pid, "kind", b->kind,
            "dtype", dtype_text(b->dtype), "ndim", b->ndim, "shape", tnp_tuple(b->shape, known),
            "attributes", text_of(b->attributes), "references", b->references, "in_messages",
            b->in_messages, "in_tickets", b->in_tickets, "store", text_or_none(b->store), "key",
            text_or_none(b->key), "channel", text_or_none(b->channel), "holders",
            holders_list(b->holders, b->holder_count)));
}

static int note_object(const tn_object_entry *o, void *context)
{
    return append(
        context,
        Py_BuildValue(
            "{sKsssNsIsIsIsIsIsIsisNsKsIsIsNsNsKsKsKsKsKszsIsisKsKsK}", "id",
            (unsigned long long)o->id, "kind", o->kind, "name", text_of(o->name), "count",
            o->count, "capacity", o->capacity, "leased", o->leased, "openers", o->openers,
            "producers", o->producers, "consumers", o->consumers, "owner_pid", o->owner_pid,
            "owners", holders_list(o->owners, o->owner_count), "pushed",
            (unsigned long long)o->pushed, "redelivered", o->redelivered, "redeliveries",
            o->redeliveries, "ended", PyBool_FromLong(o->ended), "broken",
            PyBool_FromLong(o->broken), "bytes", (unsigned long long)o->bytes, "budget_bytes",
            (unsigned long long)o->budget_bytes, "hits", (unsigned long long)o->hits, "misses",
            (unsigned long long)o->misses, "evictions", (unsigned long long)o->evictions,
            "policy", o->policy, "subscribers", o->subscribers, "slowest_pid", o->slowest_pid,
            "most_behind", (unsigned long long)o->most_behind, "dropped",
            (unsigned long long)o->dropped, "disconnected",
            (unsigned long long)o->disconnected));
}

static int note_ticket(const tn_ticket_entry *t, void *context)
{
    return append(context, Py_BuildValue("{sKsIsIsisIsKsK}", "id", (unsigned long long)t->id,
                                         "uses_left", t->uses_left, "issuer_seat",
                                         t->issuer_seat, "issuer_pid", t->issuer_pid, "block",
                                         t->block, "bytes", (unsigned long long)t->bytes,
                                         "remaining_ns", (unsigned long long)t->remaining_ns));
}

static PyObject *resources_list(const tn_sched_info *info)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < info->resource_count; i++) {
        const tn_resource_info *r = &info->resources[i];
        if (append(list, Py_BuildValue("{sNsdsdsdsI}", "name", text_of(r->name), "total",
                                       r->total, "free", r->free, "busy_ns", r->busy_ns,
                                       "waiting", r->waiting)) != 0)
            Py_CLEAR(list);
    }
    return list;
}

static int note_scheduler(const tn_scheduler_entry *s, void *context)
{
    const tn_sched_info *info = &s->info;
    return append(context, Py_BuildValue("{sIsIsisNsKsKsKsIsIsIsN}", "block", s->block, "seat",
                                         s->seat, "pid", s->pid, "name", text_of(s->name),
                                         "changed_ns", (unsigned long long)s->changed_ns,
                                         "tasks", (unsigned long long)info->tasks, "ended",
                                         (unsigned long long)info->ended, "ready", info->ready,
                                         "running", info->running, "threads", info->threads,
                                         "resources", resources_list(info)));
}

static int stat_domain(tn_inspector *inspector, PyObject **ret_stat)
{
    tn_domain_stat s = {.struct_size = sizeof s};
    int status = tn_inspect_stat(inspector, &s);
    if (status != 0)
        return status;
    *ret_stat = Py_BuildValue(
        "{sNsKsKsKsKsKsKsKsKsKsIsIsIsIsIsisNsKsK}", "domain", domain_dict(&s.domain),
        "watermark_bytes", (unsigned long long)s.watermark_bytes, "live_bytes",
        (unsigned long long)s.live_bytes, "free_bytes", (unsigned long long)s.free_bytes,
        "outside_bytes", (unsigned long long)s.outside_bytes, "outside_count",
        (unsigned long long)s.outside_count, "huge_page_bytes",
        (unsigned long long)s.huge_page_bytes, "control_bytes",
        (unsigned long long)s.control_bytes, "blocks_live", (unsigned long long)s.blocks_live,
        "blocks_limit", (unsigned long long)s.blocks_limit, "objects_used", s.objects_used,
        "objects", s.objects, "tickets_used", s.tickets_used, "tickets", s.tickets,
        "layout_version", s.layout_version, "manager_pid", s.manager_pid, "huge_pages",
        text_of(s.huge_pages), "deaths", (unsigned long long)s.deaths, "manager_starts",
        (unsigned long long)s.manager_starts);
    return *ret_stat == NULL ? RAISED : 0;
}

static PyObject *inspect_domain(PyObject *module, PyObject *argument)
{
    const char *name = PyUnicode_AsUTF8(argument);
    tn_inspector *inspector;
    PyObject *stat = NULL, *lists[5] = {NULL};
    (void)module;
    if (name == NULL)
        return NULL;
    int status = tn_inspector_open(name, &inspector);
    if (status != 0)
        return tnp_raise(status);
    for (size_t i = 0; i < TNP_COUNT(lists); i++)
        if ((lists[i] = PyList_New(0)) == NULL)
            status = RAISED;
    if (status == 0)
        status = stat_domain(inspector, &stat);
    if (status == 0)
        status = tn_inspect_seats(inspector, note_seat, lists[0]);
    if (status == 0)
        status = tn_inspect_blocks(inspector, note_block, lists[1]);
    if (status == 0)
        status = tn_inspect_objects(inspector, note_object, lists[2]);
    if (status == 0)
        status = tn_inspect_tickets(inspector, note_ticket, lists[3]);
    if (status == 0)
        status = tn_inspect_schedulers(inspector, note_scheduler, lists[4]);
    if (status < 0)
        tnp_raise(status);
    tn_inspector_close(inspector);
    if (status == 0)
        return Py_BuildValue("{sNsNsNsNsNsN}", "stat", stat, "seats", lists[0], "blocks",
                             lists[1], "objects", lists[2], "tickets", lists[3], "schedulers",
                             lists[4]);
    Py_XDECREF(stat);
    for (size_t i = 0; i < TNP_COUNT(lists); i++)
        Py_XDECREF(lists[i]);
    return NULL;
}

static PyMethodDef functions[] = {
    {"inspect_domains", inspect_domains, METH_NOARGS,
     "inspect_domains($module, /)\n--\n\n"
     "A dict for each domain of this user."},
    {"inspect_domain", inspect_domain, METH_O,
     "inspect_domain($module, name, /)\n--\n\n"
     "{stat, seats, blocks, objects, tickets, schedulers} of the domain of this name or id."},
    {NULL, NULL, 0, NULL},
};

int tnp_inspect_init(PyObject *module) { return PyModule_AddFunctions(module, functions); }
