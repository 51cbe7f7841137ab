/* SPDX-License-Identifier: Apache-2.0 */
/* The demo's reader of .npy files, against files of every kind that is wrong. */
#include "harness/harness.h"

#include <string.h>
#include <unistd.h>

#include "npy.h"

#define F4 "'descr':'<f4','fortran_order':False,"

static char path[64];

static void write_file(const void *bytes, size_t size)
{
    snprintf(path, sizeof path, "/tmp/tenon-npy-%d", (int)getpid());
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* A file of this version and header, and so many bytes of data, each 0. @return its size */
static size_t build(char *file, int version, const char *header, size_t data)
{
    size_t length = strlen(header), at = 8;
    memcpy(file, "\x93NUMPY", 6);
    file[6] = (char)version;
    file[7] = 0;
    for (int byte = 0; byte < (version == 1 ? 2 : 4); byte++)
        file[at++] = (char)(length >> 8 * byte);
    memcpy(file + at, header, length);
    memset(file + at + length, 0, data);
    return at + length + data;
}

static int load(struct npy *array, char *error)
{
    int status = npy_load(path, array, error);
    unlink(path);
    return status;
}

static void assert_refused(int version, const char *header, size_t data, const char *why)
{
    char file[512], error[NPY_ERROR_BYTES] = "";
    struct npy array;
    write_file(file, build(file, version, header, data));
    assert_int_equal(load(&array, error), -1);
    if (strstr(error, why) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", error, why);
}

TN_TEST(each_version_and_way_to_write_a_header_is_read)
{
    static const char *const headers[] = {
        "{" F4 "'shape':(2,3)}\n",
        "{" F4 " 'shape': (2, 3,), }           \n",
        "{\"shape\": (2 , 3), \"descr\": \"<f4\", \"fortran_order\": False}",
    };
    for (int version = 1; version <= 3; version++)
        for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
            char file[512], error[NPY_ERROR_BYTES] = "";
            struct npy array;
            write_file(file, build(file, version, headers[i], 24));
            if (load(&array, error) != 0)
                fail_msg("%s", error);
            assert_int_equal(array.type, NPY_FLOAT32);
            assert_int_equal(array.ndim, 2);
            assert_int_equal(array.shape[0], 2);
            assert_int_equal(array.shape[1], 3);
            assert_int_equal(array.count, 6);
            npy_fini(&array);
        }
}

TN_TEST(a_file_cut_anywhere_is_refused_as_truncated)
{
    char file[512], error[NPY_ERROR_BYTES];
    struct npy array;
    size_t size = build(file, 1, "{" F4 "'shape':(2,3)}\n", 24);
    for (size_t cut = 0; cut < size; cut++) {
        write_file(file, cut);
        assert_int_equal(load(&array, error), -1);
        assert_non_null(strstr(error, "is truncated"));
    }
}

TN_TEST(a_byte_changed_anywhere_in_the_header_never_crashes)
{
    char file[512], error[NPY_ERROR_BYTES];
    size_t size = build(file, 1, "{" F4 "'shape':(2,3)}\n", 24);
    for (size_t at = 0; at < size - 24; at++)
        for (int value = 0; value < 256; value += 5) {
            struct npy array;
            char before = file[at];
            file[at] = (char)value;
            write_file(file, size);
            if (load(&array, error) == 0)
                npy_fini(&array);
            file[at] = before;
        }
}

TN_TEST(what_is_odd_is_refused_with_its_reason)
{
    assert_refused(4, "{" F4 "'shape':(1,)}", 4, "version 4.0");
    assert_refused(1, "{" F4 "'shape':(1,)}", 5, "more than the 4 bytes");
    assert_refused(1, "{'descr':'>f4','fortran_order':False,'shape':(1,)}", 4, "big-endian");
    assert_refused(1, "{'descr':'<c8','fortran_order':False,'shape':(1,)}", 8, "type <c8");
    assert_refused(1, "{'descr':[('a','<f4')],'fortran_order':False,'shape':(1,)}", 4,
                   "records");
    assert_refused(1, "{'descr':'<f4','fortran_order':True,'shape':(1,)}", 4, "Fortran");
    assert_refused(1, "{" F4 "'shape':(-1,)}", 4, "malformed shape");
    assert_refused(1, "{" F4 "'shape':(1)}", 4, "not a tuple");
    assert_refused(1, "{" F4 "'shape':(99999999999999999999,)}", 4, "too large");
    assert_refused(1, "{" F4 "'shape':(4611686018427387904,8)}", 4, "overflows");
    assert_refused(1, "{" F4 "'shape':(1,1,1,1,1,1,1,1,1)}", 4, "more than 8 dimensions");
    assert_refused(1, "{" F4 F4 "'shape':(1,)}", 4, "twice");
    assert_refused(1, "{" F4 "'shape':(1,),'more':1}", 4, "unknown key more");
    assert_refused(1, "{'descr':'<f4','shape':(1,)}", 4, "lacks");
    assert_refused(1, "{" F4 "'shape':(1,)} x", 4, "behind its header");
    assert_refused(1, "[]", 4, "malformed header");
}

TN_TEST(values_of_every_type_arrive)
{
    const struct {
        const char *descr;
        const void *bytes;
        size_t size;
    } files[] = {
        {"<f4", (float[]){0, 7}, 8},   {"<f8", (double[]){0, 7}, 16},
        {"<i4", (int32_t[]){0, 7}, 8}, {"<i8", (int64_t[]){0, 7}, 16},
        {"|u1", (uint8_t[]){0, 7}, 2},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char file[512], header[96], error[NPY_ERROR_BYTES];
        struct npy array;
        float value[2];
        int64_t label[2];
        snprintf(header, sizeof header, "{'descr':'%s','fortran_order':False,'shape':(2,)}",
                 files[i].descr);
        size_t size = build(file, 1, header, files[i].size);
        memcpy(file + size - files[i].size, files[i].bytes, files[i].size);
        write_file(file, size);
        assert_int_equal(load(&array, error), 0);
        assert_int_equal(npy_to_float32(&array, value), 0);
        assert_true(value[0] == 0 && value[1] == 7);
        bool is_whole = files[i].descr[1] != 'f';
        assert_int_equal(npy_to_int64(&array, label), is_whole ? 0 : -1);
        assert_true(!is_whole || (label[0] == 0 && label[1] == 7));
        npy_fini(&array);
    }
}

TN_TEST(a_number_that_is_not_finite_is_refused)
{
    float value[2] = {1, 0.0f / 0.0f};
    struct npy array = {
        .type = NPY_FLOAT32, .ndim = 1, .shape = {2}, .count = 2, .data = value};
    float out[2];
    assert_int_equal(npy_to_float32(&array, out), -1);
}
