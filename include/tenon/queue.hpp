/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENON_QUEUE_HPP
#define TENON_QUEUE_HPP

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tenon/object.hpp>
#include <tenon/queue.h>
#include <tenon/tensor.hpp>

namespace tenon
{

/** What a message carries: bytes and tensors, each possibly none. */
struct content {
    std::string bytes;
    std::vector<tensor> tensors;
};

/** A message that was popped; the destructor gives back what it owns. */
class message
{
  public:
    message(message &&other) noexcept
        : message_(std::exchange(other.message_, {})), queue_(std::move(other.queue_))
    {
    }
    message &operator=(message &&other) noexcept
    {
        std::swap(message_, other.message_);
        std::swap(queue_, other.queue_);
        return *this;
    }
    ~message() { tn_message_fini(&message_); }

    /** The bytes; valid while the message lives. */
    std::string_view bytes() const noexcept
    {
        return {static_cast<const char *>(message_.bytes), message_.size_bytes};
    }

    uint32_t tensor_count() const noexcept { return message_.tensor_count; }

    /** Take a tensor out of the message. */
    tensor take(uint32_t index)
    {
        if (index >= message_.tensor_count || message_.tensors[index] == nullptr)
            throw error(TN_ERR_INVALID, "the message has no tensor " + std::to_string(index) +
                                            ", or it was taken before");
        return tensor(std::exchange(message_.tensors[index], nullptr));
    }

    /** How often the message was delivered before, to consumers that died or gave it back. */
    uint32_t attempt() const noexcept { return message_.attempt; }

    /** The seat of the process that pushed the message. */
    uint32_t producer_seat() const noexcept { return message_.producer_seat; }

    /** Say that a leased message was dealt with, so that it does not come again. */
    void ack() { check(tn_message_ack(leased_from(), &message_)); }

    /** Give a leased message back: a consumer gets it again. */
    void give_back() { check(tn_message_return(leased_from(), &message_)); }

  private:
    friend class queue;
    message(tn_message popped, const std::shared_ptr<tn_queue> &queue) noexcept
        : message_(popped), queue_(popped.lease != 0 ? queue : nullptr)
    {
    }

    tn_queue *leased_from() const
    {
        if (queue_ == nullptr)
            throw error(TN_ERR_STALE, "the message is not leased: its queue was made without "
                                      "TN_QUEUE_LEASE, or the message was moved away");
        return queue_.get();
    }

    tn_message message_;
    std::shared_ptr<tn_queue> queue_; /* keeps the queue open while the message is leased */
};

/** A bounded queue of messages. Any number of threads may use one object. */
class queue : public object
{
  public:
    /** tn_queue_open(): without a name a new queue. `options.struct_size` need not be set. */
    explicit queue(tn_domain *domain, const char *name = nullptr, tn_queue_options options = {},
                   uint32_t flags = 0)
        : object(opened(domain, name, options, flags))
    {
    }

    /** The queue with this id(), which another process sent. */
    static queue from_id(tn_domain *domain, uint64_t id) { return queue(by_id{}, domain, id); }

    /** Push one tensor; the caller keeps its reference. @return false: no room in time */
    bool push(const tensor &tensor, tn_deadline deadline = forever)
    {
        return check_in_time(tn_queue_push_tensor(*this, tensor, 0, deadline));
    }

    /** Push one tensor and its reference. If nothing was pushed the caller keeps it. */
    bool push(tensor &&tensor, tn_deadline deadline = forever)
    {
        bool is_pushed =
            check_in_time(tn_queue_push_tensor(*this, tensor, TN_PUSH_MOVE, deadline));
        if (is_pushed)
            tensor.release(); /* the message owns it */
        return is_pushed;
    }

    /** Push bytes and tensors as one message. @return false: no room in time */
    bool push(const content &content, tn_deadline deadline = forever)
    {
        std::vector<tn_tensor *> tensors(content.tensors.begin(), content.tensors.end());
        tn_message message = {};
        message.bytes = content.bytes.data();
        message.size_bytes = content.bytes.size();
        message.tensors = tensors.data();
        message.tensor_count = static_cast<uint32_t>(tensors.size());
        return check_in_time(tn_queue_push(*this, &message, 0, deadline));
    }

    /** Pop the oldest message. @return nothing: none came in time */
    std::optional<message> pop(tn_deadline deadline = forever)
    {
        tn_message popped;
        if (!check_in_time(tn_queue_pop(*this, deadline, &popped)))
            return std::nullopt;
        return message(popped, shared());
    }

    /** Pop a message that is one tensor. @return nothing: none came in time */
    std::optional<tensor> pop_tensor(tn_deadline deadline = forever)
    {
        tn_tensor *popped;
        if (!check_in_time(tn_queue_pop_tensor(*this, deadline, &popped)))
            return std::nullopt;
        return tensor(popped);
    }

    /** Declare this process a producer, a consumer or both now: TN_PRODUCER, TN_CONSUMER. */
    void attach(uint32_t roles) { check(tn_queue_attach(*this, roles)); }

    /** End the queue for everybody: who pops takes what is left, and then gets `closed`. */
    void end() { check(tn_queue_end(*this)); }

    tn_queue_info info() const
    {
        tn_queue_info info = {};
        info.struct_size = sizeof info;
        check(tn_queue_get_info(*this, &info));
        return info;
    }

    /** Messages that wait. */
    uint32_t count() const { return tn_queue_count(*this); }

  private:
    queue(by_id, tn_domain *domain, uint64_t id) : object(open_id(domain, TN_OBJECT_QUEUE, id))
    {
    }
    static tn_queue *opened(tn_domain *domain, const char *name, tn_queue_options &options,
                            uint32_t flags)
    {
        options.struct_size = sizeof options;
        tn_queue *queue;
        check(tn_queue_open(domain, name, &options, flags, &queue));
        return queue;
    }
};

} // namespace tenon

#endif
