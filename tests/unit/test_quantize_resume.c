/* SPDX-License-Identifier: Apache-2.0
 *
 * Interrupted quantising: stopped at every tensor, killed at any moment, out of room; resumed to
 * the same bytes, and refused when source or settings changed. */
#include "quantize_fixture.h"

#include <errno.h>
#include <dirent.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#include "base/cpu.h"

typedef struct stopper {
    size_t calls, stop_at;
} stopper;

static int stop(void *user, const pleach_quantize_progress *p)
{
    stopper *s = user;
    assert_non_null(p->tensor);
    assert_true(p->done <= p->total);
    return ++s->calls == s->stop_at;
}

/* The uninterrupted result, made once. */
static const char *whole(void)
{
    static char path[256];
    pleach_quantize_settings s = bits(2);
    snprintf(path, sizeof path, "%s", at("whole"));
    if (!pl_exists(path)) assert_ok(pleach_quantize(TIED, path, &s, NULL, err));
    return path;
}

static void test_stopped_at_every_tensor(void **state)
{
    (void)state;
    whole();
    for (size_t n = 1;; n++) {
        stopper stopper = {.stop_at = n};
        pleach_quantize_settings s = bits(2);
        pleach_quantize_summary summary;
        pleach_error e = {0};
        s.progress = stop;
        s.user = &stopper;
        if (pleach_quantize(TIED, at("stopped"), &s, NULL, &e) == PLEACH_OK) {
            assert_true(n > 20); /* one call for each module, at least */
            break;
        }
        assert_int_equal(e.code, PLEACH_ERR_CANCELLED);
        assert_false(pl_exists(at("stopped")));
        s.progress = NULL;
        assert_ok(pleach_quantize(TIED, at("stopped"), &s, &summary, err));
        assert_int_equal(summary.resumed, n);
        assert_same_folder(at("stopped"), whole());
        assert_false(pl_exists(at("stopped.partial")));
        pleach_quantize_summary_free(&summary);
        remove_tree(at("stopped"));
    }
}

/* Starts `name` and stops it after n tensors. */
static void leave_partial(const char *source, const char *name, pleach_quantize_settings s,
                          size_t n)
{
    stopper stopper = {.stop_at = n};
    s.progress = stop;
    s.user = &stopper;
    s.threads = 1; /* modules are finished in order */
    assert_refused(pleach_quantize(source, at(name), &s, NULL, err), PLEACH_ERR_CANCELLED, "kept");
    assert_true(pl_is_directory(at(name)) == false);
}

static void test_other_settings(void **state)
{
    (void)state;
    static const char *const keep[] = {"*.o_proj"};
    static const struct {
        const char *field;
        pleach_quantize_settings change;
    } cases[] = {
        {"settings.bits is 2 there and 3 now", {.bits = 3}},
        {"settings.axis", {.axis = 1}},
        {"settings.state bits is 12 there and 16 now", {.state_bits = 16}},
        {"settings.embed bits", {.embed_bits = 4}},
        {"settings.head bits", {.head_bits = 4}},
        {"settings.rotate", {.rotate = PLEACH_ROTATE_INPUT}},
        {"settings.seed is 2 there and 7 now", {.seed = 7}},
        {"settings.keep is [] there and [\"*.o_proj\"] now", {.keep = keep, .n_keep = 1}},
    };
    pleach_quantize_settings base = bits(2);
    base.axis = 0;
    leave_partial(TIED, "other", base, 4);
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        const pleach_quantize_settings *c = &cases[i].change;
        pleach_quantize_settings s = base;
        if (c->bits) s.bits = c->bits;
        if (c->axis) s.axis = c->axis;
        if (c->state_bits) s.state_bits = c->state_bits;
        if (c->embed_bits) s.embed_bits = c->embed_bits;
        if (c->head_bits) s.head_bits = c->head_bits;
        if (c->rotate) s.rotate = c->rotate;
        if (c->seed) s.seed = c->seed;
        s.keep = c->keep;
        s.n_keep = c->n_keep;
        assert_refused(pleach_quantize(TIED, at("other"), &s, NULL, err), PLEACH_ERR_MISMATCH,
                       cases[i].field);
    }
    /* Starting over is asked for by name; and threads are no such setting. */
    pleach_quantize_settings s = base;
    pleach_quantize_summary summary;
    s.threads = 1;
    assert_ok(pleach_quantize(TIED, at("other"), &s, &summary, err));
    assert_int_equal(summary.resumed, 4);
    pleach_quantize_summary_free(&summary);
    leave_partial(TIED, "over", base, 4);
    s.bits = 3;
    s.discard_partial = 1;
    assert_ok(pleach_quantize(TIED, at("over"), &s, &summary, err));
    assert_int_equal(summary.resumed, 0);
    pleach_quantize_summary_free(&summary);
    assert_false(pl_exists(at("over.partial")));
}

/* A run that got no further than its job file leaves nothing that other settings could spoil. */
static void test_nothing_done(void **state)
{
    (void)state;
    pleach_quantize_settings s = bits(2);
    leave_partial(TIED, "idle", s, 4);
    DIR *dir = opendir(at("idle.partial"));
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));)
        if (strstr(e->d_name, ".safetensors")) unlinkat(dirfd(dir), e->d_name, 0);
    closedir(dir);
    s.bits = 3;
    assert_ok(pleach_quantize(TIED, at("idle"), &s, NULL, err));
    assert_false(pl_exists(at("idle.partial")));
}

/* Codes are the same at every level: one goes on where another stopped. */
static void test_other_level(void **state)
{
    (void)state;
    static const char *const levels[] = {"c", "avx2", "avx512"};
    for (size_t i = 0; i < PL_COUNT(levels); i++) {
        unsigned cpu;
        pleach_quantize_settings s = bits(2);
        pleach_quantize_summary summary;
        s.cpu = levels[i];
        if (pl_cpu_level(levels[i], &cpu) != 0) continue;
        leave_partial(TIED, "level", s, 7);
        s.cpu = levels[(i + 1) % PL_COUNT(levels)];
        if (pl_cpu_level(s.cpu, &cpu) != 0) s.cpu = "c";
        assert_ok(pleach_quantize(TIED, at("level"), &s, &summary, err));
        assert_int_equal(summary.resumed, 7);
        assert_same_folder(at("level"), whole());
        pleach_quantize_summary_free(&summary);
        remove_tree(at("level"));
    }
}

/* Flips one bit of a file, `back` bytes before its end. */
static void flip(const char *path, off_t back)
{
    uint8_t byte;
    int fd = open(path, O_RDWR);
    off_t offset = lseek(fd, -back, SEEK_END);
    assert_int_equal(pread(fd, &byte, 1, offset), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, offset), 1);
    close(fd);
}

static void test_other_source(void **state)
{
    (void)state;
    copy_checkpoint(at("source"));
    leave_partial(at("source"), "changed", bits(2), 3);
    char path[512];
    snprintf(path, sizeof path, "%s/model.safetensors", at("source"));
    pleach_quantize_settings s = bits(2);
    for (off_t back = 1; back < 900000; back = back * 7 + 3) {
        flip(path, back);
        assert_refused(pleach_quantize(at("source"), at("changed"), &s, NULL, err),
                       PLEACH_ERR_MISMATCH, "source.data");
        flip(path, back);
    }
    assert_ok(pleach_quantize(at("source"), at("changed"), &s, NULL, err));
    assert_same_folder(at("changed"), whole());
}

/* A part that is cut off, of another size or no file of its kind is made again. */
static void test_damaged_part(void **state)
{
    (void)state;
    static const off_t sizes[] = {0, 5, 700};
    for (size_t i = 0; i < PL_COUNT(sizes); i++) {
        pleach_quantize_summary summary;
        pleach_quantize_settings s = bits(2);
        leave_partial(TIED, "damaged", s, 5);
        const char *part = at("damaged.partial/model.layers.0.self_attn.q_proj.safetensors");
        assert_true(pl_exists(part));
        assert_int_equal(truncate(part, sizes[i]), 0);
        assert_ok(pleach_quantize(TIED, at("damaged"), &s, &summary, err));
        assert_int_equal(summary.resumed, 4);
        assert_same_folder(at("damaged"), whole());
        pleach_quantize_summary_free(&summary);
        remove_tree(at("damaged"));
    }
}

/* A process of its own quantises and is killed after some microseconds. */
static void run_and_kill(const char *out, int force, long microseconds)
{
    pid_t child = fork();
    if (child == 0) {
        pleach_quantize_settings s = bits(2);
        s.threads = 1; /* the other threads of the parent do not live on in a child */
        s.force = force;
        _exit(pleach_quantize(TIED, out, &s, NULL, NULL) == PLEACH_OK ? 0 : 1);
    }
    struct timespec t = {.tv_sec = microseconds / 1000000,
                         .tv_nsec = microseconds % 1000000 * 1000};
    nanosleep(&t, NULL);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

static void test_killed(void **state)
{
    (void)state;
    uint64_t random = 11;
    const char *result = whole();
    for (int round = 0; round < 30; round++) {
        /* Short and long lives: some die in the first tensor, some in the final assembly. */
        run_and_kill(at("killed"), 0, (long)(pl_random_unit(&random) * 300000));
        if (pl_exists(at("killed"))) assert_same_folder(at("killed"), result);
        if (pl_exists(at("killed")) && !pl_exists(at("killed.partial"))) remove_tree(at("killed"));
    }
    pleach_quantize_settings s = bits(2);
    /* One killed while it cleared up, its note of that gone already, left a result that stays. */
    bool done = pl_exists(at("killed"));
    pleach_status status = pleach_quantize(TIED, at("killed"), &s, NULL, NULL);
    if (!done || status != PLEACH_ERR_EXISTS) {
        assert_int_equal(status, PLEACH_OK);
        assert_false(pl_exists(at("killed.partial")));
    }
    assert_same_folder(at("killed"), result);
}

/* With force, what lies under the name is the old folder or the new one, whole, at every moment. */
static void test_killed_replacing(void **state)
{
    (void)state;
    uint64_t random = 12;
    pleach_quantize_settings s = bits(3);
    assert_ok(pleach_quantize(TIED, at("old"), &s, NULL, err));
    assert_ok(pleach_quantize(TIED, at("replaced"), &s, NULL, err));
    const char *result = whole();
    for (int round = 0; round < 12; round++) {
        run_and_kill(at("replaced"), 1, (long)(pl_random_unit(&random) * 300000));
        char path[512], *config;
        snprintf(path, sizeof path, "%s/config.json", at("replaced"));
        read_all(path, &config, NULL);
        assert_same_folder(at("replaced"), strstr(config, "\"bits\": 3") ? at("old") : result);
        pl_free(config);
    }
    s = bits(2);
    s.force = 1;
    assert_ok(pleach_quantize(TIED, at("replaced"), &s, NULL, err));
    assert_same_folder(at("replaced"), result);
}

/* Killed between the renaming and the clearing up: the next run only clears up. */
static void test_published(void **state)
{
    (void)state;
    pleach_quantize_settings s = bits(2);
    leave_partial(TIED, "published", s, 6);
    assert_ok(pleach_quantize(TIED, at("done"), &s, NULL, err));
    assert_int_equal(rename(at("done"), at("published")), 0);
    assert_refused(pleach_quantize(TIED, at("published"), &s, NULL, err), PLEACH_ERR_EXISTS,
                   "published");
    struct stat st;
    char note[64];
    assert_int_equal(stat(at("published"), &st), 0);
    int n = snprintf(note, sizeof note, "%llu:%llu\n", (unsigned long long)st.st_dev,
                     (unsigned long long)st.st_ino);
    assert_ok(pl_write_file(at("published.partial/published"), note, (size_t)n, err));
    assert_ok(pleach_quantize(TIED, at("published"), &s, NULL, err));
    assert_same_folder(at("published"), whole());
    assert_false(pl_exists(at("published.partial")));
}

/* A limit on file sizes stands in for a full disk: writing fails in the middle. */
static void test_no_room(void **state)
{
    (void)state;
    whole();
    pid_t child = fork();
    if (child == 0) {
        pleach_error e = {0};
        pleach_quantize_settings s = bits(2);
        s.threads = 1;
        signal(SIGXFSZ, SIG_IGN);
        struct rlimit limit = {.rlim_cur = 80000, .rlim_max = 80000};
        setrlimit(RLIMIT_FSIZE, &limit);
        int status = pleach_quantize(TIED, at("full"), &s, NULL, &e);
        _exit(status < 0 && strstr(e.message, "full.partial") ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    assert_false(pl_exists(at("full")));
    pleach_quantize_settings s = bits(2);
    pleach_quantize_summary summary;
    assert_ok(pleach_quantize(TIED, at("full"), &s, &summary, err));
    assert_true(summary.resumed > 15);
    assert_same_folder(at("full"), whole());
    pleach_quantize_summary_free(&summary);
}

static void test_two_at_once(void **state)
{
    (void)state;
    pleach_quantize_settings s = bits(2);
    leave_partial(TIED, "busy", s, 1);
    int fd = open(at("busy.partial"), O_RDONLY | O_DIRECTORY);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_refused(pleach_quantize(TIED, at("busy"), &s, NULL, err), PLEACH_ERR_EXISTS,
                   "another process");
    close(fd);
    assert_ok(pleach_quantize(TIED, at("busy"), &s, NULL, err));
}

static void test_foreign_work_folder(void **state)
{
    (void)state;
    pleach_quantize_settings s = bits(2);
    s.discard_partial = 1;
    assert_int_equal(mkdir(at("mine.partial"), 0777), 0);
    assert_ok(pl_write_file(at("mine.partial/thesis.txt"), "words", 5, err));
    assert_refused(pleach_quantize(TIED, at("mine"), &s, NULL, err), PLEACH_ERR_EXISTS,
                   "no work folder");
    assert_true(pl_exists(at("mine.partial/thesis.txt")));
    assert_int_equal(unlink(at("mine.partial/thesis.txt")), 0);
    assert_ok(pleach_quantize(TIED, at("mine"), &s, NULL, err)); /* an empty one is taken */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_killed_replacing),
        cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_stopped_at_every_tensor),
        cmocka_unit_test(test_other_settings),
        cmocka_unit_test(test_nothing_done),
        cmocka_unit_test(test_other_level),
        cmocka_unit_test(test_other_source),
        cmocka_unit_test(test_damaged_part),
        cmocka_unit_test(test_published),
        cmocka_unit_test(test_two_at_once),
        cmocka_unit_test(test_foreign_work_folder),
    };
    return cmocka_run_group_tests(tests, make_scratch, drop_scratch);
}
