/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENON_ERROR_HPP
#define TENON_ERROR_HPP

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>

#include <tenon/deadline.h>
#include <tenon/status.h>

namespace tenon
{

/**
 * What a function throws when the C function behind it returns a negative TN_ERR_*. what()
 * is the name of the status and tn_error_detail(), as in "TN_ERR_NOT_FOUND: no domain is named
 * 'frames'".
 */
class error : public std::runtime_error
{
  public:
    /** The error of this thread's last failed call. */
    explicit error(int status)
        : error(status, *tn_error_detail() ? tn_error_detail() : tn_status_sentence(status))
    {
    }

    /** An error that this header finds before it calls the library. */
    error(int status, const std::string &detail)
        : std::runtime_error(tn_status_name(status) + (": " + detail)), status_(status),
          peer_(tn_error_peer())
    {
    }

    /** TN_ERR_*. */
    int status() const noexcept { return status_; }

    /** The process that died, if the status is TN_ERR_PEER_DIED. */
    tn_peer peer() const noexcept { return peer_; }

  private:
    int status_;
    tn_peer peer_;
};

/** TN_ERR_TIMED_OUT, from functions whose result has no place for it. */
class timed_out : public error
{
  public:
    using error::error;
};

/** TN_ERR_CLOSED: the queue or the pool was ended. */
class closed : public error
{
  public:
    using error::error;
};

/** TN_ERR_PEER_DIED: the process peer() on the other side died, and no other is left there. */
class peer_died : public error
{
  public:
    using error::error;
};

/** Throw the error of `status` if it is negative, else return it. */
inline int check(int status)
{
    switch (status) {
    case TN_ERR_TIMED_OUT:
        throw timed_out(status);
    case TN_ERR_CLOSED:
        throw closed(status);
    case TN_ERR_PEER_DIED:
        throw peer_died(status);
    default:
        return status < 0 ? throw error(status) : status;
    }
}

/** The same of a call with a deadline. @return false if the deadline passed */
inline bool check_in_time(int status)
{
    return status != TN_ERR_TIMED_OUT && (check(status), true);
}

inline constexpr tn_deadline now = {0};
inline constexpr tn_deadline forever = {UINT64_MAX};

/** The deadline that lies `duration` from now; `now` for a duration that is not positive. */
template <class Rep, class Period>
tn_deadline after(std::chrono::duration<Rep, Period> duration)
{
    if (duration <= duration.zero())
        return now;
    constexpr std::chrono::duration<double, std::nano> most(1e18); /* 31 years */
    if (duration >= most)
        return forever;
    return tn_deadline_after(static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count()));
}

namespace detail
{
template <class T, T *(*End)(T *)> struct ender {
    void operator()(T *object) const noexcept { End(object); }
};

/** Owns an object of the C API, and ends it by the function that the C API has for that. */
template <class T, T *(*End)(T *)> using owner = std::unique_ptr<T, ender<T, End>>;
} // namespace detail

} // namespace tenon

#endif
