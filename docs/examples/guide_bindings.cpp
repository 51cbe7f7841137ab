/* SPDX-License-Identifier: Apache-2.0 */
/* The program of docs/guide/bindings.md. */
#undef NDEBUG
#include <tenon/tenon.h>

#include <cassert>
#include <memory>
#include <stdexcept>

static void must(int status)
{
    if (status < 0)
        throw std::runtime_error(tn_error_detail());
}

/* show: owner */
struct unref {
    void operator()(tn_tensor *tensor) const { tn_tensor_unref(tensor); }
};
using owned_tensor = std::unique_ptr<tn_tensor, unref>;

static owned_tensor zeros(tn_domain *domain, int64_t count)
{
    tn_tensor_options options = {};
    options.struct_size = sizeof options;
    options.flags = TN_TENSOR_ZEROED;
    tn_tensor *tensor;
    must(tn_tensor_create(domain, TN_FLOAT32, 1, &count, &options, &tensor));
    return owned_tensor(tensor);
}
/* end */

int main()
{
    tn_domain *domain;
    tn_queue *queue;
    must(tn_domain_open(nullptr, nullptr, 0, &domain));
    /* show: options */
    tn_queue_options options = {};
    options.struct_size = sizeof options;
    options.capacity = 4;
    must(tn_queue_open(domain, nullptr, &options, 0, &queue));
    /* end */
    {
        owned_tensor tensor = zeros(domain, 100);
        must(tn_queue_push_tensor(queue, tensor.get(), 0, TN_NOW));
    }
    assert(tn_queue_count(queue) == 1);
    tn_object_close(queue);
    tn_domain_close(domain);
}
