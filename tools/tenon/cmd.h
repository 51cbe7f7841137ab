/* SPDX-License-Identifier: Apache-2.0 */
/* cmd: the verbs of the command `tenon`, one file each, over the public headers only. */
#ifndef TENON_TOOL_CMD_H
#define TENON_TOOL_CMD_H

#include <argp.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <tenon/tenon.h>

/* Exit codes, for scripts; tenon(1) lists them. */
enum { CMD_FINE = 0, CMD_TROUBLE = 1, CMD_USAGE = 2, CMD_NO_DOMAIN = 3 };

/** A verb; argv[0] is "tenon VERB". @return an exit code */
typedef int cmd_fn(int argc, char **argv);
cmd_fn cmd_ls, cmd_stat, cmd_top, cmd_blocks, cmd_tickets, cmd_gc, cmd_doctor, cmd_simulate,
    cmd_load, cmd_unload;

/* What a verb takes as its argument: a domain, or something that the verb parses itself. */
enum cmd_takes {
    CMD_TAKES_NO_DOMAIN,
    CMD_TAKES_A_DOMAIN,
    CMD_TAKES_ONE_OR_ALL,
    CMD_TAKES_A_GRAPH,
    CMD_TAKES_FILES,
    CMD_TAKES_A_NAME
};
/**
 * The arguments that every verb takes. A verb with more options has a struct that begins with
 * this one.
 */
struct cmd_arguments {
    enum cmd_takes takes;
    bool as_json;
    const char *domain; /* NULL: none was given */
};
/** Parse CMD_HELP_OPTIONS. @return ARGP_ERR_UNKNOWN: the key is another one */
error_t cmd_parse_help_key(int key, struct argp_state *state);
/** The help filter of the command and of every verb. */
char *cmd_filter_help(int key, const char *text, void *input);
/**
 * Parse CMD_COMMON_OPTIONS and the domain; a verb with more options calls it for all other
 * keys.
 */
error_t cmd_parse_key(int key, char *argument, struct argp_state *state);
/**
 * Parse the command line of a verb. pre: `arguments->takes` is set
 * @param argp  parser and options of a verb that has more options than --json; or NULL
 * @return an exit code
 */
int cmd_parse(int argc, char **argv, const char *doc, const struct argp *argp,
              struct cmd_arguments *arguments);

/**
 * Print to standard error what failed, from `status` and tn_error_detail(). @return the exit
 * code for that status
 */
int cmd_fail(const char *verb, const char *subject, int status);
/** Print to standard error that private memory ran out. @return CMD_TROUBLE */
int cmd_no_memory(const char *verb);
/** Open a domain by name or id; if that takes long, standard error says why. */
int cmd_inspect(const char *name, tn_inspector **ret_inspector);
/** The same, and print why it failed. @return an exit code */
int cmd_open(const char *verb, const char *name, tn_inspector **ret_inspector);

enum { CMD_ID_BYTES = 33 };
void cmd_hex_id(const tn_domain_entry *info, char id[CMD_ID_BYTES]);
/** @return the name of a domain, or, if it has none, its id, which is written to `id` */
const char *cmd_domain_label(const tn_domain_entry *info, char id[CMD_ID_BYTES]);

/** Every domain of the user, in a list owned by the caller. */
struct cmd_domains {
    tn_domain_entry *at; /* [count] */
    size_t count;
};
/** @return 0, or a TN_ERR_* that cmd_fail() can name */
int cmd_list_domains(struct cmd_domains *ret_domains);

/* Room for a sentence of doctor or gc. */
enum { CMD_SENTENCE_BYTES = 4096 };

/* JSON. A number above 2^63 - 1 becomes 2^63 - 1. */
json_t *cmd_json_count(uint64_t number);
/** A text that may not be UTF-8, such as a path: tni_text_clean() replaces such bytes. */
json_t *cmd_json_text(const char *text);
/** Add a key to an object. `value` is consumed; NULL is accepted. */
void cmd_json_set(json_t *object, const char *key, json_t *value);
/** The number of a block, as error sentences and logs print it. */
#define CMD_BLOCK_FORMAT "%08" PRIx32
json_t *cmd_json_block(uint32_t block);
json_t *cmd_json_domain(const tn_domain_entry *info);
json_t *cmd_json_seat(const tn_seat_entry *seat);
/** An array: the holders of a block, or the owners of an object. */
json_t *cmd_json_holders(const tn_holder *holders, uint32_t count);
json_t *cmd_json_object(const tn_object_entry *object);
/** Print a value, which is consumed. @return an exit code */
int cmd_json_print(const char *verb, json_t *value);

/*
 * The options of the command and of every verb, and of every verb. They are not argp's own,
 * which have no -h: pass ARGP_NO_HELP to argp_parse().
 */
enum { CMD_KEY_USAGE = 256 };
#define CMD_HELP_OPTIONS                                                                       \
    {"help", 'h', NULL, 0, "Print this help", -1}, {NULL, '?', NULL, OPTION_ALIAS, NULL, 0},   \
        {"usage", CMD_KEY_USAGE, NULL, 0, "Print the options in short", -1},                   \
    {                                                                                          \
        "version", 'V', NULL, 0, "Print the version", -1                                       \
    }
#define CMD_COMMON_OPTIONS {"json", 'j', NULL, 0, "Print JSON", 0}, CMD_HELP_OPTIONS

#endif
