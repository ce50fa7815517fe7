/* SPDX-License-Identifier: Apache-2.0
 *
 * The transformer block of calibration, its ends and its gradients. */
#include "support.h"

#include "calibrate/block.h"
#include "calibrate/loss.h"
#include "runtime/engine.h"

enum { N = 150 }; /* more than two tiles of attention, and a rest */

static const char *const checkpoints[] = {"llama-tied",   "llama-rope3", "qwen2-bias",
                                          "qwen3-qknorm", "mistral-swa", "llama-packed",
                                          "gemma3",       "qwen3-moe"};

static bool few_experts; /* qwen3-moe as it is */

/* As many experts for a token as there are, so that no difference goes over the edge of a choice;
 * and one that all share, whose matrices are the first one's and whose gate is the router's first
 * row. */
static void use_all_experts(pl_transformer *t)
{
    pl_config *g = (pl_config *)(uintptr_t)t->config;
    g->n_experts_used = g->n_experts;
    g->shared_expert_size = g->expert_size;
    for (uint32_t i = 0; i < g->n_layers; i++) {
        pl_experts_part *x = t->layers[i].experts;
        x->used = x->n;
        x->has_shared = true;
        x->shared = x->experts[0];
        x->shared_gate = x->router;
        x->shared_gate.w.out = 1;
    }
}

/* llama-rope3 gets yarn's factor of cos and sin as well. */
static pleach_model *open_checkpoint(const char *name, int threads)
{
    char path[512];
    snprintf(path, sizeof path, CHECKPOINTS "%s", name);
    pleach_model *m = open_model(path, NULL, PLEACH_ARITH_F32, threads);
    if (strcmp(name, "llama-rope3") == 0) m->transformer->ropes[0].scale = 1.25f;
    if (strcmp(name, "qwen3-moe") == 0 && !few_experts) use_all_experts(m->transformer);
    return m;
}

static void make_ids(int32_t *ids, size_t n, size_t vocab)
{
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)(pl_mix64(i + 1) % vocab);
}

/* What each block receives, and behind the last one its output: [layers + 1][n][C]. */
static float *block_inputs(const pleach_model *m, const int32_t *ids, size_t n)
{
    const pl_transformer *t = m->transformer;
    size_t C = t->config->hidden_size, layers = t->config->n_layers;
    pl_tape tape;
    float *x = pl_alloc((layers + 1) * n * C, sizeof *x);
    must(pl_tape_open(&tape, t, n + 3, false, &err));
    pl_embed(t, &m->compute, ids, n, x);
    for (uint32_t i = 0; i < layers; i++) {
        pl_block b;
        must(pl_block_open(&b, t, &m->compute, i, &err));
        pl_block_forward(&b, &tape, x + i * n * C, n, x + (i + 1) * n * C);
        pl_block_close(&b);
    }
    pl_tape_close(&tape);
    return x;
}

/* ---- forward -------------------------------------------------------------------------------- */

static void check_forward(const char *name, bool whole)
{
    pleach_model *m = open_checkpoint(name, 2);
    size_t vocab = m->transformer->config->vocab_size;
    int32_t ids[N];
    make_ids(ids, N, vocab);
    pleach_session *s = open_session(m, "f32", 512);
    float *want = pl_alloc(N * vocab, sizeof *want), *got = pl_alloc(N * vocab, sizeof *got);
    must(pleach_session_feed_all(s, ids, N, 0, want, &err));
    const pl_config *g = m->transformer->config;
    float *x = block_inputs(m, ids, N), *final = x + (size_t)g->n_layers * N * g->hidden_size;
    pl_loss loss;
    must(pl_loss_open(&loss, m->transformer, &m->compute, 64, whole, &err));
    pl_loss_logits(&loss, final, N, got);
    double most = 0;
    for (size_t i = 0; i < N * vocab; i++) most = fmax(most, fabs((double)want[i]));
    double off = max_difference(got, want, N * vocab);
    if (!(off < 1e-4 * most)) fail_msg("%s: logits are off by %g of %g", name, off, most);
    pl_loss_close(&loss);
    pl_free(x);
    pl_free(want);
    pl_free(got);
    pleach_session_close(s);
    pleach_model_close(m);
}

static void forward_is_the_engines(void **state)
{
    (void)state;
    for (size_t i = 0; i < PL_COUNT(checkpoints); i++) check_forward(checkpoints[i], i % 2);
}

/* ---- gradients against differences ---------------------------------------------------------- */

static float *directions(size_t n, uint64_t seed, float length)
{
    float *x = pl_alloc(n, sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = ((float)(pl_mix64(seed + i) >> 40) * 0x1p-23f - 1) * length;
    return x;
}

static double dot(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

/* f(x + e d) for f(x) = dy . block(x), in f32 but for the last sum. */
static double along(const pl_block *b, pl_tape *tape, const float *x, const float *d, float e,
                    const float *dy, size_t n, size_t C)
{
    float *moved = pl_alloc(n * C, sizeof *moved);
    for (size_t i = 0; i < n * C; i++) moved[i] = x[i] + e * d[i];
    pl_block_forward(b, tape, moved, n, moved);
    double f = dot(dy, moved, n * C);
    pl_free(moved);
    return f;
}

/* The derivative along random directions, by central differences of fourth order. */
static void check_block(const char *name, uint32_t layer, size_t n)
{
    pleach_model *m = open_checkpoint(name, 2);
    const pl_transformer *t = m->transformer;
    size_t C = t->config->hidden_size;
    pl_block b;
    pl_tape tape;
    must(pl_block_open(&b, t, &m->compute, layer, &err));
    must(pl_tape_open(&tape, t, n, true, &err));
    float *x = directions(n * C, 1, 1), *dx = pl_alloc(n * C, sizeof *dx);
    for (uint64_t round = 0; round < 3; round++) {
        float *d = directions(n * C, 100 + round, 1), *dy = directions(n * C, 200 + round, 1);
        const float e = 0.01f;
        double near = along(&b, &tape, x, d, e, dy, n, C) - along(&b, &tape, x, d, -e, dy, n, C);
        double far =
            along(&b, &tape, x, d, 2 * e, dy, n, C) - along(&b, &tape, x, d, -2 * e, dy, n, C);
        double want = (8 * near - far) / (12 * (double)e);
        pl_block_forward(&b, &tape, x, n, NULL);
        pl_block_backward(&b, &tape, dy, dx);
        double got = dot(dx, d, n * C), size = sqrt(dot(dx, dx, n * C) * dot(d, d, n * C));
        if (!(fabs(got - want) < (few_experts ? 4e-6 : 2e-6) * size))
            fail_msg("%s, layer %u: %g along a direction, expected %g", name, layer, got, want);
        pl_free(d);
        pl_free(dy);
    }
    pl_free(x);
    pl_free(dx);
    pl_tape_close(&tape);
    pl_block_close(&b);
    pleach_model_close(m);
}

static void block_gradients_are_those_of_differences(void **state)
{
    (void)state;
    for (size_t i = 0; i < PL_COUNT(checkpoints); i++)
        check_block(checkpoints[i], i % 2, i ? N : 9);
}

/* Few tokens, none of which changes its experts on the way; the rest of the differences is larger than
 * with all experts, as their weights are steeper. */
static void few_experts_have_their_gradients(void **state)
{
    (void)state;
    few_experts = true;
    for (uint32_t layer = 0; layer < 3; layer++) check_block("qwen3-moe", layer, 4);
    few_experts = false;
}

/* ---- the same bits -------------------------------------------------------------------------- */

/* Output, gradient by the input and gradients by the linear layers' outputs, one after another. */
static float *run_block(const char *name, int threads, bool in_place, size_t n, size_t *total)
{
    pleach_model *m = open_checkpoint(name, threads);
    const pl_transformer *t = m->transformer;
    size_t C = t->config->hidden_size, at = 2 * n * C;
    pl_block b;
    pl_tape tape;
    must(pl_block_open(&b, t, &m->compute, 1, &err));
    must(pl_tape_open(&tape, t, N, true, &err));
    *total = at;
    for (int i = 0; i < PL_BLOCK_LINEARS; i++) *total += n * b.out[i];
    float *all = pl_alloc(*total, sizeof *all), *y = all, *dx = all + n * C;
    float *x = directions(n * C, 1, 1), *dy = directions(n * C, 2, 1);
    /* Another chunk first: the tape remembers nothing. */
    pl_block_forward(&b, &tape, dy, n, y);
    pl_block_backward(&b, &tape, x, NULL);
    if (in_place) {
        memcpy(y, x, n * C * sizeof *x);
        memcpy(dx, dy, n * C * sizeof *x);
    }
    pl_block_forward(&b, &tape, in_place ? y : x, n, y);
    pl_block_backward(&b, &tape, in_place ? dx : dy, dx);
    for (int i = 0; i < PL_BLOCK_LINEARS; at += n * b.out[i++])
        memcpy(all + at, tape.gradient[i], n * b.out[i] * sizeof *all);
    pl_free(x);
    pl_free(dy);
    pl_tape_close(&tape);
    pl_block_close(&b);
    pleach_model_close(m);
    return all;
}

static void bits_are_the_same_for_threads(void **state)
{
    (void)state;
    static const size_t lengths[] = {1, 64, 65, N};
    for (size_t i = 0; i < PL_COUNT(checkpoints); i++)
        for (size_t l = 0; l < PL_COUNT(lengths); l++) {
            size_t n;
            float *one = run_block(checkpoints[i], 1, false, lengths[l], &n);
            float *three = run_block(checkpoints[i], 3, true, lengths[l], &n);
            assert_memory_equal(one, three, n * sizeof *one);
            pl_free(one);
            pl_free(three);
        }
}

/* ---- gradients against torch ---------------------------------------------------------------- */

typedef struct torch_golden {
    pl_safetensors *file;
    const char *name;
} torch_golden;

static const void *golden_data(const torch_golden *g, const char *tensor, size_t n)
{
    const pl_tensor *t = pl_safetensors_find(g->file, tensor);
    if (!t || pl_tensor_elements(t) != n) fail_msg("%s: no %s of %zu", g->name, tensor, n);
    assert_true(t->type == PL_F32 || t->type == PL_I32);
    return t->data;
}

/* Gradient [n][out] of one linear layer: its length at every token, and all of it at three. */
static void check_module(const torch_golden *g, const char *module, const float *got, size_t n,
                         size_t out)
{
    static const size_t tokens[] = {1, 40, 64};
    char name[200];
    snprintf(name, sizeof name, "%s.norms", module);
    float *norms = pl_alloc(n, sizeof *norms), *rows = pl_alloc(3 * out, sizeof *rows);
    memcpy(norms, golden_data(g, name, n), n * sizeof *norms);
    memcpy(rows, golden_data(g, module, 3 * out), 3 * out * sizeof *rows);
    double longest = 0;
    for (size_t m = 0; m < n; m++) longest = fmax(longest, (double)norms[m]);
    for (size_t m = 0; m < n; m++) { /* by q it is 0 at the first token, which sees one key */
        double length = sqrt(dot(got + m * out, got + m * out, out));
        if (!(fabs(length - (double)norms[m]) <= 2e-5 * (double)norms[m] + 1e-6 * longest))
            fail_msg("%s: %s: token %zu is %g long, expected %g", g->name, module, m, length,
                     (double)norms[m]);
    }
    for (size_t i = 0; i < 3; i++) {
        double off = max_difference(got + tokens[i] * out, rows + i * out, out);
        if (!(off <= 2e-5 * (double)norms[tokens[i]] + 1e-6 * longest))
            fail_msg("%s: %s: token %zu is off by %g", g->name, module, tokens[i], off);
    }
    pl_free(norms);
    pl_free(rows);
}

/* Back through all blocks: each one's forward pass again, from its kept input. */
static void check_blocks(const torch_golden *g, const pleach_model *m, const float *inputs,
                         float *dx, size_t n)
{
    const pl_transformer *t = m->transformer;
    size_t C = t->config->hidden_size;
    pl_tape tape;
    must(pl_tape_open(&tape, t, n, true, &err));
    for (uint32_t layer = t->config->n_layers; layer-- > 0;) {
        pl_block b;
        must(pl_block_open(&b, t, &m->compute, layer, &err));
        pl_block_forward(&b, &tape, inputs + layer * n * C, n, NULL);
        pl_block_backward(&b, &tape, dx, layer ? dx : NULL);
        for (uint32_t i = 0; i < PL_BLOCK_LINEARS; i++) {
            pl_module module;
            pl_config_module(t->config, 1 + layer * PL_BLOCK_LINEARS + i, &module);
            assert_int_equal(module.layer, layer);
            assert_int_equal(module.out, b.out[i]);
            check_module(g, module.name, tape.gradient[i], n, b.out[i]);
        }
        pl_block_close(&b);
    }
    pl_tape_close(&tape);
}

static void check_torch(const char *name)
{
    char path[512];
    torch_golden g = {.name = name};
    snprintf(path, sizeof path, PLEACH_TEST_DATA "/golden/gradients/%s.safetensors", name);
    must(pl_safetensors_open(path, &g.file, &err));
    size_t n = pl_tensor_elements(pl_safetensors_find(g.file, "input_ids"));
    pleach_model *m = open_checkpoint(name, 2);
    const pl_transformer *t = m->transformer;
    size_t C = t->config->hidden_size, layers = t->config->n_layers;
    int32_t *ids = pl_alloc(2 * n, sizeof *ids), *labels = ids + n;
    memcpy(ids, golden_data(&g, "input_ids", n), n * sizeof *ids);
    memcpy(labels, golden_data(&g, "labels", n), n * sizeof *labels);
    float *inputs = block_inputs(m, ids, n), *final = inputs + layers * n * C, want;
    pl_loss loss;
    must(pl_loss_open(&loss, t, &m->compute, 33, true, &err));
    double sum = pl_loss_gradient(&loss, final, n, &(pl_target){.labels = labels}, final);
    memcpy(&want, golden_data(&g, "loss", 1), sizeof want);
    if (!(fabs(sum - (double)want) < 1e-5 * (double)want))
        fail_msg("%s: loss %g, expected %g", name, sum, (double)want);
    pl_loss_close(&loss);
    check_blocks(&g, m, inputs, final, n);
    pl_free(inputs);
    pl_free(ids);
    pleach_model_close(m);
    pl_safetensors_close(g.file);
}

static void gradients_are_torchs(void **state)
{
    (void)state;
    check_torch("llama-tied");
    check_torch("mistral-swa");
    check_torch("qwen2-bias");
    check_torch("qwen3-qknorm");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_is_the_engines),
        cmocka_unit_test(block_gradients_are_those_of_differences),
        cmocka_unit_test(few_experts_have_their_gradients),
        cmocka_unit_test(bits_are_the_same_for_threads),
        cmocka_unit_test(gradients_are_torchs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
