/* SPDX-License-Identifier: Apache-2.0
 *
 * The insides of a loaded model, for the other files of this folder. */
#ifndef PL_RUNTIME_ENGINE_H
#define PL_RUNTIME_ENGINE_H

#include <pthread.h>

#include "format/checkpoint.h"
#include "grammar/grammar.h"
#include "kernels/kernels.h"
#include "model/backend.h"
#include "text/tokenizer.h"

/* The vocabulary in order, made when the first grammar asks for it. */
typedef struct pl_token_cell {
    pthread_mutex_t lock;
    pl_token_list *list;
} pl_token_cell;

struct pleach_model {
    pleach_checkpoint *checkpoint;
    pl_transformer *transformer;
    pl_tokenizer *tokenizer; /* NULL: token ids only */
    pl_token_cell *tokens; /* NULL without a tokenizer */
    pl_compute compute;
    pl_backend *backend;
    int32_t bos;
    uint32_t n_end_tokens;
    int32_t end_tokens[PL_MAX_END_TOKENS + 1]; /* the config's and the tokenizer's */
    uint64_t weight_bytes;
};

bool pl_model_is_end(const pleach_model *m, int32_t id);
/* Borrowed until the model is closed; any thread. PLEACH_ERR_MISSING without a tokenizer. */
pleach_status pl_model_token_list(const pleach_model *m, const pl_token_list **out,
                                  pleach_error *err);

#endif
