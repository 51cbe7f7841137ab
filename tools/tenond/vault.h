/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The packets that tenond sends to its vault. Only LIST has an answer.
 */
#ifndef TENOND_VAULT_H
#define TENOND_VAULT_H

#include <stdint.h>

enum {
    VAULT_PUT = 1,  /* keep the descriptors that come along, 1 to TNI_PIECES, in place of what
                       the block had */
    VAULT_DROP = 2, /* close the block's descriptors, if they are of this generation */
    VAULT_LIST = 3, /* answer with a PUT of every entry, and END */
    VAULT_END = 4
};
#define VAULT_MAGIC UINT32_C(0x746e7601) /* the last byte is the version */
struct vault_packet {
    uint32_t magic;
    uint32_t verb;
    uint8_t domain[16]; /* the id of the domain */
    uint32_t block;
    uint32_t generation;
};

/**
 * Be the vault, as long as there are descriptors to keep.
 * @param file  the number of the file that listen_fd has a name by
 * @return 0, or an error
 */
int vault_run(int listen_fd, uint64_t file);

#endif
