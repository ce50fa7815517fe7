/* SPDX-License-Identifier: Apache-2.0
 *
 * Frequencies of rotary position embedding. */
#ifndef PL_MODEL_ROPE_H
#define PL_MODEL_ROPE_H

#include "format/checkpoint.h"

/* frequencies[i] for i < dims / 2: radians a position, computed in double and rounded once. Kinds
 * default, linear, llama3 and yarn.
 * Source: the formulas of Hugging Face transformers, modeling_rope_utils. */
void pl_rope_frequencies(const pl_rope_config *r, float *frequencies);

/* cos and sin [dims / 2] of position times frequency, multiplied by `scale`. The product is taken
 * in f32, as the models were trained. */
void pl_rope_table(const float *frequencies, size_t half, size_t position, float scale, float *cos,
                   float *sin);

#endif
