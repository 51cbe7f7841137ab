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
cmd_fn cmd_ls, cmd_stat, cmd_top, cmd_blocks, cmd_tickets, cmd_gc, cmd_doctor;

/* What a verb is about. */
enum cmd_takes { CMD_TAKES_NO_DOMAIN, CMD_TAKES_A_DOMAIN, CMD_TAKES_ONE_OR_ALL };
/** What every verb takes. A verb with options of its own has it at the start of its input. */
struct cmd_arguments {
    enum cmd_takes takes;
    bool as_json;
    const char *domain; /* NULL: none, or all */
};
/** For the parser of a verb with options of its own: --json and the domain. */
error_t cmd_parse_key(int key, char *argument, struct argp_state *state);
/**
 * Parse the command line of a verb; `arguments->takes` is set.
 * @param argp  of a verb with options of its own, which has parser and options: args_doc is
 *         added; NULL: it has none
 * @return an exit code
 */
int cmd_parse(int argc, char **argv, const char *doc, const struct argp *argp,
              struct cmd_arguments *arguments);

/**
 * Say on stderr what failed, from `status` and tn_error_detail(). @return the exit code for it
 */
int cmd_fail(const char *verb, const char *subject, int status);
/** Say that private memory ran out. @return CMD_TROUBLE */
int cmd_no_memory(const char *verb);
/** Open a domain by name or id, or say why not. @return an exit code */
int cmd_open(const char *verb, const char *name, tn_inspector **ret_inspector);

enum { CMD_ID_BYTES = 33 };
void cmd_hex_id(const tn_domain_entry *info, char id[CMD_ID_BYTES]);
/** What to call a domain: its name, or its id if it has none. `id` is room for the latter. */
const char *cmd_domain_label(const tn_domain_entry *info, char id[CMD_ID_BYTES]);

/** Every domain of the user, in a list owned by the caller. */
struct cmd_domains {
    tn_domain_entry *at; /* [count] */
    size_t count;
};
/** @return 0, or a TN_ERR_* that cmd_fail() can name */
int cmd_list_domains(struct cmd_domains *ret_domains);

/* Of a finding, or of what gc did. */
enum { CMD_SENTENCE_BYTES = 4096 };

/* JSON. Numbers beyond 2^63 - 1 are cut to it. */
json_t *cmd_json_count(uint64_t number);
/** Bytes of others: where they are no UTF-8, as tni_text_clean(). */
json_t *cmd_json_text(const char *text);
/** Add to an object that the caller builds; `value` is consumed, also when it is NULL. */
void cmd_json_set(json_t *object, const char *key, json_t *value);
/** The number of a block, as every text has it. */
#define CMD_BLOCK_FORMAT "%08" PRIx32
json_t *cmd_json_block(uint32_t block);
json_t *cmd_json_domain(const tn_domain_entry *info);
json_t *cmd_json_seat(const tn_seat_entry *seat);
/** An array: the holders of a block, or the owners of an object. */
json_t *cmd_json_holders(const tn_holder *holders, uint32_t count);
json_t *cmd_json_object(const tn_object_entry *object);
/** Print and consume. @return an exit code */
int cmd_json_print(const char *verb, json_t *value);

/* The options that every verb has, and their keys. argp itself has --help and -?. */
#define CMD_HELP_OPTION                                                                        \
    {                                                                                          \
        NULL, 'h', NULL, OPTION_HIDDEN, NULL, 0                                                \
    }
#define CMD_COMMON_OPTIONS {"json", 'j', NULL, 0, "Print JSON", 0}, CMD_HELP_OPTION

#endif
