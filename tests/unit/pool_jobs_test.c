/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the table of jobs that the owner of a pool keeps in private memory. */
#include "harness/harness.h"
#include "spawn/pool.h"

enum { JOBS = 1000 };

static struct tni_job *add(struct tni_jobs *jobs)
{
    TN_CHECK_OK(tni_jobs_reserve(jobs));
    return tni_jobs_add(jobs);
}

TN_TEST(a_job_is_found_by_its_id_until_it_is_dropped)
{
    struct tni_jobs jobs = {0};
    assert_null(tni_jobs_find(&jobs, 1));
    for (uint64_t id = 1; id <= JOBS; id++)
        assert_true(add(&jobs)->id == id);
    for (uint64_t id = 1; id <= JOBS; id += 2)
        tni_jobs_drop(&jobs, tni_jobs_find(&jobs, id));
    for (uint64_t id = 1; id <= JOBS; id++) {
        struct tni_job *job = tni_jobs_find(&jobs, id);
        assert_true(id % 2 == 1 ? job == NULL : job != NULL && job->id == id);
    }
    assert_int_equal(jobs.count, JOBS / 2);
    assert_true(tni_jobs_oldest(&jobs)->id == 2);
    assert_true(add(&jobs)->id == JOBS + 1);
    tni_jobs_fini(&jobs);
}

TN_TEST(results_stand_in_the_order_in_which_they_came)
{
    struct tni_jobs jobs = {0};
    struct tni_job *made[4];
    for (int i = 0; i < 4; i++)
        made[i] = add(&jobs);
    tni_jobs_finish(&jobs, made[2]);
    tni_jobs_finish(&jobs, made[0]);
    tni_jobs_finish(&jobs, made[3]);
    assert_int_equal(jobs.under_way, 1);
    assert_ptr_equal(jobs.first, made[2]);
    assert_ptr_equal(jobs.first->next, made[0]);
    assert_ptr_equal(jobs.last, made[3]);
    tni_jobs_drop(&jobs, made[0]);
    assert_ptr_equal(jobs.first->next, made[3]);
    assert_ptr_equal(made[3]->prev, made[2]);
    tni_jobs_fini(&jobs);
}

TN_TEST(giving_up_drops_only_jobs_without_a_result)
{
    struct tni_jobs jobs = {0};
    for (int i = 0; i < 10; i++)
        add(&jobs);
    tni_jobs_finish(&jobs, tni_jobs_find(&jobs, 4));
    assert_int_equal(tni_jobs_give_up(&jobs), 9);
    assert_int_equal(jobs.count, 1);
    assert_int_equal(jobs.under_way, 0);
    assert_true(tni_jobs_oldest(&jobs)->id == 4);
    tni_jobs_fini(&jobs);
}
