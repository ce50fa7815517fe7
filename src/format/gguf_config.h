/* SPDX-License-Identifier: Apache-2.0
 *
 * A model's config from the metadata and the tensor table of a GGUF file. */
#ifndef PL_FORMAT_GGUF_CONFIG_H
#define PL_FORMAT_GGUF_CONFIG_H

#include "gguf.h"

/* Divisors of the rotary frequencies, [head_dim / 2]: how GGUF carries llama3's scaling. */
#define PL_GGUF_ROPE_FACTORS "rope_freqs.weight"

/* *interleaved: the rows of q and k are in the order of pl_tensor.rope_heads. */
pleach_status pl_config_from_gguf(const char *file, const pl_gguf *g, pl_config *c,
                                  bool *interleaved, pleach_error *err);

#endif
