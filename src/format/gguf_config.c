/* SPDX-License-Identifier: Apache-2.0
 *
 * From GGUF metadata to a pl_config. Keys are those of the GGUF specification, under the
 * architecture's name; what they mean for the rotary embedding follows the converters that write
 * them, so that the result is the config of the model the file was made from. */
#include "gguf_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "config.h"
#include "tensor.h"

/* Where values come from: "<arch>.<key>" in the file's metadata. */
typedef struct source {
    const char *file, *arch;
    const pl_gguf *g;
    pleach_error *err;
} source;

typedef char key_text[120];

static const char *key(const source *s, const char *name, key_text text)
{
    snprintf(text, sizeof(key_text), "%s.%s", s->arch, name);
    return text;
}

static bool has(const source *s, const char *name)
{
    key_text text;
    return pl_gguf_has(s->g, key(s, name, text));
}

static pleach_status need_u32(const source *s, const char *name, uint32_t min, uint32_t max,
                              uint32_t *v)
{
    key_text text;
    uint64_t wide = 0;
    key(s, name, text);
    PL_FAIL_IF(!pl_gguf_has(s->g, text), s->err, PLEACH_ERR_MISSING, "%s: metadata %s is missing",
               s->file, text);
    bool number = pl_gguf_u64(s->g, text, &wide);
    PL_FAIL_IF(!number, s->err, PLEACH_ERR_FORMAT, "%s: metadata %s is not one whole number",
               s->file, text);
    PL_FAIL_IF(wide < min || wide > max, s->err, PLEACH_ERR_FORMAT,
               "%s: metadata %s is %llu, expected %u to %u", s->file, text,
               (unsigned long long)wide, min, max);
    *v = (uint32_t)wide;
    return PLEACH_OK;
}

/* Leaves *v as it is when the key is absent. */
static pleach_status read_u32(const source *s, const char *name, uint32_t min, uint32_t max,
                              uint32_t *v)
{
    return has(s, name) ? need_u32(s, name, min, max, v) : PLEACH_OK;
}

static pleach_status read_f64(const source *s, const char *name, double min, double max, double *v)
{
    key_text text;
    double number;
    if (!has(s, name)) return PLEACH_OK;
    PL_FAIL_IF(!pl_gguf_f64(s->g, key(s, name, text), &number) || !(number >= min && number <= max),
               s->err, PLEACH_ERR_FORMAT, "%s: metadata %s is no number from %g to %g", s->file,
               text, min, max);
    *v = number;
    return PLEACH_OK;
}

static const pl_tensor *find_tensor(const pl_gguf *g, const char *name)
{
    for (size_t i = 0; i < pl_gguf_tensor_count(g); i++)
        if (strcmp(pl_gguf_tensor(g, i)->name, name) == 0) return pl_gguf_tensor(g, i);
    return NULL;
}

/* ---- architecture and sizes ---------------------------------------------------------------- */

/* Which pl_arch a file's architecture is; Mistral and Mixtral are stored as llama. */
static const struct {
    const char *name;
    pl_arch arch;
} architectures[] = {
    {"llama", PL_ARCH_LLAMA},    {"qwen2", PL_ARCH_QWEN2},       {"qwen3", PL_ARCH_QWEN3},
    {"gemma3", PL_ARCH_GEMMA3},  {"qwen3moe", PL_ARCH_QWEN3_MOE},
    {"qwen35", PL_ARCH_QWEN35},  {"qwen35moe", PL_ARCH_QWEN35_MOE},
};

static pleach_status read_arch(const char *file, const pl_gguf *g, pl_config *c,
                               const char **prefix, pleach_error *err)
{
    pl_text name;
    PL_FAIL_IF(!pl_gguf_text(g, "general.architecture", &name), err, PLEACH_ERR_MISSING,
               "%s: metadata general.architecture is missing", file);
    for (size_t i = 0; i < PL_COUNT(architectures); i++) {
        const char *arch = architectures[i].name;
        if (strlen(arch) != name.size || memcmp(arch, name.data, name.size) != 0) continue;
        c->arch = architectures[i].arch;
        c->arch_name = pl_arch_names[c->arch];
        *prefix = arch;
        return PLEACH_OK;
    }
    return pl_fail(err, PLEACH_ERR_UNSUPPORTED,
                   "%s: architecture %.*s is not supported; docs/models.md lists those that are",
                   file, (int)PL_MIN(name.size, 100), name.data);
}

static void set_arch(pl_config *c, pl_arch arch)
{
    c->arch = arch;
    c->arch_name = pl_arch_names[arch];
}

/* The experts' weights sum to 1 in what these architectures are run with. */
static pleach_status read_experts(const source *s, pl_config *c)
{
    uint32_t experts = 0;
    bool always = c->arch == PL_ARCH_QWEN3_MOE || c->arch == PL_ARCH_QWEN35_MOE;
    PL_TRY(read_u32(s, "expert_count", 0, PL_MAX_EXPERTS, &experts));
    if (!experts && !always) return PLEACH_OK;
    PL_FAIL_IF(c->arch != PL_ARCH_LLAMA && !always, s->err,
               PLEACH_ERR_UNSUPPORTED, "%s: %u experts are not supported in %s models", s->file,
               experts, s->arch);
    if (c->arch == PL_ARCH_LLAMA) set_arch(c, PL_ARCH_MIXTRAL);
    c->expert_size = c->intermediate_size;
    c->expert_renormalise = true;
    PL_TRY(need_u32(s, "expert_count", 1, PL_MAX_EXPERTS, &c->n_experts));
    PL_TRY(need_u32(s, "expert_used_count", 1, c->n_experts, &c->n_experts_used));
    PL_TRY(read_u32(s, "expert_feed_forward_length", 1, 1u << 22, &c->expert_size));
    PL_TRY(read_u32(s, "expert_shared_feed_forward_length", 1, 1u << 22, &c->shared_expert_size));
    PL_FAIL_IF(c->shared_expert_size && c->arch != PL_ARCH_QWEN35_MOE, s->err,
               PLEACH_ERR_UNSUPPORTED, "%s: shared experts are not supported in %s models", s->file,
               s->arch);
    for (uint32_t i = 0; i < c->n_layers; i++) c->layer[i].experts = true;
    return PLEACH_OK;
}

/* Blocks that guess tokens ahead come last, and are not run. */
static pleach_status read_layers(const source *s, pl_config *c)
{
    uint32_t ahead = 0;
    PL_TRY(need_u32(s, "block_count", 1, PL_MAX_LAYERS, &c->n_layers));
    if (c->arch != PL_ARCH_QWEN35 && c->arch != PL_ARCH_QWEN35_MOE) return PLEACH_OK;
    PL_TRY(read_u32(s, "nextn_predict_layers", 0, c->n_layers - 1, &ahead));
    c->n_layers -= ahead;
    return PLEACH_OK;
}

/* Without a dense feed-forward part a file may say nothing of it. */
static pleach_status read_feed_forward(const source *s, pl_config *c)
{
    c->intermediate_size = 512;
    return c->arch == PL_ARCH_QWEN35_MOE
               ? read_u32(s, "feed_forward_length", 1, 1u << 22, &c->intermediate_size)
               : need_u32(s, "feed_forward_length", 1, 1u << 22, &c->intermediate_size);
}

static pleach_status read_sizes(const source *s, pl_config *c)
{
    double eps = 1e-6;
    PL_TRY(read_layers(s, c));
    PL_TRY(need_u32(s, "embedding_length", 1, 1u << 20, &c->hidden_size));
    PL_TRY(read_feed_forward(s, c));
    PL_TRY(need_u32(s, "attention.head_count", 1, 1u << 16, &c->n_heads));
    PL_TRY(need_u32(s, "context_length", 1, INT32_MAX, &c->context_length));
    c->n_kv_heads = c->n_heads;
    PL_TRY(read_u32(s, "attention.head_count_kv", 1, c->n_heads, &c->n_kv_heads));
    c->head_dim = c->hidden_size / c->n_heads;
    PL_TRY(read_u32(s, "attention.key_length", 2, 4096, &c->head_dim));
    uint32_t value_dim = c->head_dim;
    PL_TRY(read_u32(s, "attention.value_length", 2, 4096, &value_dim));
    PL_FAIL_IF(c->head_dim < 2 || value_dim != c->head_dim, s->err, PLEACH_ERR_UNSUPPORTED,
               "%s: heads of %u keys and %u values are not supported", s->file, c->head_dim,
               value_dim);
    PL_TRY(read_f64(s, "attention.layer_norm_rms_epsilon", 0, 1, &eps));
    c->rms_norm_eps = (float)eps;
    return read_experts(s, c);
}

/* What the tensor table says: vocabulary, a tied head, biases. */
static pleach_status read_tensors(const source *s, pl_config *c)
{
    const pl_tensor *embedding = find_tensor(s->g, "token_embd.weight");
    PL_FAIL_IF(!embedding, s->err, PLEACH_ERR_MISSING, "%s: tensor token_embd.weight is missing",
               s->file);
    PL_FAIL_IF(embedding->n_dims != 2 || embedding->shape[0] > 1u << 24, s->err, PLEACH_ERR_SHAPE,
               "%s: tensor token_embd.weight is no matrix of at most %u rows", s->file, 1u << 24);
    c->vocab_size = (uint32_t)embedding->shape[0];
    c->tie_embeddings = !find_tensor(s->g, "output.weight");
    c->qk_norm = c->arch == PL_ARCH_QWEN3 || c->arch == PL_ARCH_QWEN3_MOE ||
                 c->arch == PL_ARCH_GEMMA3 || c->arch == PL_ARCH_QWEN35 ||
                 c->arch == PL_ARCH_QWEN35_MOE;
    c->attention_bias = c->arch == PL_ARCH_QWEN2 || find_tensor(s->g, "blk.0.attn_q.bias");
    c->output_bias = find_tensor(s->g, "blk.0.attn_output.bias") != NULL;
    c->mlp_bias = find_tensor(s->g, "blk.0.ffn_up.bias") != NULL;
    PL_FAIL_IF(c->arch != PL_ARCH_QWEN2 && c->attention_bias != c->output_bias, s->err,
               PLEACH_ERR_UNSUPPORTED,
               "%s: biases on only some of q, k, v and output are not supported in %s models",
               s->file, c->arch_name);
    return PLEACH_OK;
}

/* Mistral is stored as llama; the window tells them apart. */
static pleach_status read_llama_window(const source *s, pl_config *c)
{
    uint32_t window = 0;
    PL_TRY(read_u32(s, "attention.sliding_window", 0, INT32_MAX, &window));
    if (!window) return PLEACH_OK;
    if (c->arch == PL_ARCH_LLAMA) set_arch(c, PL_ARCH_MISTRAL);
    c->sliding_window = window;
    for (uint32_t i = 0; i < c->n_layers; i++) c->layer[i].slides = true;
    return PLEACH_OK;
}

/* Every n-th layer sees all, the others a window: n, or whether each slides. */
static pleach_status read_pattern(const source *s, pl_config *c)
{
    key_text text;
    uint32_t n = 6;
    pl_gguf_type type;
    uint64_t count;
    bool listed = pl_gguf_array(s->g, key(s, "attention.sliding_window_pattern", text), &type,
                                &count);
    PL_FAIL_IF(listed && count < c->n_layers, s->err, PLEACH_ERR_FORMAT,
               "%s: metadata %s has %llu entries, expected %u", s->file, text,
               (unsigned long long)count, c->n_layers);
    if (!listed)
        PL_TRY(read_u32(s, "attention.sliding_window_pattern", 1, PL_MAX_LAYERS, &n));
    for (uint32_t i = 0; i < c->n_layers; i++) {
        int64_t slides = (i + 1) % n != 0;
        if (listed)
            PL_FAIL_IF(!pl_gguf_array_i64(s->g, text, i, &slides), s->err, PLEACH_ERR_FORMAT,
                       "%s: metadata %s is no list of numbers", s->file, text);
        c->layer[i].slides = slides != 0;
    }
    return PLEACH_OK;
}

/* What a file of Gemma 3 leaves to its reader: the largest model, of 62 layers, divides scores by
 * the root of hidden_size / heads (168), the others by that of the head size. */
static pleach_status read_gemma(const source *s, pl_config *c)
{
    double cap = 0;
    pl_config_gemma(c);
    c->query_scalar = c->n_layers == 62 ? (double)c->hidden_size / c->n_heads : c->head_dim;
    PL_TRY(read_f64(s, "final_logit_softcapping", 0, 1e6, &cap));
    c->final_soft_cap = (float)cap;
    PL_TRY(read_u32(s, "attention.sliding_window", 0, INT32_MAX, &c->sliding_window));
    return read_pattern(s, c);
}

/* Where key heads are fewer than value heads the converter reorders these. */
static pleach_status read_qwen35(const source *s, pl_config *c)
{
    pl_delta_config *d = &c->delta;
    uint32_t inner, n = 4;
    c->norm_offset = 1;
    c->output_gate = true;
    PL_TRY(need_u32(s, "ssm.group_count", 1, 4096, &d->key_heads));
    PL_TRY(need_u32(s, "ssm.time_step_rank", 1, 4096, &d->value_heads));
    PL_TRY(need_u32(s, "ssm.state_size", 1, 1024, &d->key_dim));
    PL_TRY(need_u32(s, "ssm.inner_size", d->value_heads, 1024 * d->value_heads, &inner));
    PL_TRY(need_u32(s, "ssm.conv_kernel", 2, PL_DELTA_TAPS, &d->taps));
    PL_FAIL_IF(inner % d->value_heads != 0, s->err, PLEACH_ERR_FORMAT,
               "%s: metadata %s.ssm.inner_size %u is not divided by %u heads", s->file, s->arch,
               inner, d->value_heads);
    d->value_dim = inner / d->value_heads;
    d->tiled = d->key_heads != d->value_heads;
    PL_TRY(read_u32(s, "full_attention_interval", 1, PL_MAX_LAYERS, &n));
    for (uint32_t i = 0; i < c->n_layers; i++) c->layer[i].delta = (i + 1) % n != 0;
    return PLEACH_OK;
}

static pleach_status read_own(const source *s, pl_config *c)
{
    switch (c->arch) {
    case PL_ARCH_LLAMA:
    case PL_ARCH_MIXTRAL: return read_llama_window(s, c);
    case PL_ARCH_GEMMA3: return read_gemma(s, c);
    case PL_ARCH_QWEN35:
    case PL_ARCH_QWEN35_MOE: return read_qwen35(s, c);
    default: return PLEACH_OK;
    }
}

/* ---- rotary embedding ---------------------------------------------------------------------- */

static pleach_status read_yarn(const source *s, pl_config *c)
{
    pl_rope_config *r = &c->rope;
    double own = 1, multiplier = 0;
    r->kind = PL_ROPE_YARN;
    r->original_context = c->context_length;
    PL_TRY(read_f64(s, "rope.scaling.original_context_length", 1, 1e9, &r->original_context));
    PL_TRY(read_f64(s, "rope.scaling.yarn_beta_fast", 1e-6, 1e6, &r->beta_fast));
    PL_TRY(read_f64(s, "rope.scaling.yarn_beta_slow", 1e-6, 1e6, &r->beta_slow));
    PL_TRY(read_f64(s, "rope.scaling.yarn_log_multiplier", -1e6, 1e6, &multiplier));
    PL_FAIL_IF(multiplier != 0, s->err, PLEACH_ERR_UNSUPPORTED,
               "%s: metadata %s.rope.scaling.yarn_log_multiplier is not supported", s->file,
               s->arch);
    PL_TRY(read_f64(s, "rope.scaling.attn_factor", 1e-6, 1e3, &own));
    r->attention_factor = own * pl_yarn_attention(r->factor, 1);
    return PLEACH_OK;
}

static pleach_status read_scaling(const source *s, pl_config *c)
{
    key_text text;
    pl_text kind;
    double factor = 0;
    PL_TRY(read_f64(s, "rope.scale_linear", 0, 1e6, &factor)); /* the older name */
    PL_TRY(read_f64(s, "rope.scaling.factor", 0, 1e6, &factor));
    if (factor == 0) factor = 1;
    /* A factor without a kind is linear. */
    bool named = pl_gguf_text(s->g, key(s, "rope.scaling.type", text), &kind);
    if (!named) kind = (pl_text){factor != 1 ? "linear" : "none", factor != 1 ? 6 : 4};
    if (kind.size == 4 && memcmp(kind.data, "none", 4) == 0) return PLEACH_OK;
    c->rope.factor = factor;
    if (kind.size == 6 && memcmp(kind.data, "linear", 6) == 0) {
        if (factor != 1) c->rope.kind = PL_ROPE_LINEAR;
        return PLEACH_OK;
    }
    if (kind.size == 4 && memcmp(kind.data, "yarn", 4) == 0) return read_yarn(s, c);
    return pl_fail(s->err, PLEACH_ERR_UNSUPPORTED, "%s: metadata %s %.*s is not supported", s->file,
                   text, (int)PL_MIN(kind.size, 60), kind.data);
}

/* What llama3's scaling divides frequency i by. */
static double llama3_divisor(const pl_rope_config *r, uint32_t i)
{
    double wavelength = 2 * 3.14159265358979323846 * pow(r->theta, 2.0 * i / r->dims);
    double turns = r->original_context / wavelength; /* in the original context */
    if (turns > r->high_freq_factor) return 1;
    if (turns < r->low_freq_factor) return r->factor;
    double smooth = (turns - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);
    return 1 / ((1 - smooth) / r->factor + smooth);
}

static bool is_llama3(const pl_rope_config *r, const pl_tensor *factors)
{
    for (uint32_t i = 0; i < r->dims / 2; i++) {
        float stored;
        pl_dequantize_row(PL_F32, (const uint8_t *)factors->data + 4 * i, &stored, 1);
        if (!(fabs(stored / llama3_divisor(r, i) - 1) < 1e-4)) return false;
    }
    return true;
}

/* Llama 3's scaling is stored as its result, one divisor for each frequency. All published models
 * have factors 1 and 4; the lowest frequency shows the factor, and the original context is a power
 * of two. Divisors that do not come from there are refused. */
static pleach_status read_rope_factors(const source *s, pl_config *c)
{
    const pl_tensor *t = find_tensor(s->g, PL_GGUF_ROPE_FACTORS);
    pl_rope_config r = c->rope;
    if (!t) return PLEACH_OK;
    PL_FAIL_IF(t->type != PL_F32 || t->n_dims != 1 || t->shape[0] != r.dims / 2, s->err,
               PLEACH_ERR_SHAPE, "%s: tensor " PL_GGUF_ROPE_FACTORS " is not F32 [%u]", s->file,
               r.dims / 2);
    PL_FAIL_IF(r.kind != PL_ROPE_DEFAULT, s->err, PLEACH_ERR_UNSUPPORTED,
               "%s: tensor " PL_GGUF_ROPE_FACTORS " together with another scaling is not supported",
               s->file);
    float last;
    pl_dequantize_row(PL_F32, (const uint8_t *)t->data + t->n_bytes - 4, &last, 1);
    r.kind = PL_ROPE_LLAMA3;
    r.factor = last;
    r.low_freq_factor = 1;
    r.high_freq_factor = 4;
    for (r.original_context = 32; r.original_context <= 1 << 20; r.original_context *= 2)
        if (last >= 1 && is_llama3(&r, t)) {
            c->rope = r;
            return PLEACH_OK;
        }
    return pl_fail(s->err, PLEACH_ERR_UNSUPPORTED,
                   "%s: tensor " PL_GGUF_ROPE_FACTORS " holds no scaling of the llama3 kind, no "
                   "other is supported",
                   s->file);
}

static pleach_status read_rope(const source *s, pl_config *c)
{
    c->rope = pl_rope_config_defaults(c->head_dim);
    uint32_t dims = c->head_dim;
    PL_TRY(read_u32(s, "rope.dimension_count", 0, 1u << 20, &dims));
    bool part = c->delta.taps && dims > 0 && dims % 2 == 0 && dims < c->head_dim;
    if (part) c->rope.dims = dims;
    PL_FAIL_IF(dims != c->head_dim && !part, s->err, PLEACH_ERR_UNSUPPORTED,
               "%s: rotating %u of %u numbers of a head is not supported", s->file, dims,
               c->head_dim);
    if (c->arch == PL_ARCH_GEMMA3) {
        c->rope_local = c->rope;
        c->rope.theta = 1e6;
        PL_TRY(read_f64(s, "rope.freq_base_swa", 1e-3, 1e15, &c->rope_local.theta));
    }
    PL_TRY(read_f64(s, "rope.freq_base", 1e-3, 1e15, &c->rope.theta));
    PL_TRY(read_scaling(s, c));
    return read_rope_factors(s, c);
}

/* ---- tokens -------------------------------------------------------------------------------- */

/* A token id, or -1 when the key is absent or no id. */
static int32_t token(const pl_gguf *g, const char *name)
{
    uint64_t id;
    return pl_gguf_u64(g, name, &id) && id <= INT32_MAX ? (int32_t)id : -1;
}

static void read_tokens(const pl_gguf *g, pl_config *c)
{
    static const char *const ends[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    c->bos = token(g, "tokenizer.ggml.bos_token_id");
    c->pad = token(g, "tokenizer.ggml.padding_token_id");
    for (size_t i = 0; i < PL_COUNT(ends); i++) {
        int32_t id = token(g, ends[i]);
        if (id >= 0) pl_config_add_end_token(c, id); /* three always fit */
    }
}

pleach_status pl_config_from_gguf(const char *file, const pl_gguf *g, pl_config *c,
                                  bool *interleaved, pleach_error *err)
{
    *c = (pl_config){0};
    source s = {.file = file, .g = g, .err = err};
    PL_TRY(read_arch(file, g, c, &s.arch, err));
    *interleaved = c->arch == PL_ARCH_LLAMA;
    PL_TRY(read_sizes(&s, c));
    PL_TRY(read_tensors(&s, c));
    PL_TRY(read_own(&s, c));
    PL_TRY(read_rope(&s, c));
    read_tokens(g, c);
    return pl_config_check(file, c, err);
}
