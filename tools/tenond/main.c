/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tenond: the manager of this user's domains. The library starts it when a domain is made, and
 * it ends by itself when it has nothing to do. It may be killed at any time, because the
 * domains and the vault have all that it knows.
 */
#include <argp.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tenond.h"
#include "vault.h"

#define STRING_OF(x) #x
#define STRING(x)    STRING_OF(x)

static const char version[] = "tenond " STRING(TN_VERSION_MAJOR) "." STRING(
    TN_VERSION_MINOR) "." STRING(TN_VERSION_PATCH);

enum { LOCK_NS = 50 * 1000 * 1000, OPTION_VAULT = 256, OPTION_USAGE = 257 };

struct options {
    bool is_foreground;
    bool is_verbose;
    bool is_vault;
    uint64_t vault_file; /* the number of the vault's socket */
};

static const struct argp_option option_table[] = {
    {"foreground", 'f', NULL, 0, "Log to standard error, up to the level info", 0},
    {"verbose", 'v', NULL, 0, "Log to standard error, up to the level debug", 0},
    {"help", 'h', NULL, 0, "Print this help", -1},
    {NULL, '?', NULL, OPTION_ALIAS, NULL, 0},
    {"usage", OPTION_USAGE, NULL, 0, "Print the options in short", -1},
    {"version", 'V', NULL, 0, "Print the version", -1},
    /* tenond starts its vault with it */
    {"vault", OPTION_VAULT, "NUMBER", OPTION_HIDDEN, NULL, 0},
    {0},
};

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
    struct options *options = state->input;
    switch (key) {
    case 'f':
        options->is_foreground = true;
        return 0;
    case 'v':
        options->is_foreground = options->is_verbose = true;
        return 0;
    case 'h':
    case '?':
        argp_state_help(state, stdout, ARGP_HELP_STD_HELP);
        return 0;
    case OPTION_VAULT:
        options->is_vault = true;
        options->vault_file = strtoull(argument, NULL, 10);
        return 0;
    case OPTION_USAGE:
        argp_state_help(state, stdout, ARGP_HELP_USAGE | ARGP_HELP_EXIT_OK);
        return 0;
    case 'V':
        puts(version);
        exit(0);
    case ARGP_KEY_ARG:
        argp_error(state, "'%s' is one argument too many", argument);
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp parser = {
    .options = option_table,
    .parser = parse_option,
    .doc =
        "Manage the tenon domains of this user: reclaim dead processes at once, give out the "
        "names of domains, keep descriptors.\v"
        "The library starts a tenond when a domain is made. There is one for each runtime "
        "folder ($TENON_RUNTIME_DIR, else the first that can be used of "
        "$XDG_RUNTIME_DIR/tenon, /run/user/UID/tenon, /tmp/tenon-UID); another one exits at "
        "once. tenond ends two seconds after its last domain.",
};

static int stop_pipe[2] = {-1, -1};

static void on_stop(int number)
{
    (void)number;
    ssize_t written = write(stop_pipe[1], "", 1);
    (void)written;
}

static int catch_signals(void)
{
    struct sigaction stop = {.sa_handler = on_stop, .sa_flags = SA_RESTART};
    int status = tni_os_pipe(stop_pipe);
    if (status != 0)
        return status;
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGINT, &stop, NULL);
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    return 0;
}

static int fail(const char *what)
{
    tni_log(TNI_LOG_ERROR, "%s: %s", what, tn_error_detail());
    fprintf(stderr, "tenond: %s: %s\n", what, tn_error_detail());
    return 1;
}

/* tenond started the vault with its socket as standard input. */
static int run_vault(uint64_t file)
{
    int listen_fd;
    if (tni_os_duplicate(STDIN_FILENO, &listen_fd) != 0)
        return fail("no vault");
    dup2(STDOUT_FILENO, STDIN_FILENO); /* /dev/null */
    return vault_run(listen_fd, file) != 0 ? fail("no vault") : 0;
}

int main(int argc, char **argv)
{
    struct options options = {0};
    int lock_fd;

    argp_parse(&parser, argc, argv, ARGP_NO_HELP, NULL, &options);
    /* A process that was started as /proc/self/exe would have the name exe. */
    const char *name = options.is_vault ? "tenond-vault" : "tenond";
    pthread_setname_np(pthread_self(), name);
    tni_os_log_name(name);
    if (options.is_foreground)
        tni_os_log_to_stderr(options.is_verbose ? TNI_LOG_DEBUG : TNI_LOG_INFO);
    if (options.is_vault)
        return run_vault(options.vault_file);
    if (tni_os_runtime_prepare() != 0)
        return fail("no runtime folder");
    /* Wait a moment: another tenond may be about to end. */
    int status = tni_os_file_lock(TNI_MANAGER_LOCK, tni_os_now_ns() + LOCK_NS, &lock_fd);
    if (status == TN_ERR_TIMED_OUT) {
        tni_log(TNI_LOG_INFO, "another tenond has the lock of %s: this one ends",
                tni_os_runtime_folder());
        return 0;
    }
    if (status != 0)
        return fail("no lock");
    TNI_KILL_POINT("tenond_locked");
    tni_log(TNI_LOG_INFO, "%s started in %s", version, tni_os_runtime_folder());
    status = catch_signals();
    if (status == 0)
        status = tenond_run(stop_pipe[0], &lock_fd);
    if (status != 0)
        fail("cannot run");
    tni_log(TNI_LOG_INFO, "tenond ends");
    /* Before the lock is released, because then another tenond may lock a file of this name. */
    if (tni_os_file_is(TNI_MANAGER_LOCK, lock_fd))
        tni_os_file_remove(TNI_MANAGER_LOCK);
    tni_os_close(lock_fd);
    return status != 0;
}
