/* SPDX-License-Identifier: Apache-2.0
 *
 * config.json of a Hugging Face folder. Keys, and what holds when one is absent, are those of the
 * transformers configuration classes; the rotary embedding is in config_rope.c. */
#include "config.h"

#include <string.h>

/* What an architecture has when the config does not say. */
typedef struct arch_defaults {
    uint32_t kv_heads; /* 0: as many as heads */
    uint32_t head_dim; /* 0: hidden_size / heads */
    uint32_t context;
    uint32_t window; /* sliding_window when the key is absent; 0: none */
} arch_defaults;

static const arch_defaults defaults[] = {
    [PL_ARCH_LLAMA] = {0, 0, 2048, 0},
    [PL_ARCH_MISTRAL] = {8, 0, 131072, 4096},
    [PL_ARCH_QWEN2] = {32, 0, 32768, 4096},
    [PL_ARCH_QWEN3] = {32, 128, 32768, 4096},
};

static pleach_status read_arch(pl_json_source at, const json_t *root, pl_config *c,
                               pleach_error *err)
{
    const json_t *classes = pl_json_get(root, "architectures");
    PL_FAIL_IF(classes && !json_is_string(json_array_get(classes, 0)), err, PLEACH_ERR_FORMAT,
               "%s: architectures is not a list of names", at.file);
    const char *name;
    if (classes)
        name = json_string_value(json_array_get(classes, 0));
    else
        PL_TRY(pl_json_text(at, root, "model_type", &name, err));
    const char *const *known = classes ? pl_arch_classes : pl_arch_names;
    for (size_t i = 0; i < PL_COUNT(pl_arch_names); i++)
        if (strcmp(known[i], name) == 0) {
            c->arch = (pl_arch)i;
            c->arch_name = pl_arch_names[i];
            return PLEACH_OK;
        }
    return pl_fail(err, PLEACH_ERR_UNSUPPORTED,
                   "%s: architecture %s is not supported; llama, mistral, qwen2 and qwen3 are",
                   at.file, name);
}

static pleach_status read_sizes(pl_json_source at, const json_t *root, pl_config *c,
                                pleach_error *err)
{
    const arch_defaults *d = &defaults[c->arch];
    double eps = 1e-6;
    PL_TRY(pl_json_u32(at, root, "vocab_size", 1, 1u << 24, &c->vocab_size, err));
    PL_TRY(pl_json_u32(at, root, "hidden_size", 1, 1u << 20, &c->hidden_size, err));
    PL_TRY(pl_json_u32(at, root, "intermediate_size", 1, 1u << 22, &c->intermediate_size, err));
    PL_TRY(pl_json_u32(at, root, "num_hidden_layers", 1, PL_MAX_LAYERS, &c->n_layers, err));
    PL_TRY(pl_json_u32(at, root, "num_attention_heads", 1, 1u << 16, &c->n_heads, err));
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

static pleach_status read_switches(pl_json_source at, const json_t *root, pl_config *c,
                                   pleach_error *err)
{
    PL_TRY(pl_json_bool_or(at, root, "tie_word_embeddings", &c->tie_embeddings, err));
    c->qk_norm = c->arch == PL_ARCH_QWEN3;
    bool bias = false;
    if (c->arch == PL_ARCH_LLAMA || c->arch == PL_ARCH_QWEN3)
        PL_TRY(pl_json_bool_or(at, root, "attention_bias", &bias, err));
    c->output_bias = bias;
    c->attention_bias = bias || c->arch == PL_ARCH_QWEN2;
    if (c->arch == PL_ARCH_LLAMA) PL_TRY(pl_json_bool_or(at, root, "mlp_bias", &c->mlp_bias, err));
    const json_t *act = pl_json_get(root, "hidden_act");
    const char *name = act ? json_string_value(act) : "silu";
    PL_FAIL_IF(!name || (strcmp(name, "silu") != 0 && strcmp(name, "swish") != 0), err,
               PLEACH_ERR_UNSUPPORTED, "%s: hidden_act %s is not supported, only silu is", at.file,
               name ? name : pl_json_kind(act));
    return PLEACH_OK;
}

/* Which layers slide, when layer_types lists them. */
static pleach_status read_layer_types(pl_json_source at, const json_t *list, pl_config *c,
                                      pleach_error *err)
{
    PL_FAIL_IF(!json_is_array(list) || json_array_size(list) != c->n_layers, err, PLEACH_ERR_FORMAT,
               "%s: layer_types is %s of %zu entries, expected an array of %u", at.file,
               pl_json_kind(list), json_array_size(list), c->n_layers);
    for (uint32_t i = 0; i < c->n_layers; i++) {
        const char *type = json_string_value(json_array_get(list, i));
        bool slides = type && strcmp(type, "sliding_attention") == 0;
        PL_FAIL_IF(!type || (!slides && strcmp(type, "full_attention") != 0), err,
                   PLEACH_ERR_UNSUPPORTED, "%s: layer_types entry %u, %s, is not supported",
                   at.file, i, type ? type : "no string");
        c->layer[i].slides = slides;
    }
    return PLEACH_OK;
}

static pleach_status read_window(pl_json_source at, const json_t *root, pl_config *c,
                                 pleach_error *err)
{
    if (c->arch == PL_ARCH_LLAMA) return PLEACH_OK; /* the class has no window */
    bool given = json_object_get(root, "sliding_window") != NULL;
    bool use = c->arch == PL_ARCH_MISTRAL; /* the Qwen classes ask to be told */
    uint32_t window = given ? 0 : defaults[c->arch].window;
    uint32_t from = c->arch == PL_ARCH_MISTRAL ? 0 : 28;
    PL_TRY(pl_json_bool_or(at, root, "use_sliding_window", &use, err));
    PL_TRY(pl_json_u32_or(at, root, "sliding_window", 0, INT32_MAX, &window, err));
    if (c->arch != PL_ARCH_MISTRAL)
        PL_TRY(pl_json_u32_or(at, root, "max_window_layers", 0, INT32_MAX, &from, err));
    for (uint32_t i = from; i < c->n_layers; i++) c->layer[i].slides = true;
    const json_t *types = pl_json_get(root, "layer_types");
    if (types) PL_TRY(read_layer_types(at, types, c, err));
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

pleach_status pl_config_from_json(const char *file, const json_t *root, const json_t *generation,
                                  pl_config *c, pleach_error *err)
{
    pl_json_source at = {file, ""};
    *c = (pl_config){0};
    PL_TRY(read_arch(at, root, c, err));
    PL_TRY(read_sizes(at, root, c, err));
    PL_TRY(read_switches(at, root, c, err));
    PL_TRY(read_window(at, root, c, err));
    PL_TRY(pl_config_rope_from_json(file, root, c, err));
    PL_TRY(read_token(at, json_object_get(root, "bos_token_id"), "bos_token_id", &c->bos, err));
    PL_TRY(read_token(at, json_object_get(root, "pad_token_id"), "pad_token_id", &c->pad, err));
    PL_TRY(read_end_tokens(at, root, c, err));
    if (generation) PL_TRY(read_end_tokens(at, generation, c, err));
    return pl_config_check(file, c, err);
}
