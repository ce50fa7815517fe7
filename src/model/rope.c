/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotary position embedding: the frequencies of each kind of context extension. */
#include "rope.h"

#include <math.h>

static const double PI = 3.14159265358979323846;

/* Llama 3: long waves are stretched by the factor, short ones kept, those between blended. */
static double llama3_frequency(const pl_rope_config *r, double frequency)
{
    double wavelength = 2 * PI / frequency, context = r->original_context;
    if (wavelength < context / r->high_freq_factor) return frequency;
    if (wavelength > context / r->low_freq_factor) return frequency / r->factor;
    double smooth = (context / wavelength - r->low_freq_factor) /
                    (r->high_freq_factor - r->low_freq_factor);
    return (1 - smooth) * frequency / r->factor + smooth * frequency;
}

/* The dimension whose wave turns `rotations` times in the original context. */
static double yarn_dimension(const pl_rope_config *r, double rotations)
{
    return r->dims * log(r->original_context / (rotations * 2 * PI)) / (2 * log(r->theta));
}

/* YaRN: below dimension `low` frequencies are kept, above `high` interpolated, a ramp between. */
static double yarn_frequency(const pl_rope_config *r, double frequency, uint32_t i)
{
    double low = yarn_dimension(r, r->beta_fast), high = yarn_dimension(r, r->beta_slow);
    if (r->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, r->dims - 1.0);
    if (low == high) high += 0.001;
    double ramp = fmin(fmax((i - low) / (high - low), 0), 1);
    return frequency / r->factor * ramp + frequency * (1 - ramp);
}

void pl_rope_frequencies(const pl_rope_config *r, float *frequencies)
{
    for (uint32_t i = 0; i < r->dims / 2; i++) {
        double f = 1 / pow(r->theta, 2.0 * i / r->dims);
        switch (r->kind) {
        case PL_ROPE_DEFAULT: break;
        case PL_ROPE_LINEAR: f /= r->factor; break;
        case PL_ROPE_LLAMA3: f = llama3_frequency(r, f); break;
        case PL_ROPE_YARN: f = yarn_frequency(r, f, i); break;
        }
        frequencies[i] = (float)f;
    }
}

void pl_rope_table(const float *frequencies, size_t half, size_t position, float scale, float *cos_,
                   float *sin_)
{
    for (size_t i = 0; i < half; i++) {
        double angle = (double)((float)position * frequencies[i]);
        cos_[i] = (float)cos(angle) * scale;
        sin_[i] = (float)sin(angle) * scale;
    }
}
