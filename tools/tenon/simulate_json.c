/* SPDX-License-Identifier: Apache-2.0 */
/* simulate_json: reads the values of a JSON file, and says where in the file one is wrong. */
#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "simulate.h"
#include "text.h"

static void print_error(const char *path, const char *place, const char *sentence)
{
    char text[CMD_SENTENCE_BYTES];
    snprintf(text, sizeof text, "%s: %s%s%s", path, place, place[0] != '\0' ? ": " : "",
             sentence);
    fprintf(stderr, "tenon simulate: %s\n", tni_text_clean(text));
}

int simulate_fail(const struct simulate_file *file, const char *format, ...)
{
    char sentence[CMD_SENTENCE_BYTES / 2];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    print_error(file->path, file->place, sentence);
    return CMD_USAGE;
}

int simulate_load(const struct simulate_file *file, json_t **ret_root)
{
    json_error_t error;
    char place[64];
    FILE *stream = fopen(file->path, "re");

    if (stream == NULL) {
        print_error(file->path, "", strerror(errno));
        return CMD_TROUBLE;
    }
    errno = 0;
    json_t *root = json_loadf(stream, JSON_REJECT_DUPLICATES, &error);
    int read_errno = ferror(stream) ? errno : 0;
    fclose(stream);
    if (read_errno != 0) { /* as of a folder */
        json_decref(root);
        print_error(file->path, "", strerror(read_errno));
        return CMD_TROUBLE;
    }
    if (root == NULL) {
        if (json_error_code(&error) == json_error_out_of_memory)
            return cmd_no_memory("simulate");
        snprintf(place, sizeof place, "line %d, column %d", error.line, error.column);
        print_error(file->path, place, error.text);
        return CMD_USAGE;
    }
    *ret_root = root;
    return CMD_FINE;
}

static const char *type_name(const json_t *value)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "an object", [JSON_ARRAY] = "an array", [JSON_STRING] = "a text",
        [JSON_INTEGER] = "a number", [JSON_REAL] = "a number",  [JSON_TRUE] = "true",
        [JSON_FALSE] = "false",      [JSON_NULL] = "null"};
    return names[json_typeof(value)];
}

int simulate_check_keys(const struct simulate_file *file, const json_t *value,
                        const char *const *keys)
{
    /* jansson's iterators take no const object, and do not change it. */
    json_t *object = (json_t *)value;

    if (!json_is_object(value))
        return simulate_fail(file, "it is %s, not an object", type_name(value));
    for (void *at = json_object_iter(object); at != NULL;
         at = json_object_iter_next(object, at)) {
        const char *key = json_object_iter_key(at);
        const char *const *known = keys;
        while (*known != NULL && strcmp(*known, key) != 0)
            known++;
        if (*known == NULL)
            return simulate_fail(file, "the key '%.64s' is not known", key);
    }
    return CMD_FINE;
}

int simulate_get_text(const struct simulate_file *file, const json_t *object, const char *key,
                      const char **ret)
{
    const json_t *value = json_object_get(object, key);
    if (value == NULL)
        return CMD_FINE;
    if (!json_is_string(value))
        return simulate_fail(file, "%s is %s, not a text", key, type_name(value));
    *ret = json_string_value(value);
    return CMD_FINE;
}

int simulate_get_number(const struct simulate_file *file, const json_t *object,
                        const struct simulate_number *rule, double *ret)
{
    const char *noun = rule->is_whole ? "a whole number" : "a number";
    const json_t *value = json_object_get(object, rule->key);
    if (value == NULL)
        return CMD_FINE;
    if (!json_is_number(value))
        return simulate_fail(file, "%s is %s, not %s", rule->key, type_name(value), noun);
    double number = json_number_value(value);
    if (!(number >= rule->least && number <= rule->most) ||
        (rule->is_whole && number != (double)(int64_t)number))
        return simulate_fail(file, "%s is %.12g: it is %s from %.16g to %.16g", rule->key,
                             number, noun, rule->least, rule->most);
    *ret = number;
    return CMD_FINE;
}
