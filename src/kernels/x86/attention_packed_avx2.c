/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention on packed pages for AVX2: scores in f32, from keys of eight positions in a register. */
#include <immintrin.h>
#include <string.h>

#include "codec/turboquant.h"
#include "kernels/kernels.h"
#include "packed_keys.h"
#include "softmax_avx2.h"

typedef __m256 vec;
enum {
    LANES = 8,
    V = 2,
    P = PL_ATTEND_BLOCK,
    GROUP = PL_TURBOQUANT_GROUP,
    PLAIN = 32
};

static PL_ALWAYS_INLINE vec v_load(const float *p) { return _mm256_loadu_ps(p); }
static PL_ALWAYS_INLINE void v_store(float *p, vec x) { _mm256_storeu_ps(p, x); }
static PL_ALWAYS_INLINE vec v_splat(const float *p) { return _mm256_broadcast_ss(p); }
static PL_ALWAYS_INLINE vec v_mul(vec a, vec b) { return _mm256_mul_ps(a, b); }
static PL_ALWAYS_INLINE vec v_fma(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }

static PL_ALWAYS_INLINE vec v_load_fp16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

/* ---- scores ---------------------------------------------------------------------------------- */

/* dot[r][h] += the products of R rows with w of the numbers of STEP positions, those in words[0].
 * Number s is at bit b*s of its word. */
static PL_ALWAYS_INLINE void dot_word(size_t R, uint32_t b, __m256 dot[4][2], const float *q,
                                      size_t stride, const uint32_t words[STEP])
{
    const __m256i mask = _mm256_set1_epi32((1 << b) - 1);
    __m256i low = _mm256_load_si256((const __m256i *)words);
    __m256i high = _mm256_load_si256((const __m256i *)(words + 8));
    PL_UNROLL
    for (uint32_t s = 0; s < 32 / b; s++) {
        __m256i i = _mm256_srli_epi32(low, (int)(b * s)), j = _mm256_srli_epi32(high, (int)(b * s));
        if (b * s + b < 32) i = _mm256_and_si256(i, mask);
        if (b * s + b < 32) j = _mm256_and_si256(j, mask);
        __m256 x = _mm256_cvtepi32_ps(i), y = _mm256_cvtepi32_ps(j);
        for (size_t r = 0; r < R; r++) {
            __m256 a = _mm256_broadcast_ss(q + r * stride + s);
            dot[r][0] = _mm256_fmadd_ps(a, x, dot[r][0]);
            dot[r][1] = _mm256_fmadd_ps(a, y, dot[r][1]);
        }
    }
}

/* scores[r][0 .. STEP) of R rows. With u = c + bias >= 0, a group adds
 * scale * (sum(q u) + (zero - bias) * sum(q)). */
static PL_ALWAYS_INLINE void scores_step(size_t R, uint32_t b, float bias, const float *q, size_t D,
                                         uint32_t (*words)[STEP], const uint16_t *scales,
                                         const uint16_t *zeros, float *scores)
{
    const size_t stride = D + PL_ATTEND_SUMS;
    __m256 score[4][2], dot[4][2];
    for (size_t r = 0; r < R; r++) score[r][0] = score[r][1] = _mm256_setzero_ps();
    for (size_t g = 0; g < (D + GROUP - 1) / GROUP; g++) {
        for (size_t r = 0; r < R; r++) dot[r][0] = dot[r][1] = _mm256_setzero_ps();
        for (size_t d = g * GROUP; d < PL_MIN((g + 1) * GROUP, D); d += 32 / b, words++)
            dot_word(R, b, dot, q + d, stride, words[0]);
        for (size_t h = 0; h < 2; h++) {
            __m256 scale = v_load_fp16(scales + g * P + 8 * h);
            __m256 zero = _mm256_sub_ps(v_load_fp16(zeros + g * P + 8 * h), _mm256_set1_ps(bias));
            for (size_t r = 0; r < R; r++) {
                __m256 sum = _mm256_broadcast_ss(q + r * stride + D + g);
                __m256 x = _mm256_fmadd_ps(zero, sum, dot[r][h]);
                score[r][h] = _mm256_fmadd_ps(scale, x, score[r][h]);
            }
        }
    }
    for (size_t r = 0; r < R; r++) {
        _mm256_storeu_ps(scores + r * P, score[r][0]);
        _mm256_storeu_ps(scores + r * P + 8, score[r][1]);
    }
}

/* ---- values ---------------------------------------------------------------------------------- */

/* The centroids of eight codes at p, whose bytes end at p + 8 or before. */
static PL_ALWAYS_INLINE __m256 look_up(uint32_t bits, const uint8_t *p, const float *table)
{
    if (bits == PLAIN) return _mm256_loadu_ps((const float *)p);
    if (bits == 8) /* loads one by one are faster than a gather */
        return _mm256_setr_ps(table[p[0]], table[p[1]], table[p[2]], table[p[3]], table[p[4]],
                              table[p[5]], table[p[6]], table[p[7]]);
    int32_t low, high;
    memcpy(&low, p, sizeof low);
    __m256i x = _mm256_set1_epi32(low), shifts;
    if (bits == 5) { /* 40 bits: the upper four codes from the two bytes on */
        memcpy(&high, p + 2, sizeof high);
        x = _mm256_blend_epi32(x, _mm256_set1_epi32(high), 0xf0);
        shifts = _mm256_setr_epi32(0, 5, 10, 15, 4, 9, 14, 19);
    } else {
        const int b = (int)bits;
        shifts = _mm256_setr_epi32(0, b, 2 * b, 3 * b, 4 * b, 5 * b, 6 * b, 7 * b);
    }
    x = _mm256_srlv_epi32(x, shifts);
    /* vpermps looks at three bits; a table of four lies there twice. */
    if (bits == 2) return _mm256_permutevar8x32_ps(_mm256_broadcast_ps((const __m128 *)table), x);
    __m256 found[4];
    for (size_t i = 0; i < (1u << bits) / 8; i++)
        found[i] = _mm256_permutevar8x32_ps(_mm256_load_ps(table + 8 * i), x);
    if (bits == 3) return found[0];
    __m256 bit3 = _mm256_castsi256_ps(_mm256_slli_epi32(x, 28));
    __m256 a = _mm256_blendv_ps(found[0], found[1], bit3);
    if (bits == 4) return a;
    __m256 b = _mm256_blendv_ps(found[2], found[3], bit3);
    return _mm256_blendv_ps(a, b, _mm256_castsi256_ps(_mm256_slli_epi32(x, 27)));
}

#include "kernels/attention_packed_body.h"

void pl_kernels_init_packed_avx2(pl_kernels *k)
{
    k->attend_prepare = pl_attend_prepare_c;
    k->attend_packed = attend_packed_body;
}
