/* SPDX-License-Identifier: Apache-2.0 */
/* Stores: keys and values (store.c), and lists of keys (store_entries.c). */
#ifndef TENON_CORE_STORE_H
#define TENON_CORE_STORE_H

#include "popped.h"

/**
 * The bytes of a key, or of a prefix of keys, which may be empty. They live as long as `text`.
 * NULL: raised (TypeError, Invalid).
 */
const char *tnp_key(PyObject *text, bool is_prefix);
/** The methods entries() and count() of a store. */
PyObject *tnp_store_entries(PyObject *store, PyObject *prefix);
PyObject *tnp_store_count(PyObject *store, PyObject *unused);

#endif
