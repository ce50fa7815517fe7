/* SPDX-License-Identifier: Apache-2.0 */
#include "logprobs.h"

void pl_logprobs_top(const float *logits, size_t vocab, size_t n, pleach_logprob *top)
{
    size_t held = 0;
    for (size_t i = 0; i < vocab && n > 0; i++) {
        if (held == n && !(logits[i] > top[n - 1].logprob)) continue;
        size_t at = held < n ? held++ : n - 1;
        for (; at > 0 && logits[i] > top[at - 1].logprob; at--) top[at] = top[at - 1];
        top[at] = (pleach_logprob){(int32_t)i, logits[i]};
    }
}

void pl_logprobs_normalise(const pl_distribution *d, size_t n, pleach_logprob *top)
{
    for (size_t i = 0; i < n; i++)
        top[i].logprob = (float)pl_log_probability(d, top[i].logprob);
}
