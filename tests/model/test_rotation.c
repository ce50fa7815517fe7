/* SPDX-License-Identifier: Apache-2.0
 *
 * Online rotation of a whole model: every linear layer's W is replaced by R_out^T W R_in in f32 with
 * the rotations named beside it, and the logits must not change. */
#include "support.h"

#include "base/cpu.h"
#include "model/model.h"

/* A rotated copy of a linear layer's weight, with what it refers to. */
typedef struct rotated {
    pl_tensor tensor;
    float *values; /* [out][in] */
} rotated;

static uint32_t block_of(uint64_t width)
{
    uint32_t block = 256;
    while (width % block) block /= 2;
    return block;
}

/* R^T times every column of x [rows][cols]. */
static void rotate_columns(const pl_kernels *k, const pl_rotation *r, float *x, size_t rows,
                           size_t cols)
{
    float *column = pl_alloc(rows, sizeof *column), *signs = pl_alloc(rows, sizeof *signs);
    pl_rotation_signs(r, signs, rows);
    for (size_t j = 0; j < cols; j++) {
        for (size_t i = 0; i < rows; i++) column[i] = x[i * cols + j];
        k->rotate(column, signs, rows, r->block);
        for (size_t i = 0; i < rows; i++) x[i * cols + j] = column[i];
    }
    pl_free(column);
    pl_free(signs);
}

static void rotate_layer(const pl_kernels *k, pl_linear *l, uint64_t seed, rotated *r)
{
    pl_weight w = l->w;
    float *signs = pl_alloc(w.in, sizeof *signs);
    r->values = pl_alloc(w.out * w.in, sizeof *r->values);
    must(pl_weight_dense_f32(&w, r->values, &err));
    w.rotate_in = (pl_rotation){block_of(w.in), seed};
    w.rotate_out = (pl_rotation){block_of(w.out), seed + 1};
    pl_rotation_signs(&w.rotate_in, signs, w.in);
    for (size_t i = 0; i < w.out; i++)
        k->rotate(r->values + i * w.in, signs, w.in, w.rotate_in.block);
    rotate_columns(k, &w.rotate_out, r->values, w.out, w.in);
    r->tensor = (pl_tensor){.name = "rotated", .type = PL_F32, .n_dims = 2, .shape = {w.out, w.in},
                            .data = r->values, .n_bytes = w.out * w.in * sizeof(float)};
    w.weight = &r->tensor;
    pl_linear_close(l);
    must(pl_linear_open(l, &w, &err));
    pl_free(signs);
}

static void forward(const pl_transformer *t, const pl_compute *c, const golden *g, float *logits)
{
    const pl_config *f = t->config;
    pl_cache *cache;
    pl_workspace *w;
    must(pl_cache_open(f->n_layers, f->n_kv_heads, f->head_dim, g->n, PLEACH_KV_F32, &cache, &err));
    must(pl_workspace_open(t, c, g->n, &w, &err));
    must(pl_cache_reserve(cache, g->n, &err));
    must(pl_transformer_forward(t, c, w, cache, g->ids, g->n, 0, logits, &err));
    pl_workspace_close(w);
    pl_cache_close(cache);
}

static void check_model(const char *name)
{
    char path[512];
    pleach_checkpoint *file;
    pl_transformer *t;
    pl_compute c = {.threads = 2};
    golden g = open_golden(name);
    rotated weights[64];
    size_t n = 0;
    snprintf(path, sizeof path, CHECKPOINTS "%s", name);
    pl_kernels_init(&c.kernels, pl_cpu_detect());
    must(pl_checkpoint_open(path, &file, &err));
    must(pl_transformer_open(file, &t, &err));
    for (uint32_t i = 0; i < t->config->n_layers; i++) {
        pl_layer *l = &t->layers[i];
        pl_linear *linears[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
        for (size_t j = 0; j < PL_COUNT(linears); j++, n++)
            rotate_layer(&c.kernels, linears[j], 100 * n, &weights[n]);
    }
    float *logits = pl_alloc(g.n * g.vocab, sizeof *logits);
    forward(t, &c, &g, logits);
    double most = max_difference(logits, g.logits, g.n * g.vocab);
    if (!(most < 1e-3)) fail_msg("%s: rotated logits are off by %g", name, most);
    pl_transformer_close(t);
    for (size_t i = 0; i < n; i++) pl_free(weights[i].values);
    pl_free(logits);
    pleach_checkpoint_close(file);
    close_golden(&g);
}

static void rotation_does_not_change_logits(void **state)
{
    (void)state;
    check_model("llama-tied");
    check_model("qwen2-bias");
    check_model("mistral-swa");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rotation_does_not_change_logits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
