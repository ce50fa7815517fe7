/* SPDX-License-Identifier: Apache-2.0
 *
 * The insides of a loaded model, for the other files of this folder. */
#ifndef PL_RUNTIME_ENGINE_H
#define PL_RUNTIME_ENGINE_H

#include "format/checkpoint.h"
#include "kernels/kernels.h"
#include "model/backend.h"
#include "text/tokenizer.h"

struct pleach_model {
    pleach_checkpoint *checkpoint;
    pl_transformer *transformer;
    pl_tokenizer *tokenizer; /* NULL: token ids only */
    pl_compute compute;
    pl_backend *backend;
    int32_t bos;
    uint32_t n_end_tokens;
    int32_t end_tokens[PL_MAX_END_TOKENS + 1]; /* the config's and the tokenizer's */
    uint64_t weight_bytes;
};

bool pl_model_is_end(const pleach_model *m, int32_t id);

#endif
