/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENON_POOL_HPP
#define TENON_POOL_HPP

#include <functional>
#include <memory>
#include <optional>

#include <tenon/pool.h>
#include <tenon/queue.hpp>

namespace tenon
{

/** A job as its function sees it. */
class job
{
  public:
    uint64_t id() const noexcept { return job_.id; }
    /** Which of the pool's workers this is, from 0. */
    uint32_t worker() const noexcept { return job_.worker; }
    /** 1, and more if workers died of this job before. */
    uint32_t attempt() const noexcept { return job_.attempt; }
    std::string_view bytes() const noexcept
    {
        return {static_cast<const char *>(job_.message->bytes), job_.message->size_bytes};
    }
    uint32_t tensor_count() const noexcept { return job_.message->tensor_count; }
    /** Take a tensor out of the job. */
    tensor take(uint32_t index) const
    {
        if (index >= tensor_count() || job_.message->tensors[index] == nullptr)
            throw error(TN_ERR_INVALID, "the job has no tensor " + std::to_string(index) +
                                            ", or it was taken before");
        return tensor(std::exchange(job_.message->tensors[index], nullptr));
    }

  private:
    friend class pool;
    explicit job(const tn_pool_job &given) noexcept : job_(given) {}
    const tn_pool_job &job_;
};

/** The result of a job. */
struct result {
    uint64_t job;
    int32_t status; /* 0, or what a job function in C returned */
    int32_t pid;    /* of the worker */
    tenon::content content;
};

/** The function of a job threw, or its workers died: what() says so. */
class job_failed : public error
{
  public:
    job_failed(uint64_t job, int status, const std::string &detail)
        : error(status, detail), job_(job)
    {
    }
    uint64_t job() const noexcept { return job_; }

  private:
    uint64_t job_;
};

/** Worker processes; the destructor kills those that still run. One thread at a time. */
class pool
{
  public:
    /** Runs in a worker: makes the result of a job. */
    using function = std::function<content(tn_domain *, const job &)>;

    /**
     * tn_pool_create(). With TN_START_SPAWN the program calls serve(), and `run` is empty.
     * TN_START_FORKSERVER is refused: the server's children have the memory of this process as
     * it was before `run` was made.
     */
    pool(tn_domain *domain, function run, tn_pool_options options = {})
        : work_(std::make_unique<work>())
    {
        if (options.start == TN_START_FORKSERVER)
            throw error(TN_ERR_UNSUPPORTED, "a tenon::pool cannot use a fork server, which was "
                                            "forked before the pool's function was made: use "
                                            "TN_START_FORK or TN_START_SPAWN");
        options.struct_size = sizeof options;
        work_->run = std::move(run);
        tn_pool *made;
        check(tn_pool_create(domain, &options, work_->run ? run_job : nullptr, work_.get(),
                             &made));
        pool_.reset(made);
    }

    operator tn_pool *() const &noexcept { return pool_.get(); }
    operator tn_pool *() const && = delete; /* the pool would end before it is used */

    /** Submit a job. @return its number; throws `timed_out` if there was no room in time */
    uint64_t submit(const content &content, tn_deadline deadline = forever)
    {
        std::vector<tn_tensor *> tensors(content.tensors.begin(), content.tensors.end());
        tn_message message = {};
        message.bytes = content.bytes.data();
        message.size_bytes = content.bytes.size();
        message.tensors = tensors.data();
        message.tensor_count = static_cast<uint32_t>(tensors.size());
        uint64_t number;
        check(tn_pool_submit(*this, &message, 0, deadline, &number));
        return number;
    }

    /**
     * Fetch the result of a job, or of whichever is done first. @return nothing: not in time;
     * throws job_failed if the job has none
     */
    std::optional<result> fetch(uint64_t job = TN_POOL_ANY_JOB, tn_deadline deadline = forever)
    {
        tn_pool_result fetched = {};
        fetched.struct_size = sizeof fetched;
        if (!check_in_time(tn_pool_fetch(*this, job, deadline, &fetched)))
            return std::nullopt;
        struct ender {
            tn_pool_result *result;
            ~ender() { tn_pool_result_fini(result); }
        } ender = {&fetched};
        std::string bytes(static_cast<const char *>(fetched.message.bytes),
                          fetched.message.size_bytes);
        if (fetched.status < 0)
            throw job_failed(fetched.job, fetched.status, fetched.detail);
        if (fetched.status == THREW)
            throw job_failed(fetched.job, TN_ERR_CHILD_FAILED, bytes);
        result result = {fetched.job, fetched.status, fetched.pid, {std::move(bytes), {}}};
        for (uint32_t i = 0; i < fetched.message.tensor_count; i++)
            result.content.tensors.emplace_back(
                std::exchange(fetched.message.tensors[i], nullptr));
        return result;
    }

    /** No more jobs: workers do what was submitted, and exit. */
    void end() { check(tn_pool_end(*this)); }

    /** Wait until an ended pool has all its results. @return false: not in time */
    bool join(tn_deadline deadline = forever)
    {
        return check_in_time(tn_pool_join(*this, deadline));
    }

    /** In a program that a pool started: do jobs until the pool ends. */
    static void serve(tn_domain *domain, function run)
    {
        work work;
        work.run = std::move(run);
        check(tn_pool_serve(domain, run_job, &work));
    }

  private:
    enum { THREW = 0x54485257 }; /* "THRW", which no job function in C returns by chance */

    /** A worker's copy of the function, and of the last result, which the library borrows. */
    struct work {
        function run;
        content result;
        std::vector<tn_tensor *> tensors;
    };

    static int run_job(tn_domain *domain, const tn_pool_job *given, tn_message *ret_result,
                       void *context)
    {
        work &work = *static_cast<struct work *>(context);
        int status = 0;
        try {
            work.result = work.run(domain, job(*given));
        } catch (const std::exception &caught) {
            status = THREW;
            work.result = {caught.what(), {}};
        } catch (...) {
            status = THREW;
            work.result = {"the function threw something that is no std::exception", {}};
        }
        work.tensors.clear();
        for (tensor &one : work.result.tensors)
            work.tensors.push_back(one.release());
        ret_result->bytes = work.result.bytes.data();
        ret_result->size_bytes = work.result.bytes.size();
        ret_result->tensors = work.tensors.data();
        ret_result->tensor_count = static_cast<uint32_t>(work.tensors.size());
        return status;
    }

    std::unique_ptr<work> work_; /* before pool_: forked workers have a copy of it */
    detail::owner<tn_pool, tn_pool_close> pool_;
};

} // namespace tenon

#endif
