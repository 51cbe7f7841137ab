/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_entries: what a store has under its keys. The library calls collect() without the GIL,
 * so collect() keeps the entries in memory of its own. Python objects are made afterwards.
 */
#include "store.h"

#include <string.h>

struct row {
    tn_store_entry entry;
    char *key;
};

struct rows {
    struct row *all;
    size_t count, room;
};

static int collect(const tn_store_entry *entry, void *context)
{
    struct rows *rows = context;
    if (rows->count == rows->room) {
        size_t room = rows->room == 0 ? 64 : 2 * rows->room;
        struct row *all = PyMem_RawRealloc(rows->all, room * sizeof *all);
        if (all == NULL)
            return TN_ERR_NO_MEMORY;
        rows->all = all;
        rows->room = room;
    }
    size_t size = strlen(entry->key) + 1;
    char *key = PyMem_RawMalloc(size);
    if (key == NULL)
        return TN_ERR_NO_MEMORY;
    memcpy(key, entry->key, size);
    rows->all[rows->count++] = (struct row){*entry, key};
    return 0;
}

/* (key, version, bytes, seconds left or None, tensors, is pinned, pid of the maker or None) */
static PyObject *tuple_of(const struct row *row)
{
    const tn_store_entry *e = &row->entry;
    PyObject *key =
        PyUnicode_DecodeUTF8(row->key, (Py_ssize_t)strlen(row->key), "backslashreplace");
    PyObject *left = Py_None, *maker = Py_None;
    if (e->left_ns != TN_FOREVER.ns)
        left = PyFloat_FromDouble((double)e->left_ns * 1e-9);
    else
        Py_INCREF(left);
    if (e->is_promised)
        maker = PyLong_FromLong(e->maker_pid);
    else
        Py_INCREF(maker);
    if (key != NULL && left != NULL && maker != NULL)
        return Py_BuildValue("(NKKNINN)", key, (unsigned long long)e->version,
                             (unsigned long long)e->bytes, left, (unsigned)e->tensors,
                             PyBool_FromLong(e->is_pinned), maker);
    Py_XDECREF(key);
    Py_XDECREF(left);
    Py_XDECREF(maker);
    return NULL;
}

PyObject *tnp_store_entries(PyObject *self, PyObject *prefix)
{
    struct rows rows = {0};
    int status;
    const char *text = tnp_key(prefix, true);
    tn_store *store = text == NULL ? NULL : tnp_object_handle(self);
    if (store == NULL)
        return NULL;
    TNP_OBJECT_WAIT(self, status, tn_store_for_each(store, text, collect, &rows));
    PyObject *list = NULL;
    if (status != 0)
        tnp_raise(status);
    else
        list = PyList_New((Py_ssize_t)rows.count);
    for (size_t i = 0; i < rows.count; i++) {
        PyObject *tuple = list == NULL ? NULL : tuple_of(&rows.all[i]);
        PyMem_RawFree(rows.all[i].key);
        if (tuple == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, tuple);
    }
    PyMem_RawFree(rows.all);
    return list;
}

static int count_value(const tn_store_entry *entry, void *context)
{
    Py_ssize_t *count = context;
    *count += !entry->is_promised;
    return 0;
}

PyObject *tnp_store_count(PyObject *self, PyObject *unused)
{
    Py_ssize_t count = 0;
    int status;
    tn_store *store = tnp_object_handle(self);
    (void)unused;
    if (store == NULL)
        return NULL;
    TNP_OBJECT_WAIT(self, status, tn_store_for_each(store, "", count_value, &count));
    return status != 0 ? tnp_raise(status) : PyLong_FromSsize_t(count);
}
