/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention on packed pages for AVX-512 with VNNI: scores as integer sums of codes and queries
 * rounded to 24 bits, vpdpbusd taking four numbers of sixteen positions and a byte of the query. */
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "codec/turboquant.h"
#include "kernels/kernels.h"
#include "packed_keys.h"

typedef __m512 vec;
enum {
    LANES = 16,
    V = 2,
    P = PL_ATTEND_BLOCK,
    GROUP = PL_TURBOQUANT_GROUP,
    PLAIN = 32
};

static PL_ALWAYS_INLINE vec v_load(const float *p) { return _mm512_loadu_ps(p); }
static PL_ALWAYS_INLINE void v_store(float *p, vec x) { _mm512_storeu_ps(p, x); }
static PL_ALWAYS_INLINE vec v_splat(const float *p) { return _mm512_set1_ps(*p); }
static PL_ALWAYS_INLINE vec v_mul(vec a, vec b) { return _mm512_mul_ps(a, b); }
static PL_ALWAYS_INLINE vec v_fma(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }

static PL_ALWAYS_INLINE vec v_load_fp16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

/* ---- queries --------------------------------------------------------------------------------
 *
 * By group Q = round(q / step) = 65536 a + 256 b + c in signed bytes, |Q| <= 127 * 65536. A prepared
 * row is three arrays, of a, b and c, each [D] in the order of the keys' bytes; then steps [G] and
 * sums [G]. Of the w = 32/b codes in a word, those that w >> b*s leaves under 0x0f0f0f0f or the like
 * are s, s + w/4, s + 2 w/4, s + 3 w/4. */

static void prepare_group(int8_t *limbs, size_t D, const float *q, size_t n, uint32_t b, float *step,
                          float *sum)
{
    const float limit = 127 * 65536;
    size_t w = 32 / b;
    float max = 0;
    *sum = 0;
    for (size_t i = 0; i < n; i++) {
        max = fabsf(q[i]) <= max ? max : fabsf(q[i]); /* NaN stays */
        *sum += q[i];
    }
    *step = max / limit;
    float inverse = max >= 0x1p-100f && max < INFINITY ? limit / max : 0;
    if (!(max < INFINITY)) *step = NAN;
    for (size_t i = 0; i < n; i++) {
        int32_t Q = inverse > 0 ? (int32_t)lrintf(q[i] * inverse) : 0;
        int32_t low = (int8_t)(Q & 255), middle = (int8_t)((Q - low) >> 8 & 255);
        size_t in = i % w, at = i - in + in % (w / 4) * 4 + in / (w / 4);
        limbs[at] = (int8_t)((Q - low - 256 * middle) >> 16);
        limbs[at + D] = (int8_t)middle;
        limbs[at + 2 * D] = (int8_t)low;
    }
}

static void prepare_avx512(float *dst, const float *q, size_t rows, const pl_turboquant *type)
{
    size_t D = type->dim, groups = pl_turboquant_groups(type->dim, GROUP);
    for (; rows; rows--, q += D, dst += D + PL_ATTEND_SUMS) {
        float *steps = dst + 3 * D / 4;
        for (size_t g = 0; g < groups; g++)
            prepare_group((int8_t *)dst + g * GROUP, D, q + g * GROUP, PL_MIN(D - g * GROUP, GROUP),
                          lane_bits(type->key_bits), steps + g, steps + groups + g);
    }
}

/* ---- scores ---------------------------------------------------------------------------------- */

/* dot[r][0 .. 3) += the limbs' products of R rows with the numbers of a word of STEP positions. */
static PL_ALWAYS_INLINE void dot_word(size_t R, uint32_t b, __m512i dot[4][3], const float *q,
                                      size_t D, const uint32_t words[STEP])
{
    const __m512i mask = _mm512_set1_epi8((char)((1 << b) - 1));
    const __m512i word = _mm512_load_si512(words);
    PL_UNROLL
    for (uint32_t s = 0; s < 8 / b; s++) {
        __m512i x = _mm512_srli_epi32(word, b * s);
        if (b < 8) x = _mm512_and_si512(x, mask);
        for (size_t r = 0; r < R; r++)
            for (size_t i = 0; i < 3; i++) {
                const float *limb = q + r * (D + PL_ATTEND_SUMS) + i * D / 4 + s;
                __m512i four = _mm512_castps_si512(_mm512_set1_ps(*limb));
                dot[r][i] = _mm512_dpbusd_epi32(dot[r][i], x, four);
            }
    }
}

/* scores[r][0 .. STEP) of R rows. With u = c + bias >= 0, a group adds
 * scale * (step * sum(Q u) + (zero - bias) * sum(q)). */
static PL_ALWAYS_INLINE void scores_step(size_t R, uint32_t b, float bias, const float *q, size_t D,
                                         uint32_t (*words)[STEP], const uint16_t *scales,
                                         const uint16_t *zeros, float *scores)
{
    size_t groups = (D + GROUP - 1) / GROUP;
    __m512 score[4];
    for (size_t r = 0; r < R; r++) score[r] = _mm512_setzero_ps();
    for (size_t g = 0; g < groups; g++) {
        __m512i dot[4][3];
        for (size_t r = 0; r < R; r++)
            for (size_t i = 0; i < 3; i++) dot[r][i] = _mm512_setzero_si512();
        for (size_t d = g * GROUP; d < PL_MIN((g + 1) * GROUP, D); d += 32 / b, words++)
            dot_word(R, b, dot, q + d / 4, D, words[0]);
        __m512 scale = v_load_fp16(scales + g * P);
        __m512 zero = _mm512_sub_ps(v_load_fp16(zeros + g * P), _mm512_set1_ps(bias));
        for (size_t r = 0; r < R; r++) {
            const float *numbers = q + r * (D + PL_ATTEND_SUMS) + 3 * D / 4;
            __m512i low = _mm512_add_epi32(_mm512_slli_epi32(dot[r][1], 8), dot[r][2]);
            __m512 x = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[r][0]), _mm512_set1_ps(65536),
                                       _mm512_cvtepi32_ps(low));
            x = _mm512_mul_ps(x, v_splat(numbers + g));
            x = _mm512_fmadd_ps(zero, v_splat(numbers + groups + g), x);
            score[r] = _mm512_fmadd_ps(scale, x, score[r]);
        }
    }
    for (size_t r = 0; r < R; r++) _mm512_storeu_ps(scores + r * P, score[r]);
}

/* ---- softmax --------------------------------------------------------------------------------- */

/* exp(x) as in vector.h for x <= 0, with fused multiply-adds; NaN passes on. */
static PL_ALWAYS_INLINE __m512 exp_avx512(__m512 x)
{
    static const float terms[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f};
    const __m512 lowest = _mm512_set1_ps(-87.0f);
    __mmask16 tiny = _mm512_cmp_ps_mask(x, lowest, _CMP_LT_OQ);
    x = _mm512_max_ps(lowest, x);
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)),
                                    _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    __m512 p = _mm512_set1_ps(1.0f / 5040);
    PL_UNROLL
    for (size_t i = 0; i < PL_COUNT(terms); i++)
        p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(terms[i]));
    return _mm512_mask_mov_ps(_mm512_scalef_ps(p, n), tiny, _mm512_setzero_ps());
}

/* As in softmax_avx2.h. */
static float softmax_row(float *scores, size_t lo, size_t hi, float *max, float *sum)
{
    for (size_t j = 0; j < lo; j++) scores[j] = -INFINITY;
    for (size_t j = hi; j < P; j++) scores[j] = -INFINITY;
    __m512 top = _mm512_set1_ps(*max), total = _mm512_setzero_ps();
    __mmask16 nan = 0;
    for (size_t j = 0; j < P; j += 16) {
        __m512 s = _mm512_loadu_ps(scores + j);
        top = _mm512_max_ps(top, s);
        nan |= _mm512_cmp_ps_mask(s, s, _CMP_UNORD_Q);
    }
    float m = nan ? NAN : _mm512_reduce_max_ps(top);
    for (size_t j = 0; j < P; j += 16) {
        __m512 p = exp_avx512(_mm512_sub_ps(_mm512_loadu_ps(scores + j), _mm512_set1_ps(m)));
        _mm512_storeu_ps(scores + j, p);
        total = _mm512_add_ps(total, p);
    }
    float keep = _mm512_cvtss_f32(exp_avx512(_mm512_set1_ps(*max - m)));
    *sum = *sum * keep + _mm512_reduce_add_ps(total);
    *max = m;
    return keep;
}

static void scale_row(float *x, float factor, size_t n)
{
    for (size_t i = 0; i < n; i += 16)
        _mm512_storeu_ps(x + i, _mm512_mul_ps(_mm512_loadu_ps(x + i), _mm512_set1_ps(factor)));
}

/* ---- values ----------------------------------------------------------------------------------
 *
 * Code i of sixteen lies in the two bytes from b*i/8 on, at bit b*i % 8 of them. What stands above
 * it there does no harm: vpermps looks at four bits, for which a smaller table is repeated, and
 * vpermi2ps at five. */

#define BYTES(b, i) ((b) * (i) / 8 | ((b) * (i) / 8 + 1) << 8 | 0x80800000)
#define SHIFT(b, i) ((b) * (i) % 8)
#define SIXTEEN(of, b)                                                                             \
    {of(b, 0), of(b, 1), of(b, 2),  of(b, 3),  of(b, 4),  of(b, 5),  of(b, 6),  of(b, 7),          \
     of(b, 8), of(b, 9), of(b, 10), of(b, 11), of(b, 12), of(b, 13), of(b, 14), of(b, 15)}

static const uint32_t bytes_of[][16] PL_ALIGNED(64) = {
    [2] = SIXTEEN(BYTES, 2), [3] = SIXTEEN(BYTES, 3), [4] = SIXTEEN(BYTES, 4),
    [5] = SIXTEEN(BYTES, 5)};
static const uint32_t shift_of[][16] PL_ALIGNED(64) = {
    [2] = SIXTEEN(SHIFT, 2), [3] = SIXTEEN(SHIFT, 3), [4] = SIXTEEN(SHIFT, 4),
    [5] = SIXTEEN(SHIFT, 5)};

/* The centroids of sixteen codes at p, which may be followed by 14 bytes that are read too. */
static PL_ALWAYS_INLINE vec look_up(uint32_t bits, const uint8_t *p, const float *table)
{
    if (bits == PLAIN) return _mm512_loadu_ps(p);
    __m128i codes = _mm_loadu_si128((const __m128i *)p);
    if (bits == 8) return _mm512_i32gather_ps(_mm512_cvtepu8_epi32(codes), table, 4);
    __m512i x = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(codes), _mm512_load_si512(bytes_of[bits]));
    x = _mm512_srlv_epi32(x, _mm512_load_si512(shift_of[bits]));
    if (bits == 2) return _mm512_permutexvar_ps(x, _mm512_broadcast_f32x4(_mm_load_ps(table)));
    if (bits == 3) return _mm512_permutexvar_ps(x, _mm512_broadcast_f32x8(_mm256_load_ps(table)));
    if (bits == 4) return _mm512_permutexvar_ps(x, _mm512_load_ps(table));
    return _mm512_permutex2var_ps(_mm512_load_ps(table), x, _mm512_load_ps(table + 16));
}

#include "kernels/attention_packed_body.h"

void pl_kernels_init_packed_avx512(pl_kernels *k)
{
    k->attend_prepare = prepare_avx512;
    k->attend_packed = attend_packed_body;
}
