/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: claims, which name their owner in the word. */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/harness.h"
#include "os/os.h"
#include "wait/wait.h"

enum { THREADS = 4, TURNS = 20000 };

static _Atomic uint64_t claim;
static uint32_t turns; /* not atomic: the claim orders the writes */

TN_TEST(only_the_owner_releases_a_claim)
{
    _Atomic uint64_t word = 0;
    uint64_t first = tni_who(1, 1), second = tni_who(2, 1), later = tni_who(1, 2);
    assert_true(tni_claim_try(&word, first));
    assert_false(tni_claim_try(&word, first));
    assert_false(tni_claim_try(&word, second));
    tni_claim_release(&word, second);
    tni_claim_release(&word, later); /* the same seat, taken again */
    assert_true(atomic_load(&word) == first);
    tni_claim_release(&word, first);
    assert_true(atomic_load(&word) == 0);
    assert_true(tni_claim_try(&word, second));
}

static void *take_turns(void *argument)
{
    uint64_t who = tni_who((uint32_t)(uintptr_t)argument, 1);
    for (int i = 0; i < TURNS; i++) {
        while (!tni_claim_try(&claim, who))
            tni_os_yield();
        turns++;
        tni_claim_release(&claim, who);
    }
    return NULL;
}

TN_TEST(one_thread_at_a_time_owns_a_claim)
{
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_turns, (void *)i), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(turns, THREADS * TURNS);
    assert_true(atomic_load(&claim) == 0);
}

TN_TEST(a_claim_names_its_owner_after_the_owner_was_killed)
{
    void *shared;
    TN_CHECK_OK(tni_os_map_shared(tni_os_page_bytes(), &shared));
    _Atomic uint64_t *word = shared;
    pid_t child = fork();
    if (child == 0) {
        tni_claim_try(word, tni_who(7, 3));
        kill(getpid(), SIGKILL);
    }
    TN_CHECK(waitpid(child, NULL, 0) == child);
    uint64_t owner = atomic_load(word);
    assert_int_equal(tni_who_seat(owner), 7);
    assert_int_equal(tni_who_incarnation(owner), 3);
    tni_claim_release(word, owner);
    assert_true(tni_claim_try(word, tni_who(8, 1)));
    tni_os_unmap(shared, tni_os_page_bytes());
}
