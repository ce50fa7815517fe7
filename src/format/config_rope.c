/* SPDX-License-Identifier: Apache-2.0
 *
 * The rotary embedding in config.json: rope_theta with rope_scaling, or all in rope_parameters.
 * Keys and defaults are those of transformers' modeling_rope_utils. */
#include "config.h"

#include <string.h>

static pleach_status read_kind(pl_json_source at, const json_t *scaling, pl_rope_kind *kind,
                               pleach_error *err)
{
    static const char *const names[] = {
        [PL_ROPE_DEFAULT] = "default",
        [PL_ROPE_LINEAR] = "linear",
        [PL_ROPE_LLAMA3] = "llama3",
        [PL_ROPE_YARN] = "yarn",
    };
    const char *name = "default";
    const char *key = pl_json_get(scaling, "rope_type") ? "rope_type" : "type";
    if (pl_json_get(scaling, key)) PL_TRY(pl_json_text(at, scaling, key, &name, err));
    for (size_t i = 0; i < PL_COUNT(names); i++)
        if (strcmp(names[i], name) == 0) {
            *kind = (pl_rope_kind)i;
            return PLEACH_OK;
        }
    return pl_fail(err, PLEACH_ERR_UNSUPPORTED,
                   "%s: %s%s %s is not supported; default, linear, llama3 and yarn are", at.file,
                   at.prefix, key, name);
}

static pleach_status read_llama3(pl_json_source at, const json_t *scaling, pl_rope_config *r,
                                 pleach_error *err)
{
    PL_TRY(pl_json_f64(at, scaling, "factor", 1, 1e6, &r->factor, err));
    PL_TRY(pl_json_f64(at, scaling, "low_freq_factor", 1e-6, 1e6, &r->low_freq_factor, err));
    PL_TRY(pl_json_f64(at, scaling, "high_freq_factor", 1e-6, 1e6, &r->high_freq_factor, err));
    PL_FAIL_IF(r->high_freq_factor <= r->low_freq_factor, err, PLEACH_ERR_FORMAT,
               "%s: %shigh_freq_factor %g is not above low_freq_factor %g", at.file, at.prefix,
               r->high_freq_factor, r->low_freq_factor);
    return pl_json_f64(at, scaling, "original_max_position_embeddings", 1, 1e9,
                       &r->original_context, err);
}

static pleach_status read_yarn(pl_json_source at, const json_t *scaling, const pl_config *c,
                               pl_rope_config *r, pleach_error *err)
{
    double mscale = 0, mscale_all = 0;
    r->original_context = c->context_length;
    PL_TRY(pl_json_f64_or(at, scaling, "original_max_position_embeddings", 1, 1e9,
                          &r->original_context, err));
    r->factor = PL_MAX(1, c->context_length / r->original_context);
    PL_TRY(pl_json_f64_or(at, scaling, "factor", 1, 1e6, &r->factor, err));
    PL_TRY(pl_json_f64_or(at, scaling, "beta_fast", 1e-6, 1e6, &r->beta_fast, err));
    PL_TRY(pl_json_f64_or(at, scaling, "beta_slow", 1e-6, 1e6, &r->beta_slow, err));
    PL_TRY(pl_json_bool_or(at, scaling, "truncate", &r->truncate, err));
    PL_TRY(pl_json_f64_or(at, scaling, "mscale", 0, 1e3, &mscale, err));
    PL_TRY(pl_json_f64_or(at, scaling, "mscale_all_dim", 0, 1e3, &mscale_all, err));
    /* Both or neither count, and 0 is like absent. */
    r->attention_factor = pl_yarn_attention(r->factor, 1);
    if (mscale != 0 && mscale_all != 0)
        r->attention_factor =
            pl_yarn_attention(r->factor, mscale) / pl_yarn_attention(r->factor, mscale_all);
    return pl_json_f64_or(at, scaling, "attention_factor", 1e-6, 1e3, &r->attention_factor, err);
}

/* In some families only the first numbers of a head rotate. */
static pleach_status read_part(pl_json_source at, const json_t *object, const pl_config *c,
                               pl_rope_config *r, pleach_error *err)
{
    double part = (double)r->dims / c->head_dim;
    PL_TRY(pl_json_f64_or(at, object, "partial_rotary_factor", -1e9, 1e9, &part, err));
    PL_FAIL_IF(part != 1 && !c->delta.taps, err, PLEACH_ERR_UNSUPPORTED,
               "%s: %spartial_rotary_factor %g is not supported, only 1 is", at.file, at.prefix,
               part);
    uint32_t dims = part > 0 && part <= 1 ? (uint32_t)(c->head_dim * part) : 0;
    PL_FAIL_IF(part != 1 && (dims == 0 || dims % 2 != 0), err, PLEACH_ERR_FORMAT,
               "%s: %spartial_rotary_factor %g is no even part of head_dim %u", at.file, at.prefix,
               part, c->head_dim);
    r->dims = dims;
    return PLEACH_OK;
}

/* One set of parameters for all layers; families with several nest an object for each kind. */
static pleach_status check_flat(pl_json_source at, const json_t *scaling, pleach_error *err)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)scaling, key, value)
        PL_FAIL_IF(json_is_object(value), err, PLEACH_ERR_UNSUPPORTED,
                   "%s: %s%s has parameters of its own, which is not supported", at.file, at.prefix,
                   key);
    return PLEACH_OK;
}

pl_rope_config pl_rope_config_defaults(uint32_t head_dim)
{
    return (pl_rope_config){.theta = 10000,
                            .factor = 1,
                            .beta_fast = 32,
                            .beta_slow = 1,
                            .attention_factor = 1,
                            .truncate = true,
                            .dims = head_dim};
}

static pleach_status read_parameters(pl_json_source at, const json_t *scaling, const pl_config *c,
                                     pl_rope_config *r, pleach_error *err)
{
    PL_FAIL_IF(!json_is_object(scaling), err, PLEACH_ERR_FORMAT,
               "%s: %.*s is %s, expected an object", at.file, (int)strlen(at.prefix) - 1, at.prefix,
               pl_json_kind(scaling));
    PL_TRY(check_flat(at, scaling, err));
    PL_TRY(read_part(at, scaling, c, r, err));
    PL_TRY(pl_json_f64_or(at, scaling, "rope_theta", 1e-3, 1e15, &r->theta, err));
    PL_TRY(read_kind(at, scaling, &r->kind, err));
    switch (r->kind) {
    case PL_ROPE_LINEAR:
        return pl_json_f64(at, scaling, "factor", 1e-6, 1e6, &r->factor, err);
    case PL_ROPE_LLAMA3:
        return read_llama3(at, scaling, r, err);
    case PL_ROPE_YARN:
        return read_yarn(at, scaling, c, r, err);
    default:
        return PLEACH_OK;
    }
}

/* Parameters for each kind of layer. */
static pleach_status read_nested(const char *file, const json_t *parameters, pl_config *c,
                                 pleach_error *err)
{
    pl_json_source full = {file, "rope_parameters.full_attention."};
    pl_json_source local = {file, "rope_parameters.sliding_attention."};
    const json_t *of_full = pl_json_get(parameters, "full_attention");
    const json_t *of_local = pl_json_get(parameters, "sliding_attention");
    if (of_full) PL_TRY(read_parameters(full, of_full, c, &c->rope, err));
    return of_local ? read_parameters(local, of_local, c, &c->rope_local, err) : PLEACH_OK;
}

pleach_status pl_config_rope_from_json(const char *file, const json_t *root, pl_config *c,
                                       pleach_error *err)
{
    pl_json_source top = {file, ""}, at = {file, "rope_parameters."};
    const bool local = c->rope_local.dims != 0;
    const json_t *scaling = pl_json_get(root, "rope_parameters");
    if (!scaling) {
        at.prefix = "rope_scaling.";
        scaling = pl_json_get(root, "rope_scaling");
    }
    PL_TRY(read_part(top, root, c, &c->rope, err));
    PL_TRY(pl_json_f64_or(top, root, "rope_theta", 1e-3, 1e15, &c->rope.theta, err));
    if (local)
        PL_TRY(pl_json_f64_or(top, root, "rope_local_base_freq", 1e-3, 1e15, &c->rope_local.theta,
                              err));
    if (!scaling) return PLEACH_OK;
    if (local && (pl_json_get(scaling, "full_attention") || pl_json_get(scaling, "sliding_attention")))
        return read_nested(file, scaling, c, err);
    return read_parameters(at, scaling, c, &c->rope, err);
}
