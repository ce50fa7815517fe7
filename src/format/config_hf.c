/* SPDX-License-Identifier: Apache-2.0
 *
 * config.json of a Hugging Face folder. Keys, and what holds when one is absent, are those of the
 * transformers configuration classes; the rotary embedding is in config_rope.c. */
#include "config.h"

#include <string.h>

/* Which layers of an architecture slide. */
typedef enum window_rule {
    WINDOW_NONE,   /* the class has no window */
    WINDOW_ALL,    /* all, where there is one */
    WINDOW_ASKED,  /* those from max_window_layers on, with use_sliding_window */
    WINDOW_PATTERN /* all but every sliding_window_pattern-th */
} window_rule;

/* What an architecture's class is, and has when the config does not say. 0: the key is needed. */
typedef struct arch_traits {
    uint32_t vocab, hidden, intermediate, layers, heads;
    uint32_t kv_heads; /* 0: as many as heads */
    uint32_t head_dim; /* 0: hidden_size / heads */
    uint32_t context;
    uint32_t window; /* sliding_window when the key is absent; 0: none */
    window_rule windows;
    double eps, theta, local_theta; /* local_theta: of layers that slide; 0: as the others */
    double rotated; /* partial_rotary_factor; 0: whole heads, and there is no such key */
    bool qk_norm, may_have_bias /* attention_bias is a key */, tied;
} arch_traits;

static const arch_traits traits[PL_ARCH_COUNT] = {
    [PL_ARCH_LLAMA] = {.context = 2048, .eps = 1e-6, .theta = 1e4, .may_have_bias = true},
    [PL_ARCH_MISTRAL] = {.kv_heads = 8, .context = 131072, .window = 4096, .windows = WINDOW_ALL,
                         .eps = 1e-6, .theta = 1e4},
    [PL_ARCH_QWEN2] = {.kv_heads = 32, .context = 32768, .window = 4096, .windows = WINDOW_ASKED,
                       .eps = 1e-6, .theta = 1e4},
    [PL_ARCH_QWEN3] = {.kv_heads = 32, .head_dim = 128, .context = 32768, .window = 4096,
                       .windows = WINDOW_ASKED, .eps = 1e-6, .theta = 1e4, .qk_norm = true,
                       .may_have_bias = true},
    [PL_ARCH_GEMMA3] = {.vocab = 262208, .hidden = 2304, .intermediate = 9216, .layers = 26,
                        .heads = 8, .kv_heads = 4, .head_dim = 256, .context = 131072,
                        .window = 4096, .windows = WINDOW_PATTERN, .eps = 1e-6, .theta = 1e6,
                        .local_theta = 1e4, .qk_norm = true, .may_have_bias = true, .tied = true},
    [PL_ARCH_MIXTRAL] = {.kv_heads = 8, .context = 131072, .windows = WINDOW_ALL, .eps = 1e-5,
                         .theta = 1e6},
    [PL_ARCH_QWEN3_MOE] = {.kv_heads = 4, .context = 32768, .window = 4096,
                           .windows = WINDOW_ASKED, .eps = 1e-6, .theta = 1e4, .qk_norm = true,
                           .may_have_bias = true},
    [PL_ARCH_QWEN35] = {.vocab = 248320, .hidden = 4096, .intermediate = 12288, .layers = 32,
                        .heads = 16, .kv_heads = 4, .head_dim = 256, .context = 32768, .eps = 1e-6,
                        .theta = 1e4, .rotated = 0.25, .qk_norm = true, .may_have_bias = true},
    [PL_ARCH_QWEN35_MOE] = {.vocab = 248320, .hidden = 2048, .intermediate = 512, .layers = 40,
                            .heads = 16, .kv_heads = 2, .head_dim = 256, .context = 32768,
                            .eps = 1e-6, .theta = 1e4, .rotated = 0.25, .qk_norm = true,
                            .may_have_bias = true},
};

/* Models that see as well as read: their text part is an architecture of its own. */
static const struct {
    const char *class, *model_type;
    pl_arch arch;
} wrappers[] = {
    {"Gemma3ForConditionalGeneration", "gemma3", PL_ARCH_GEMMA3},
    {"Qwen3_5ForConditionalGeneration", "qwen3_5", PL_ARCH_QWEN35},
    {"Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe", PL_ARCH_QWEN35_MOE},
};

/* Sets the architecture, and *text to the object that describes the text model. */
static pleach_status read_arch(pl_json_source at, const json_t *root, pl_config *c,
                               const json_t **text, pleach_error *err)
{
    const json_t *classes = pl_json_get(root, "architectures");
    PL_FAIL_IF(classes && !json_is_string(json_array_get(classes, 0)), err, PLEACH_ERR_FORMAT,
               "%s: architectures is not a list of names", at.file);
    const char *name;
    size_t arch = 0;
    if (classes)
        name = json_string_value(json_array_get(classes, 0));
    else
        PL_TRY(pl_json_text(at, root, "model_type", &name, err));
    const char *const *known = classes ? pl_arch_classes : pl_arch_names;
    *text = root;
    while (arch < PL_ARCH_COUNT && strcmp(known[arch], name) != 0) arch++;
    for (size_t i = 0; i < PL_COUNT(wrappers); i++) {
        if (strcmp(classes ? wrappers[i].class : wrappers[i].model_type, name) != 0) continue;
        arch = wrappers[i].arch;
        *text = pl_json_get(root, "text_config");
        PL_FAIL_IF(!json_is_object(*text), err, PLEACH_ERR_FORMAT,
                   "%s: text_config is %s, expected an object", at.file, pl_json_kind(*text));
    }
    PL_FAIL_IF(arch == PL_ARCH_COUNT, err, PLEACH_ERR_UNSUPPORTED,
               "%s: architecture %s is not supported; docs/models.md lists those that are", at.file,
               name);
    c->arch = (pl_arch)arch;
    c->arch_name = pl_arch_names[arch];
    return PLEACH_OK;
}

/* fallback 0: the key is needed. */
static pleach_status read_size(pl_json_source at, const json_t *root, const char *key,
                               uint32_t most, uint32_t fallback, uint32_t *v, pleach_error *err)
{
    *v = fallback;
    return fallback ? pl_json_u32_or(at, root, key, 1, most, v, err)
                    : pl_json_u32(at, root, key, 1, most, v, err);
}

static pleach_status read_sizes(pl_json_source at, const json_t *root, pl_config *c,
                                pleach_error *err)
{
    const arch_traits *d = &traits[c->arch];
    double eps = d->eps;
    PL_TRY(read_size(at, root, "vocab_size", 1u << 24, d->vocab, &c->vocab_size, err));
    PL_TRY(read_size(at, root, "hidden_size", 1u << 20, d->hidden, &c->hidden_size, err));
    PL_TRY(read_size(at, root, "intermediate_size", 1u << 22, d->intermediate,
                     &c->intermediate_size, err));
    PL_TRY(read_size(at, root, "num_hidden_layers", PL_MAX_LAYERS, d->layers, &c->n_layers, err));
    PL_TRY(read_size(at, root, "num_attention_heads", 1u << 16, d->heads, &c->n_heads, err));
    /* A null means "derive it"; an absent key means the class's default. */
    bool given = json_object_get(root, "num_key_value_heads") != NULL;
    c->n_kv_heads = given || !d->kv_heads ? c->n_heads : d->kv_heads;
    PL_TRY(pl_json_u32_or(at, root, "num_key_value_heads", 1, c->n_heads, &c->n_kv_heads, err));
    given = json_object_get(root, "head_dim") != NULL;
    c->head_dim = given || !d->head_dim ? c->hidden_size / c->n_heads : d->head_dim;
    PL_TRY(pl_json_u32_or(at, root, "head_dim", 2, 4096, &c->head_dim, err));
    PL_FAIL_IF(c->head_dim < 2, err, PLEACH_ERR_FORMAT,
               "%s: hidden_size %u over num_attention_heads %u leaves no head_dim", at.file,
               c->hidden_size, c->n_heads);
    c->context_length = d->context;
    PL_TRY(
        pl_json_u32_or(at, root, "max_position_embeddings", 1, INT32_MAX, &c->context_length, err));
    PL_TRY(pl_json_f64_or(at, root, "rms_norm_eps", 0, 1, &eps, err));
    c->rms_norm_eps = (float)eps;
    return PLEACH_OK;
}

/* The name of the activation must be one of two. */
static pleach_status check_activation(pl_json_source at, const json_t *root, const char *key,
                                      const char *name, const char *alias, pleach_error *err)
{
    const json_t *act = pl_json_get(root, key);
    const char *found = act ? json_string_value(act) : name;
    PL_FAIL_IF(!found || (strcmp(found, name) != 0 && strcmp(found, alias) != 0), err,
               PLEACH_ERR_UNSUPPORTED, "%s: %s %s is not supported, only %s is", at.file, key,
               found ? found : pl_json_kind(act), name);
    return PLEACH_OK;
}

static pleach_status read_switches(pl_json_source at, const json_t *whole, const json_t *root,
                                   pl_config *c, pleach_error *err)
{
    c->tie_embeddings = traits[c->arch].tied;
    PL_TRY(pl_json_bool_or(at, whole, "tie_word_embeddings", &c->tie_embeddings, err));
    PL_TRY(pl_json_bool_or(at, root, "tie_word_embeddings", &c->tie_embeddings, err));
    c->qk_norm = traits[c->arch].qk_norm;
    bool bias = false;
    if (traits[c->arch].may_have_bias)
        PL_TRY(pl_json_bool_or(at, root, "attention_bias", &bias, err));
    c->output_bias = bias;
    c->attention_bias = bias || c->arch == PL_ARCH_QWEN2;
    if (c->arch == PL_ARCH_LLAMA) PL_TRY(pl_json_bool_or(at, root, "mlp_bias", &c->mlp_bias, err));
    if (c->arch == PL_ARCH_GEMMA3) return PLEACH_OK;
    return check_activation(at, root, "hidden_act", "silu", "swish", err);
}

/* What Gemma 3 has beside the others; caps of attention's scores and two-sided attention are in
 * the class, and in no model that was published. */
static pleach_status read_gemma(pl_json_source at, const json_t *root, pl_config *c,
                                pleach_error *err)
{
    double cap = 0;
    bool both_ways = false;
    PL_TRY(check_activation(at, root, "hidden_activation", "gelu_pytorch_tanh",
                            "gelu_pytorch_tanh", err));
    PL_TRY(pl_json_bool_or(at, root, "use_bidirectional_attention", &both_ways, err));
    PL_FAIL_IF(pl_json_get(root, "attn_logit_softcapping") || both_ways, err,
               PLEACH_ERR_UNSUPPORTED, "%s: %s is not supported", at.file,
               both_ways ? "use_bidirectional_attention" : "attn_logit_softcapping");
    PL_TRY(pl_json_f64_or(at, root, "final_logit_softcapping", 1e-3, 1e6, &cap, err));
    c->query_scalar = 256;
    PL_TRY(pl_json_f64_or(at, root, "query_pre_attn_scalar", 1e-3, 1e6, &c->query_scalar, err));
    pl_config_gemma(c);
    c->final_soft_cap = (float)cap;
    return PLEACH_OK;
}

/* Experts where the config does not name layers without: mlp_only_layers, and all but every
 * decoder_sparse_step-th. */
static pleach_status read_sparse_layers(pl_json_source at, const json_t *root, pl_config *c,
                                        pleach_error *err)
{
    uint32_t step = 1;
    PL_TRY(pl_json_u32_or(at, root, "decoder_sparse_step", 1, PL_MAX_LAYERS, &step, err));
    for (uint32_t i = 0; i < c->n_layers; i++) c->layer[i].experts = (i + 1) % step == 0;
    const json_t *dense = pl_json_get(root, "mlp_only_layers");
    for (size_t i = 0; i < json_array_size(dense); i++) {
        json_int_t layer = json_integer_value(json_array_get(dense, i));
        PL_FAIL_IF(!json_is_integer(json_array_get(dense, i)) || layer < 0 || layer >= c->n_layers,
                   err, PLEACH_ERR_FORMAT, "%s: mlp_only_layers entry %zu is no layer", at.file, i);
        c->layer[layer].experts = false;
    }
    return PLEACH_OK;
}

static pleach_status read_experts(pl_json_source at, const json_t *root, pl_config *c,
                                  pleach_error *err)
{
    bool mixtral = c->arch == PL_ARCH_MIXTRAL;
    const char *count = pl_json_get(root, "num_experts") ? "num_experts" : "num_local_experts";
    c->n_experts = mixtral ? 8 : 128;
    c->n_experts_used = mixtral ? 2 : 8;
    c->expert_size = mixtral ? c->intermediate_size : 768;
    c->expert_renormalise = mixtral;
    if (c->arch == PL_ARCH_QWEN35_MOE) {
        c->n_experts = 256;
        c->expert_size = 512;
        c->expert_renormalise = true; /* by the class, which has no key for it */
    }
    PL_TRY(pl_json_u32_or(at, root, count, 1, PL_MAX_EXPERTS, &c->n_experts, err));
    PL_TRY(pl_json_u32_or(at, root, "num_experts_per_tok", 1, c->n_experts, &c->n_experts_used,
                          err));
    if (!mixtral) {
        PL_TRY(pl_json_u32_or(at, root, "moe_intermediate_size", 1, 1u << 22, &c->expert_size,
                              err));
        if (c->arch != PL_ARCH_QWEN35_MOE)
            PL_TRY(pl_json_bool_or(at, root, "norm_topk_prob", &c->expert_renormalise, err));
    }
    return read_sparse_layers(at, root, c, err);
}

/* Which layers attend to all tokens and which are of the other kind, where layer_types says so. */
static pleach_status read_layer_types(pl_json_source at, const json_t *list, const char *other,
                                      pl_config *c, pleach_error *err)
{
    PL_FAIL_IF(!json_is_array(list) || json_array_size(list) != c->n_layers, err, PLEACH_ERR_FORMAT,
               "%s: layer_types is %s of %zu entries, expected an array of %u", at.file,
               pl_json_kind(list), json_array_size(list), c->n_layers);
    for (uint32_t i = 0; i < c->n_layers; i++) {
        const char *type = json_string_value(json_array_get(list, i));
        bool is_other = type && strcmp(type, other) == 0;
        PL_FAIL_IF(!type || (!is_other && strcmp(type, "full_attention") != 0), err,
                   PLEACH_ERR_UNSUPPORTED, "%s: layer_types entry %u, %s, is not supported",
                   at.file, i, type ? type : "no string");
        if (c->delta.taps) c->layer[i].delta = is_other;
        else c->layer[i].slides = is_other;
    }
    return PLEACH_OK;
}

static pleach_status read_delta_sizes(pl_json_source at, const json_t *root, pl_delta_config *d,
                                      pleach_error *err)
{
    *d = (pl_delta_config){
        .key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128, .taps = 4};
    PL_TRY(pl_json_u32_or(at, root, "linear_num_key_heads", 1, 4096, &d->key_heads, err));
    PL_TRY(pl_json_u32_or(at, root, "linear_num_value_heads", 1, 4096, &d->value_heads, err));
    PL_TRY(pl_json_u32_or(at, root, "linear_key_head_dim", 1, 1024, &d->key_dim, err));
    PL_TRY(pl_json_u32_or(at, root, "linear_value_head_dim", 1, 1024, &d->value_dim, err));
    return pl_json_u32_or(at, root, "linear_conv_kernel_dim", 2, PL_DELTA_TAPS, &d->taps, err);
}

/* Layers that are gated delta nets: as layer_types lists them, or all but every n-th. */
static pleach_status read_mixers(pl_json_source at, const json_t *root, pl_config *c,
                                 pleach_error *err)
{
    const json_t *list = pl_json_get(root, "layer_types");
    uint32_t n = 4;
    PL_TRY(pl_json_u32_or(at, root, "full_attention_interval", 1, PL_MAX_LAYERS, &n, err));
    for (uint32_t i = 0; i < c->n_layers; i++) c->layer[i].delta = (i + 1) % n != 0;
    return list ? read_layer_types(at, list, "linear_attention", c, err) : PLEACH_OK;
}

/* Qwen3.5: gated delta nets beside gated attention. */
static pleach_status read_qwen35(pl_json_source at, const json_t *root, pl_config *c,
                                 pleach_error *err)
{
    c->norm_offset = 1;
    c->output_gate = true;
    PL_TRY(pl_json_bool_or(at, root, "attn_output_gate", &c->output_gate, err));
    PL_FAIL_IF(!c->output_gate, err, PLEACH_ERR_UNSUPPORTED,
               "%s: attn_output_gate false is not supported", at.file);
    PL_TRY(read_delta_sizes(at, root, &c->delta, err));
    PL_TRY(read_mixers(at, root, c, err));
    if (c->arch != PL_ARCH_QWEN35_MOE) return PLEACH_OK;
    c->shared_expert_size = 512;
    PL_TRY(pl_json_u32_or(at, root, "shared_expert_intermediate_size", 1, 1u << 22,
                          &c->shared_expert_size, err));
    return read_experts(at, root, c, err);
}

/* What some architectures have and others have not. */
static pleach_status read_own(pl_json_source at, const json_t *root, pl_config *c,
                              pleach_error *err)
{
    switch (c->arch) {
    case PL_ARCH_GEMMA3: return read_gemma(at, root, c, err);
    case PL_ARCH_MIXTRAL:
    case PL_ARCH_QWEN3_MOE: return read_experts(at, root, c, err);
    case PL_ARCH_QWEN35:
    case PL_ARCH_QWEN35_MOE: return read_qwen35(at, root, c, err);
    default: return PLEACH_OK;
    }
}

/* Gemma's layers slide but for every n-th. */
static pleach_status read_pattern(pl_json_source at, const json_t *root, pl_config *c,
                                  pleach_error *err)
{
    const char *key = pl_json_get(root, "_sliding_window_pattern") ? "_sliding_window_pattern"
                                                                   : "sliding_window_pattern";
    uint32_t n = 6;
    PL_TRY(pl_json_u32_or(at, root, key, 1, PL_MAX_LAYERS, &n, err));
    for (uint32_t i = 0; i < c->n_layers; i++) c->layer[i].slides = (i + 1) % n != 0;
    return PLEACH_OK;
}

static pleach_status read_window(pl_json_source at, const json_t *root, pl_config *c,
                                 pleach_error *err)
{
    const arch_traits *d = &traits[c->arch];
    if (d->windows == WINDOW_NONE) return PLEACH_OK;
    bool given = json_object_get(root, "sliding_window") != NULL;
    bool use = d->windows != WINDOW_ASKED; /* the Qwen classes ask to be told */
    uint32_t window = given ? 0 : d->window, from = use ? 0 : 28;
    PL_TRY(pl_json_bool_or(at, root, "use_sliding_window", &use, err));
    PL_TRY(pl_json_u32_or(at, root, "sliding_window", 0, INT32_MAX, &window, err));
    if (d->windows == WINDOW_ASKED)
        PL_TRY(pl_json_u32_or(at, root, "max_window_layers", 0, INT32_MAX, &from, err));
    if (d->windows == WINDOW_PATTERN) PL_TRY(read_pattern(at, root, c, err));
    else
        for (uint32_t i = from; i < c->n_layers; i++) c->layer[i].slides = true;
    const json_t *types = pl_json_get(root, "layer_types");
    if (types) PL_TRY(read_layer_types(at, types, "sliding_attention", c, err));
    if (use) c->sliding_window = window;
    return PLEACH_OK;
}

/* A token id, or -1 for null and for an absent key. Some configs write -1 for none themselves. */
static pleach_status read_token(pl_json_source at, const json_t *value, const char *key,
                                int32_t *id, pleach_error *err)
{
    *id = -1;
    if (!value || json_is_null(value)) return PLEACH_OK;
    json_int_t n = json_integer_value(value);
    PL_FAIL_IF(!json_is_integer(value) || n < -1 || n > INT32_MAX, err, PLEACH_ERR_FORMAT,
               "%s: %s is not a token id", at.file, key);
    *id = (int32_t)n;
    return PLEACH_OK;
}

/* eos_token_id of config.json or generation_config.json: one id or a list. */
static pleach_status read_end_tokens(pl_json_source at, const json_t *root, pl_config *c,
                                     pleach_error *err)
{
    const json_t *eos = pl_json_get(root, "eos_token_id");
    size_t n = json_is_array(eos) ? json_array_size(eos) : eos != NULL;
    for (size_t i = 0; i < n; i++) {
        int32_t id;
        const json_t *value = json_is_array(eos) ? json_array_get(eos, i) : eos;
        PL_TRY(read_token(at, value, "eos_token_id", &id, err));
        PL_FAIL_IF(id >= 0 && !pl_config_add_end_token(c, id), err, PLEACH_ERR_UNSUPPORTED,
                   "%s: more than %d end tokens", at.file, PL_MAX_END_TOKENS);
    }
    return PLEACH_OK;
}

/* Ids of the text model, or those of the whole where it has none. */
static pleach_status read_tokens(pl_json_source at, const json_t *root, const json_t *text,
                                 pl_config *c, pleach_error *err)
{
    const json_t *bos = json_object_get(text, "bos_token_id");
    const json_t *pad = json_object_get(text, "pad_token_id");
    PL_TRY(read_token(at, bos ? bos : json_object_get(root, "bos_token_id"), "bos_token_id",
                      &c->bos, err));
    PL_TRY(read_token(at, pad ? pad : json_object_get(root, "pad_token_id"), "pad_token_id",
                      &c->pad, err));
    PL_TRY(read_end_tokens(at, text, c, err));
    return text == root ? PLEACH_OK : read_end_tokens(at, root, c, err);
}

pleach_status pl_config_from_json(const char *file, const json_t *root, const json_t *generation,
                                  pl_config *c, pleach_error *err)
{
    pl_json_source at = {file, ""};
    const json_t *text = root;
    *c = (pl_config){0};
    PL_TRY(read_arch(at, root, c, &text, err));
    PL_TRY(read_sizes(at, text, c, err));
    PL_TRY(read_switches(at, root, text, c, err));
    PL_TRY(read_own(at, text, c, err));
    PL_TRY(read_window(at, text, c, err));
    c->rope = pl_rope_config_defaults(c->head_dim);
    c->rope.theta = traits[c->arch].theta;
    if (traits[c->arch].rotated > 0)
        c->rope.dims = (uint32_t)(c->head_dim * traits[c->arch].rotated);
    if (traits[c->arch].local_theta) {
        c->rope_local = c->rope;
        c->rope_local.theta = traits[c->arch].local_theta;
    }
    PL_TRY(pl_config_rope_from_json(file, text, c, err));
    PL_TRY(read_tokens(at, root, text, c, err));
    if (generation) PL_TRY(read_end_tokens(at, generation, c, err));
    return pl_config_check(file, c, err);
}
