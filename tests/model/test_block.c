/* SPDX-License-Identifier: Apache-2.0
 *
 * The transformer block of calibration, its ends and its gradients. */
#include "support.h"

#include "calibrate/block.h"
#include "calibrate/loss.h"
#include "runtime/engine.h"

enum { N = 150 }; /* more than two tiles of attention, and a rest */

static const char *const checkpoints[] = {"llama-tied",   "llama-rope3", "qwen2-bias",
                                          "qwen3-qknorm", "mistral-swa", "llama-packed"};

static pleach_model *open_checkpoint(const char *name, int threads)
{
    char path[512];
    snprintf(path, sizeof path, CHECKPOINTS "%s", name);
    return open_model(path, NULL, PLEACH_ARITH_F32, threads);
}

static void make_ids(int32_t *ids, size_t n, size_t vocab)
{
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)(pl_mix64(i + 1) % vocab);
}

/* Final hidden states [n][C] of ids. */
static float *hidden_states(const pleach_model *m, const int32_t *ids, size_t n)
{
    const pl_transformer *t = m->transformer;
    pl_tape tape;
    float *x = pl_alloc(n * t->config->hidden_size, sizeof *x);
    must(pl_tape_open(&tape, t, n + 3, false, &err));
    pl_embed(t, &m->compute, ids, n, x);
    for (uint32_t i = 0; i < t->config->n_layers; i++) {
        pl_block b;
        must(pl_block_open(&b, t, &m->compute, i, &err));
        pl_block_forward(&b, &tape, x, n, x);
        pl_block_close(&b);
    }
    pl_tape_close(&tape);
    return x;
}

/* ---- forward ---------------------------------------------------------------------------------- */

static void check_forward(const char *name, bool whole)
{
    pleach_model *m = open_checkpoint(name, 2);
    size_t vocab = m->transformer->config->vocab_size;
    int32_t ids[N];
    make_ids(ids, N, vocab);
    pleach_session *s = open_session(m, PLEACH_KV_F32, 512);
    float *want = pl_alloc(N * vocab, sizeof *want), *got = pl_alloc(N * vocab, sizeof *got);
    must(pleach_session_feed_all(s, ids, N, 0, want, &err));
    float *x = hidden_states(m, ids, N);
    pl_loss loss;
    must(pl_loss_open(&loss, m->transformer, &m->compute, 64, whole, &err));
    pl_loss_logits(&loss, x, N, got);
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

/* ---- gradients against differences ------------------------------------------------------------ */

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
        double far = along(&b, &tape, x, d, 2 * e, dy, n, C) -
                     along(&b, &tape, x, d, -2 * e, dy, n, C);
        double want = (8 * near - far) / (12 * (double)e);
        pl_block_forward(&b, &tape, x, n, NULL);
        pl_block_backward(&b, &tape, dy, dx);
        double got = dot(dx, d, n * C), size = sqrt(dot(dx, dx, n * C) * dot(d, d, n * C));
        if (!(fabs(got - want) < 2e-6 * size))
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
    for (size_t i = 0; i < PL_COUNT(checkpoints); i++) check_block(checkpoints[i], i % 2, i ? N : 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_is_the_engines),
        cmocka_unit_test(block_gradients_are_those_of_differences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
