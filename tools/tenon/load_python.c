/* SPDX-License-Identifier: Apache-2.0 */
/* load_python: files of NumPy and PyTorch, which the Python package reads for `tenon load`. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "load.h"

/* Python looks for the package where programs do, but not in the working folder. */
static const char program[] = "import sys\n"
                              "sys.path[:1] = filter(None, sys.path[:1])\n"
                              "try:\n"
                              "    from tenon._load_command import main\n"
                              "except ImportError as error:\n"
                              "    sys.exit('tenon load: files of NumPy and PyTorch are read "
                              "by the Python package tenon, '\n"
                              "             f'which {sys.executable} lacks ({error}): "
                              "TENON_PYTHON names another Python')\n"
                              "sys.exit(main(sys.argv[1:]))\n";

bool load_python_reads(const char *path)
{
    static const char *const endings[] = {".npz", ".pt", ".pth"};
    size_t length = strlen(path);
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        size_t bytes = strlen(endings[i]);
        if (length > bytes && strcasecmp(path + length - bytes, endings[i]) == 0)
            return true;
    }
    return false;
}

int load_python_run(const struct load_python *load)
{
    const char *python = getenv("TENON_PYTHON");
    char seconds[32] = "";
    if (python == NULL || python[0] == '\0')
        python = "python3";
    if (load->lifetime_ns != 0)
        snprintf(seconds, sizeof seconds, "%" PRIu64, load->lifetime_ns / 1000000000);
    const char *const arguments[] = {python,     "-c",    program,    load->domain, load->name,
                                     load->path, seconds, load->form, NULL};
    execvp(python, (char *const *)(uintptr_t)arguments);
    fprintf(stderr, "tenon load: %s: %s reads such a file, and cannot be run: %s\n", load->path,
            python, strerror(errno));
    return CMD_TROUBLE;
}
