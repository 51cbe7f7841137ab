/* SPDX-License-Identifier: Apache-2.0 */
/* names: file names of FILE_SYSTEM storages. Private to the room backing. */
#ifndef TNI_BACKING_NAMES_H
#define TNI_BACKING_NAMES_H

#include "backing/backing.h"

#define TNI_FILE_NAME_PREFIX "tenon-"

struct tni_file_name {
    uint32_t uid;
    uint64_t space, domain, number;
};

/** The part of a domain's id that is in the names of its files. */
uint64_t tni_file_name_domain(const uint8_t id[16]);
/** Parse a file name, without its folder. False: tni_files_name() did not write it. */
bool tni_file_name_parse(const char *text, struct tni_file_name *ret_name);
/** Check the folder for named memory. TN_ERR_INVALID: it is not an absolute path. */
int tni_files_check_folder(void);

#endif
