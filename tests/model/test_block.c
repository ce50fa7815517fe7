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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_is_the_engines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
