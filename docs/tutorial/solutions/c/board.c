/* SPDX-License-Identifier: Apache-2.0 */
/* The third exercise: counts in shared memory that survive a process which dies while it
 * changes them. board keep | add DIGIT TIMES | break DIGIT | stop */
#include "tutorial.h"

#include <signal.h>
#include <string.h>

enum { TOTAL = 10, COUNTS = 11 }; /* ten counts, and their sum */

static const char *const path = "board.handle";

static tn_tensor *make_board(tn_domain *domain)
{
    static char handle[TN_HANDLE_MAX_BYTES];
    size_t size;
    tn_tensor *board;
    must(tn_tensor_create(domain, TN_INT64, 1, (int64_t[]){COUNTS},
                          TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED), &board));
    must(tn_handle_export(board, TN_OPTIONS(tn_handle_options, .uses = 1000), handle,
                          sizeof handle, &size));
    FILE *file = fopen(path, "w");
    if (file == NULL || fwrite(handle, size, 1, file) != 1 || fclose(file) != 0) {
        perror(path);
        exit(1);
    }
    return board;
}

static tn_tensor *load_board(tn_domain *domain)
{
    static char handle[TN_HANDLE_MAX_BYTES];
    tn_tensor *board;
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        perror(path);
        exit(1);
    }
    size_t size = fread(handle, 1, sizeof handle, file);
    fclose(file);
    must(tn_handle_import(domain, handle, size, &board));
    return board;
}

/* Take the lock, and mend the board if its last owner died on the way. */
static void enter(tn_lock *lock, int64_t *count)
{
    if (must(tn_lock_acquire(lock, TN_FOREVER)) == TN_LOCK_RECOVERED) {
        count[TOTAL] = 0;
        for (int digit = 0; digit < 10; digit++)
            count[TOTAL] += count[digit];
        printf("process %d died with the lock: the total is mended\n", tn_error_peer().pid);
    }
}

int main(int argc, char **argv)
{
    const char *verb = argc > 1 ? argv[1] : "";
    int digit = argc > 2 ? atoi(argv[2]) % 10 : 0, times = argc > 3 ? atoi(argv[3]) : 1;
    tn_domain *domain;
    tn_lock *lock;
    tn_event *stop;
    must(tn_domain_open("line", NULL, 0, &domain));
    must(tn_lock_open(domain, "board", 0, &lock));
    must(tn_event_open(domain, "stop", 0, &stop));
    if (strcmp(verb, "stop") == 0) {
        must(tn_event_set(stop));
        goto end;
    }
    tn_tensor *board = strcmp(verb, "keep") == 0 ? make_board(domain) : load_board(domain);
    int64_t *count = tn_tensor_data(board);
    if (strcmp(verb, "keep") == 0) {
        printf("the board is there\n");
        fflush(stdout);
        while (!tn_event_is_set(stop)) {
            int status = tn_event_wait(stop, TN_FOREVER);
            if (status != TN_ERR_PEER_DIED) /* the board outlives those who use it */
                must(status);
        }
        enter(lock, count);
        for (int i = 0; i < 10; i++)
            printf("%d ", (int)count[i]);
        printf("total %d\n", (int)count[TOTAL]);
        must(tn_lock_release(lock));
    }
    for (int i = 0; strcmp(verb, "add") == 0 && i < times; i++) {
        enter(lock, count);
        count[TOTAL]++;
        count[digit]++;
        must(tn_lock_release(lock));
    }
    if (strcmp(verb, "break") == 0) {
        enter(lock, count);
        count[TOTAL]++;
        raise(SIGKILL); /* between the two */
    }
    tn_tensor_unref(board);
end:
    tn_object_close(stop);
    tn_object_close(lock);
    tn_domain_close(domain);
    return 0;
}
