/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: the C++ header. Objects end themselves, errors are thrown, and nothing is left over.
 */
#include "tap.hpp"

#include <csignal>
#include <cstdlib>
#include <mutex>

#include <dlfcn.h>

#include <tenon/tenon.hpp>

using namespace std::chrono_literals;

/* A domain whose audit finds nothing when the test is over. */
class world
{
  public:
    world() : domain_(nullptr, options()) {}
    ~world() noexcept(false)
    {
        if (std::uncaught_exceptions() != 0)
            return;
        EXPECT(tn_domain_audit(domain_, false, nullptr, nullptr, nullptr) == 0);
        EXPECT(live_bytes() == 0);
    }
    operator tn_domain *() const { return domain_; }
    tenon::domain &domain() { return domain_; }

    uint64_t live_bytes() const
    {
        char id[33];
        for (int i = 0; i < 16; i++)
            std::snprintf(id + 2 * i, 3, "%02x", domain_.info().id[i]);
        tn_inspector *inspector;
        tn_domain_stat stat = {};
        stat.struct_size = sizeof stat;
        tenon::check(tn_inspector_open(id, &inspector));
        tenon::check(tn_inspect_stat(inspector, &stat));
        tn_inspector_close(inspector);
        return stat.live_bytes;
    }

  private:
    static tn_domain_options options()
    {
        tn_domain_options options = {};
        options.quota_bytes = 64 << 20;
        options.flags = TN_DOMAIN_NO_MANAGER;
        return options;
    }

    tenon::domain domain_;
};

static tenon::tensor numbers(tn_domain *domain, float first)
{
    auto tensor = tenon::tensor::of<float>(domain, {2, 3});
    for (int i = 0; i < 6; i++)
        tensor.data<float>()[i] = first + static_cast<float>(i);
    return tensor;
}

TEST(a_copy_of_a_tensor_is_one_more_reference)
{
    world world;
    tenon::tensor copy;
    {
        auto tensor = numbers(world, 1);
        copy = tensor;
        EXPECT(tn_tensor_same_storage(copy, tensor));
        tensor.data<float>()[0] = 7;
    }
    EXPECT(copy.data<float>()[0] == 7);
    EXPECT(copy.shape() == (tenon::sizes{2, 3}));
    EXPECT(copy.count() == 6 && copy.ndim() == 2 && copy.dtype() == TN_FLOAT32);
}

TEST(a_tensor_may_have_no_axes)
{
    world world;
    auto tensor = tenon::tensor::of<double>(world, {});
    EXPECT(tensor.count() == 1 && tensor.shape().empty());
}

TEST(too_many_axes_are_an_error)
{
    world world;
    EXPECT_STATUS(TN_ERR_INVALID, tenon::tensor::of<float>(world, tenon::sizes(1000, 1)));
}

TEST(data_of_another_type_is_refused)
{
    world world;
    auto tensor = numbers(world, 1);
    EXPECT_STATUS(TN_ERR_INVALID, tensor.data<double>());
    try {
        tensor.data<int8_t>();
    } catch (const tenon::error &caught) {
        EXPECT(caught.what() ==
               std::string("TN_ERR_INVALID: the elements are float32, not int8"));
    }
}

TEST(an_empty_tensor_is_an_error_and_no_crash)
{
    tenon::tensor empty;
    EXPECT_STATUS(TN_ERR_INVALID, empty.data());
    EXPECT_STATUS(TN_ERR_INVALID, empty.shape());
    EXPECT_STATUS(TN_ERR_INVALID, empty.info());
    tenon::tensor copy = empty;
    copy = std::move(empty);
}

TEST(views_share_the_storage)
{
    world world;
    auto tensor = numbers(world, 0);
    EXPECT(tensor.slice(1, 1, 3).data<float>()[0] == 1);
    EXPECT(tensor.transpose().shape() == (tenon::sizes{3, 2}));
    EXPECT(tensor.transpose({0, 1}).shape() == (tenon::sizes{2, 3}));
    EXPECT(tensor.reshape({-1}).shape() == (tenon::sizes{6}));
    EXPECT(tensor.view(TN_FLOAT32, {3}, {2}, 4).data<float>()[0] == 1);
    EXPECT_STATUS(TN_ERR_INVALID, tensor.view(TN_FLOAT32, {3}, {2, 1}, 0));
    EXPECT_STATUS(TN_ERR_INVALID, tensor.transpose({0}));
    EXPECT_STATUS(TN_ERR_INVALID, tensor.slice(2, 0, 1));
}

TEST(a_private_tensor_is_shared_and_cloned)
{
    world world;
    auto tensor = tenon::tensor::in_private_memory(TN_INT32, {4});
    tensor.data<int32_t>()[3] = 5;
    EXPECT(!tensor.info().is_shared);
    auto clone = tensor.clone(world);
    tensor.share(world);
    EXPECT(tensor.info().is_shared && clone.info().is_shared);
    EXPECT(tensor.data<int32_t>()[3] == 5 && clone.data<int32_t>()[3] == 5);
    EXPECT(!tn_tensor_same_storage(tensor, clone));
    clone.data<int32_t>()[0] = 9;
    tensor.copy_from(clone);
    EXPECT(tensor.data<int32_t>()[0] == 9);
}

#if __cplusplus >= 202002L
TEST(a_span_has_all_elements_of_a_contiguous_tensor)
{
    world world;
    auto tensor = numbers(world, 1);
    float sum = 0;
    for (float element : tensor.span<float>())
        sum += element;
    EXPECT(sum == 21);
    EXPECT_STATUS(TN_ERR_INVALID, tensor.transpose().span<float>());
}
#endif

/* Devices of the fake driver of tests/fakecuda, for this process. */
class fake_devices
{
  public:
    fake_devices()
        : path_("/tmp/tenon-cpp-devices-" + std::to_string(getpid())),
          library_(dlopen(std::getenv("TENON_TEST_FAKECUDA"), RTLD_NOW | RTLD_LOCAL))
    {
        EXPECT(library_ != nullptr);
        auto make =
            reinterpret_cast<int (*)(const char *, const void *)>(dlsym(library_, "fake_make"));
        EXPECT(make(path_.c_str(), nullptr) == 0);
        setenv("TENON_CUDA_LIBRARY", std::getenv("TENON_TEST_FAKECUDA"), 1);
        setenv("TENON_FAKECUDA", path_.c_str(), 1);
    }
    ~fake_devices() { unlink(path_.c_str()); }

  private:
    std::string path_;
    void *library_;
};

TEST(a_tensor_goes_to_a_device_and_back)
{
    fake_devices devices;
    world world;
    auto here = numbers(world, 1);
    auto there = here.to(world, {TN_DEVICE_CUDA, 0});
    EXPECT(here.device().type == TN_DEVICE_CPU && there.device().type == TN_DEVICE_CUDA);
    auto back = there.to(world, {TN_DEVICE_CPU, 0});
    back.copy_from(there); /* it waits */
    EXPECT(back.data<float>()[5] == 6);
#if __cplusplus >= 202002L
    EXPECT_STATUS(TN_ERR_INVALID, there.span<float>());
#endif
}

TEST(a_pushed_tensor_stays_and_a_moved_one_goes)
{
    world world;
    tenon::queue queue(world);
    auto kept = numbers(world, 1), moved = numbers(world, 2);
    EXPECT(queue.push(kept));
    EXPECT(queue.push(std::move(moved)));
    EXPECT(queue.info().capacity == 256 && !queue.info().is_ended);
    EXPECT(static_cast<tn_tensor *>(moved) == nullptr);
    EXPECT(queue.count() == 2);
    auto first = queue.pop_tensor(), second = queue.pop_tensor();
    EXPECT(tn_tensor_same_storage(*first, kept));
    EXPECT(second->data<float>()[0] == 2);
}

TEST(a_push_that_fails_leaves_a_moved_tensor)
{
    world world;
    tn_queue_options options = {};
    options.capacity = 1;
    tenon::queue queue(world, nullptr, options);
    auto tensor = numbers(world, 3);
    EXPECT(queue.push(tensor));
    EXPECT(!queue.push(std::move(tensor), tenon::now));
    EXPECT(tensor.data<float>()[0] == 3);
    queue.end();
    EXPECT_STATUS(TN_ERR_CLOSED, queue.push(std::move(tensor)));
    EXPECT(tensor.data<float>()[0] == 3);
}

TEST(a_deadline_that_passed_gives_nothing)
{
    world world;
    tenon::queue queue(world);
    EXPECT(!queue.pop(tenon::now));
    EXPECT(!queue.pop_tensor(tenon::after(1ms)));
    EXPECT(tenon::after(-1s).ns == 0);
    EXPECT(tenon::after(std::chrono::hours::max()).ns == UINT64_MAX);
}

TEST(an_ended_queue_throws_closed)
{
    world world;
    tenon::queue queue(world);
    queue.end();
    bool has_thrown = false;
    try {
        queue.pop();
    } catch (const tenon::closed &) {
        has_thrown = true;
    }
    EXPECT(has_thrown);
}

TEST(a_message_carries_bytes_and_tensors)
{
    world world;
    tenon::queue queue(world);
    EXPECT(queue.push(tenon::content{"two frames", {numbers(world, 1), numbers(world, 9)}}));
    auto message = queue.pop();
    EXPECT(message->bytes() == "two frames");
    EXPECT(message->tensor_count() == 2);
    EXPECT(message->take(1).data<float>()[0] == 9);
    EXPECT_STATUS(TN_ERR_INVALID, message->take(1));
    EXPECT_STATUS(TN_ERR_INVALID, message->take(2));
}

TEST(a_lease_that_is_given_back_comes_again)
{
    world world;
    tn_queue_options options = {};
    options.policy = TN_QUEUE_LEASE;
    tenon::queue queue(world, nullptr, options);
    EXPECT(queue.push(tenon::content{"job", {}}));
    auto leased = queue.pop();
    EXPECT(leased->attempt() == 0);
    leased->give_back();
    auto again = queue.pop();
    EXPECT(again->attempt() == 1 && again->bytes() == "job");
    again->ack();
    EXPECT_STATUS(TN_ERR_STALE, again->ack());
    EXPECT(!queue.pop(tenon::now));
}

TEST(a_leased_message_may_outlive_its_queue)
{
    world world;
    std::optional<tenon::message> leased;
    {
        tn_queue_options options = {};
        options.policy = TN_QUEUE_LEASE;
        tenon::queue queue(world, "jobs", options);
        EXPECT(queue.push(tenon::content{"job", {}}));
        leased = queue.pop();
    }
    tenon::message moved = std::move(*leased);
    EXPECT_STATUS(TN_ERR_STALE, leased->ack());
    moved.ack();
}

TEST(a_message_without_a_lease_cannot_be_acknowledged)
{
    world world;
    tenon::queue queue(world);
    EXPECT(queue.push(tenon::content{"x", {}}));
    auto message = queue.pop();
    EXPECT_STATUS(TN_ERR_STALE, message->ack());
    EXPECT_STATUS(TN_ERR_STALE, message->give_back());
}

TEST(a_child_writes_the_tensor_of_its_parent)
{
    world world;
    auto tensor = numbers(world, 0);
    auto child = tenon::process::fork(world, [&] { tensor.data<float>()[5] = 42; });
    EXPECT(child.wait()->exit_code == 0);
    EXPECT(tensor.data<float>()[5] == 42);
    auto coded = tenon::process::fork(world, [] { return 3; });
    EXPECT(coded.wait()->exit_code == 3);
}

static int seven() { return 7; }

TEST(a_child_may_be_a_plain_function_or_move_only)
{
    world world;
    EXPECT(tenon::process::fork(world, seven).wait()->exit_code == 7);
    auto eight = [number = std::make_unique<int>(8)] { return *number; };
    EXPECT(tenon::process::fork(world, eight).wait()->exit_code == 8);
}

TEST(what_a_child_throws_arrives_as_its_message)
{
    world world;
    auto child = tenon::process::fork(world, [] { throw std::runtime_error("no camera"); });
    auto status = child.wait();
    EXPECT(status->exit_code == 1 && status->message == std::string("no camera"));
}

/* ThreadSanitizer makes a fork() of the vfork() through which the error of execve() arrives. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WITH_THREAD_SANITIZER
#endif
#endif
#if !defined(WITH_THREAD_SANITIZER) && !defined(__SANITIZE_THREAD__)
TEST(a_program_that_is_missing_is_not_found)
{
    world world;
    EXPECT_STATUS(TN_ERR_NOT_FOUND, tenon::process::exec(world, {"/no/such/program"}));
}
#endif

TEST(the_death_of_the_last_producer_throws_peer_died)
{
    world world;
    tenon::queue queue(world);
    tenon::event attached(world);
    queue.attach(TN_CONSUMER);
    auto child = tenon::process::fork(world, [&] {
        queue.attach(TN_PRODUCER);
        attached.set();
        tenon::event(world).wait();
    });
    EXPECT(attached.wait());
    child.kill(SIGKILL);
    int32_t dead = 0;
    try {
        queue.pop();
    } catch (const tenon::peer_died &caught) {
        dead = caught.peer().pid;
    }
    EXPECT(dead == child.pid());
    EXPECT(child.wait()->signal == SIGKILL);
    world.domain().reap();
}

TEST(a_lock_guard_takes_a_mutex_and_a_death_is_told)
{
    world world;
    tenon::mutex mutex(world);
    {
        std::lock_guard<tenon::mutex> guard(mutex);
        EXPECT(!mutex.was_recovered());
        auto child = tenon::process::fork(world, [&] { return mutex.try_lock() ? 1 : 0; });
        EXPECT(child.wait()->exit_code == 0);
    }
    auto child = tenon::process::fork(world, [&] {
        mutex.lock();
        std::raise(SIGKILL);
    });
    EXPECT(child.wait()->signal == SIGKILL);
    std::unique_lock<tenon::mutex> guard(mutex);
    EXPECT(mutex.was_recovered());
    EXPECT(mutex.dead_owner().pid == child.pid());
}

TEST(a_lock_guard_in_a_forked_child_does_not_end_it)
{
    world world;
    tenon::mutex mutex(world);
    std::lock_guard<tenon::mutex> guard(mutex);
    auto child = tenon::process::fork(world, [&] {
        EXPECT_STATUS(TN_ERR_INVALID, mutex.release());
        std::lock_guard<tenon::mutex> not_held(mutex, std::adopt_lock);
    });
    EXPECT(child.wait()->exit_code == 0);
}

TEST(a_condition_wakes_a_waiter)
{
    world world;
    tenon::mutex mutex(world);
    tenon::condition condition(world);
    auto flag = tenon::tensor::of<int32_t>(world, {1});
    *flag.data<int32_t>() = 0;
    auto child = tenon::process::fork(world, [&] {
        std::lock_guard<tenon::mutex> guard(mutex);
        *flag.data<int32_t>() = 1;
        condition.notify_all();
    });
    std::unique_lock<tenon::mutex> guard(mutex);
    EXPECT(condition.wait(mutex, tenon::forever, [&] { return *flag.data<int32_t>() == 1; }));
    EXPECT(!condition.wait(mutex, tenon::after(1ms), [] { return false; }));
    guard.unlock();
    EXPECT(child.wait()->exit_code == 0);
}

TEST(semaphores_events_and_barriers_work_between_processes)
{
    world world;
    tenon::semaphore semaphore(world, 1);
    tenon::event event(world);
    tenon::barrier barrier(world, 2);
    EXPECT(semaphore.acquire() && !semaphore.acquire(tenon::now) && semaphore.count() == 0);
    auto child = tenon::process::fork(world, [&] {
        bool is_last = barrier.wait();
        event.set();
        semaphore.acquire();
        return is_last ? 1 : 0;
    });
    bool is_last = barrier.wait();
    EXPECT(event.wait() && event.is_set());
    semaphore.release();
    EXPECT(child.wait()->exit_code == (is_last ? 0 : 1));
    event.clear();
    EXPECT(!event.wait(tenon::now));
}

TEST(an_object_is_opened_by_its_number)
{
    world world;
    tenon::queue queue(world, "frames");
    EXPECT(queue.name() == "frames" && queue.kind() == TN_OBJECT_QUEUE);
    auto again = tenon::queue::from_id(world, queue.id());
    EXPECT(again.push(tenon::content{"x", {}}) && queue.pop()->bytes() == "x");
    EXPECT_STATUS(TN_ERR_INVALID, tenon::event::from_id(world, queue.id()));
    EXPECT_STATUS(TN_ERR_EXISTS, tenon::queue(world, "frames", {}, TN_OPEN_NEW));
}

TEST(a_handle_makes_the_tensor_again)
{
    world world;
    auto tensor = numbers(world, 4);
    auto handle = tensor.to_handle();
    auto again = tenon::tensor::from_handle(world, handle);
    EXPECT(tn_tensor_same_storage(again, tensor));
    EXPECT_STATUS(TN_ERR_STALE, tenon::tensor::from_handle(world, handle));
}

TEST(a_pool_gives_results_and_names_failed_jobs)
{
    world world;
    tn_pool_options options = {};
    options.workers = 2;
    tenon::pool pool(
        world,
        [](tn_domain *domain, const tenon::job &job) -> tenon::content {
            if (job.bytes() == "throw")
                throw std::runtime_error("this job throws");
            if (job.bytes() == "die")
                std::raise(SIGKILL);
            auto input = job.take(0), output = tenon::tensor::of<float>(domain, {1});
            *output.data<float>() = 2 * *input.data<float>();
            return {"doubled", {output}};
        },
        options);
    uint64_t good = pool.submit({"double", {numbers(world, 21)}});
    uint64_t bad = pool.submit({"throw", {}});
    uint64_t dead = pool.submit({"die", {}});
    auto result = pool.fetch(good);
    EXPECT(result->content.bytes == "doubled" && result->status == 0);
    EXPECT(*result->content.tensors.at(0).data<float>() == 42);
    for (uint64_t job : {bad, dead}) {
        bool has_failed = false;
        try {
            pool.fetch(job);
        } catch (const tenon::job_failed &caught) {
            has_failed = caught.job() == job && caught.status() == TN_ERR_CHILD_FAILED;
            if (job == bad)
                EXPECT(caught.what() == std::string("TN_ERR_CHILD_FAILED: this job throws"));
        }
        EXPECT(has_failed);
    }
    pool.end();
    EXPECT(pool.join());
    EXPECT_STATUS(TN_ERR_CLOSED, pool.submit({}));
}

static int return_one(tn_domain *, const tn_pool_job *, tn_message *ret_result, void *)
{
    ret_result->bytes = "seven";
    ret_result->size_bytes = 5;
    return 1;
}

TEST(a_pool_gives_the_status_of_a_function_in_c)
{
    world world;
    const char *const argv[] = {"/proc/self/exe", nullptr};
    const char *const environment[] = {"TNT_ROLE=worker", nullptr};
    tn_pool_options options = {};
    options.workers = 1;
    options.start = TN_START_SPAWN;
    options.argv = argv;
    options.environment = environment;
    tenon::pool pool(world, nullptr, options);
    auto result = pool.fetch(pool.submit({}));
    EXPECT(result->status == 1 && result->content.bytes == "seven");
}

TEST(a_pool_refuses_a_fork_server)
{
    world world;
    tn_pool_options options = {};
    options.start = TN_START_FORKSERVER;
    auto run = [](tn_domain *, const tenon::job &) { return tenon::content{}; };
    EXPECT_STATUS(TN_ERR_UNSUPPORTED, tenon::pool(world, run, options));
}

TEST(flags_of_a_kind_go_with_those_of_an_open)
{
    world world;
    tenon::event event(world, "set", TN_OPEN_NEW | TN_EVENT_AUTO_RESET);
    tenon::semaphore permits(world, 1, nullptr, TN_SEMAPHORE_OWNED | TN_OPEN_NEW);
    event.set();
    EXPECT(event.wait() && !event.is_set() && permits.count() == 1);
}

TEST(an_error_has_its_status_and_its_sentence)
{
    try {
        tenon::domain domain("not a name!");
        EXPECT(false);
    } catch (const tenon::error &caught) {
        EXPECT(caught.status() == TN_ERR_INVALID);
        EXPECT(std::string(caught.what()).rfind("TN_ERR_INVALID: ", 0) == 0);
    }
}

/* A worker of a_pool_gives_the_status_of_a_function_in_c. */
static int serve()
{
    auto domain = tenon::domain::inherit();
    return tn_pool_serve(domain, return_one, nullptr) == 0 ? 0 : 1;
}

int main() { return getenv("TNT_ROLE") != nullptr ? serve() : tap::run_all(); }
