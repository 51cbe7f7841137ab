/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENON_DOMAIN_HPP
#define TENON_DOMAIN_HPP

#include <tenon/domain.h>
#include <tenon/error.hpp>

namespace tenon
{

/**
 * A domain, left by the destructor. Destroy tensors, queues and other objects of the domain
 * before. Converts to `tn_domain *`, for functions of the C API.
 */
class domain
{
  public:
    /** tn_domain_open(): without a name a new domain. `options.struct_size` need not be set. */
    explicit domain(const char *name = nullptr, tn_domain_options options = {},
                    uint32_t flags = 0)
    {
        options.struct_size = sizeof options;
        tn_domain *opened;
        check(tn_domain_open(name, &options, flags, &opened));
        domain_.reset(opened);
    }

    /** The domain that the process that started this program passed on: tn_domain_inherit(). */
    static domain inherit()
    {
        tn_domain *inherited;
        check(tn_domain_inherit(&inherited));
        return domain(inherited);
    }

    /** Take over a domain of the C API. */
    explicit domain(tn_domain *taken) noexcept : domain_(taken) {}

    operator tn_domain *() const &noexcept { return domain_.get(); }
    operator tn_domain *() const && = delete; /* the domain would end before it is used */

    tn_domain_info info() const
    {
        tn_domain_info info = {};
        info.struct_size = sizeof info;
        check(tn_domain_get_info(*this, &info));
        return info;
    }

    /** Reclaim what dead processes held. @return how many dead processes there were */
    uint32_t reap()
    {
        uint32_t reaped = 0;
        check(tn_domain_reap(*this, &reaped));
        return reaped;
    }

    /** Give free memory back until `keep_bytes` of it are left. @return bytes given back */
    uint64_t trim(uint64_t keep_bytes = 0)
    {
        uint64_t freed_bytes = 0;
        check(tn_domain_trim(*this, keep_bytes, &freed_bytes));
        return freed_bytes;
    }

  private:
    detail::owner<tn_domain, tn_domain_close> domain_;
};

} // namespace tenon

#endif
