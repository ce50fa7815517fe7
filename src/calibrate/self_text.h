/* SPDX-License-Identifier: Apache-2.0
 *
 * Calibration text that the model writes itself, for want of any other (LLM-QAT, Liu et al. 2023):
 * many sequences at once, so that the weights are read once for all of them. */
#ifndef PL_CALIBRATE_SELF_TEXT_H
#define PL_CALIBRATE_SELF_TEXT_H

#include "model/model.h"
#include "text/tokenizer.h"

/* Called after each token of the sequences in work; non-zero return stops. */
typedef int pl_self_text_fn(void *user, double share);

typedef struct pl_self_text_settings {
    size_t tokens, chunk; /* in all; of a sequence. The last sequence may be shorter */
    uint64_t seed;
    size_t parallel;      /* sequences at once: pl_self_text_parallel */
    pl_self_text_fn *progress; /* may be NULL */
    void *user;
} pl_self_text_settings;

/* Appends the text of one sequence after the other. Every other one is a conversation where the
 * model has a chat format, in which it asks and answers; the rest begin as its texts do, with BOS
 * or else a token at random. Where a text ends the next one begins in the same sequence. Tokens are
 * drawn at temperature 1 from those that have a twentieth of the best one's probability or more.
 * The same for every thread count and every `parallel`. */
pleach_status pl_self_text(const pl_transformer *t, const pl_compute *c,
                           const pl_tokenizer *tokenizer, const pl_self_text_settings *settings,
                           pl_ids *out, pleach_error *err);

/* Sequences at once that take no more than `limit` bytes (0: a gigabyte), from 1 to 64. */
size_t pl_self_text_parallel(const pl_config *config, size_t chunk, uint64_t limit);
uint64_t pl_self_text_memory(const pl_config *config, size_t chunk, size_t parallel);

#endif
