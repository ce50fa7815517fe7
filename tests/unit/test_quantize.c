/* SPDX-License-Identifier: Apache-2.0
 *
 * Quantised folders read back: errors by bit width for every layout and rotation, what is kept,
 * what is refused, and independence of the thread count. */
#include "quantize_fixture.h"

#include "format/checkpoint.h"

static const char *const checkpoints[] = {"llama-tied", "llama-rope3", "qwen2-bias", "qwen3-qknorm",
                                          "mistral-swa"};

static const char *golden(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/golden/checkpoints/%s", PLEACH_TEST_DATA, name);
    return path;
}

/* |W - Q|^2 / |W|^2 of one module of two checkpoints. */
static double module_error(const pleach_checkpoint *a, const pleach_checkpoint *b,
                           const pl_module *m)
{
    pl_weight wa, wb;
    assert_ok(pl_checkpoint_weight(a, m->name, m->out, m->in, &wa, err));
    assert_ok(pl_checkpoint_weight(b, m->name, m->out, m->in, &wb, err));
    size_t n = m->out * m->in;
    float *x = malloc(n * sizeof *x), *y = malloc(n * sizeof *y);
    assert_ok(pl_weight_dense_f32(&wa, x, err));
    assert_ok(pl_weight_dense_f32(&wb, y, err));
    double error = 0, power = 0;
    for (size_t i = 0; i < n; i++) {
        error += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        power += (double)x[i] * x[i];
    }
    free(y);
    free(x);
    return error / power;
}

/* Largest relative error of a module, by k. Gaussian rows of T = 256 give .0747, .0193 and .0050;
 * these have shorter blocks. */
static const double largest[] = {[2] = .085, [3] = .0235, [4] = .0068};

static void check_folder(const char *source, const char *out, const pleach_quantize_settings *s,
                         double reported)
{
    pleach_checkpoint *a, *b;
    const pl_config *config;
    double sum = 0;
    size_t n = 0;
    assert_ok(pl_checkpoint_open(source, &a, err));
    assert_ok(pl_checkpoint_open(out, &b, err));
    assert_ok(pl_checkpoint_config(b, &config, err));
    for (size_t i = 0; i < pl_config_module_count(config); i++) {
        pl_module m;
        pl_config_module(config, i, &m);
        double error = module_error(a, b, &m);
        if (m.kind != PL_MODULE_LINEAR) assert_true(error < 5e-5);
        if (m.kind != PL_MODULE_LINEAR || error == 0) continue; /* kept */
        if (error > largest[s->bits])
            fail_msg("%s %s k %u axis %d rotate %d: error %g", source, m.name, s->bits, s->axis,
                     (int)s->rotate, error);
        sum += error;
        n++;
    }
    assert_true(reported > sum / n * .999 && reported < sum / n * 1.001);
    size_t findings;
    assert_ok(pleach_checkpoint_verify(b, NULL, NULL, &findings, err));
    assert_int_equal(findings, 0);
    pleach_checkpoint_close(b);
    pleach_checkpoint_close(a);
}

static void test_layouts(void **state)
{
    (void)state;
    for (int rotate = PLEACH_ROTATE_INPUT; rotate <= PLEACH_ROTATE_INPUT_SCALE; rotate++) {
        for (int axis = 0; axis <= 1; axis++) {
            pleach_quantize_settings s = bits(2 + (uint32_t)(rotate + axis) % 3);
            pleach_quantize_summary summary;
            s.axis = axis;
            s.rotate = (pleach_rotate)rotate;
            s.force = 1;
            assert_ok(pleach_quantize(TIED, at("layout"), &s, &summary, err));
            check_folder(TIED, at("layout"), &s, summary.relative_error);
            pleach_quantize_summary_free(&summary);
        }
    }
}

static void test_families(void **state)
{
    (void)state;
    for (size_t i = 0; i < PL_COUNT(checkpoints); i++) {
        pleach_quantize_settings s = bits(4);
        pleach_quantize_summary plan, made;
        assert_ok(pleach_quantize_plan(golden(checkpoints[i]), &s, &plan, err));
        assert_ok(pleach_quantize(golden(checkpoints[i]), at(checkpoints[i]), &s, &made, err));
        check_folder(golden(checkpoints[i]), at(checkpoints[i]), &s, made.relative_error);
        assert_int_equal(plan.bytes, made.bytes);
        assert_int_equal(plan.n_items, made.n_items);
        assert_true(made.block_bits > 4 && made.block_bits < 4.5);
        assert_int_equal(made.resumed, 0);
        pleach_quantize_summary_free(&made);
        pleach_quantize_summary_free(&plan);
    }
}

static void test_wide_states(void **state)
{
    (void)state;
    pleach_quantize_settings s = bits(2);
    pleach_quantize_summary summary;
    static const char *const keep[] = {"*.[12].*", "*.mlp.*"};
    s.keep = keep; /* sixteen bits take sixteen times as long: the attention of one layer will do */
    s.n_keep = 2;
    s.state_bits = 16;
    assert_ok(pleach_quantize(TIED, at("wide"), &s, &summary, err));
    check_folder(TIED, at("wide"), &s, summary.relative_error);
    pleach_quantize_summary_free(&summary);
}

static void test_threads(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 5; threads += 2) {
        pleach_quantize_settings s = bits(3);
        s.threads = threads;
        s.rotate = PLEACH_ROTATE_INPUT_SCALE;
        assert_ok(pleach_quantize(TIED, at(threads == 1 ? "one" : "many"), &s, NULL, err));
        if (threads > 1) {
            assert_same_folder(at("one"), at("many"));
            remove_tree(at("many"));
        }
    }
}

static pl_coding coding_of(const pleach_checkpoint *c, const char *module, pl_dtype *type)
{
    pl_weight w;
    assert_ok(pl_checkpoint_weight(c, module, 0, 0, &w, err));
    *type = w.coding == PL_CODING_DENSE ? w.weight->type : w.scales->type;
    return w.coding;
}

static void test_kept(void **state)
{
    (void)state;
    static const char *const keep[] = {"*.0.*", "model.layers.1.mlp.down_proj"};
    pleach_quantize_settings s = bits(4);
    pleach_checkpoint *c;
    pl_dtype type;
    s.keep = keep;
    s.n_keep = 2;
    s.embed_bits = 16;
    assert_ok(pleach_quantize(TIED, at("kept"), &s, NULL, err));
    assert_ok(pl_checkpoint_open(at("kept"), &c, err));
    assert_int_equal(coding_of(c, "model.layers.0.self_attn.q_proj", &type), PL_CODING_DENSE);
    const pl_tensor *stored = pl_checkpoint_find(c, "model.layers.0.self_attn.q_proj.weight");
    assert_int_equal(type, stored->type);
    assert_int_equal(coding_of(c, "model.layers.1.mlp.down_proj", &type), PL_CODING_DENSE);
    assert_int_equal(coding_of(c, "model.layers.1.mlp.up_proj", &type), PL_CODING_TRELLIS);
    assert_int_equal(coding_of(c, "model.embed_tokens", &type), PL_CODING_DENSE);
    pleach_checkpoint_close(c);
    assert_ok(pl_checkpoint_open(TIED, &c, err));
    const pl_tensor *source = pl_checkpoint_find(c, "model.layers.0.self_attn.q_proj.weight");
    assert_int_equal(source->type, type == PL_BF16 ? PL_BF16 : type);
    pleach_checkpoint_close(c);

    static const char *const slip[] = {"model.layers.0.mlp.dwon_proj"};
    s.keep = slip;
    s.n_keep = 1;
    assert_refused(pleach_quantize(TIED, at("slip"), &s, NULL, err), PLEACH_ERR_ARGUMENT,
                   "dwon_proj");
}

static void test_embedding_bits(void **state)
{
    (void)state;
    static const double bound[] = {[4] = .011, [8] = 5e-5};
    for (uint32_t b = 4; b <= 8; b += 4) {
        pleach_quantize_settings s = bits(2);
        pleach_checkpoint *a, *c;
        pl_dtype type;
        s.force = 1;
        s.embed_bits = s.head_bits = b;
        assert_ok(pleach_quantize(golden("llama-rope3"), at("embed"), &s, NULL, err));
        assert_ok(pl_checkpoint_open(golden("llama-rope3"), &a, err));
        assert_ok(pl_checkpoint_open(at("embed"), &c, err));
        assert_int_equal(coding_of(c, "model.embed_tokens", &type), PL_CODING_AFFINE);
        assert_int_equal(type, PL_F16);
        pl_module m = {.name = "model.embed_tokens"};
        pl_weight w;
        assert_ok(pl_checkpoint_weight(a, m.name, 0, 0, &w, err));
        m.out = w.out;
        m.in = w.in;
        assert_true(module_error(a, c, &m) < bound[b]);
        pleach_checkpoint_close(c);
        pleach_checkpoint_close(a);
    }
}

/* Overwrites one bf16 number of a tensor in a copy of the tied checkpoint. */
static void poke(const char *dir, const char *tensor, uint64_t row, uint64_t col, uint16_t value)
{
    char path[512];
    pleach_checkpoint *c;
    pl_map map;
    assert_ok(pl_checkpoint_open(dir, &c, err));
    const pl_tensor *t = pl_checkpoint_find(c, tensor);
    assert_non_null(t);
    assert_int_equal(t->type, PL_BF16);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    assert_ok(pl_map_open(&map, path, err));
    size_t found = 0;
    while (found + t->n_bytes <= map.size && memcmp(map.data + found, t->data, t->n_bytes)) found++;
    assert_true(found + t->n_bytes <= map.size);
    off_t offset = (off_t)(found + 2 * (row * t->shape[1] + col));
    pl_map_close(&map);
    pleach_checkpoint_close(c);
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, &value, 2, offset), 2);
    close(fd);
}

static void count_finding(void *user, const char *tensor, const char *line)
{
    *(int *)user += strstr(tensor, "down_proj") && strstr(line, "row 3, column 77");
}

static void test_bad_numbers(void **state)
{
    (void)state;
    pleach_quantize_settings s = bits(4);
    copy_checkpoint(at("nan"));
    poke(at("nan"), "model.layers.1.mlp.down_proj.weight", 3, 77, 0x7fc0);
    for (int axis = 0; axis <= 1; axis++) {
        s.axis = axis;
        s.discard_partial = 1;
        assert_refused(pleach_quantize(at("nan"), at("nan-out"), &s, NULL, err), PLEACH_ERR_DATA,
                       "model.layers.1.mlp.down_proj.weight: NaN or infinity in row 3, column 77");
    }
    pleach_checkpoint *c;
    size_t findings;
    int named = 0;
    assert_ok(pl_checkpoint_open(at("nan"), &c, err));
    assert_ok(pleach_checkpoint_verify(c, count_finding, &named, &findings, err));
    assert_int_equal(findings, 1);
    assert_int_equal(named, 1);
    pleach_checkpoint_close(c);

    copy_checkpoint(at("inf"));
    poke(at("inf"), "model.embed_tokens.weight", 300, 5, 0xff80);
    s.axis = -1;
    assert_refused(pleach_quantize(at("inf"), at("inf-out"), &s, NULL, err), PLEACH_ERR_DATA,
                   "model.embed_tokens.weight: NaN or infinity in row 300, column 5");
    assert_false(pl_exists(at("inf-out")));
}

/* Numbers near the end of bf16's range are finite; what a rotation makes of them is not. */
static void test_large_numbers(void **state)
{
    (void)state;
    pleach_quantize_settings s = bits(4);
    copy_checkpoint(at("large"));
    for (uint64_t col = 0; col < 128; col++)
        poke(at("large"), "model.layers.0.self_attn.k_proj.weight", 0, col,
             col % 2 ? 0x7f62 : 0xff62);
    for (int axis = 0; axis <= 1; axis++) {
        s.axis = axis;
        s.discard_partial = 1;
        assert_refused(pleach_quantize(at("large"), at("large-out"), &s, NULL, err),
                       PLEACH_ERR_DATA, "k_proj.weight: too large to rotate: the root mean square "
                                        "of a row is 3.004");
    }
}

static void test_settings(void **state)
{
    (void)state;
    pleach_quantize_settings s = bits(5);
    assert_refused(pleach_quantize(TIED, at("no"), &s, NULL, err), PLEACH_ERR_ARGUMENT,
                   "bits is 5");
    s = bits(3);
    s.axis = 2;
    assert_refused(pleach_quantize(TIED, at("no"), &s, NULL, err), PLEACH_ERR_ARGUMENT,
                   "axis is 2");
    s = bits(3);
    s.state_bits = 14;
    assert_refused(pleach_quantize(TIED, at("no"), &s, NULL, err), PLEACH_ERR_ARGUMENT, "is 14");
    s = bits(3);
    s.embed_bits = 3;
    assert_refused(pleach_quantize(TIED, at("no"), &s, NULL, err), PLEACH_ERR_ARGUMENT,
                   "embed bits");
    s = bits(3);
    s.two_sided = 1;
    assert_refused(pleach_quantize(TIED, at("no"), &s, NULL, err), PLEACH_ERR_ARGUMENT,
                   "calib is none");
    s.calib = "self";
    s.axis = 1;
    assert_refused(pleach_quantize(TIED, at("no"), &s, NULL, err), PLEACH_ERR_ARGUMENT,
                   "axis is 1");
    s = bits(3);
    s.cpu = "pentium";
    assert_refused(pleach_quantize(TIED, at("no"), &s, NULL, err), PLEACH_ERR_ARGUMENT, "pentium");
    assert_refused(pleach_quantize(at("absent"), at("no"), NULL, NULL, err), PLEACH_ERR_MISSING,
                   "absent");
    assert_false(pl_exists(at("no")));
    assert_false(pl_exists(at("no.partial")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts),   cmocka_unit_test(test_families),
        cmocka_unit_test(test_wide_states), cmocka_unit_test(test_threads),
        cmocka_unit_test(test_kept),      cmocka_unit_test(test_embedding_bits),
        cmocka_unit_test(test_bad_numbers), cmocka_unit_test(test_large_numbers),
        cmocka_unit_test(test_settings),
    };
    return cmocka_run_group_tests(tests, make_scratch, drop_scratch);
}
