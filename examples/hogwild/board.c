/* SPDX-License-Identifier: Apache-2.0 */
#include "board.h"
#include "failure.h"

static tn_tensor *zeros(tn_domain *domain, tn_dtype dtype, int64_t rows, int64_t columns)
{
    tn_tensor *tensor = NULL;
    must(tn_tensor_create(domain, dtype, 2, (int64_t[]){rows, columns},
                          TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED), &tensor),
         "no room for the board");
    return tensor;
}

void board_create(tn_domain *domain, int32_t loaders, int32_t trainers, int64_t capacity,
                  struct board *ret_board)
{
    struct board board = {
        .loader_lines = loaders, .trainer_lines = trainers, .capacity = capacity};
    int64_t line = sizeof(struct board_line) / sizeof(int64_t);
    board.control_tensor =
        zeros(domain, TN_INT64, 1, sizeof(struct board_control) / sizeof(int64_t));
    board.lines_tensor = zeros(domain, TN_INT64, loaders + trainers, line);
    board.popped_tensor = zeros(domain, TN_UINT8, loaders, capacity);
    board.acked_tensor = zeros(domain, TN_UINT8, loaders, capacity);
    board.control = tn_tensor_data(board.control_tensor);
    board.loaders = tn_tensor_data(board.lines_tensor);
    board.trainers = board.loaders + loaders;
    *ret_board = board;
}

void board_drop(struct board *board)
{
    tn_tensor_unref(board->control_tensor);
    tn_tensor_unref(board->lines_tensor);
    tn_tensor_unref(board->popped_tensor);
    tn_tensor_unref(board->acked_tensor);
    *board = (struct board){0};
}

static _Atomic uint8_t *counter(const struct board *board, const tn_tensor *tensor,
                                int64_t loader, int64_t sequence)
{
    _Atomic uint8_t *counters = tn_tensor_data(tensor);
    return counters + loader * board->capacity + sequence;
}

static bool count(struct board *board, tn_tensor *tensor, int64_t loader, int64_t sequence)
{
    if (loader < 0 || loader >= board->loader_lines || sequence < 0 ||
        sequence >= board->capacity)
        return false;
    atomic_fetch_add(counter(board, tensor, loader, sequence), 1);
    return true;
}

bool board_count_popped(struct board *board, int64_t loader, int64_t sequence)
{
    return count(board, board->popped_tensor, loader, sequence);
}

bool board_count_acked(struct board *board, int64_t loader, int64_t sequence)
{
    return count(board, board->acked_tensor, loader, sequence);
}

int64_t board_batches(const struct board *board)
{
    int64_t batches = 0;
    for (int32_t line = 0; line < board->trainer_lines; ++line)
        batches += atomic_load(&board->trainers[line].batches);
    return batches;
}

static void reclaim_loader(const struct board *board, int32_t loader, int64_t said, bool died,
                           struct board_account *account)
{
    for (int64_t sequence = 0; sequence < board->capacity; ++sequence) {
        int popped = *counter(board, board->popped_tensor, loader, sequence);
        int acked = *counter(board, board->acked_tensor, loader, sequence);
        bool is_pushed = sequence < said || (died && sequence == said && popped > 0);
        account->pushed += is_pushed;
        account->acked += acked > 0;
        account->lost += is_pushed && acked == 0;
        account->acked_twice += acked > 1;
        account->redelivered += popped > 1 ? popped - 1 : 0;
    }
}

void board_reclaim(const struct board *board, const bool *died,
                   struct board_account *ret_account)
{
    struct board_account account = {0};
    for (int32_t loader = 0; loader < board->loader_lines; ++loader)
        reclaim_loader(board, loader, atomic_load(&board->loaders[loader].batches),
                       died[loader], &account);
    *ret_account = account;
}
