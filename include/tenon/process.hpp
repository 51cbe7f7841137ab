/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENON_PROCESS_HPP
#define TENON_PROCESS_HPP

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tenon/error.hpp>
#include <tenon/process.h>

namespace tenon
{

namespace detail
{
/** Runs in the child. An exception must not leave a function that C calls. */
template <class Run> int run_in_child(tn_domain *, void *argument)
{
    Run &run = *static_cast<Run *>(argument);
    try {
        if constexpr (std::is_void_v<std::invoke_result_t<Run &>>)
            return run(), 0;
        else
            return run();
    } catch (const std::exception &caught) {
        tn_process_fail(caught.what());
    } catch (...) {
        tn_process_fail("the function threw something that is no std::exception");
    }
}
} // namespace detail

/** A child process; the destructor kills it if it still runs, unless it is detached. */
class process
{
  public:
    /**
     * Start a function in a forked child. It returns nothing, or the exit code; what() of an
     * exception that it throws arrives in wait(). The child has a copy of what `run` refers to.
     */
    template <class Run> static process fork(tn_domain *domain, Run &&run, uint32_t flags = 0)
    {
        using given = std::remove_reference_t<Run>;
        /* A pointer to a function, or a reference to an object. */
        std::conditional_t<std::is_function_v<given>, given *, given &> held = run;
        tn_process *started;
        check(tn_process_fork(
            domain, detail::run_in_child<std::remove_reference_t<decltype(held)>>,
            const_cast<void *>(static_cast<const void *>(std::addressof(held))), flags,
            &started));
        return process(started);
    }

    /** Start a program, which joins by domain::inherit(); arguments[0] is looked up in PATH. */
    static process exec(tn_domain *domain, const std::vector<std::string> &arguments,
                        uint32_t flags = 0)
    {
        std::vector<const char *> argv;
        for (const std::string &argument : arguments)
            argv.push_back(argument.c_str());
        argv.push_back(nullptr);
        tn_process *started;
        check(tn_process_exec(domain, argv.data(), nullptr, flags, &started));
        return process(started);
    }

    /** Take over a process of the C API. */
    explicit process(tn_process *taken) noexcept : process_(taken) {}

    operator tn_process *() const &noexcept { return process_.get(); }
    operator tn_process *() const && = delete; /* the child would end before it is used */

    int32_t pid() const noexcept { return tn_process_pid(*this); }

    /** Wait for the end of the child. @return nothing: it still runs at the deadline */
    std::optional<tn_process_status> wait(tn_deadline deadline = forever)
    {
        tn_process_status status = {};
        status.struct_size = sizeof status;
        if (!check_in_time(tn_process_wait(*this, deadline, &status)))
            return std::nullopt;
        return status;
    }

    void kill(int signal) { check(tn_process_kill(*this, signal)); }

  private:
    detail::owner<tn_process, tn_process_close> process_;
};

} // namespace tenon

#endif
