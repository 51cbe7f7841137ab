/* SPDX-License-Identifier: Apache-2.0 */
/* The reader of models whose tensors are in several files, which an index names. */
#include "safetensors_files.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#define TENSOR(name, offsets)                                                                  \
    "\"" name "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[" offsets "]}"

/* Two files: a and c in the one, b in the other. */
static void put_files(void)
{
    put_header("1.safetensors", "{" TENSOR("a", "0,1") "," TENSOR("c", "1,2") "}", 2);
    put_header("2.safetensors", "{" TENSOR("b", "0,1") "}", 1);
}

#define MAP "\"a\":\"1.safetensors\",\"b\":\"2.safetensors\",\"c\":\"1.safetensors\""

static const char *put_index(const char *text)
{
    return put_bytes("model.safetensors.index.json", text, strlen(text));
}

static void open_model(const char *path, struct safetensors_model *ret_model)
{
    char error[SAFETENSORS_ERROR_BYTES] = "";
    if (safetensors_model_open(path, ret_model, error) != 0)
        fail_msg("%s", error);
}

/* The model is refused, the sentence has these words, and no descriptor stays open. */
static void refused(const char *text, int status, const char *const *words)
{
    const char *path = put_index(text);
    struct safetensors_model model = {.file_count = 77};
    char error[SAFETENSORS_ERROR_BYTES];
    unsigned before = tnt_descriptor_count();

    memset(error, 'x', sizeof error);
    assert_int_equal(safetensors_model_open(path, &model, error), status);
    assert_int_equal(model.file_count, 77);
    assert_int_equal(tnt_descriptor_count(), before);
    assert_says(error, words);
}

TN_TEST(an_index_opens_each_file_once)
{
    struct safetensors_model model;
    unsigned before = tnt_descriptor_count();

    put_files();
    open_model(put_index("{\"metadata\": {\"total_size\": 3, \"more\": [1.5, {}]}, "
                         "\"weight_map\": {" MAP "}}\n"),
               &model);
    assert_int_equal(tnt_descriptor_count(), before + 2);
    assert_int_equal(model.file_count, 2);
    assert_int_equal(model.tensor_count, 3);
    assert_int_equal(model.data_bytes, 3);
    assert_string_equal(model.files[0].path, put_path("1.safetensors"));
    assert_string_equal(model.files[1].path, put_path("2.safetensors"));
    assert_string_equal(model.files[0].tensors[1].name, "c");
    assert_string_equal(model.files[1].tensors[0].name, "b");
    safetensors_model_close(&model);
    safetensors_model_close(&model);
    assert_int_equal(tnt_descriptor_count(), before);
}

TN_TEST(the_files_are_beside_the_index_and_may_be_links)
{
    struct safetensors_model model;

    put_files();
    put_index("{\"weight_map\":{" MAP "}}");
    char *folder = strdup(put_path("blobs"));
    char *file = strdup(put_path("2.safetensors"));
    assert_non_null(folder);
    assert_non_null(file);
    assert_int_equal(rename(file, folder), 0);
    assert_int_equal(symlink(folder, file), 0);
    free(folder);
    free(file);
    assert_int_equal(chdir(tnt_folder()), 0);
    open_model("model.safetensors.index.json", &model);
    assert_string_equal(model.files[1].path, "2.safetensors");
    safetensors_model_close(&model);
    open_model("./model.safetensors.index.json", &model);
    assert_string_equal(model.files[1].path, "./2.safetensors");
    safetensors_model_close(&model);
    assert_int_equal(chdir("/"), 0);
}

TN_TEST(a_path_that_is_no_index_is_a_model_of_one_file)
{
    struct safetensors_model model;
    char error[SAFETENSORS_ERROR_BYTES];

    assert_true(safetensors_is_index("model.safetensors.index.json"));
    assert_true(safetensors_is_index(".json"));
    assert_false(safetensors_is_index("model.safetensors"));
    assert_false(safetensors_is_index("json"));
    put_files();
    open_model(put_path("1.safetensors"), &model);
    assert_int_equal(model.file_count, 1);
    assert_int_equal(model.tensor_count, 2);
    assert_int_equal(model.data_bytes, 2);
    safetensors_model_close(&model);
    assert_int_equal(safetensors_model_open(put_path("3.safetensors"), &model, error),
                     TN_ERR_SYSTEM);
    assert_says(error, WORDS(put_path("3.safetensors"), strerror(ENOENT)));
}

TN_TEST(an_index_without_tensors_is_a_model_without_files)
{
    struct safetensors_model model;
    open_model(put_index("{\"weight_map\":{}}"), &model);
    assert_int_equal(model.file_count, 0);
    safetensors_model_close(&model);
}

TN_TEST(a_file_outside_of_the_folder_is_refused)
{
    static const char *const names[] = {"", ".", "..", "../x", "/etc/passwd", "x/y", "a..b"};

    put_files();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char text[128];
        snprintf(text, sizeof text, "{\"weight_map\":{\"a\":\"%s\"}}", names[i]);
        refused(text, TN_ERR_INVALID, WORDS("index.json", "tensor 'a'", names[i], "folder"));
    }
    refused("{\"weight_map\":{\"a\":\"1.safetensors\\u0000\"}}", TN_ERR_INVALID, WORDS("NUL"));
}

TN_TEST(a_tensor_that_its_file_does_not_have_is_refused)
{
    put_files();
    refused("{\"weight_map\":{" MAP ",\"d\":\"2.safetensors\"}}", TN_ERR_INVALID,
            WORDS("index.json", "tensor 'd'", "'2.safetensors'", "it is not"));
    refused("{\"weight_map\":{\"d\":\"2.safetensors\"," MAP "}}", TN_ERR_INVALID,
            WORDS("index.json", "tensor 'd'", "'2.safetensors'", "it is not"));
}

TN_TEST(a_tensor_that_the_index_does_not_name_is_refused)
{
    put_files();
    refused("{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"}}",
            TN_ERR_INVALID,
            WORDS("index.json", "tensor 'c'", "'1.safetensors'", "does not name"));
}

TN_TEST(a_tensor_in_two_files_is_refused)
{
    put_files();
    put_header("2.safetensors", "{" TENSOR("a", "0,1") "," TENSOR("b", "1,2") "}", 2);
    refused("{\"weight_map\":{" MAP "}}", TN_ERR_INVALID,
            WORDS("index.json", "tensor 'a'", "'2.safetensors'", "'1.safetensors'"));
    /* As one file of two names. */
    put_files();
    assert_int_equal(unlink(put_path("2.safetensors")), 0);
    assert_int_equal(symlink("1.safetensors", put_path("2.safetensors")), 0);
    refused("{\"weight_map\":{" MAP "}}", TN_ERR_INVALID, WORDS("tensor '", "weight_map says"));
}

TN_TEST(a_file_that_is_missing_or_wrong_is_named)
{
    put_files();
    refused("{\"weight_map\":{" MAP ",\"d\":\"3.safetensors\"}}", TN_ERR_SYSTEM,
            WORDS("/3.safetensors: ", strerror(ENOENT)));
    put_header("3.safetensors", "{" TENSOR("d", "0,1") "}", 0);
    refused("{\"weight_map\":{" MAP ",\"d\":\"3.safetensors\"}}", TN_ERR_INVALID,
            WORDS("/3.safetensors: ", "tensor 'd'", "truncated"));
}

TN_TEST(an_index_that_is_not_of_the_format_is_refused)
{
    put_files();
    refused("", TN_ERR_INVALID, WORDS("index.json", "0 bytes"));
    refused("[]", TN_ERR_INVALID, WORDS("'['"));
    refused("{}", TN_ERR_INVALID, WORDS("no weight_map"));
    refused("{\"metadata\":{}}", TN_ERR_INVALID, WORDS("no weight_map"));
    refused("{\"weight_map\":[]}", TN_ERR_INVALID, WORDS("'['", "weight_map"));
    refused("{\"weight_map\":{\"a\":1}}", TN_ERR_INVALID, WORDS("'1'", "file"));
    refused("{\"weight_map\":{\"a\":[\"1.safetensors\"]}}", TN_ERR_INVALID, WORDS("'['"));
    refused("{\"weight_map\":{},\"weight_map\":{}}", TN_ERR_INVALID, WORDS("weight_map twice"));
    refused("{\"weight_map\":{\"a\":\"1.safetensors\"," MAP "}}", TN_ERR_INVALID,
            WORDS("tensor 'a'", "twice"));
    refused("{\"weight_map\":{" MAP "}}x", TN_ERR_INVALID, WORDS("'x'", "the end"));
    refused("{\"weight_map\":{" MAP "}", TN_ERR_INVALID, WORDS("ends after"));
    refused("{\"metadata\":{\"x\":},\"weight_map\":{" MAP "}}", TN_ERR_INVALID, WORDS("byte"));
    assert_int_equal(truncate(put_index("{}"), INT64_C(100000001)), 0);
    struct safetensors_model model;
    char error[SAFETENSORS_ERROR_BYTES];
    assert_int_equal(
        safetensors_model_open(put_path("model.safetensors.index.json"), &model, error),
        TN_ERR_INVALID);
    assert_says(error, WORDS("100000001"));
}

TN_TEST(an_index_of_many_files_and_tensors_is_read)
{
    enum { FILES = 20, TENSORS = 5000 };
    size_t room = PUT_MOST_BYTES * 8, bytes = 0;
    char *index = malloc(room), *header = malloc(PUT_MOST_BYTES);
    struct safetensors_model model;

    assert_non_null(index);
    assert_non_null(header);
    bytes += (size_t)snprintf(index, room, "{\"weight_map\":{");
    for (int file = 0; file < FILES; file++) {
        char name[32];
        size_t at = 0;
        snprintf(name, sizeof name, "%02d.safetensors", file);
        for (int i = 0; i < TENSORS; i++) {
            bytes += (size_t)snprintf(index + bytes, room - bytes, "%s\"t.%d.%d\":\"%s\"",
                                      file + i == 0 ? "" : ",", i, file, name);
            at += (size_t)snprintf(
                header + at, PUT_MOST_BYTES - at,
                "%c\"t.%d.%d\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[%d,%d]}",
                i == 0 ? '{' : ',', i, file, i, i + 1);
        }
        header[at] = '}';
        header[at + 1] = '\0';
        put_header(name, header, TENSORS);
    }
    bytes += (size_t)snprintf(index + bytes, room - bytes, "}}");
    open_model(put_bytes("all.json", index, bytes), &model);
    assert_int_equal(model.file_count, FILES);
    assert_int_equal(model.tensor_count, FILES * TENSORS);
    safetensors_model_close(&model);
    free(index);
    free(header);
}
