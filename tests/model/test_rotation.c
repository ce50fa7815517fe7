/* SPDX-License-Identifier: Apache-2.0
 *
 * Online rotation of a whole model: every linear layer's W is replaced by R_out^T W R_in in f32 with
 * the rotations named beside it, and the logits must not change. */
#include "support.h"

#include "base/cpu.h"
#include "model/model.h"
#include "pools.h"

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

static void forward(const pl_transformer *t, const pl_compute *c, const int32_t *ids, size_t n,
                    float *logits)
{
    const pl_config *f = t->config;
    pl_cache *cache;
    pl_workspace *w;
    pl_cache_settings set = {.n_layers = f->n_layers, .n_kv_heads = f->n_kv_heads,
                             .head_dim = f->head_dim, .capacity = n};
    must(pl_cache_open(&set, &cache, &err));
    must(pl_workspace_open(t, c, n, &w, &err));
    must(pl_cache_reserve(cache, n, &err));
    must(pl_transformer_forward(t, c, w, cache, ids, n, 0, logits, NULL, &err));
    pl_workspace_close(w);
    pl_cache_close(cache);
}

/* Logits of the model at `path` with every linear layer rotated, [n][vocab]. */
static void rotated_logits(const char *path, const int32_t *ids, size_t n_ids, float *logits)
{
    pleach_checkpoint *file;
    pl_transformer *t;
    pl_compute c = {.pool = pool_of(2)};
    rotated weights[64];
    size_t n = 0;
    pl_kernels_init(&c.kernels, pl_cpu_detect());
    must(pl_checkpoint_open(path, &file, &err));
    must(pl_transformer_open(file, &t, &err));
    for (uint32_t i = 0; i < t->config->n_layers; i++) {
        pl_layer *l = &t->layers[i];
        pl_attention_part *a = &l->attention;
        pl_linear *linears[] = {&a->q,        &a->k,      &a->v,       &a->o,
                                &l->mlp.gate, &l->mlp.up, &l->mlp.down};
        for (size_t j = 0; j < PL_COUNT(linears); j++, n++)
            rotate_layer(&c.kernels, linears[j], 100 * n, &weights[n]);
    }
    forward(t, &c, ids, n_ids, logits);
    pl_transformer_close(t);
    for (size_t i = 0; i < n; i++) pl_free(weights[i].values);
    pleach_checkpoint_close(file);
}

static void check_model(const char *name)
{
    char path[512];
    golden g = open_golden(name);
    float *logits = pl_alloc(g.n * g.vocab, sizeof *logits);
    snprintf(path, sizeof path, CHECKPOINTS "%s", name);
    rotated_logits(path, g.ids, g.n, logits);
    double most = max_difference(logits, g.logits, g.n * g.vocab);
    if (!(most < 1e-3)) fail_msg("%s: rotated logits are off by %g", name, most);
    pl_free(logits);
    close_golden(&g);
}

static void rotation_does_not_change_logits(void **state)
{
    (void)state;
    check_model("llama-tied");
    check_model("qwen2-bias");
    check_model("mistral-swa");
}

/* ---- any width ------------------------------------------------------------------------------ */

enum { VOCAB = 64, TEXT = 12 };

typedef struct matrix {
    const char *name;
    uint64_t rows, cols; /* cols 0: a norm's gains */
} matrix;

/* One layer of random weights, with one head of 32. */
static void write_model(const folder *f, uint64_t hidden, uint64_t inner)
{
    const matrix all[] = {{"model.embed_tokens.weight", VOCAB, hidden},
                          {"model.layers.0.self_attn.q_proj.weight", 32, hidden},
                          {"model.layers.0.self_attn.k_proj.weight", 32, hidden},
                          {"model.layers.0.self_attn.v_proj.weight", 32, hidden},
                          {"model.layers.0.self_attn.o_proj.weight", hidden, 32},
                          {"model.layers.0.mlp.gate_proj.weight", inner, hidden},
                          {"model.layers.0.mlp.up_proj.weight", inner, hidden},
                          {"model.layers.0.mlp.down_proj.weight", hidden, inner},
                          {"model.layers.0.input_layernorm.weight", hidden, 0},
                          {"model.layers.0.post_attention_layernorm.weight", hidden, 0},
                          {"model.norm.weight", hidden, 0}};
    pl_tensor tensors[PL_COUNT(all)];
    pl_safetensors_writer *w;
    char config[512];
    uint64_t seed = hidden + inner;
    for (size_t i = 0; i < PL_COUNT(all); i++)
        tensors[i] = (pl_tensor){.name = all[i].name, .type = PL_F32,
                                 .n_dims = all[i].cols ? 2 : 1,
                                 .shape = {all[i].rows, all[i].cols},
                                 .n_bytes = all[i].rows * PL_MAX(all[i].cols, 1) * sizeof(float)};
    char *path = pl_path_join(f->path, "model.safetensors");
    must(pl_safetensors_create(path, tensors, PL_COUNT(all), &w, &err));
    for (size_t i = 0; i < PL_COUNT(all); i++) {
        size_t n = tensors[i].n_bytes / sizeof(float);
        float *x = pl_alloc(n, sizeof *x), size = all[i].cols ? 1.7f / sqrtf((float)all[i].cols) : 0;
        for (size_t j = 0; j < n; j++)
            x[j] = all[i].cols ? size * (float)(2 * pl_random_unit(&seed) - 1) : 1;
        must(pl_safetensors_append(w, x, tensors[i].n_bytes, &err));
        pl_free(x);
    }
    must(pl_safetensors_commit(w, &err));
    pl_free(path);
    snprintf(config, sizeof config,
             "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], "
             "\"vocab_size\": %d, \"hidden_size\": %u, \"intermediate_size\": %u, "
             "\"num_hidden_layers\": 1, \"num_attention_heads\": 1, \"num_key_value_heads\": 1, "
             "\"head_dim\": 32, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0, "
             "\"max_position_embeddings\": 64, \"tie_word_embeddings\": true}",
             VOCAB, (unsigned)hidden, (unsigned)inner);
    folder_write(f, "config.json", config);
}

static void run_model(const char *path, const int32_t *ids, float *logits)
{
    pleach_model *m = open_model(path, NULL, PLEACH_ARITH_F32, 2);
    pleach_session *s = open_session(m, "f32", 512);
    must(pleach_session_feed_all(s, ids, TEXT, 0, logits, &err));
    pleach_session_close(s);
    pleach_model_close(m);
}

/* Rotated: the same logits. Quantised to 4 bits: nearly the same. */
static void check_width(uint64_t hidden, uint64_t inner)
{
    static const char *const files[] = {"config.json", "model.safetensors"};
    static const char *const made[] = {"config.json", "model.safetensors", "quantize-report.json",
                                       "report.html"};
    float *logits = pl_alloc(3 * TEXT * VOCAB, sizeof *logits), *turned = logits + TEXT * VOCAB;
    float *coded = turned + TEXT * VOCAB;
    folder f = make_folder(), out;
    int32_t ids[TEXT];
    pleach_quantize_settings s;
    double power = 0, error = 0;
    for (int i = 0; i < TEXT; i++) ids[i] = (i * 29 + 7) % VOCAB;
    write_model(&f, hidden, inner);
    run_model(f.path, ids, logits);
    rotated_logits(f.path, ids, TEXT, turned);
    double most = max_difference(logits, turned, TEXT * VOCAB);
    if (!(most < 1e-3)) fail_msg("width %u, %u: off by %g", (unsigned)hidden, (unsigned)inner, most);
    pleach_quantize_settings_defaults(&s);
    s.bits = 4;
    s.threads = 2;
    snprintf(out.path, sizeof out.path, "%.200s-4bit", f.path);
    must(pleach_quantize(f.path, out.path, &s, NULL, &err));
    run_model(out.path, ids, coded);
    for (size_t i = 0; i < TEXT * VOCAB; i++) {
        error += pow((double)coded[i] - logits[i], 2);
        power += pow(logits[i], 2);
    }
    if (!(error < .05 * power)) fail_msg("width %u, %u: error %g", (unsigned)hidden,
                                         (unsigned)inner, error / power);
    remove_folder(&out, made, PL_COUNT(made));
    remove_folder(&f, files, PL_COUNT(files));
    pl_free(logits);
}

static void any_width_is_quantised_and_runs(void **state)
{
    (void)state;
    static const uint64_t widths[] = {576, 896, 4864, 4544, 10920, 13696};
    for (size_t i = 0; i < PL_COUNT(widths); i++) {
        check_width(widths[i], 96);
        check_width(64, widths[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rotation_does_not_change_logits),
                                       cmocka_unit_test(any_width_is_quantised_and_runs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
