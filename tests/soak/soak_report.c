/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a run prints: progress, figures, and the first discrepancy with all that is known of
 * it.
 */
#include "soak.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TREE = 512 };

static unsigned long long figure(enum soak_figure number)
{
    return atomic_load(&soak->figures[number]);
}

void soak_report_progress(double seconds)
{
    fprintf(stderr,
            "soak: %.0f s, %llu kills, %llu pushed, %llu popped, %llu jobs, %llu locks, %llu "
            "tickets, %llu audits\n",
            seconds, figure(SOAK_N_KILLS), figure(SOAK_N_PUSHED), figure(SOAK_N_POPPED),
            figure(SOAK_N_JOBS), figure(SOAK_N_LOCKS), figure(SOAK_N_EXPORTED),
            figure(SOAK_N_AUDITS));
}

void soak_report_figures(double minutes)
{
    printf("# seed %#llx, %.1f minutes, %.0f kills a second\n", (unsigned long long)soak->seed,
           minutes, (double)figure(SOAK_N_KILLS) / (minutes * 60));
    for (int i = 0; i < SOAK_FIGURE_COUNT; i++)
        printf("# %12llu  %s\n", figure((enum soak_figure)i), soak_figure_names[i]);
    printf("# killed, by role:");
    for (int i = 0; i < SOAK_ROLE_COUNT; i++)
        printf(" %s %llu%s", soak_role_names[i], (unsigned long long)soak->kills[i],
               i + 1 < SOAK_ROLE_COUNT ? "," : "\n");
    printf("# killed while:");
    for (int i = 0; i < SOAK_DEED_COUNT; i++)
        printf(" %s %llu%s", soak_deed_names[i], (unsigned long long)soak->kills_at[i],
               i + 1 < SOAK_DEED_COUNT ? "," : "\n");
    fflush(stdout);
}

/* By posix_spawn(), as system() does it, so that no member is forked. */
void soak_report_stack(pid_t pid)
{
    char command[256];
    snprintf(command, sizeof command,
             "gdb -p %d -batch -ex 'thread apply all bt' 1>&2 2>/dev/null || "
             "cat /proc/%d/stack /proc/%d/wchan 1>&2",
             (int)pid, (int)pid, (int)pid);
    fprintf(stderr, "soak: the stack of process %d:\n", (int)pid);
    if (system(command) != 0)
        fprintf(stderr, "soak: it cannot be had\n");
}

void soak_report_descriptors(pid_t pid)
{
    char command[64];
    snprintf(command, sizeof command, "ls -l /proc/%d/fd 1>&2", (int)pid);
    fprintf(stderr, "soak: the descriptors of process %d:\n", (int)pid);
    if (pid == 0 || system(command) != 0)
        fprintf(stderr, "soak: they cannot be had\n");
}

static void print_slots(void)
{
    for (int i = 0; i < SOAK_SLOTS; i++) {
        struct soak_slot *slot = &soak->slots[i];
        pid_t pid = atomic_load(&slot->pid);
        if (pid != 0)
            fprintf(stderr,
                    "soak: slot %d: %s %d, life %u, %s (queue %u, %u), for %.3f s, %c\n", i,
                    soak_role_names[atomic_load(&slot->role)], (int)pid,
                    atomic_load(&slot->life), soak_deed_names[atomic_load(&slot->deed)],
                    atomic_load(&slot->queue), atomic_load(&slot->count),
                    (double)(soak_now_ns() - atomic_load(&slot->since_ns)) / 1e9,
                    soak_process_state(pid));
    }
}

static int print_sentence(const char *sentence, bool repaired, void *context)
{
    (void)repaired, (void)context;
    fprintf(stderr, "soak: audit: %s\n", sentence);
    return 0;
}

static void end_tree(void)
{
    pid_t tree[TREE];
    for (uint32_t count; (count = soak_list_tree(getpid(), tree, TREE)) > 0;) {
        for (uint32_t i = 0; i < count; i++)
            kill(tree[i], SIGKILL);
        waitpid(-1, NULL, 0);
    }
}

/* Only once: what is found while this runs adds nothing. */
void soak_report_failure(void)
{
    static bool is_reporting;
    if (is_reporting)
        _exit(1);
    is_reporting = true;
    fprintf(stderr, "soak: DISCREPANCY (%s), seed %#llx, round %u\nsoak: %s\n",
            soak_promise_names[atomic_load(&soak->promise)], (unsigned long long)soak->seed,
            atomic_load(&soak->round), soak->text);
    print_slots();
    if (soak->failed_pid != getpid())
        soak_report_stack(soak->failed_pid);
    if (me.domain != NULL && tn_domain_audit(me.domain, false, print_sentence, NULL, NULL) < 0)
        fprintf(stderr, "soak: no audit: %s\n", tn_error_detail());
    if (getenv("SOAK_KEEP") != NULL) {
        fprintf(stderr, "soak: kept as it is, pid %d\n", (int)getpid());
        for (;;)
            pause();
    }
    end_tree();
    soak_finish(false);
}
