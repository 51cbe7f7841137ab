/* SPDX-License-Identifier: Apache-2.0 */
/* The reader of safetensors files: files of every kind that is right, and of every that is
 * wrong. */
#include "safetensors_files.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <sys/stat.h>
#include <tenon/dlpack.h>
#include <unistd.h>

#define A(dtype, shape, offsets)                                                               \
    "\"a\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" offsets "]}"
#define B(dtype, shape, offsets)                                                               \
    "\"b\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" offsets "]}"

/* ---- what the program calls, which a test may let fail
 * --------------------------------------- */

/* What the next reads do: results of read(), each for one call; a 0 entry reads as usual. */
static const struct answer {
    ssize_t result;
    int error;
} * answers;
static size_t answer_count, read_count;

ssize_t __real_pread64(int fd, void *to, size_t bytes, off_t off);
ssize_t __wrap_pread64(int fd, void *to, size_t bytes, off_t off);
ssize_t __wrap_pread64(int fd, void *to, size_t bytes, off_t off)
{
    read_count++;
    if (answer_count == 0)
        return __real_pread64(fd, to, bytes, off);
    const struct answer *answer = answers++;
    answer_count--;
    errno = answer->error;
    if (answer->result <= 0)
        return answer->result;
    size_t most = (size_t)answer->result;
    return __real_pread64(fd, to, bytes < most ? bytes : most, off);
}

static void answer_reads(const struct answer *with, size_t count)
{
    answers = with;
    answer_count = count;
    read_count = 0;
}

/* The allocation with this number fails; 0: none. */
static unsigned allocation, failing;

static bool fails_now(void) { return ++allocation == failing; }

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes) { return fails_now() ? NULL : __real_malloc(bytes); }

void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes)
{
    return fails_now() ? NULL : __real_calloc(count, bytes);
}

void *__real_reallocarray(void *old, size_t count, size_t bytes);
void *__wrap_reallocarray(void *old, size_t count, size_t bytes);
void *__wrap_reallocarray(void *old, size_t count, size_t bytes)
{
    return fails_now() ? NULL : __real_reallocarray(old, count, bytes);
}

char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);
char *__wrap_strdup(const char *text) { return fails_now() ? NULL : __real_strdup(text); }

/* ---- helpers ----------------------------------------------------------------------------- */

static struct safetensors opened;

static struct safetensors *open_path(const char *path)
{
    char error[SAFETENSORS_ERROR_BYTES] = "";
    if (safetensors_open(path, &opened, error) != 0)
        fail_msg("%s", error);
    return &opened;
}

static struct safetensors *open_header(const char *header, size_t data_bytes)
{
    return open_path(put_header("file", header, data_bytes));
}

/* The file is refused, and the sentence names it and has these words. */
static void assert_path_refused(const char *path, int status, const char *const *words)
{
    struct safetensors file = {.fd = 77};
    char error[SAFETENSORS_ERROR_BYTES];

    memset(error, 'x', sizeof error);
    assert_int_equal(safetensors_open(path, &file, error), status);
    assert_int_equal(file.fd, 77);
    assert_says(error, words);
    assert_says(error, WORDS(path));
}

static void refused(const char *header, size_t data_bytes, const char *const *words)
{
    assert_path_refused(put_header("file", header, data_bytes), TN_ERR_INVALID, words);
}

static void unsupported(const char *header, size_t data_bytes, const char *const *words)
{
    assert_path_refused(put_header("file", header, data_bytes), TN_ERR_UNSUPPORTED, words);
}

/* ---- right files ------------------------------------------------------------------------- */

TN_TEST(tensors_are_listed_in_the_order_of_their_data)
{
    struct safetensors *file =
        open_header("{" B("F32", "2,3", "4,28") ", " A("I16", "2", "0,4") "}  \n", 28);

    assert_string_equal(file->path, put_path("file"));
    assert_int_equal(file->tensor_count, 2);
    assert_int_equal(file->metadata_count, 0);
    assert_int_equal(file->data_bytes, 28);
    const struct safetensors_tensor *a = &file->tensors[0], *b = &file->tensors[1];
    assert_string_equal(a->name, "a");
    assert_int_equal(a->dtype, TN_INT16);
    assert_int_equal(a->ndim, 1);
    assert_int_equal(a->shape[0], 2);
    assert_int_equal(a->begin_off, file->data_off);
    assert_int_equal(safetensors_size(a), 4);
    assert_string_equal(b->name, "b");
    assert_int_equal(b->dtype, TN_FLOAT32);
    assert_int_equal(b->ndim, 2);
    assert_int_equal(b->shape[0], 2);
    assert_int_equal(b->shape[1], 3);
    assert_int_equal(b->begin_off, file->data_off + 4);
    assert_int_equal(b->end_off, file->data_off + 28);
    assert_ptr_equal(safetensors_find(file, "a"), a);
    assert_ptr_equal(safetensors_find(file, "b"), b);
    assert_null(safetensors_find(file, "ab"));
    safetensors_close(file);
    safetensors_close(file);
}

TN_TEST(a_file_without_tensors_is_read)
{
    struct safetensors *file = open_header("{}", 0);
    assert_int_equal(file->tensor_count, 0);
    assert_int_equal(file->data_bytes, 0);
    assert_null(safetensors_find(file, "a"));
    safetensors_close(file);
    file = open_header("{ \"__metadata__\" : { } }", 0);
    assert_int_equal(file->metadata_count, 0);
    safetensors_close(file);
}

static const struct type {
    const char *name;
    tn_dtype dtype;
    size_t bytes;
} types[] = {
    {"BOOL", TN_BOOL, 1},
    {"U8", TN_UINT8, 1},
    {"I8", TN_INT8, 1},
    {"F8_E5M2", TN_FLOAT8_E5M2, 1},
    {"F8_E4M3", TN_FLOAT8_E4M3FN, 1},
    {"F8_E8M0", TN_DTYPE(kDLFloat8_e8m0fnu, 8, 1), 1},
    {"F8_E4M3FNUZ", TN_DTYPE(kDLFloat8_e4m3fnuz, 8, 1), 1},
    {"F8_E5M2FNUZ", TN_DTYPE(kDLFloat8_e5m2fnuz, 8, 1), 1},
    {"I16", TN_INT16, 2},
    {"U16", TN_UINT16, 2},
    {"F16", TN_FLOAT16, 2},
    {"BF16", TN_BFLOAT16, 2},
    {"I32", TN_INT32, 4},
    {"U32", TN_UINT32, 4},
    {"F32", TN_FLOAT32, 4},
    {"C64", TN_COMPLEX64, 8},
    {"F64", TN_FLOAT64, 8},
    {"I64", TN_INT64, 8},
    {"U64", TN_UINT64, 8},
};

TN_TEST(each_type_of_whole_bytes_has_its_type_of_tenon)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        char header[256];
        snprintf(header, sizeof header, "{" A("%s", "3", "0,%zu") "}", types[i].name,
                 3 * types[i].bytes);
        struct safetensors *file = open_header(header, 3 * types[i].bytes);
        size_t item_bytes = 0;
        assert_int_equal(file->tensors[0].dtype, types[i].dtype);
        assert_int_equal(tn_dtype_size(file->tensors[0].dtype, &item_bytes), 0);
        assert_int_equal(item_bytes, types[i].bytes);
        safetensors_close(file);
    }
}

TN_TEST(a_type_without_whole_bytes_is_refused_by_name)
{
    unsupported("{" A("F4", "8", "0,4") "}", 4, WORDS("tensor 'a'", "F4", "whole number"));
    unsupported("{" A("F6_E2M3", "8", "0,6") "}", 6, WORDS("tensor 'a'", "F6_E2M3"));
    unsupported("{" A("F6_E3M2", "8", "0,6") "}", 6, WORDS("tensor 'a'", "F6_E3M2"));
}

TN_TEST(a_type_that_is_none_of_the_format_is_refused_by_name)
{
    refused("{" A("F128", "1", "0,16") "}", 16, WORDS("tensor 'a'", "'F128'", "none"));
    refused("{" A("u8", "1", "0,1") "}", 1, WORDS("tensor 'a'", "'u8'", "none"));
    refused("{" A("", "1", "0,1") "}", 1, WORDS("tensor 'a'", "''", "none"));
    refused("{" A("U8\\u0000", "1", "0,1") "}", 1, WORDS("tensor 'a'", "'U8'", "NUL"));
}

TN_TEST(scalars_empty_tensors_and_32_axes_are_read)
{
    struct safetensors *file = open_header("{" A("F64", "", "0,8") "}", 8);
    assert_int_equal(file->tensors[0].ndim, 0);
    assert_int_equal(safetensors_size(&file->tensors[0]), 8);
    safetensors_close(file);

    file = open_header("{" B("U8", "4,0,7", "2,2") "," A("U8", "2", "0,2") "}", 2);
    assert_string_equal(file->tensors[1].name, "b");
    assert_int_equal(file->tensors[1].shape[2], 7);
    assert_int_equal(safetensors_size(&file->tensors[1]), 0);
    safetensors_close(file);

#define EIGHT "1,1,1,1,1,1,1,1"
    file = open_header("{" A("U8", EIGHT "," EIGHT "," EIGHT ",1,1,1,1,1,1,1,2", "0,2") "}", 2);
    assert_int_equal(file->tensors[0].ndim, 32);
    assert_int_equal(file->tensors[0].shape[31], 2);
    safetensors_close(file);
    unsupported("{" A("U8", EIGHT "," EIGHT "," EIGHT "," EIGHT ",1", "0,1") "}", 1,
                WORDS("tensor 'a'", "33 axes", "32"));
}

TN_TEST(empty_tensors_are_before_what_begins_where_they_are)
{
    struct safetensors *file =
        open_header("{\"c\":{\"dtype\":\"U8\",\"shape\":[0],"
                    "\"data_offsets\":[0,0]}," A("U8", "2", "0,2") "," B("U8", "0", "0,0") "}",
                    2);
    assert_string_equal(file->tensors[0].name, "b");
    assert_string_equal(file->tensors[1].name, "c");
    assert_string_equal(file->tensors[2].name, "a");
    safetensors_close(file);
}

TN_TEST(metadata_is_read_in_the_order_of_the_header)
{
    struct safetensors *file =
        open_header("{" A("U8", "1", "0,1") ",\"__metadata__\":{"
                                            "\"z\":\"\\u00e9\\n\",\"a\":\"\"}}",
                    1);
    assert_int_equal(file->metadata_count, 2);
    assert_string_equal(file->metadata[0].key, "z");
    assert_string_equal(file->metadata[0].value, "\xc3\xa9\n");
    assert_string_equal(file->metadata[1].key, "a");
    assert_string_equal(file->metadata[1].value, "");
    assert_int_equal(file->tensor_count, 1);
    safetensors_close(file);
}

TN_TEST(names_are_decoded_from_json)
{
    struct safetensors *file =
        open_header("{\"\\u0061\\\"\\\\\\ud83d\\ude00\xc3\xa9\":{\"dt\\u0079pe\":\"U\\u0038\","
                    "\"shape\" : [ 1 ] , \"data_offsets\":[0,1]}}",
                    1);
    assert_string_equal(file->tensors[0].name, "a\"\\\xf0\x9f\x98\x80\xc3\xa9");
    safetensors_close(file);
}

TN_TEST(a_name_has_1_to_512_bytes)
{
    char header[1024], name[514];

    memset(name, 'n', sizeof name);
    name[512] = '\0';
    snprintf(header, sizeof header,
             "{\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", name);
    struct safetensors *file = open_header(header, 1);
    assert_string_equal(file->tensors[0].name, name);
    safetensors_close(file);

    name[512] = 'n';
    name[513] = '\0';
    snprintf(header, sizeof header,
             "{\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", name);
    unsupported(header, 1, WORDS("tensor 'nnn", "513 bytes", "512"));
    refused("{\"\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
            WORDS("empty"));
    refused("{\"a\\u0000b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
            WORDS("NUL", "'a'", "byte 1"));
}

TN_TEST(many_tensors_are_read_in_the_order_of_their_data)
{
    size_t count = tnt_is_full() ? 1000000 : 100000, room = 96 * count;
    char *header = malloc(room);
    size_t bytes = 0;

    assert_non_null(header);
    /* From the last to the first, so that the order of the data is not that of the header. */
    for (size_t i = count; i-- > 0;)
        bytes += (size_t)snprintf(header + bytes, room - bytes,
                                  "%c\"layer.%zu.weight\":{\"dtype\":\"U8\",\"shape\":[1,1],"
                                  "\"data_offsets\":[%zu,%zu]}",
                                  i == count - 1 ? '{' : ',', i * 7919 % count, i, i + 1);
    header[bytes++] = '}';
    FILE *stream = fopen(put_path("file"), "wb");
    assert_non_null(stream);
    uint64_t length = bytes;
    assert_int_equal(fwrite(&length, 8, 1, stream), 1);
    assert_int_equal(fwrite(header, 1, bytes, stream), bytes);
    assert_int_equal(fflush(stream), 0);
    assert_int_equal(ftruncate(fileno(stream), (off_t)(8 + bytes + count)), 0);
    assert_int_equal(fclose(stream), 0);
    free(header);

    struct safetensors *file = open_path(put_path("file"));
    assert_int_equal(file->tensor_count, count);
    for (size_t i = 0; i < count; i++)
        if (file->tensors[i].begin_off != file->data_off + i)
            fail_msg("tensor %zu begins at byte %zu", i, (size_t)file->tensors[i].begin_off);
    assert_string_equal(file->tensors[3].name, "layer.23757.weight");
    assert_ptr_equal(safetensors_find(file, "layer.23757.weight"), &file->tensors[3]);
    safetensors_close(file);
    unlink(put_path("file"));
}

/* ---- bytes of tensors -------------------------------------------------------------------- */

TN_TEST(a_tensor_and_a_part_of_it_are_read)
{
    struct safetensors *file =
        open_header("{" A("U8", "3", "0,3") "," B("I16", "2", "3,7") "}", 7);
    char error[SAFETENSORS_ERROR_BYTES], bytes[8] = "--------";

    assert_int_equal(safetensors_read(file, &file->tensors[1], bytes + 1, error), 0);
    assert_memory_equal(bytes, "-\4\5\6\7---", 8);
    struct safetensors_part part = {2, 1};
    assert_int_equal(safetensors_read_part(file, &file->tensors[0], part, bytes, error), 0);
    assert_memory_equal(bytes, "\3\4\5\6\7---", 8);
    part = (struct safetensors_part){3, 0};
    assert_int_equal(safetensors_read_part(file, &file->tensors[0], part, bytes, error), 0);

    static const struct safetensors_part outside[] = {{3, 1}, {0, 4}, {4, 0}, {1, UINT64_MAX}};
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        assert_int_equal(
            safetensors_read_part(file, &file->tensors[0], outside[i], bytes, error),
            TN_ERR_INVALID);
        assert_says(error, WORDS(put_path("file"), "tensor 'a'", "3 bytes"));
    }
    safetensors_close(file);
}

TN_TEST(short_and_interrupted_reads_are_continued)
{
    static const struct answer with[] = {{-1, EINTR}, {1, 0}, {-1, EINTR}, {2, 0}, {4, 0}};
    struct safetensors *file = open_header("{" A("U8", "5", "0,5") "}", 5);
    char error[SAFETENSORS_ERROR_BYTES], bytes[5];

    answer_reads(with, 5);
    assert_int_equal(safetensors_read(file, &file->tensors[0], bytes, error), 0);
    assert_int_equal(read_count, 5);
    assert_memory_equal(bytes, "\1\2\3\4\5", 5);
    safetensors_close(file);
}

TN_TEST(a_read_that_fails_says_where_and_why)
{
    static const struct answer broken[] = {{3, 0}, {-1, EIO}};
    struct safetensors *file = open_header("{" A("U8", "5", "0,5") "}", 5);
    char error[SAFETENSORS_ERROR_BYTES], bytes[5], at[64];

    answer_reads(broken, 2);
    assert_int_equal(safetensors_read(file, &file->tensors[0], bytes, error), TN_ERR_SYSTEM);
    snprintf(at, sizeof at, "byte %d ", (int)file->data_off + 3);
    assert_says(error, WORDS(put_path("file"), "tensor 'a'", at, strerror(EIO)));
    answer_reads(broken + 1, 1);
    assert_path_refused(put_path("file"), TN_ERR_SYSTEM, WORDS("byte 0 ", strerror(EIO)));
    safetensors_close(file);
}

TN_TEST(a_file_that_is_truncated_after_the_open_is_an_error)
{
    struct safetensors *file = open_header("{" A("U8", "5", "0,5") "}", 5);
    char error[SAFETENSORS_ERROR_BYTES], bytes[5], at[64];

    assert_int_equal(truncate(put_path("file"), (off_t)file->data_off + 2), 0);
    assert_int_equal(safetensors_read(file, &file->tensors[0], bytes, error), TN_ERR_INVALID);
    snprintf(at, sizeof at, "byte %d ", (int)file->data_off + 2);
    assert_says(error, WORDS(put_path("file"), "tensor 'a'", "truncated", "3 bytes", at));
    safetensors_close(file);
}

/* ---- files that cannot be opened --------------------------------------------------------- */

TN_TEST(what_is_no_regular_file_is_refused_at_once)
{
    assert_path_refused(put_path("none"), TN_ERR_SYSTEM, WORDS(strerror(ENOENT)));
    assert_int_equal(mkdir(put_path("folder"), 0700), 0);
    assert_path_refused(put_path("folder"), TN_ERR_SYSTEM, WORDS("a folder"));
    assert_int_equal(mkfifo(put_path("fifo"), 0600), 0);
    assert_path_refused(put_path("fifo"), TN_ERR_SYSTEM, WORDS("not a regular file"));
    assert_path_refused("/dev/zero", TN_ERR_SYSTEM, WORDS("not a regular file"));
}

TN_TEST(the_descriptor_closes_on_exec)
{
    struct safetensors *file = open_header("{}", 0);
    assert_true(fcntl(file->fd, F_GETFD) & FD_CLOEXEC);
    safetensors_close(file);
}

static void *failing_malloc(size_t bytes) { return fails_now() ? NULL : __real_malloc(bytes); }

static void real_free(void *bytes) { free(bytes); }

/* Open a file again and again, until no allocation fails. @return how many failed */
static unsigned fail_allocations(bool also_of_jansson)
{
    const char *path = put_header(
        "file",
        "{\"__metadata__\":{\"k\":\"v\"}," A("U8", "1,2", "0,2") "," B("U8", "3", "2,5") "}",
        5);
    struct safetensors file = {0};
    char error[SAFETENSORS_ERROR_BYTES];
    int status = TN_ERR_NO_MEMORY;

    json_set_alloc_funcs(also_of_jansson ? failing_malloc : __real_malloc, real_free);
    for (failing = 1; status != 0; failing++) {
        allocation = 0;
        status = safetensors_open(path, &file, error);
        if (status != 0 && !also_of_jansson)
            assert_int_equal(status, TN_ERR_NO_MEMORY);
        if (status != 0)
            assert_says(error, WORDS(path, also_of_jansson ? "header" : "memory"));
    }
    unsigned failed = failing - 2;
    failing = 0;
    json_set_alloc_funcs(malloc, free);
    assert_int_equal(file.tensor_count, 2);
    safetensors_close(&file);
    return failed;
}

/* Of some of its own allocations that fail, jansson says that the JSON is wrong. */
TN_TEST(each_allocation_that_fails_is_an_error)
{
    unsigned own = fail_allocations(false), all = fail_allocations(true);
    tnt_note("%u allocations, %u with those of jansson", own, all);
    assert_true(own >= 7);
    assert_true(all > own + 20);
}

/* ---- wrong files ------------------------------------------------------------------------- */

TN_TEST(a_file_truncated_at_any_byte_is_refused)
{
    static const char header[] =
        "{\"__metadata__\":{\"k\":\"v\"}," A("U8", "1,2", "0,2") "," B("U16", "3", "2,8") "}";
    char *file = malloc(PUT_MOST_BYTES);
    assert_non_null(file);
    size_t bytes = put_build(file, header, strlen(header), 8);

    for (size_t i = 0; i < bytes; i++) {
        const char *word = i < 8 ? "8" : i < 8 + strlen(header) ? "header" : "truncated";
        assert_path_refused(put_bytes("file", file, i), TN_ERR_INVALID, WORDS(word));
    }
    safetensors_close(open_path(put_bytes("file", file, bytes)));
    free(file);
}

/* As truncated, and the length of the header is that of the text that is left. */
TN_TEST(a_header_truncated_at_any_byte_is_refused)
{
    static const char header[] =
        "{\"__metadata__\":{\"k\":\"v\"}," A("U8", "1,2", "0,2") "," B("U16", "3", "2,8") "}";
    char text[sizeof header];

    for (size_t i = 0; i < strlen(header); i++) {
        memcpy(text, header, i);
        text[i] = '\0';
        refused(text, 8, WORDS("header"));
    }
}

TN_TEST(a_header_of_a_wrong_length_is_refused_by_number)
{
    static const struct {
        uint64_t length;
        const char *number;
    } wrong[] = {
        {0, "0 bytes"},
        {3, "has 3 bytes, and the file only 2"},
        {UINT64_C(1) << 60, "1152921504606846976"},
        {UINT64_MAX, "18446744073709551615"},
        {UINT64_MAX - 7, "18446744073709551608"},
        {100000001, "100000001"},
        {100000000, "100000000 bytes, and the file only 2"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char file[10] = "--------{}";
        for (size_t j = 0; j < 8; j++)
            file[j] = (char)(wrong[i].length >> 8 * j);
        assert_path_refused(put_bytes("file", file, sizeof file), TN_ERR_INVALID,
                            WORDS(wrong[i].number));
    }
}

TN_TEST(a_header_of_100_MB_is_read_and_a_longer_one_is_not)
{
    size_t bytes = SAFETENSORS_HEADER_BYTES;
    char *spaces = malloc(8 + bytes + 1);

    assert_non_null(spaces);
    memset(spaces, ' ', 8 + bytes + 1);
    for (size_t i = 0; i < 8; i++)
        spaces[i] = (char)(bytes >> 8 * i);
    spaces[8] = '{';
    spaces[8 + bytes - 1] = '}';
    safetensors_close(open_path(put_bytes("file", spaces, 8 + bytes)));
    spaces[8 + bytes - 1] = ' ';
    spaces[8 + bytes] = '}';
    spaces[0]++;
    assert_path_refused(put_bytes("file", spaces, 8 + bytes + 1), TN_ERR_INVALID,
                        WORDS("100000001"));
    free(spaces);
    unlink(put_path("file"));
}

TN_TEST(a_header_that_does_not_begin_with_a_brace_is_refused)
{
    refused("[]", 0, WORDS("0x5b", "'{'"));
    refused("null", 0, WORDS("0x6e"));
    refused("7", 0, WORDS("0x37"));
    refused(" {}", 0, WORDS("0x20"));
    refused("\xef\xbb\xbf{}", 0, WORDS("0xef"));
}

TN_TEST(a_header_that_is_not_json_is_refused_with_its_place)
{
    refused("{", 0, WORDS("ends after 1 bytes"));
    refused("{]", 0, WORDS("']' is at byte 1"));
    refused("{,}", 0, WORDS("',' is at byte 1"));
    refused("{}}", 0, WORDS("'}' is at byte 2"));
    refused("{}\x01", 0, WORDS("byte 2", "0x01"));
    refused("{a:1}", 0, WORDS("'a' is at byte 1"));
    refused("{\"a\"}", 0, WORDS("'}' is at byte 4", "':'"));
    refused("{\"a\":}", 0, WORDS("tensor 'a'", "byte 5"));
    refused("{\"a\":tru}", 0, WORDS("tensor 'a'", "byte 5"));
    refused("{\"a:{}}", 0, WORDS("byte 1"));
    refused("{" A("U8", "1", "0,1") ",}", 1, WORDS("'}' is at byte", "name"));
    refused("{" A("U8", "1", "0,1") B("U8", "1", "1,2") "}", 2,
            WORDS("'\"' is at byte", "','"));
    refused("{" A("U8", "1,", "0,1") "}", 1, WORDS("tensor 'a'", "byte 5"));
    refused("{" A("U8", "01", "0,1") "}", 1, WORDS("tensor 'a'", "byte 5"));
    refused("{\"a\":{\"dtype\":\"U8\",}}", 1, WORDS("tensor 'a'", "byte 5"));
    refused("{\"a\tb\":{}}", 0, WORDS("control character"));

    char file[12] = "\4\0\0\0\0\0\0\0{}\0\0";
    assert_path_refused(put_bytes("file", file, sizeof file), TN_ERR_INVALID,
                        WORDS("byte 2", "0x00"));
}

TN_TEST(text_that_is_not_utf8_is_refused)
{
    refused("{\"a\xff\":{}}", 0, WORDS("byte 1", "0xff"));
    refused("{\"\xc0\x80\":{}}", 0, WORDS("byte 1"));
    refused("{\"\xed\xa0\x80\":{}}", 0, WORDS("byte 1"));
    refused("{\"\\ud800\":{}}", 0, WORDS("byte 1"));
    refused("{\"__metadata__\":{\"a\":\"\xe2\x82\"}}", 0, WORDS("byte"));
    refused("{\"a\":{\"dtype\":\"\x80\"}}", 0, WORDS("tensor 'a'", "0x80"));
}

TN_TEST(a_name_that_a_header_has_twice_is_refused)
{
    refused("{" A("U8", "1", "0,1") "," A("U8", "1", "1,2") "}", 2,
            WORDS("tensor 'a'", "twice"));
    refused("{" A("U8", "1", "0,1") "," B("U8", "1",
                                          "1,2") ",\"\\u0061\":{\"dtype\":\"U8\","
                                                 "\"shape\":[0],\"data_offsets\":[2,2]}}",
            2, WORDS("tensor 'a'", "twice"));
    refused("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
            1, WORDS("tensor 'a'", "duplicate", "dtype"));
}

TN_TEST(metadata_that_is_not_texts_is_refused)
{
    refused("{\"__metadata__\":7}", 0, WORDS("'7'", "__metadata__"));
    refused("{\"__metadata__\":null}", 0, WORDS("'n'", "__metadata__"));
    refused("{\"__metadata__\":[]}", 0, WORDS("'['", "__metadata__"));
    refused("{\"__metadata__\":{\"a\":1}}", 0, WORDS("'1'", "__metadata__"));
    refused("{\"__metadata__\":{\"a\":{}}}", 0, WORDS("'{'", "__metadata__"));
    refused("{\"__metadata__\":{\"a\":null}}", 0, WORDS("'n'", "__metadata__"));
    refused("{\"__metadata__\":{\"a\":\"x\\u0000\"}}", 0, WORDS("NUL"));
    refused("{\"__metadata__\":{\"a\":\"\",\"b\":\"\",\"a\":\"\"}}", 0, WORDS("'a'", "two"));
    refused("{\"__metadata__\":{},\"__metadata__\":{}}", 0, WORDS("__metadata__ twice"));
}

TN_TEST(the_keys_of_a_tensor_are_three)
{
    refused("{\"a\":{\"shape\":[],\"data_offsets\":[0,1]}}", 1, WORDS("tensor 'a'", "'dtype'"));
    refused("{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1,
            WORDS("tensor 'a'", "'shape'"));
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[]}}", 1,
            WORDS("tensor 'a'", "'data_offsets'"));
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1],\"strides\":[]}}", 1,
            WORDS("tensor 'a'", "'strides'"));
    refused("{\"a\":null}", 0, WORDS("tensor 'a'", "null", "object"));
    refused("{\"a\":[\"U8\",[1],[0,1]]}", 1, WORDS("tensor 'a'", "an array", "object"));
    refused("{\"a\":{\"dtype\":8,\"shape\":[],\"data_offsets\":[0,1]}}", 1,
            WORDS("tensor 'a'", "dtype", "a number"));
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":{},\"data_offsets\":[0,1]}}", 1,
            WORDS("tensor 'a'", "shape", "an object"));
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":\"\"}}", 1,
            WORDS("tensor 'a'", "data_offsets", "a text"));
}

TN_TEST(a_size_that_is_no_whole_number_is_refused_by_number)
{
    static const char *const wrong[][2] = {
        {"-1", "-1"},
        {"-0", "-0"},
        {"-9223372036854775808", "-9223372036854775808"},
        {"9223372036854775808", "9223372036854775808"},
        {"1152921504606846976000", "1152921504606846976000"},
        {"1.5", "1.5"},
        {"1.0", "1,"},
        {"1e0", "1,"},
        {"1e999", "1e999"},
        {"\\\"1\\\"", "byte"},
        {"\"1\"", "a text"},
        {"null", "null"},
        {"true", "true"},
        {"[1]", "an array"},
        {"+1", "'+'"},
        {"0x1", "near"},
        {"NaN", "NaN"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char header[256];
        snprintf(header, sizeof header, "{" A("U8", "%s", "0,1") "}", wrong[i][0]);
        refused(header, 1, WORDS("tensor 'a'", wrong[i][1]));
        snprintf(header, sizeof header, "{" A("U8", "1", "0,%s") "}", wrong[i][0]);
        refused(header, 1, WORDS("tensor 'a'", wrong[i][1]));
        snprintf(header, sizeof header, "{" A("U8", "1", "%s,1") "}", wrong[i][0]);
        refused(header, 1, WORDS("tensor 'a'", wrong[i][1]));
    }
}

TN_TEST(data_offsets_are_two_numbers_in_order)
{
    refused("{" A("U8", "1", "") "}", 1, WORDS("tensor 'a'", "0 numbers"));
    refused("{" A("U8", "1", "0") "}", 1, WORDS("tensor 'a'", "1 numbers"));
    refused("{" A("U8", "1", "0,1,2") "}", 1, WORDS("tensor 'a'", "3 numbers"));
    refused("{" A("U8", "1", "7,6") "}", 1, WORDS("tensor 'a'", "byte 7", "byte 6"));
    refused("{" A("U8", "1", "9223372036854775807,0") "}", 1,
            WORDS("tensor 'a'", "9223372036854775807"));
}

TN_TEST(a_size_that_its_offsets_do_not_have_is_refused)
{
    refused("{" A("U8", "2", "0,1") "}", 1, WORDS("tensor 'a'", "2 bytes", "1 bytes"));
    refused("{" A("F32", "2,3", "0,23") "}", 23, WORDS("tensor 'a'", "24 bytes", "23 bytes"));
    refused("{" A("F32", "", "0,0") "}", 0, WORDS("tensor 'a'", "4 bytes", "0 bytes"));
    refused("{" A("U8", "0", "0,1") "}", 1, WORDS("tensor 'a'", "0 bytes", "1 bytes"));
    refused("{" A("U8", "4294967296,4294967296", "0,0") "}", 0,
            WORDS("tensor 'a'", "2^63", "axis 1", "4294967296"));
    refused("{" A("F64", "2305843009213693952", "0,0") "}", 0,
            WORDS("tensor 'a'", "2^63", "axis 0", "2305843009213693952"));
    refused("{" A("U8", "0,4611686018427387904,4", "0,0") "}", 0,
            WORDS("tensor 'a'", "2^63", "axis 2"));
    refused("{" A("U8", "9223372036854775807", "0,9223372036854775807") "}", 1,
            WORDS("tensor 'a'", "9223372036854775807", "truncated"));
}

TN_TEST(tensors_that_overlap_are_refused)
{
    refused("{" A("U8", "2", "0,2") "," B("U8", "2", "1,3") "}", 3,
            WORDS("tensor 'b'", "byte 1", "tensor 'a'", "byte 2"));
    refused("{" A("U8", "2", "0,2") "," B("U8", "2", "0,2") "}", 2,
            WORDS("tensor 'b'", "byte 0", "tensor 'a'", "byte 2"));
    refused("{" A("U8", "3", "0,3") "," B("U8", "0", "1,1") "}", 3,
            WORDS("tensor 'b'", "byte 1", "tensor 'a'", "byte 3"));
}

TN_TEST(bytes_that_no_tensor_has_are_refused)
{
    refused("{" A("U8", "2", "1,3") "}", 3, WORDS("tensor 'a'", "byte 1", "from 0 on"));
    refused("{" A("U8", "2", "0,2") "," B("U8", "1", "5,6") "}", 6,
            WORDS("tensor 'b'", "byte 5", "from 2 on"));
    refused("{" A("U8", "0", "1,1") "}", 0, WORDS("tensor 'a'", "byte 1", "from 0 on"));
    refused("{" A("U8", "2", "0,2") "}", 5, WORDS("5 bytes", "end at byte 2"));
    refused("{}", 1, WORDS("1 bytes", "end at byte 0"));
}

TN_TEST(a_tensor_behind_the_end_of_the_file_is_refused)
{
    refused("{" A("U8", "2", "0,2") "," B("U8", "9", "2,11") "}", 10,
            WORDS("tensor 'b'", "byte 11", "byte 10", "truncated"));
}

TN_TEST(json_of_a_tensor_that_is_too_long_is_refused)
{
    size_t bytes = SAFETENSORS_TENSOR_BYTES;
    char *header = malloc(bytes + 256);

    assert_non_null(header);
    strcpy(header, "{\"a\":{\"shape\":[");
    size_t begin = strlen(header);
    memset(header + begin, '[', bytes);
    header[begin + bytes] = '\0';
    refused(header, 0, WORDS("tensor 'a'"));
    for (size_t i = 0; i < bytes; i++)
        header[begin + i] = i % 2 == 0 ? '1' : ',';
    refused(header, 0, WORDS("tensor 'a'", "65536"));
    /* The begin and the end of the object have 47 bytes. */
    strcpy(header, "{\"a\":{\"dtype\":\"U8\",");
    begin = strlen(header);
    memset(header + begin, ' ', bytes);
    for (size_t i = 0; i < 2; i++) {
        strcpy(header + begin + bytes - 47 + 1 - i, "\"shape\":[1],\"data_offsets\":[0,1]}}");
        if (i == 0)
            refused(header, 1, WORDS("tensor 'a'", "65536"));
        else
            safetensors_close(open_header(header, 1));
    }
    free(header);
}

TN_TEST(an_error_shows_no_control_characters_and_fits)
{
    char path[600], header[1400], error[SAFETENSORS_ERROR_BYTES];
    struct safetensors file;

    memset(path, 'p', sizeof path);
    path[sizeof path - 1] = '\0';
    assert_int_equal(safetensors_open(path, &file, error), TN_ERR_SYSTEM);
    assert_says(error, WORDS(strerror(ENAMETOOLONG), "ppp"));

    refused("{\"\\u001b[31m\":7}", 0, WORDS("tensor '?[31m'"));
    strcpy(header, "{\"");
    memset(header + 2, 'n', 600);
    strcpy(header + 602, "\":{\"dtype\":\"\\u001b\"}}");
    unsupported(header, 0, WORDS("600 bytes", "nnn...nnn"));
}
