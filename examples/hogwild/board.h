/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOGWILD_BOARD_H
#define HOGWILD_BOARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <tenon/tenon.h>

/*
 * What the processes tell each other, and the account of every batch, in shared tensors.
 *
 * Each process that ever loads or trains has a line of its own, which it alone writes. A batch
 * is named by its loader's line and a sequence number. It has two counters: how often a trainer
 * popped it, and how often one acknowledged it.
 */
struct board_control {
    _Atomic int64_t is_stopping; /* loaders make no more batches */
    _Atomic int64_t rate_ppm;    /* learning rate, millionths */
};

struct board_line {
    _Alignas(64) _Atomic int64_t
        is_holding; /* has a batch: made and not pushed, or popped and not acknowledged */
    _Atomic int64_t batches; /* pushed; or acknowledged */
    _Atomic int64_t again;   /* popped with an attempt count, so after a death */
};

struct board {
    tn_tensor *control_tensor;
    tn_tensor *lines_tensor;
    tn_tensor *popped_tensor; /* uint8 [loader_lines, capacity] */
    tn_tensor *acked_tensor;  /* the same */
    struct board_control *control;
    struct board_line *loaders;  /* [loader_lines] */
    struct board_line *trainers; /* [trainer_lines] */
    int32_t loader_lines;
    int32_t trainer_lines;
    int64_t capacity; /* batches of one loader */
};

/** Make a board for so many processes over the whole run, the replaced ones included. */
void board_create(tn_domain *domain, int32_t loaders, int32_t trainers, int64_t capacity,
                  struct board *ret_board);
void board_drop(struct board *board);

/** Count a pop or an acknowledgement. @return false when there is no such batch */
bool board_count_popped(struct board *board, int64_t loader, int64_t sequence);
bool board_count_acked(struct board *board, int64_t loader, int64_t sequence);

/** Batches acknowledged so far, by all trainers. */
int64_t board_batches(const struct board *board);

/* The account of all batches, after the last worker has ended. */
struct board_account {
    int64_t pushed;
    int64_t acked; /* batches with an acknowledgement */
    int64_t lost;  /* pushed and never acknowledged */
    int64_t acked_twice;
    int64_t redelivered; /* popped once more than the first time */
};

/**
 * @param died  [loader_lines]: a loader that died may have pushed one batch more than it said
 */
void board_reclaim(const struct board *board, const bool *died,
                   struct board_account *ret_account);

#endif
