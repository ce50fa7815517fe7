/* SPDX-License-Identifier: Apache-2.0
 *
 * The modules of a small model coded with error feedback from statistics made up here: the same
 * files for every number of threads, and after any number of kills. */
#include "quantize_fixture.h"

#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "base/cpu.h"
#include "calibrate/statistics_file.h"
#include "quant/parts.h"

/* ---- statistics of TIED --------------------------------------------------------------------- */

/* Positive definite and correlated: each number leans on its neighbours. */
static float *made_up(size_t n, uint64_t seed)
{
    float *packed = malloc(pl_triangle_size(n) * sizeof *packed), *to = packed;
    for (size_t i = 0; i < n; i++)
        for (size_t j = i; j < n; j++)
            *to++ = powf(.9f, (float)(j - i)) * (1 + .1f * (float)((i + seed) % 7)) *
                    (1 + .1f * (float)((j + seed) % 7));
    return packed;
}

static const pl_module *module_of(const pl_plan *plan, pl_statistic kind, size_t i)
{
    for (size_t k = 0; k < plan->n_items; k++) {
        const pl_module *m = &plan->items[k].module;
        if (m->kind != PL_MODULE_LINEAR) continue;
        if (pl_statistic_index(kind, m) == i) return m;
    }
    fail_msg("no module for statistic %zu", i);
    return NULL;
}

static void write_block(const char *dir, const pl_plan *plan, uint32_t block)
{
    pl_tensor tensors[40];
    char names[40][PL_STATISTICS_NAME];
    float *data[40];
    int64_t tokens[7] = {100, 100, 100, 100, 100, 100, 100};
    double gradient[7] = {1, 1, 1, 1, 1, 1, 1};
    size_t n = 0, matrices;
    for (pl_statistic kind = 0; kind < PL_STATISTIC_KINDS; kind++)
        for (size_t i = 0; i < pl_statistic_count(plan->config, block, kind); i++, n++) {
            const pl_module *m = module_of(plan, kind, i);
            size_t width =
                kind == PL_STATISTIC_OUTPUT || kind == PL_STATISTIC_POWER ? m->out : m->in;
            data[n] = made_up(width, block + 3 * kind + i);
            tensors[n] = (pl_tensor){.name = pl_statistics_tensor_name(kind, m, names[n]),
                                     .type = PL_F32, .n_dims = 1,
                                     .shape = {pl_statistic_size(kind, width)},
                                     .n_bytes = pl_statistic_size(kind, width) * 4};
        }
    matrices = n;
    for (pl_statistic kind = 0; kind < PL_STATISTIC_KINDS; kind++) {
        size_t count = pl_statistic_count(plan->config, block, kind);
        tensors[n++] = (pl_tensor){.name = pl_statistics_tokens_name(kind), .type = PL_I64,
                                   .n_dims = 1, .shape = {count}, .n_bytes = count * 8};
    }
    tensors[n++] = (pl_tensor){.name = PL_STATISTICS_GRADIENT, .type = PL_F64, .n_dims = 1,
                               .shape = {7}, .n_bytes = sizeof gradient};
    pl_safetensors_writer *w;
    char *path = pl_statistics_block_path(dir, block, NULL);
    assert_ok(pl_safetensors_create(path, tensors, n, &w, err));
    for (size_t i = 0; i < n; i++)
        assert_ok(pl_safetensors_append(w, i < matrices ? (void *)data[i]
                                           : i + 1 < n  ? (void *)tokens
                                                        : (void *)gradient,
                                        tensors[i].n_bytes, err));
    assert_ok(pl_safetensors_commit(w, err));
    for (size_t i = 0; i < matrices; i++) free(data[i]);
    pl_free(path);
}

/* The folder, made once. */
static const char *statistics(void)
{
    static char path[256];
    if (path[0]) return path;
    snprintf(path, sizeof path, "%s", at("statistics"));
    pleach_checkpoint *c;
    pl_plan plan;
    assert_ok(pl_checkpoint_open(TIED, &c, err));
    assert_ok(pl_plan_open(&plan, c, NULL, err));
    assert_int_equal(mkdir(path, 0777), 0);
    uint32_t blocks = 0;
    for (size_t i = 0; i < plan.n_items; i++)
        if (plan.items[i].module.kind == PL_MODULE_LINEAR)
            blocks = PL_MAX(blocks, plan.items[i].module.layer + 1);
    for (uint32_t b = 0; b < blocks; b++) write_block(path, &plan, b);
    pl_statistics_head head = {.info = {.blocks = blocks, .tokens = 100, .fisher = true,
                                        .output = true},
                               .whole = true, .binding = json_pack("{s:i}", "made up", 1)};
    assert_ok(pl_statistics_head_write(path, &head, err));
    pl_statistics_head_free(&head);
    pl_plan_close(&plan);
    pleach_checkpoint_close(c);
    return path;
}

/* ---- runs ----------------------------------------------------------------------------------- */

typedef struct watch {
    uint64_t last;
    size_t calls, stop_at;
} watch;

static int watch_progress(void *user, const char *module, uint64_t done)
{
    watch *w = user;
    if (!module || done < w->last) return -1;
    w->last = done;
    return ++w->calls == w->stop_at;
}

/* Codes what is left of the work `name` stands for; the work folder stays. */
static pleach_status make(const char *name, int threads, int two_sided, watch *w, size_t *resumed,
                          void (*look)(const pl_parts *))
{
    pleach_quantize_settings s = bits(3);
    pleach_checkpoint *c = NULL;
    pl_plan plan = {0};
    pl_output_path path = {0};
    pl_job job = {.lock = -1};
    pl_statistics *st = NULL;
    pl_kernels kernels;
    unsigned cpu;
    s.threads = threads;
    pl_cpu_level(NULL, &cpu);
    pl_kernels_init(&kernels, cpu);
    json_t *binding = json_pack("{s:s}", "work", "test");
    pl_parts parts = {.plan = &plan, .job = &job, .kernels = &kernels,
                      .progress = watch_progress, .user = w};
    pleach_status status = pl_checkpoint_open(TIED, &c, NULL);
    if (!status) status = pl_plan_open(&plan, c, &s, NULL);
    if (!status) status = pl_statistics_open(statistics(), NULL, &st, NULL);
    plan.feedback = (pl_feedback_settings){.inputs = true, .outputs = true,
                                           .two_sided = two_sided != 0, .damping = .01,
                                           .output_damping = 1, .sweeps = 1};
    parts.statistics = st;
    if (!status) status = pl_output_path_open(&path, TIED, at(name), false, NULL);
    if (!status) status = pl_job_open(&job, &path, binding, false, NULL);
    if (!status) status = pl_parts_find(&parts, NULL);
    if (!status && resumed) *resumed = parts.resumed;
    if (!status) status = pl_parts_make(&parts, NULL);
    if (!status && look) look(&parts);
    pl_parts_close(&parts);
    if (job.path) pl_job_close(&job);
    pl_output_path_close(&path);
    pl_statistics_close(st);
    pl_plan_close(&plan);
    pleach_checkpoint_close(c);
    json_decref(binding);
    return status;
}

/* Every part of two work folders. */
static void assert_same_parts(const char *a, const char *b)
{
    char command[1200];
    snprintf(command, sizeof command, "diff -rq '%s.partial' '%s.partial' >&2", at(a), at(b));
    assert_int_equal(system(command), 0);
}

static void look_at_reports(const pl_parts *p)
{
    size_t linear = 0;
    for (size_t i = 0; i < p->plan->n_items; i++) {
        double error[2];
        pl_feedback_report r;
        const pl_plan_item *item = &p->plan->items[i];
        if (item->coding == PL_CODING_DENSE) continue;
        pl_part_error(p, i, error);
        pl_part_feedback(p, i, &r);
        assert_true(error[0] > 0 && error[0] < .2 * error[1]);
        if (item->coding != PL_CODING_TRELLIS) {
            assert_int_equal(r.inputs, PL_FEEDBACK_NO_STATISTICS);
            continue;
        }
        linear++;
        assert_int_equal(r.inputs, PL_FEEDBACK_APPLIED);
        assert_true(r.plain[0] > 0 && r.plain[0] < .02 * r.plain[1]);
        assert_true(r.weighted[0] > 0 && r.weighted[0] < .02 * r.weighted[1]);
        assert_true(r.loss > 0 && r.estimate[0] > r.estimate[1] && r.estimate[1] > r.estimate[2]);
        assert_true(r.estimate[1] > .5 * r.loss && r.estimate[1] < 2.5 * r.loss);
    }
    assert_true(linear >= 14);
}

static void test_threads(void **state)
{
    (void)state;
    static const char *const names[] = {"one", "two", "five"};
    static const int threads[] = {1, 2, 5};
    for (size_t i = 0; i < PL_COUNT(names); i++) {
        watch w = {0};
        assert_int_equal(make(names[i], threads[i], 1, &w, NULL, look_at_reports), PLEACH_OK);
        assert_true(w.calls > 14);
        assert_same_parts("one", names[i]);
    }
}

static void test_stopped(void **state)
{
    (void)state;
    watch whole = {0};
    assert_int_equal(make("whole", 2, 0, &whole, NULL, look_at_reports), PLEACH_OK);
    for (size_t n = 1; n < whole.calls; n += 3) {
        watch stopping = {.stop_at = n}, going = {0};
        assert_int_equal(make("stopped", 3, 0, &stopping, NULL, NULL), PLEACH_ERR_CANCELLED);
        assert_int_equal(stopping.calls, n);
        assert_int_equal(make("stopped", 3, 0, &going, NULL, look_at_reports), PLEACH_OK);
        assert_same_parts("stopped", "whole");
        remove_tree(at("stopped.partial"));
    }
}

static void test_killed(void **state)
{
    (void)state;
    uint64_t random = 5;
    watch w = {0};
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    assert_int_equal(make("uncut", 1, 1, &w, NULL, NULL), PLEACH_OK);
    clock_gettime(CLOCK_MONOTONIC, &end);
    double seconds = (double)(end.tv_sec - start.tv_sec) +
                     1e-9 * (double)(end.tv_nsec - start.tv_nsec);
    for (int round = 0; round < 40; round++) {
        pid_t child = fork();
        if (child == 0) {
            watch none = {0};
            _exit(make("killed", 1, 1, &none, NULL, NULL) ? 1 : 0);
        }
        double life = pl_random_unit(&random) * seconds * .3;
        struct timespec t = {.tv_sec = (time_t)life,
                             .tv_nsec = (long)((life - floor(life)) * 1e9)};
        nanosleep(&t, NULL);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    size_t resumed = 0;
    watch last = {0};
    assert_int_equal(make("killed", 2, 1, &last, &resumed, look_at_reports), PLEACH_OK);
    assert_true(resumed > 0);
    remove_tree(at("uncut.partial/job.json"));
    remove_tree(at("killed.partial/job.json"));
    char command[512];
    snprintf(command, sizeof command, "rm -f '%s.partial'/*.partial '%s.partial'/*.tmp",
             at("killed"), at("killed"));
    assert_int_equal(system(command), 0);
    assert_same_parts("killed", "uncut");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_stopped),
    };
    return cmocka_run_group_tests(tests, make_scratch, drop_scratch);
}
