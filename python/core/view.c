/* SPDX-License-Identifier: Apache-2.0 */
/* view: indexing by ints, slices, ... and None; assignment; and elements as Python numbers. */
#include "tensor.h"

#include <string.h>

static tn_tensor *tensor_in(PyObject *self) { return ((tnp_tensor *)self)->tensor; }

static size_t item_bytes(const tn_tensor *t)
{
    tn_dtype dtype = tn_tensor_dtype(t);
    return (size_t)TN_DTYPE_BITS(dtype) * TN_DTYPE_LANES(dtype) / 8;
}

/* ---- places ------------------------------------------------------------------------------ */

/* What an index selects: a view, or one element if the index has an int for each axis. */
struct place {
    int32_t ndim;
    int32_t axis; /* the next axis of the tensor that the index applies to */
    bool is_element;
    int64_t shape[TN_MAX_NDIM];
    int64_t strides[TN_MAX_NDIM];
    uint64_t offset; /* elements between the first element of the tensor and that of the view; a
                        negative number wraps around */
};

static int fail_too_many_axes(void)
{
    PyErr_Format(PyExc_IndexError, "a view of more than %d axes", TN_MAX_NDIM);
    return -1;
}

static int add_axis(struct place *p, int64_t size, int64_t stride)
{
    if (p->ndim == TN_MAX_NDIM)
        return fail_too_many_axes();
    p->shape[p->ndim] = size;
    p->strides[p->ndim] = stride;
    p->ndim++;
    return 0;
}

static int take_int(struct place *p, const tn_tensor *t, PyObject *index)
{
    Py_ssize_t at = PyNumber_AsSsize_t(index, PyExc_IndexError);
    int64_t size = tn_tensor_shape(t)[p->axis];
    if (at == -1 && PyErr_Occurred())
        return -1;
    int64_t from_start = at < 0 ? at + size : at;
    if (from_start < 0 || from_start >= size) {
        PyErr_Format(PyExc_IndexError, "index %zd is out of range for axis %d of size %lld", at,
                     (int)p->axis, (long long)size);
        return -1;
    }
    p->offset += (uint64_t)from_start * (uint64_t)tnp_info(t).strides[p->axis++];
    return 0;
}

static int take_slice(struct place *p, const tn_tensor *t, PyObject *slice)
{
    Py_ssize_t start, stop, step;
    int64_t stride = tnp_info(t).strides[p->axis], stepped;
    if (PySlice_Unpack(slice, &start, &stop, &step) < 0)
        return -1;
    Py_ssize_t size =
        PySlice_AdjustIndices((Py_ssize_t)tn_tensor_shape(t)[p->axis], &start, &stop, step);
    p->axis++;
    if (size > 0)
        p->offset += (uint64_t)start * (uint64_t)stride;
    /* The product overflows only where the stride is never used. */
    if (__builtin_mul_overflow(stride, (int64_t)step, &stepped))
        stepped = stride;
    return add_axis(p, size, stepped);
}

static int take_whole_axes(struct place *p, const tn_tensor *t, int32_t end)
{
    for (; p->axis < end; p->axis++)
        if (add_axis(p, tn_tensor_shape(t)[p->axis], tnp_info(t).strides[p->axis]) < 0)
            return -1;
    return 0;
}

static bool is_int(PyObject *item) { return PyIndex_Check(item) && !PyBool_Check(item); }

static int fail_item(PyObject *item)
{
    PyErr_Format(PyExc_TypeError,
                 "a tensor is indexed by ints, slices, ... and None, not by %.200s",
                 Py_TYPE(item)->tp_name);
    return -1;
}

/* The number of axes that the items of an index use up. -1: raised. */
static int32_t count_axes(PyObject *items, const tn_tensor *t)
{
    int32_t axes = 0, ellipses = 0, ndim = tn_tensor_ndim(t);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items); i++) {
        PyObject *item = PyTuple_GET_ITEM(items, i);
        if (is_int(item) || PySlice_Check(item))
            axes += axes <= ndim; /* a larger count makes no difference: it is too many */
        else if (item == Py_Ellipsis)
            ellipses += ellipses < 2;
        else if (item != Py_None)
            return fail_item(item);
    }
    if (ellipses > 1)
        PyErr_SetString(PyExc_IndexError, "an index has one ... at most");
    else if (axes > ndim)
        PyErr_Format(PyExc_IndexError, "too many indices for a tensor of %d axes", (int)ndim);
    return ellipses > 1 || axes > ndim ? -1 : axes;
}

static int take_item(struct place *p, const tn_tensor *t, PyObject *item, int32_t axes)
{
    if (item == Py_None)
        return add_axis(p, 1, 0);
    if (PySlice_Check(item))
        return take_slice(p, t, item);
    if (item == Py_Ellipsis)
        return take_whole_axes(p, t, p->axis + tn_tensor_ndim(t) - axes);
    return take_int(p, t, item);
}

static int parse_items(const tn_tensor *t, PyObject *items, struct place *ret)
{
    int32_t axes = count_axes(items, t), ints = 0;
    if (axes < 0)
        return -1;
    ret->ndim = ret->axis = 0;
    ret->offset = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items); i++) {
        PyObject *item = PyTuple_GET_ITEM(items, i);
        ints += is_int(item);
        if (take_item(ret, t, item, axes) < 0)
            return -1;
    }
    ret->is_element = ints == tn_tensor_ndim(t) && ints == PyTuple_GET_SIZE(items);
    return take_whole_axes(ret, t, tn_tensor_ndim(t));
}

static int parse(const tn_tensor *t, PyObject *index, struct place *ret)
{
    if (PyTuple_Check(index))
        return parse_items(t, index, ret);
    PyObject *items = PyTuple_Pack(1, index);
    if (items == NULL)
        return -1;
    int failed = parse_items(t, items, ret);
    Py_DECREF(items);
    return failed;
}

/* pre: is_element, so the tensor is not empty */
static uint8_t *element_at(const tn_tensor *t, const struct place *p)
{
    return (uint8_t *)tn_tensor_data(t) + p->offset * item_bytes(t);
}

static int view_of(tn_tensor *t, const struct place *p, tn_tensor **ret_view)
{
    uint64_t offset = p->offset;
    for (int32_t i = 0; i < p->ndim; i++)
        if (p->shape[i] == 0)
            offset = 0; /* an empty view may have an offset outside of the storage */
    int status = tn_tensor_view(t, tn_tensor_dtype(t), p->ndim, p->shape, p->strides,
                                tnp_info(t).byte_offset + offset * item_bytes(t), ret_view);
    if (status != 0)
        tnp_raise(status);
    return status != 0 ? -1 : 0;
}

PyObject *tnp_tensor_subscript(PyObject *self, PyObject *index)
{
    struct place place;
    tn_tensor *view;
    if (parse(tensor_in(self), index, &place) < 0)
        return NULL;
    if (place.is_element && tnp_tensor_check_on_cpu(self) < 0)
        return NULL;
    if (place.is_element)
        return tnp_element_get(tn_tensor_dtype(tensor_in(self)),
                               element_at(tensor_in(self), &place));
    return view_of(tensor_in(self), &place, &view) < 0 ? NULL
                                                       : tnp_tensor_wrap_view(view, self);
}

/* ---- assignment -------------------------------------------------------------------------- */

int tnp_tensor_check_writable(PyObject *self)
{
    const char *name = tn_tensor_name(tensor_in(self));
    if (!tnp_info(tensor_in(self)).is_read_only)
        return 0;
    if (name != NULL)
        PyErr_Format(PyExc_ValueError, "the tensor '%s' is read-only", name);
    else
        PyErr_Format(PyExc_ValueError, "%R is read-only", self);
    return -1;
}

/*
 * Make a view of `source` that repeats along the axes where it has one element or none. -1:
 * raised
 */
static int broadcast(tn_tensor *source, const tn_tensor *target, tn_tensor **ret_view)
{
    int32_t to = tn_tensor_ndim(target), from = tn_tensor_ndim(source);
    const int64_t *shape = tn_tensor_shape(target), *sizes = tn_tensor_shape(source);
    int64_t strides[TN_MAX_NDIM];
    bool fits = true;
    for (int32_t i = 0; i < from - to; i++)
        fits = fits && sizes[i] == 1;
    for (int32_t i = 0; i < to && fits; i++) {
        int32_t axis = i - to + from;
        bool repeats = axis < 0 || (sizes[axis] == 1 && shape[i] != 1);
        fits = repeats || sizes[axis] == shape[i];
        strides[i] = repeats ? 0 : tnp_info(source).strides[axis];
    }
    if (!fits) {
        PyObject *want = tnp_tuple(shape, to), *have = tnp_tuple(sizes, from);
        if (want != NULL && have != NULL)
            PyErr_Format(PyExc_ValueError, "shape %R does not fit into shape %R", have, want);
        Py_XDECREF(want);
        Py_XDECREF(have);
        return -1;
    }
    int status = tn_tensor_view(source, tn_tensor_dtype(source), to, shape, strides,
                                tnp_info(source).byte_offset, ret_view);
    if (status != 0)
        tnp_raise(status);
    return status != 0 ? -1 : 0;
}

/* Copy the elements of one axis and of those below it, converted by way of Python numbers. */
static int convert_axis(const tn_tensor *target, uint8_t *to, const tn_tensor *source,
                        const uint8_t *from, int32_t axis)
{
    if (axis == tn_tensor_ndim(target)) {
        PyObject *number = tnp_element_get(tn_tensor_dtype(source), from);
        int failed = number == NULL ? -1 : tnp_element_set(tn_tensor_dtype(target), to, number);
        Py_XDECREF(number);
        return failed;
    }
    int64_t to_step = tnp_info(target).strides[axis] * (int64_t)item_bytes(target);
    int64_t from_step = tnp_info(source).strides[axis] * (int64_t)item_bytes(source);
    for (int64_t i = 0; i < tn_tensor_shape(target)[axis]; i++)
        if (convert_axis(target, to + i * to_step, source, from + i * from_step, axis + 1) < 0)
            return -1;
    return 0;
}

/*
 * Convert into a temporary tensor first. So nothing is written if one element cannot be
 * converted, and the two may overlap.
 */
static int copy_converted(tnp_side target, const tn_tensor *source)
{
    tn_tensor *dense, *t = target.tensor;
    if (tn_tensor_count(t) == 0)
        return 0;
    int status = tn_tensor_create_private(tn_tensor_dtype(t), tn_tensor_ndim(t),
                                          tn_tensor_shape(t), &dense);
    if (status != 0) {
        tnp_raise(status);
        return -1;
    }
    int failed = convert_axis(dense, tn_tensor_data(dense), source, tn_tensor_data(source), 0);
    if (failed == 0)
        failed = tnp_tensor_copy_all(target, (tnp_side){dense, NULL});
    tn_tensor_unref(dense);
    return failed;
}

static int copy_broadcast(tnp_side target, tnp_side source)
{
    tn_tensor *repeated;
    if (broadcast(source.tensor, target.tensor, &repeated) < 0)
        return -1;
    int failed = tn_tensor_dtype(target.tensor) == tn_tensor_dtype(source.tensor)
                     ? tnp_tensor_copy_all(target, (tnp_side){repeated, source.owner})
                     : copy_converted(target, repeated);
    tn_tensor_unref(repeated);
    return failed;
}

/* A tensor without axes holds the number, which then repeats. */
static int fill(tnp_side target, PyObject *number)
{
    tn_tensor *one;
    tn_dtype dtype = tn_tensor_dtype(target.tensor);
    int status = tn_tensor_create_private(dtype, 0, NULL, &one);
    if (status != 0) {
        tnp_raise(status);
        return -1;
    }
    int failed = tnp_element_set(dtype, tn_tensor_data(one), number);
    if (failed == 0)
        failed = copy_broadcast(target, (tnp_side){one, NULL});
    tn_tensor_unref(one);
    return failed;
}

/*
 * Whether an object is a plain number. A scalar of NumPy has a buffer too, and is converted by
 * its dtype, as an array is.
 */
static bool is_number(PyObject *value)
{
    return PyFloat_Check(value) || PyLong_Check(value) || PyComplex_Check(value) ||
           (PyNumber_Check(value) && !PyObject_CheckBuffer(value) &&
            !PyObject_HasAttrString(value, "__dlpack__"));
}

static int assign_to(tnp_side target, PyObject *value)
{
    if (is_number(value))
        return fill(target, value);
    PyObject *source = tnp_tensor_from(value);
    if (source == NULL)
        return -1;
    int failed = tnp_tensor_check_on_cpu(source);
    if (failed == 0)
        failed = copy_broadcast(target, (tnp_side){tensor_in(source), source});
    Py_DECREF(source);
    return failed;
}

/*
 * Converting the number may run any Python code (P1), so the address of the element is computed
 * afterwards.
 */
static int set_element(tn_tensor *t, const struct place *p, PyObject *number)
{
    uint8_t element[16]; /* the largest element without lanes */
    if (tnp_element_set(tn_tensor_dtype(t), element, number) < 0)
        return -1;
    memcpy(element_at(t, p), element, item_bytes(t));
    return 0;
}

int tnp_tensor_assign(PyObject *self, PyObject *index, PyObject *value)
{
    struct place place;
    tn_tensor *view;
    if (value == NULL) {
        PyErr_SetString(PyExc_TypeError, "elements of a tensor cannot be deleted");
        return -1;
    }
    if (tnp_tensor_check_on_cpu(self) < 0 || tnp_tensor_check_writable(self) < 0 ||
        parse(tensor_in(self), index, &place) < 0)
        return -1;
    if (place.is_element && is_number(value))
        return set_element(tensor_in(self), &place, value);
    if (view_of(tensor_in(self), &place, &view) < 0)
        return -1;
    int failed = assign_to((tnp_side){view, self}, value);
    tn_tensor_unref(view);
    return failed;
}

PyObject *tnp_tensor_copy_from(PyObject *self, PyObject *object)
{
    if (tnp_tensor_check_writable(self) < 0)
        return NULL;
    PyObject *source = tnp_tensor_from(object);
    if (source == NULL)
        return NULL;
    int failed = tnp_tensor_copy_all((tnp_side){tensor_in(self), self},
                                     (tnp_side){tensor_in(source), source});
    Py_DECREF(source);
    if (failed < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* ---- as Python's numbers ----------------------------------------------------------------- */

/*
 * `at` is the offset from the first element, in bytes. The garbage collector may run while
 * lists are made (P1).
 */
static PyObject *list_axis(const tn_tensor *t, int64_t at, int32_t axis)
{
    if (axis == tn_tensor_ndim(t))
        return tnp_element_get(tn_tensor_dtype(t), (uint8_t *)tn_tensor_data(t) + at);
    int64_t size = tn_tensor_shape(t)[axis];
    int64_t step = tnp_info(t).strides[axis] * (int64_t)item_bytes(t);
    PyObject *list = PyList_New((Py_ssize_t)size);
    for (int64_t i = 0; list != NULL && i < size; i++) {
        PyObject *item = list_axis(t, at + i * step, axis + 1);
        if (item == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, item);
    }
    return list;
}

PyObject *tnp_tensor_tolist(PyObject *self, PyObject *unused)
{
    (void)unused;
    return tnp_tensor_check_on_cpu(self) < 0 ? NULL : list_axis(tensor_in(self), 0, 0);
}

PyObject *tnp_tensor_item(PyObject *self, PyObject *unused)
{
    (void)unused;
    if (tnp_tensor_check_on_cpu(self) < 0)
        return NULL;
    if (tn_tensor_count(tensor_in(self)) == 1)
        return tnp_element_get(tn_tensor_dtype(tensor_in(self)),
                               tn_tensor_data(tensor_in(self)));
    PyErr_Format(PyExc_ValueError, "a tensor of %lld elements is no single number",
                 (long long)tn_tensor_count(tensor_in(self)));
    return NULL;
}
