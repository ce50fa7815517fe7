/* SPDX-License-Identifier: Apache-2.0
 *
 * What clients are told of a token's probability: at temperature 1, of the logits as the model gave
 * them. */
#ifndef PL_RUNTIME_LOGPROBS_H
#define PL_RUNTIME_LOGPROBS_H

#include <stddef.h>
#include <stdint.h>

#include "model/distribution.h"
#include "pleach/batch.h"

/* The n <= vocab likeliest ids and their logits, best first, ties to the lowest id. */
void pl_logprobs_top(const float *logits, size_t vocab, size_t n, pleach_logprob *top);
/* Logits, as above, to ln of probabilities. */
void pl_logprobs_normalise(const pl_distribution *d, size_t n, pleach_logprob *top);

#endif
