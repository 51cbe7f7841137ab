/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENON_SYNC_HPP
#define TENON_SYNC_HPP

#include <tenon/object.hpp>
#include <tenon/sync.h>

namespace tenon
{

/*
 * Functions with a deadline return false when it passed. Each class opens the object of that
 * name, and makes it if there is none; flags are TN_OPEN_* and those of the kind.
 */

class event : public object
{
  public:
    explicit event(tn_domain *domain, const char *name = nullptr, uint32_t flags = 0)
        : object(open_by(tn_event_open, domain, name, flags))
    {
    }
    static event from_id(tn_domain *domain, uint64_t id) { return event(by_id{}, domain, id); }
    void set() { check(tn_event_set(*this)); }
    void clear() { check(tn_event_clear(*this)); }
    bool is_set() const { return tn_event_is_set(*this); }
    bool wait(tn_deadline deadline = forever)
    {
        return check_in_time(tn_event_wait(*this, deadline));
    }

  private:
    event(by_id, tn_domain *domain, uint64_t id) : object(open_id(domain, TN_OBJECT_EVENT, id))
    {
    }
};

class semaphore : public object
{
  public:
    semaphore(tn_domain *domain, uint32_t permits, const char *name = nullptr,
              uint32_t flags = 0)
        : object(open_by(tn_semaphore_open, domain, name, permits, flags))
    {
    }
    static semaphore from_id(tn_domain *domain, uint64_t id)
    {
        return semaphore(by_id{}, domain, id);
    }
    bool acquire(tn_deadline deadline = forever)
    {
        return check_in_time(tn_semaphore_acquire(*this, deadline));
    }
    void release() { check(tn_semaphore_release(*this)); }
    /** Permits that are free now. */
    uint32_t count() const { return tn_semaphore_count(*this); }

  private:
    semaphore(by_id, tn_domain *domain, uint64_t id)
        : object(open_id(domain, TN_OBJECT_SEMAPHORE, id))
    {
    }
};

/**
 * A lock that one thread of one process owns. std::lock_guard and std::unique_lock take it.
 * was_recovered() and dead_owner() tell a thread that holds the lock how its last owner ended.
 */
class mutex : public object
{
  public:
    explicit mutex(tn_domain *domain, const char *name = nullptr, uint32_t flags = 0)
        : object(open_by(tn_lock_open, domain, name, flags))
    {
    }
    static mutex from_id(tn_domain *domain, uint64_t id) { return mutex(by_id{}, domain, id); }
    bool acquire(tn_deadline deadline = forever)
    {
        int status = tn_lock_acquire(*this, deadline);
        if (!check_in_time(status))
            return false;
        note(status);
        return true;
    }
    void lock() { acquire(forever); }
    bool try_lock() { return acquire(now); }
    /** Release the lock; throws if this thread does not hold it. */
    void release() { check(tn_lock_release(*this)); }
    /** The same for std::lock_guard, whose destructor must not throw: it reports nothing. */
    void unlock() noexcept { (void)!tn_lock_release(*this); }

    /**
     * Of the thread that holds the lock: whether the owner before it died while it held the
     * lock, so that what the lock protects may be half changed.
     */
    bool was_recovered() const noexcept { return was_recovered_; }

    /** The owner that died while it held the lock, if was_recovered(). */
    tn_peer dead_owner() const noexcept { return dead_owner_; }

  private:
    mutex(by_id, tn_domain *domain, uint64_t id) : object(open_id(domain, TN_OBJECT_LOCK, id))
    {
    }
    friend class condition;
    void note(int status) noexcept
    {
        was_recovered_ = status == TN_LOCK_RECOVERED;
        if (was_recovered_)
            dead_owner_ = tn_error_peer();
    }
    /* Only the thread that holds the lock writes and reads these. */
    bool was_recovered_ = false;
    tn_peer dead_owner_ = {};
};

class condition : public object
{
  public:
    explicit condition(tn_domain *domain, const char *name = nullptr, uint32_t flags = 0)
        : object(open_by(tn_condition_open, domain, name, flags))
    {
    }
    static condition from_id(tn_domain *domain, uint64_t id)
    {
        return condition(by_id{}, domain, id);
    }
    /** Wait once; it may return early. The caller holds `mutex`, before and after. */
    bool wait(tenon::mutex &mutex, tn_deadline deadline = forever)
    {
        int status = tn_condition_wait(*this, mutex, deadline);
        mutex.note(status);
        return check_in_time(status);
    }

    /** Wait until `is_true()`. @return false: it was not in time */
    template <class Predicate>
    bool wait(tenon::mutex &mutex, tn_deadline deadline, Predicate is_true)
    {
        while (!is_true())
            if (!wait(mutex, deadline))
                return is_true();
        return true;
    }

    void notify_one() { check(tn_condition_signal(*this)); }
    void notify_all() { check(tn_condition_broadcast(*this)); }

  private:
    condition(by_id, tn_domain *domain, uint64_t id)
        : object(open_id(domain, TN_OBJECT_CONDITION, id))
    {
    }
};

class barrier : public object
{
  public:
    barrier(tn_domain *domain, uint32_t parties, const char *name = nullptr, uint32_t flags = 0)
        : object(open_by(tn_barrier_open, domain, name, parties, flags))
    {
    }
    static barrier from_id(tn_domain *domain, uint64_t id)
    {
        return barrier(by_id{}, domain, id);
    }
    /**
     * Wait until all parties came; throws if the barrier breaks, by `timed_out` if by this
     * deadline. @return true for exactly one of them
     */
    bool wait(tn_deadline deadline = forever)
    {
        return check(tn_barrier_wait(*this, deadline)) == 1;
    }
    void reset() { check(tn_barrier_reset(*this)); }

  private:
    barrier(by_id, tn_domain *domain, uint64_t id)
        : object(open_id(domain, TN_OBJECT_BARRIER, id))
    {
    }
};

} // namespace tenon

#endif
