/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of tenon/version.h. */
#include "must.h"

int main(void)
{
    /* show: tn_version */
    printf("compiled with %d.%d.%d, runs with %s\n", TN_VERSION_MAJOR, TN_VERSION_MINOR,
           TN_VERSION_PATCH, tn_version());
    /* end */
    return 0;
}
