/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wire between tenond and its vault: packets that need no answer, but for LIST.
 */
#ifndef TENOND_VAULT_H
#define TENOND_VAULT_H

#include <stdint.h>

enum {
    VAULT_PUT = 1,  /* with a descriptor; takes the place of what the block had */
    VAULT_DROP = 2, /* if it is of this generation */
    VAULT_LIST = 3, /* answered by a PUT of every entry, and END */
    VAULT_END = 4
};
#define VAULT_MAGIC UINT32_C(0x746e7601) /* the last byte is the version */
struct vault_packet {
    uint32_t magic;
    uint32_t verb;
    uint8_t domain[16]; /* its id */
    uint32_t block;
    uint32_t generation;
};

/** Be the vault, until there is nothing to keep for anybody. @return 0 or an error */
int vault_run(int listen_fd);

#endif
