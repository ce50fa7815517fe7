/* SPDX-License-Identifier: Apache-2.0
 *
 * Logits as a distribution over the vocabulary, in double. */
#ifndef PL_MODEL_DISTRIBUTION_H
#define PL_MODEL_DISTRIBUTION_H

#include <math.h>
#include <stddef.h>

typedef struct pl_distribution {
    double max, log_sum; /* log p(i) = (logit i - max) - log_sum */
    size_t top;          /* lowest id of the largest logits */
} pl_distribution;

static inline pl_distribution pl_distribution_of(const float *logits, size_t vocab)
{
    pl_distribution d = {.top = 0};
    double sum = 0;
    for (size_t i = 1; i < vocab; i++)
        if (logits[i] > logits[d.top]) d.top = i;
    d.max = logits[d.top];
    for (size_t i = 0; i < vocab; i++) sum += exp((double)logits[i] - d.max);
    d.log_sum = log(sum);
    return d;
}

static inline double pl_log_probability(const pl_distribution *d, float logit)
{
    return ((double)logit - d->max) - d->log_sum;
}

#endif
