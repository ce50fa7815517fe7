/* SPDX-License-Identifier: Apache-2.0
 *
 * How a pl_config comes to be, and what holds for it whatever it was read from. GGUF's own way is
 * gguf_config.h. */
#ifndef PL_FORMAT_CONFIG_H
#define PL_FORMAT_CONFIG_H

#include "checkpoint.h"
#include "json.h"

#define PL_MAX_LAYERS PL_COUNT(((pl_config *)0)->layer)
#define PL_MAX_EXPERTS 4096 /* of a layer */

/* file names the source in errors. generation is generation_config.json, or NULL. */
pleach_status pl_config_from_json(const char *file, const json_t *root, const json_t *generation,
                                  pl_config *c, pleach_error *err);
/* What holds for the rotary embedding where nothing is said of it. */
pl_rope_config pl_rope_config_defaults(uint32_t head_dim);
/* The rotary embeddings alone; the rest of c is set already, and in them what holds when nothing is
 * said. A rope_local of dims 0 stays so. */
pleach_status pl_config_rope_from_json(const char *file, const json_t *root, pl_config *c,
                                       pleach_error *err);

/* The ranges that hold between the numbers of any model, whatever they came from. */
pleach_status pl_config_check(const char *file, const pl_config *c, pleach_error *err);
/* Adds an end token unless it is there; false when there is no room. */
bool pl_config_add_end_token(pl_config *c, int32_t id);
/* What every Gemma 3 has, whatever its config says; sizes are set already. */
void pl_config_gemma(pl_config *c);
/* What yarn multiplies cos and sin by when the config does not say: 0.1 m ln(factor) + 1. */
double pl_yarn_attention(double factor, double mscale);

extern const char *const pl_arch_names[PL_ARCH_COUNT];   /* model_type by pl_arch */
extern const char *const pl_arch_classes[PL_ARCH_COUNT]; /* the class in "architectures" */

#endif
