/* SPDX-License-Identifier: Apache-2.0
 *
 * A calibrated run killed at any moment, while it writes its text, goes forward and back, codes,
 * refines and puts the result together: the next one goes on to the same bytes. Each run is a
 * process of its own. PLEACH_KILLS is the number of kills. */
#include "text_model.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

static const char *const stages[] = {"text", "forward", "backward", "coding", "refining"};
enum { STAGES = PL_COUNT(stages) };
static const char *const made[] = {"config.json", "model.safetensors", "quantize-report.json"};

static folder model, work;
static atomic_int *stage; /* that a run is in, 1 to STAGES; shared with it */

static void pause_for(double seconds)
{
    struct timespec t = {.tv_sec = (time_t)seconds, .tv_nsec = (long)(fmod(seconds, 1) * 1e9)};
    nanosleep(&t, NULL);
}

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int note_stage(void *user, const pleach_quantize_progress *p)
{
    (void)user;
    for (int i = 0; i < STAGES; i++)
        if (strcmp(p->stage, stages[i]) == 0) atomic_store(stage, i + 1);
    return 0;
}

static pid_t begin(const char *out, int threads)
{
    atomic_store(stage, 0);
    pid_t child = fork();
    if (child != 0) return child;
    pleach_quantize_settings s;
    pleach_error err = {0};
    pleach_quantize_settings_defaults(&s);
    s.calib = "self";
    s.calib_tokens = 3 * 512;
    s.two_sided = 1;
    s.refine = 1;
    s.threads = threads;
    s.progress = note_stage;
    int status = pleach_quantize(model.path, out, &s, NULL, &err);
    if (status != PLEACH_OK) fprintf(stderr, "%s\n", err.message);
    _exit(status == PLEACH_OK ? 0 : 1);
}

/* Whether the run has come to an end, which must be a good one. */
static bool ended(pid_t child, int flags)
{
    int status;
    pid_t who = waitpid(child, &status, flags);
    assert_true(who >= 0);
    if (who == child) assert_int_equal(status, 0);
    return who == child;
}

/* A path in the work folder, good for the 7 calls that follow. */
static const char *at(const char *name)
{
    static char paths[8][400];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", work.path, name);
    return path;
}

static void assert_same(const char *a, const char *b)
{
    for (size_t i = 0; i < PL_COUNT(made); i++) {
        char path[512], *x, *y;
        size_t n, m;
        snprintf(path, sizeof path, "%s/%s", at(a), made[i]);
        must(pl_read_file(path, 1 << 26, &x, &n, &err));
        snprintf(path, sizeof path, "%s/%s", at(b), made[i]);
        must(pl_read_file(path, 1 << 26, &y, &m, &err));
        assert_int_equal(n, m);
        assert_memory_equal(x, y, n);
        pl_free(x);
        pl_free(y);
    }
}

/* How long a whole run stays in each stage; index 0 is what comes before the first, index STAGES
 * the last one and all that follows. */
static void run_whole(double seconds[STAGES + 1])
{
    pid_t child = begin(at("whole"), 1);
    double last = seconds_now();
    int seen = 0;
    while (!ended(child, WNOHANG)) {
        int now = atomic_load(stage);
        if (now > seen) {
            double t = seconds_now();
            seconds[seen] = t - last;
            for (int i = seen + 1; i < now; i++) seconds[i] = 0;
            seen = now;
            last = t;
        }
        pause_for(0.001);
    }
    assert_int_equal(seen, STAGES);
    seconds[STAGES] = seconds_now() - last;
}

/* Kills a run some time after it has come to a stage. False when it was done before. */
static bool kill_at(pid_t child, int target, double seconds, int *where)
{
    while (atomic_load(stage) < target) {
        if (ended(child, WNOHANG)) return false;
        pause_for(0.001);
    }
    pause_for(seconds);
    *where = atomic_load(stage);
    if (ended(child, WNOHANG)) return false;
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    return true;
}

/* Lets the work go on to its end, unless the result is there, and clears up. */
static void finish(void)
{
    if (!pl_exists(at("again"))) {
        assert_true(ended(begin(at("again"), 2), 0));
        assert_false(pl_exists(at("again.partial")));
    }
    assert_same("again", "whole");
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s' '%s.partial'", at("again"), at("again"));
    assert_int_equal(system(command), 0);
}

/* Killed in each stage or a little later, and let go on to the end; and so again. */
static void killed_anywhere(void **state)
{
    (void)state;
    const char *wanted = getenv("PLEACH_KILLS");
    int kills = wanted ? atoi(wanted) : 12, hits[STAGES + 1] = {0}, target = 0;
    double seconds[STAGES + 1] = {0};
    uint64_t random = 5;
    run_whole(seconds);
    for (int n = 0; n < kills; n++) {
        int where;
        double delay = 1.2 * pl_random_unit(&random) * seconds[target];
        if (kill_at(begin(at("again"), 1 + n % 3), target, delay, &where)) hits[where]++;
        target = pl_exists(at("again")) ? 0 : (target + 1) % (STAGES + 1);
        if (target == 0) finish();
    }
    finish();
    for (int i = 0; i <= STAGES; i++)
        print_message("%d killed %s%s\n", hits[i], i ? "in " : "before ", stages[i ? i - 1 : 0]);
}

static int setup(void **state)
{
    (void)state;
    model = make_model(NULL);
    work = make_folder();
    stage = mmap(NULL, sizeof *stage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return stage == MAP_FAILED;
}

static int teardown(void **state)
{
    char command[600];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s' '%s'", work.path, model.path);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(killed_anywhere)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
