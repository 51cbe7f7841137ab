/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TNT_TAP_HPP
#define TNT_TAP_HPP

/* Tests in C++: each runs in a child process with a time limit, and TAP says how it ended. */
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

namespace tap
{

enum { LIMIT_S = 60 };

struct test {
    const char *name;
    void (*run)();
};

inline std::vector<test> &all()
{
    static std::vector<test> tests;
    return tests;
}

struct registration {
    registration(const char *name, void (*run)()) { all().push_back({name, run}); }
};

inline void expect(bool is_true, const char *what, int line)
{
    if (!is_true)
        throw std::logic_error("line " + std::to_string(line) + ": " + what);
}

inline int run_one(const test &test)
{
    try {
        test.run();
        return 0;
    } catch (const std::exception &caught) {
        std::printf("# %s\n", caught.what());
    }
    return 1;
}

inline int run_all()
{
    int failed = 0, number = 0;
    std::printf("1..%zu\n", all().size());
    for (const test &test : all()) {
        std::fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
            alarm(LIMIT_S);
            int code = run_one(test);
            std::fflush(stdout);
            _exit(code);
        }
        int status = -1;
        waitpid(pid, &status, 0);
        if (status != 0)
            failed++;
        if (WIFSIGNALED(status))
            std::printf("# signal %d\n", WTERMSIG(status));
        std::printf("%sok %d - %s\n", status == 0 ? "" : "not ", ++number, test.name);
    }
    return failed == 0 ? 0 : 1;
}

} // namespace tap

#define TEST(name)                                                                             \
    static void name();                                                                        \
    static const tap::registration name##_registration(#name, name);                           \
    static void name()
#define EXPECT(condition) tap::expect((condition), #condition, __LINE__)
#define EXPECT_STATUS(expected, expression)                                                    \
    do {                                                                                       \
        int status_of_expression = 0;                                                          \
        try {                                                                                  \
            (void)(expression);                                                                \
        } catch (const tenon::error &caught_error) {                                           \
            status_of_expression = caught_error.status();                                      \
        }                                                                                      \
        tap::expect(status_of_expression == (expected), #expression ": " #expected, __LINE__); \
    } while (0)

#endif
