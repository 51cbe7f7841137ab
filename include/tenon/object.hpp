/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENON_OBJECT_HPP
#define TENON_OBJECT_HPP

#include <memory>
#include <string>

#include <tenon/error.hpp>
#include <tenon/object.h>

namespace tenon
{

/**
 * What queues, events, semaphores, locks, conditions and barriers have in common. The
 * destructor closes this process's handle, or, if popped messages are still leased from it, the
 * end of the last of these. Converts to `tn_object *`, which is `tn_queue *`,
 * `tn_event *` and so on.
 */
class object
{
  public:
    object(object &&) noexcept = default;
    object &operator=(object &&) noexcept = default;

    operator tn_object *() const &noexcept { return object_.get(); }
    operator tn_object *() const && = delete; /* the object would end before it is used */

    /** A number by which other members of the domain open the object. */
    uint64_t id() const noexcept { return tn_object_id(*this); }

    /** TN_OBJECT_*. */
    int kind() const { return check(tn_object_kind(*this)); }

    /** The name, "" if the object has none. */
    std::string name() const
    {
        char name[48];
        check(tn_object_name(*this, name, sizeof name));
        return name;
    }

  protected:
    struct by_id {
    };

    explicit object(tn_object *taken) : object_(taken, tn_object_close) {}

    /** For what needs the handle for longer than this object may live. */
    const std::shared_ptr<tn_object> &shared() const noexcept { return object_; }

    static tn_object *open_id(tn_domain *domain, int kind, uint64_t id)
    {
        tn_object *opened;
        check(tn_object_open_id(domain, kind, id, &opened));
        return opened;
    }

    /** Open an object by the function of its kind. */
    template <class Open, class... Arguments>
    static tn_object *open_by(Open *open, Arguments... arguments)
    {
        tn_object *opened;
        check(open(arguments..., &opened));
        return opened;
    }

  private:
    std::shared_ptr<tn_object> object_;
};

} // namespace tenon

#endif
