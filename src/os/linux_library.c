/* SPDX-License-Identifier: Apache-2.0 */
/* Libraries that are loaded at run time, by the dynamic loader. */
#include <dlfcn.h>

#include "os/linux.h"

int tni_os_library_open(const char *path, void **ret_library)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *why = dlerror(); /* it names the file */
        return tni_fail(TN_ERR_UNSUPPORTED, "%s", why != NULL ? why : path);
    }
    *ret_library = library;
    return 0;
}

void *tni_os_library_symbol(void *library, const char *name) { return dlsym(library, name); }
