/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kills an operation at its kill points, one after the other. crash_world.c has the world in
 * which it runs.
 */
#include "process/crash.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SLOWNESS = 4 };
#else
enum { SLOWNESS = 1 };
#endif

/* The point at which the next child dies. */
struct death {
    const char *point; /* NULL: at the end of the operation; "": nowhere */
    unsigned passing;
};
static const struct death nowhere = {"", 0};

/* ---- a death ----------------------------------------------------------------------------- */

/*
 * @return whether the child was killed at the point. Returns after all processes that it
 * started have ended.
 */
static bool run_and_die(struct crash_world *w, crash_step_fn *step, struct death death,
                        const char *list)
{
    int ends[2];
    char byte;
    TN_CHECK(pipe(ends) == 0);
    fflush(NULL);
    pid_t pid = fork();
    TN_CHECK(pid >= 0);
    if (pid == 0) {
        close(ends[0]);
        tni_kill_point_list(list);
        if (death.point != NULL)
            tni_kill_point_arm(death.point, death.passing);
        step(w);
        tni_kill_point_arm(NULL, 0);
        fflush(NULL);
        if (death.point == NULL)
            kill(getpid(), SIGKILL);
        _exit(0);
    }
    close(ends[1]);
    TN_CHECK(read(ends[0], &byte, 1) == 0);
    close(ends[0]);
    int status = tnt_wait(pid);
    bool is_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    bool is_killed_below = WIFEXITED(status) && WEXITSTATUS(status) == CRASH_KILLED_BELOW;
    if (!is_killed && !is_killed_below && status != 0)
        fail_msg("the child ended with status %#x", (unsigned)status);
    return is_killed || is_killed_below;
}

bool crash_run_and_die(struct crash_world *w, crash_step_fn *step, const char *point,
                       unsigned passing)
{
    return run_and_die(w, step, (struct death){point, passing}, NULL);
}

/* ---- learning ---------------------------------------------------------------------------- */

static void add_point(struct crash_points *points, const char *name)
{
    unsigned i = 0;
    while (i < points->count && strcmp(points->point[i].name, name) != 0)
        i++;
    if (i == points->count) {
        TN_CHECK(points->count < CRASH_MAX_POINTS);
        snprintf(points->point[points->count++].name, sizeof points->point[0].name, "%.63s",
                 name);
    }
    points->point[i].passings++;
}

static void read_list(const char *path, struct crash_points *points)
{
    char line[128];
    FILE *list = fopen(path, "re");
    if (list == NULL)
        return; /* it passed no point */
    while (fgets(line, sizeof line, list) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        add_point(points, line);
    }
    fclose(list);
    unlink(path);
}

static void learn(struct crash_world *w, crash_step_fn *step, struct crash_points *points)
{
    char path[128];
    snprintf(path, sizeof path, "%s/points", tnt_folder());
    TN_CHECK(!run_and_die(w, step, nowhere, path));
    read_list(path, points);
}

void crash_learn(const struct crash_op *op, struct crash_points *points)
{
    struct crash_world w;
    crash_make_world(&w, op);
    learn(&w, op->run, points);
    crash_judge(&w);
}

/* ---- every point ------------------------------------------------------------------------- */

static bool die_once(const struct crash_op *op, struct death death)
{
    struct crash_world w;
    printf("%s at %s:%u\n", op->name, death.point == NULL ? "its end" : death.point,
           death.passing);
    crash_make_world(&w, op);
    w.has_died = run_and_die(&w, op->run, death, NULL);
    bool has_died = w.has_died;
    w.has_died = has_died && death.point != NULL;
    crash_judge(&w);
    return has_died;
}

/* At a small size, only the first passing of a point at which the operation dies. */
static unsigned die_at(const struct crash_op *op, const struct crash_point *point)
{
    unsigned deaths = 0;
    for (unsigned n = 1; n <= point->passings && n <= CRASH_MOST_PASSINGS; n++)
        if (deaths == 0 || tnt_is_full())
            deaths += die_once(op, (struct death){point->name, n});
    return deaths;
}

void crash_run(const struct crash_op *op)
{
    static struct crash_points points;
    unsigned deaths = 0;
    crash_learn(op, &points);
    for (unsigned i = 0; i < points.count; i++)
        deaths += die_at(op, &points.point[i]);
    die_once(op, (struct death){NULL, 0});
    if (deaths < (tnt_is_full() ? points.count : points.count / 2))
        fail_msg("%u deaths at %u points", deaths, points.count);
    tnt_note("%s: %u points, %u deaths, and one at its end", op->name, points.count, deaths);
}

/* ---- every call of the driver ------------------------------------------------------------ */

struct call {
    crash_step_fn *run;
    unsigned half; /* even: before the call; odd: after it */
};
static struct call death_at_call;

static void run_to_call(struct crash_world *w)
{
    crash_load_driver(w);
    crash_kill_at_call(death_at_call.half / 2 + 1, death_at_call.half % 2 == 0);
    death_at_call.run(w);
    crash_kill_at_call(0, false);
}

void crash_run_driver(const struct crash_op *op)
{
    enum { MOST = 1000, ONE_OF = 5 };
    unsigned every = tnt_is_full() ? 1 : ONE_OF, deaths = 0;
    for (unsigned half = (unsigned)tnt_random_below(every); half < MOST; half += every) {
        struct crash_world w;
        death_at_call = (struct call){op->run, half};
        printf("%s %s call %u of the driver\n", op->name, half % 2 == 0 ? "before" : "after",
               half / 2 + 1);
        crash_make_world(&w, op);
        w.has_died = run_and_die(&w, run_to_call, nowhere, NULL);
        bool has_died = w.has_died;
        crash_judge(&w);
        if (!has_died)
            break;
        deaths++;
    }
    tnt_note("%s: %u deaths at calls of the driver", op->name, deaths);
}

/* ---- the reaper at every point ----------------------------------------------------------- */

/* A world with a dead member that no process has reclaimed. */
static bool make_victim(struct crash_world *w, const struct crash_op *op, struct death death)
{
    crash_make_world(w, op);
    w->has_died = run_and_die(w, op->run, death, NULL) && death.point != NULL;
    return w->has_died || death.point == NULL;
}

static bool kill_reaper(const struct crash_op *op, struct death victim, const char *point)
{
    struct crash_world w;
    printf("%s at %s:%u, its reaper at %s\n", op->name,
           victim.point == NULL ? "its end" : victim.point, victim.passing, point);
    make_victim(&w, op, victim);
    bool is_killed = run_and_die(&w, crash_reap, (struct death){point, 1}, NULL);
    crash_judge(&w);
    return is_killed;
}

static void learn_from_victim(const struct crash_op *op, struct death victim,
                              struct crash_points *points)
{
    struct crash_world w;
    make_victim(&w, op, victim);
    learn(&w, crash_reap, points);
    crash_judge(&w);
}

void crash_learn_reaper(const struct crash_op *op, struct crash_points *points)
{
    struct crash_points own = {0};
    crash_learn(op, &own);
    for (unsigned i = 0; i < own.count; i++)
        learn_from_victim(op, (struct death){own.point[i].name, 1}, points);
}

/*
 * For each victim, kill the reaper at every n-th of its points; the next victim takes the
 * points between them. So every point has its turn, and a long operation has about as many
 * deaths as a short one. At a small size, only every fourth victim, and without a search of
 * all processes for what a second death leaves of storages.
 */
void crash_run_reaper(const struct crash_op *op)
{
    static struct crash_points own, points;
    crash_learn(op, &own);
    unsigned deaths = 0, stride = own.count / 2 > 4 ? own.count / 2 : 4;
    stride *= SLOWNESS;
    unsigned turn = (unsigned)tnt_random_below(stride), every = tnt_is_full() ? 1 : 4;
    crash_skips_search = !tnt_is_full();
    for (unsigned i = turn % every; i <= own.count; i += every) {
        struct death victim = {i < own.count ? own.point[i].name : NULL, i < own.count};
        memset(&points, 0, sizeof points);
        learn_from_victim(op, victim, &points);
        for (unsigned p = (i + turn) % stride; p < points.count; p += stride)
            deaths += kill_reaper(op, victim, points.point[p].name);
    }
    tnt_note("%s: %u points to die at, %u deaths of who reclaimed it", op->name, own.count + 1,
             deaths);
}
