/* SPDX-License-Identifier: Apache-2.0
 *
 * Quantising with calibration from end to end, with a small model that has a tokenizer: texts that
 * are read and refused, folders of statistics used again, runs stopped and resumed, activations
 * that overflow. */
#include "text_model.h"

#include <sys/stat.h>

#include "calibrate/text.h"
#include "runtime/engine.h"

static folder model, work;

static int setup(void **state)
{
    (void)state;
    model = make_model(NULL);
    work = make_folder();
    return 0;
}

static int teardown(void **state)
{
    char command[600];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s' '%s'", work.path, model.path);
    return system(command);
}

/* A path in the work folder, good for the 256 calls that follow. */
static const char *at(const char *name)
{
    static char paths[257][320];
    static int next;
    char *path = paths[next++ % 257];
    snprintf(path, sizeof paths[0], "%s/%s", work.path, name);
    return path;
}

/* ---- text -------------------------------------------------------------------------------------- */

static pleach_status read_text(const char *name, const char *content, size_t limit, pl_ids *ids,
                               pleach_error *err)
{
    pleach_model *m = open_model(model.path, NULL, PLEACH_ARITH_F32, 1);
    folder_write(&work, name, content);
    ids->n = 0;
    pleach_status status = pl_calibration_text(m->tokenizer, at(name), limit, 16, ids, err);
    pleach_model_close(m);
    return status;
}

static void texts(void **state)
{
    (void)state;
    pl_ids ids = {0};
    char longer[5000];
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = 0;
    must(read_text("a.txt", longer, 100, &ids, &err)); /* a byte is a token */
    assert_int_equal(ids.n, 100);
    assert_int_equal(ids.ids[99], 'x');
    must(read_text("a.txt", longer, 100000, &ids, &err));
    assert_int_equal(ids.n, sizeof longer - 1);
    must(read_text("a.jsonl", "{\"text\": \"0123456789abcdef0123456789\"}\n\n \r\n{\"text\":\"xyz\"}\r\n"
                              "{\"text\": \"end\"}", 100, &ids, &err));
    assert_int_equal(ids.n, 26 + 3 + 3);
    assert_int_equal(ids.ids[26], 'x');
    /* A line past what is needed is not looked at. */
    must(read_text("b.jsonl", "{\"text\": \"0123456789abcdef0123456789abcdef\"}\nnonsense", 32, &ids,
                   &err));
    assert_int_equal(ids.n, 32);
    static const struct {
        const char *name, *content, *line;
    } bad[] = {
        {"c.txt", "", "0 tokens"},
        {"c.txt", "thirty-one bytes, no byte more.", "31 tokens"},
        {"c.txt", "text that goes wrong \xff\xfe here, in the middle", "byte 21"},
        {"c.jsonl", "{\"text\": \"a\"}\n{\"text\": }", "line 2"},
        {"c.jsonl", "{\"text\": \"a\"}\n\n{\"txt\": \"b\"}", "line 3"},
        {"c.jsonl", "{\"text\": 7}", "line 1"},
        {"c.jsonl", "[1]", "line 1"},
        {"c.jsonl", "{\"messages\": \"a\"}", "line 1"},
        {"c.jsonl", "{\"messages\": []}", "line 1"},
        {"c.jsonl", "{\"messages\": [{\"role\": \"user\"}]}", "messages.content"},
        {"c.jsonl", "{\"messages\": [7]}", "line 1"},
        {"c.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}", "line 1: this model"},
    };
    for (size_t i = 0; i < PL_COUNT(bad); i++) {
        pleach_error err = {0};
        assert_int_not_equal(read_text(bad[i].name, bad[i].content, 100, &ids, &err), PLEACH_OK);
        if (!strstr(err.message, bad[i].line)) fail_msg("%zu: %s", i, err.message);
    }
    pl_free(ids.ids);
}

/* ---- runs -------------------------------------------------------------------------------------- */

static pleach_quantize_settings settings(const char *calib)
{
    pleach_quantize_settings s;
    pleach_quantize_settings_defaults(&s);
    s.calib = calib;
    s.calib_tokens = 2 * 512 + 100;
    s.threads = 2;
    return s;
}

static const char *text_file(void)
{
    char text[3000];
    uint64_t random = 3;
    for (size_t i = 0; i + 1 < sizeof text; i++)
        text[i] = "etaoin shrdlu.\n"[pl_random_next(&random) % 15];
    text[sizeof text - 1] = 0;
    folder_write(&work, "calib.txt", text);
    return at("calib.txt");
}

static void assert_same_model(const char *a, const char *b)
{
    char path[400], *x, *y;
    size_t n, m;
    snprintf(path, sizeof path, "%s/model.safetensors", a);
    must(pl_read_file(path, 1 << 26, &x, &n, &err));
    snprintf(path, sizeof path, "%s/model.safetensors", b);
    must(pl_read_file(path, 1 << 26, &y, &m, &err));
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    pl_free(x);
    pl_free(y);
}

static void statistics_are_used_again(void **state)
{
    (void)state;
    pleach_quantize_settings s = settings(text_file());
    pleach_quantize_summary summary;
    s.fisher = 0;
    must(pleach_quantize(model.path, at("one"), &s, &summary, &err));
    assert_int_equal(summary.n_warnings, 1); /* few tokens */
    assert_non_null(strstr(summary.warnings[0], "1124 tokens"));
    pleach_quantize_summary_free(&summary);
    s.statistics = at("kept");
    must(pleach_quantize(model.path, at("two"), &s, NULL, &err));
    must(pleach_quantize(model.path, at("three"), &s, NULL, &err));
    assert_same_model(at("one"), at("two"));
    assert_same_model(at("one"), at("three"));
    s.fisher = 1;
    assert_refused(pleach_quantize(model.path, at("four"), &s, NULL, &err), PLEACH_ERR_MISMATCH,
                   "without a backward pass");
    s.fisher = 0;
    s.calib_tokens = 600;
    assert_refused(pleach_quantize(model.path, at("five"), &s, NULL, &err), PLEACH_ERR_MISMATCH,
                   "text.tokens is 1124 there and 600 now");
    s.calib = "self";
    assert_refused(pleach_quantize(model.path, at("six"), &s, NULL, &err), PLEACH_ERR_MISMATCH,
                   "text.kind");
    s.two_sided = 1;
    assert_refused(pleach_quantize(model.path, at("seven"), &s, NULL, &err), PLEACH_ERR_ARGUMENT,
                   "two-sided");
}

typedef struct stopper {
    size_t calls, stop_at;
} stopper;

static int stop(void *user, const pleach_quantize_progress *p)
{
    stopper *s = user;
    assert_non_null(p->stage);
    assert_non_null(p->tensor);
    assert_true(p->share >= 0 && p->share <= 1);
    return ++s->calls == s->stop_at;
}

/* Stopped while the text is written, on the way forward, back, and while coding. */
static void stopped_and_resumed(void **state)
{
    (void)state;
    static const char *const calib[] = {"self", NULL};
    for (size_t k = 0; k < PL_COUNT(calib); k++) {
        pleach_quantize_settings s = settings(calib[k] ? calib[k] : text_file());
        const char *whole = at(k ? "whole-file" : "whole-self");
        stopper count = {0};
        s.two_sided = 1;
        s.progress = stop;
        s.user = &count;
        must(pleach_quantize(model.path, whole, &s, NULL, &err));
        for (size_t n = 1; n < count.calls; n += 1 + count.calls / 6) {
            stopper stopper = {.stop_at = n};
            s.user = &stopper;
            assert_refused(pleach_quantize(model.path, at("again"), &s, NULL, &err),
                           PLEACH_ERR_CANCELLED, "stopped");
            pleach_quantize_settings other = s;
            other.calib_tokens++;
            other.progress = NULL;
            assert_refused(pleach_quantize(model.path, at("again"), &other, NULL, &err),
                           PLEACH_ERR_MISMATCH, "calibration.text.tokens is 1124 there and 1125 now");
            other = s;
            other.damping = 0.5;
            assert_refused(pleach_quantize(model.path, at("again"), &other, NULL, &err),
                           PLEACH_ERR_MISMATCH, "calibration.damping");
            s.progress = NULL;
            s.threads = 1;
            must(pleach_quantize(model.path, at("again"), &s, NULL, &err));
            s.progress = stop;
            s.threads = 2;
            assert_same_model(at("again"), whole);
            assert_false(pl_exists(at("again.partial")));
            char command[400];
            snprintf(command, sizeof command, "rm -r '%s'", at("again"));
            assert_int_equal(system(command), 0);
        }
    }
}

/* What cannot be done is refused before work begins. */
static void memory_is_promised(void **state)
{
    (void)state;
    pleach_quantize_settings s = settings(text_file());
    pleach_quantize_summary plain, calibrated;
    s.memory = 1 << 20;
    assert_refused(pleach_quantize(model.path, at("little"), &s, NULL, &err), PLEACH_ERR_LIMIT,
                   "0.00104858 GB are allowed");
    assert_false(pl_exists(at("little.partial")));
    s.memory = 0;
    s.refine = 1;
    s.calib_tokens = 1023; /* two chunks, or there is none to be held out */
    assert_refused(pleach_quantize(model.path, at("little"), &s, NULL, &err), PLEACH_ERR_ARGUMENT,
                   "1023 tokens");
    assert_false(pl_exists(at("little.partial")));
    s = settings(text_file());
    must(pleach_quantize_plan(model.path, &s, &calibrated, &err));
    s.calib = "none";
    must(pleach_quantize_plan(model.path, &s, &plain, &err));
    assert_true(calibrated.peak_memory >= plain.peak_memory);
    pleach_quantize_summary_free(&plain);
    pleach_quantize_summary_free(&calibrated);
}

/* A gain of 1e30 in the second layer: everything from there on overflows (D02). */
static void overflow_is_reported(void **state)
{
    (void)state;
    char path[400], *data;
    size_t size;
    assert_int_equal(mkdir(at("overflow"), 0777), 0);
    for (size_t i = 0; i < PL_COUNT(files); i++) {
        snprintf(path, sizeof path, "%s/%s", model.path, files[i]);
        if (!pl_exists(path)) continue;
        must(pl_read_file(path, 1 << 26, &data, &size, &err));
        if (strstr(files[i], ".safetensors")) {
            pl_safetensors *file;
            must(pl_safetensors_open_memory("it", data, size, &file, &err));
            const pl_tensor *t =
                pl_safetensors_find(file, "model.layers.1.input_layernorm.weight");
            assert_non_null(t);
            size_t offset = (size_t)((const char *)t->data - data), n = t->n_bytes;
            size_t width = pl_dtype_get(t->type)->block_bytes;
            uint32_t huge = 0x7149f2ca; /* 1e30; its upper half is the bf16 */
            pl_safetensors_close(file);
            for (size_t k = 0; k < n; k += width)
                memcpy(data + offset + k, (char *)&huge + 4 - width, width);
        }
        snprintf(path, sizeof path, "%s/%s", at("overflow"), files[i]);
        must(pl_write_file(path, data, size, &err));
        pl_free(data);
    }
    pleach_quantize_settings s = settings(text_file());
    pleach_quantize_summary summary;
    must(pleach_quantize(at("overflow"), at("overflow-q"), &s, &summary, &err));
    bool told = false;
    for (size_t i = 0; i < summary.n_warnings; i++)
        told = told || strstr(summary.warnings[i],
                              "14 of 21 matrices, from model.layers.1.self_attn.q_proj on");
    assert_true(told);
    pleach_quantize_summary_free(&summary);
}

/* A text of one token alone: positions are all alike, and in every layer the same two of eight experts
 * see them. The others are coded without feedback. */
static void idle_experts_are_reported(void **state)
{
    (void)state;
    char text[600];
    folder mixture = make_model_of("qwen3-moe", NULL);
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = 0;
    folder_write(&work, "same.txt", text);
    pleach_quantize_settings s = settings(at("same.txt"));
    pleach_quantize_summary summary;
    must(pleach_quantize(mixture.path, at("mixture-q"), &s, &summary, &err));
    bool told = false;
    for (size_t i = 0; i < summary.n_warnings; i++)
        told = told || (strstr(summary.warnings[i], "54 of 84 matrices, from model.layers.0.mlp."
                                                    "experts.") &&
                        strstr(summary.warnings[i], "no token of the text was routed to"));
    assert_true(told);
    pleach_quantize_summary_free(&summary);
    pleach_model_close(open_model(at("mixture-q"), NULL, PLEACH_ARITH_INT16, 1));
    s.refine = 1;
    assert_refused(pleach_quantize(mixture.path, at("mixture-r"), &s, NULL, &err),
                   PLEACH_ERR_UNSUPPORTED, "refining mixtures of experts");
    remove_folder(&mixture, (const char *const[]){files[0], files[1], files[3]}, 3);
}

/* A budget is planned without a run by the statistics of an earlier one, and as in a run. */
static void plan_uses_statistics(void **state)
{
    (void)state;
    pleach_quantize_settings s = settings(text_file());
    pleach_quantize_summary without, plan, made;
    size_t differ = 0;
    s.statistics = at("for-plan");
    s.budget = 2.9;
    must(pleach_quantize_plan(model.path, &s, &without, &err));
    assert_false(pl_exists(at("for-plan")));
    assert_non_null(strstr(without.warnings[without.n_warnings - 1], "no statistics yet"));
    must(pleach_quantize(model.path, at("by-plan"), &s, &made, &err));
    must(pleach_quantize_plan(model.path, &s, &plan, &err));
    for (size_t i = 0; i < plan.n_items; i++) {
        assert_int_equal(plan.items[i].k, made.items[i].k);
        assert_true(plan.items[i].predicted_loss == made.items[i].predicted_loss);
        differ += plan.items[i].k != without.items[i].k;
    }
    assert_true(differ > 0);
    pleach_quantize_summary_free(&without);
    pleach_quantize_summary_free(&plan);
    pleach_quantize_summary_free(&made);
    s.calib_tokens--;
    assert_refused(pleach_quantize_plan(model.path, &s, &plan, &err), PLEACH_ERR_MISMATCH,
                   "text.tokens is 1124 there and 1123 now");
    s.calib = "none";
    assert_refused(pleach_quantize_plan(model.path, &s, &plan, &err), PLEACH_ERR_ARGUMENT,
                   "calib is none");
}

/* Folding codes some matrices along their inputs, where there is no second side: the report says so. */
static void one_side_is_reported(void **state)
{
    (void)state;
    pleach_quantize_settings s = settings(text_file());
    pleach_quantize_summary summary;
    size_t sides[2] = {0};
    s.two_sided = 1;
    s.rotate = PLEACH_ROTATE_FOLD;
    must(pleach_quantize(model.path, at("folded"), &s, &summary, &err));
    for (size_t i = 0; i < summary.n_items; i++) {
        const pleach_quantize_item *item = &summary.items[i];
        if (!item->k) continue;
        assert_string_equal(item->fallback,
                            item->axis ? "no feedback between outputs: coded along the inputs" : "");
        sides[item->axis]++;
    }
    assert_true(sides[0] > 0 && sides[1] > 0);
    pleach_quantize_summary_free(&summary);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts),
        cmocka_unit_test(statistics_are_used_again),
        cmocka_unit_test(stopped_and_resumed),
        cmocka_unit_test(memory_is_promised),
        cmocka_unit_test(overflow_is_reported),
        cmocka_unit_test(idle_experts_are_reported),
        cmocka_unit_test(plan_uses_statistics),
        cmocka_unit_test(one_side_is_reported),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
