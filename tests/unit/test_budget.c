/* SPDX-License-Identifier: Apache-2.0
 *
 * Budgets on a small model: any rate between the floor and 4 bits is met and gives finite weights
 * whose error falls with it; patterns, plan files and what is refused. */
#include "quantize_fixture.h"

#include <math.h>
#include <sys/stat.h>

#include "format/checkpoint.h"

static pleach_quantize_settings budget(double bits_each)
{
    pleach_quantize_settings s = bits(3);
    s.budget = bits_each;
    s.embed_bits = 16;
    s.force = 1;
    return s;
}

static double floor_bits(void)
{
    pleach_quantize_settings s = bits(2);
    pleach_quantize_summary plan;
    assert_ok(pleach_quantize_plan(TIED, &s, &plan, err));
    double floor = plan.block_bits;
    pleach_quantize_summary_free(&plan);
    return floor;
}

/* Rates from the floor up, 3.0 and its neighbours among them. */
static void test_sweep(void **state)
{
    (void)state;
    double floor = ceil(floor_bits() * 1000) / 1000, last = INFINITY;
    const double rates[] = {floor, floor + .01, 2.5, 2.75, 2.99, 3.0, 3.01, 3.25, 3.5, 4.0, 4.5};
    for (size_t i = 0; i < PL_COUNT(rates); i++) {
        pleach_quantize_settings s = budget(rates[i]);
        pleach_quantize_summary made;
        pleach_checkpoint *c;
        size_t findings;
        assert_ok(pleach_quantize(TIED, at("sweep"), &s, &made, err));
        assert_true(made.block_bits <= rates[i]);
        if (rates[i] < 4) assert_true(made.block_bits > rates[i] - .1);
        assert_true(made.relative_error <= last * 1.02); /* of all weights alike; shares differ */
        last = made.relative_error;
        assert_ok(pl_checkpoint_open(at("sweep"), &c, err));
        assert_ok(pleach_checkpoint_verify(c, NULL, NULL, &findings, err));
        assert_int_equal(findings, 0);
        pleach_checkpoint_close(c);
        pleach_quantize_summary_free(&made);
    }
}

static uint64_t size_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return (uint64_t)st.st_size;
}

static void test_file_budget(void **state)
{
    (void)state;
    pleach_quantize_settings s = budget(0);
    pleach_quantize_summary made;
    char path[512];
    s.budget_file = 1000;
    assert_refused(pleach_quantize_plan(TIED, &s, &made, err), PLEACH_ERR_LIMIT,
                   "the files of weights take ");
    pleach_error e;
    uint64_t floor = 0;
    assert_int_equal(pleach_quantize_plan(TIED, &s, &made, &e), PLEACH_ERR_LIMIT);
    floor = strtoull(strstr(e.message, "weights take ") + 13, NULL, 10);
    s.budget_file = floor - 1;
    assert_refused(pleach_quantize_plan(TIED, &s, &made, err), PLEACH_ERR_LIMIT, "cannot be met");
    uint64_t last = 0;
    for (uint64_t more = 0; more <= 40000; more += 10000) {
        s.budget_file = floor + more;
        assert_ok(pleach_quantize(TIED, at("file"), &s, &made, err));
        pleach_quantize_summary_free(&made);
        snprintf(path, sizeof path, "%s/model.safetensors", at("file"));
        assert_true(size_of(path) <= s.budget_file);
        assert_true(size_of(path) > last);
        last = size_of(path);
    }
}

static void test_floor(void **state)
{
    (void)state;
    pleach_quantize_settings s = budget(2.01);
    pleach_quantize_summary made;
    char floor[32];
    snprintf(floor, sizeof floor, "take %.4f", ceil(floor_bits() * 1e4) / 1e4);
    assert_refused(pleach_quantize_plan(TIED, &s, &made, err), PLEACH_ERR_LIMIT, floor);
    s.budget = NAN;
    assert_refused(pleach_quantize_plan(TIED, &s, &made, err), PLEACH_ERR_ARGUMENT, "budget is");
    s.budget = -3;
    assert_refused(pleach_quantize_plan(TIED, &s, &made, err), PLEACH_ERR_ARGUMENT, "budget is");
}

static uint32_t k_of(const pleach_quantize_summary *s, const char *name)
{
    for (size_t i = 0; i < s->n_items; i++)
        if (!strcmp(s->items[i].name, name)) return s->items[i].k;
    fail_msg("%s is not there", name);
    return 0;
}

static void test_patterns(void **state)
{
    (void)state;
    static const char *const patterns[] = {"*.v_proj=4", "*.layers.0.*=2",
                                           "model.layers.0.mlp.up_proj=3"};
    static const char *const bad[] = {"*.v_proj", "*.v_proj=5", "*.v_proj=", "=3", "*.v_proj=33",
                                      "*.w_proj=3", "model.embed_tokens=4"};
    for (int with_budget = 0; with_budget <= 1; with_budget++) {
        pleach_quantize_settings s = budget(with_budget ? 3.2 : 0);
        pleach_quantize_summary plan;
        s.bits_for = patterns;
        s.n_bits_for = PL_COUNT(patterns);
        assert_ok(pleach_quantize_plan(TIED, &s, &plan, err));
        assert_int_equal(k_of(&plan, "model.layers.1.self_attn.v_proj"), 4);
        assert_int_equal(k_of(&plan, "model.layers.0.self_attn.v_proj"), 2);
        assert_int_equal(k_of(&plan, "model.layers.0.mlp.up_proj"), 3);
        if (with_budget) assert_true(plan.block_bits <= 3.2);
        else assert_int_equal(k_of(&plan, "model.layers.1.mlp.up_proj"), 3);
        pleach_quantize_summary_free(&plan);
    }
    for (size_t i = 0; i < PL_COUNT(bad); i++) {
        pleach_quantize_settings s = budget(0);
        pleach_quantize_summary plan;
        s.bits_for = &bad[i];
        s.n_bits_for = 1;
        assert_refused(pleach_quantize_plan(TIED, &s, &plan, err), PLEACH_ERR_ARGUMENT, bad[i]);
    }
}

/* ---- plan files ----------------------------------------------------------------------------- */

static void test_plan_round_trip(void **state)
{
    (void)state;
    pleach_quantize_settings s = budget(2.9);
    pleach_quantize_summary made, again;
    assert_ok(pleach_quantize(TIED, at("spent"), &s, &made, err));
    assert_int_equal(made.n_warnings, 1); /* no statistics */
    assert_ok(pleach_quantize_save_plan(&made, at("plan.json"), err));
    s.budget = 0;
    s.plan = strdup(at("plan.json"));
    assert_ok(pleach_quantize(TIED, at("planned"), &s, &again, err));
    assert_same_folder(at("spent"), at("planned"));
    for (size_t i = 0; i < made.n_items; i++) assert_int_equal(made.items[i].k, again.items[i].k);
    s.budget = 3;
    assert_refused(pleach_quantize(TIED, at("planned"), &s, NULL, err), PLEACH_ERR_ARGUMENT,
                   "plan and a budget");
    free((char *)(uintptr_t)s.plan);
    pleach_quantize_summary_free(&again);
    pleach_quantize_summary_free(&made);
}

/* The saved plan with one text replaced by another. */
static void edit_plan(const char *from, const char *to)
{
    char *text, *at_text, *edited = malloc(1 << 16);
    size_t size;
    read_all(at("plan.json"), &text, &size);
    assert_non_null(at_text = strstr(text, from));
    int n = snprintf(edited, 1 << 16, "%.*s%s%s", (int)(at_text - text), text, to,
                     at_text + strlen(from));
    assert_ok(pl_write_file(at("edited.json"), edited, (size_t)n, err));
    free(edited);
    pl_free(text);
}

static void test_bad_plans(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to;
        pleach_status status;
        const char *line;
    } edits[] = {
        {"\"bits\": ", "\"bits\": 5", PLEACH_ERR_FORMAT, "bits"},
        {"\"bits\": ", "\"bots\": ", PLEACH_ERR_MISSING, "bits is missing"},
        {"layers.0.self_attn.q_proj", "layers.7.self_attn.q_proj", PLEACH_ERR_MISMATCH,
         "layers.7.self_attn.q_proj"},
        {"\"shape\": [", "\"shape\": [1", PLEACH_ERR_MISMATCH, "another model"},
        {"\"shape\": [", "\"shape\": [[", PLEACH_ERR_FORMAT, "edited.json"},
        {"pleach plan 1", "pleach plan 2", PLEACH_ERR_FORMAT, "pleach plan 1"},
        {"\"modules\": {", "\"modules\": {\"model.embed_tokens\": {\"bits\": 4},",
         PLEACH_ERR_MISMATCH, "model.embed_tokens"},
        {"\"modules\": {", "\"more\": {}, \"modules\": 3, \"rest\": {", PLEACH_ERR_FORMAT, "plan file"},
    };
    for (size_t i = 0; i < PL_COUNT(edits); i++) {
        pleach_quantize_settings s = budget(0);
        pleach_quantize_summary plan;
        edit_plan(edits[i].from, edits[i].to);
        s.plan = at("edited.json");
        assert_refused(pleach_quantize_plan(TIED, &s, &plan, err), edits[i].status, edits[i].line);
    }
    pleach_quantize_settings s = budget(0);
    pleach_quantize_summary plan;
    s.plan = at("plan.json");
    char other[512];
    snprintf(other, sizeof other, "%s/golden/checkpoints/qwen3-qknorm", PLEACH_TEST_DATA);
    assert_refused(pleach_quantize_plan(other, &s, &plan, err), PLEACH_ERR_MISMATCH, "plan.json");
    s.plan = at("nowhere.json");
    assert_refused(pleach_quantize_plan(TIED, &s, &plan, err), PLEACH_ERR_MISSING, "nowhere.json");
}

/* Unfinished work of one plan is not continued with another. */
static int stop_at_once(void *user, const pleach_quantize_progress *p)
{
    (void)user;
    return p->done > 0;
}

static void test_resume_is_bound(void **state)
{
    (void)state;
    pleach_quantize_settings s = budget(3);
    s.progress = stop_at_once;
    assert_refused(pleach_quantize(TIED, at("bound"), &s, NULL, err), PLEACH_ERR_CANCELLED, "kept");
    s.progress = NULL;
    s.budget = 2.8;
    assert_refused(pleach_quantize(TIED, at("bound"), &s, NULL, err), PLEACH_ERR_MISMATCH,
                   "budget");
    s.budget = 0;
    s.plan = at("plan.json");
    assert_refused(pleach_quantize(TIED, at("bound"), &s, NULL, err), PLEACH_ERR_MISMATCH,
                   "settings.bits by module");
    s.plan = NULL;
    s.budget = 3;
    assert_ok(pleach_quantize(TIED, at("bound"), &s, NULL, err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sweep),         cmocka_unit_test(test_file_budget),
        cmocka_unit_test(test_floor),         cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_plan_round_trip), cmocka_unit_test(test_bad_plans),
        cmocka_unit_test(test_resume_is_bound),
    };
    return cmocka_run_group_tests(tests, make_scratch, drop_scratch);
}
