/* SPDX-License-Identifier: Apache-2.0
 *
 * Trellis products for AVX-512 with VNNI and VBMI: what is particular to 16 lanes. vpdpbusd with
 * ones sums the four bytes of a number, on top of another's sum moved up 16 bits; vpdpwssd
 * multiplies the pair. */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "trellis_windows_avx512.h"

enum {
    STRIP_ROWS = 8, /* activation rows in one pass over a strip */
    STEP_ROWS = 2,  /* stored rows of axis 0 multiplied at a time */
    PAIR_WORDS = 1  /* 32-bit words for the activations of two numbers: (a, b) */
};

static PL_ALWAYS_INLINE vec splat(int32_t x)
{
    return _mm512_set1_epi32(x);
}

static PL_ALWAYS_INLINE vec add_vec(vec a, vec b)
{
    return _mm512_add_epi32(a, b);
}

static PL_ALWAYS_INLINE vec splat_pair(const int16_t *q)
{
    int32_t pair;
    memcpy(&pair, q, sizeof pair);
    return _mm512_set1_epi32(pair);
}

static PL_ALWAYS_INLINE vec add_pairs(vec sum, vec weights, vec pair)
{
    return _mm512_dpwssd_epi32(sum, weights, pair);
}

static PL_ALWAYS_INLINE void add_scaled(float *sums, vec integer, float step)
{
    __m512 f = _mm512_mul_ps(_mm512_set1_ps(step), _mm512_cvtepi32_ps(integer));
    _mm512_storeu_ps(sums, _mm512_add_ps(_mm512_loadu_ps(sums), f));
}

/* y + 510 of a in the low and of b in the high 16 bits. */
static PL_ALWAYS_INLINE vec join(vec a, vec b)
{
    const vec bytes = _mm512_set1_epi8(1);
    vec high = _mm512_slli_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), b, bytes), 16);
    return _mm512_dpbusd_epi32(high, a, bytes);
}

/* ---- one activation row ---------------------------------------------------------------------- */

static void spread_pairs(int32_t *words, const int16_t *q, size_t pairs)
{
    memcpy(words, q, pairs * sizeof *words);
}

/* Eight steps of two stored rows. */
static PL_ALWAYS_INLINE void add_rows(vec sum[8], const uint8_t *code, size_t stride, int32_t word,
                                      int k, int L, int first)
{
    windows a = open_windows(code, k, first), b = open_windows(code + stride, k, first);
    for (int i = 0; i < 8; i++)
        sum[i] = add_pairs(sum[i], join(number(a, k, L, i), number(b, k, L, i)), splat(word));
}

/* Activations of one span, [i/2][l][i%2]: pairs already. */
static void spread_steps(int32_t *words, const int16_t *steps)
{
    memcpy(words, steps, 4 * LANES * sizeof *words);
}

static PL_ALWAYS_INLINE void dot_span(vec sum[2], const uint8_t *code, const int32_t *words, int k,
                                      int L, int first)
{
    windows w = open_windows(code, k, first);
    for (int j = 0; j < 4; j++)
        sum[j % 2] = add_pairs(sum[j % 2], join(number(w, k, L, 2 * j), number(w, k, L, 2 * j + 1)),
                               _mm512_loadu_si512(words + j * LANES));
}

static PL_ALWAYS_INLINE vec fold(vec a, vec b)
{
    return add_vec(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
}

static PL_ALWAYS_INLINE vec fold_wide(vec a, vec b)
{
    return add_vec(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

/* Adds neighbouring 128-bit parts: of a to the lower, of b to the upper half. */
static PL_ALWAYS_INLINE vec fold_parts(vec a, vec b)
{
    return add_vec(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}

/* Lane r: the sum of the lanes of v[r]. */
static PL_ALWAYS_INLINE vec sum_lanes(const vec v[LANES])
{
    vec four[4];
    for (int i = 0; i < 4; i++)
        four[i] = fold_wide(fold(v[4 * i], v[4 * i + 1]), fold(v[4 * i + 2], v[4 * i + 3]));
    return fold_parts(fold_parts(four[0], four[1]), fold_parts(four[2], four[3]));
}

static PL_ALWAYS_INLINE void transpose(vec v[LANES])
{
    vec a[LANES], b[LANES];
    for (int i = 0; i < LANES / 2; i++) {
        a[2 * i] = _mm512_unpacklo_epi32(v[2 * i], v[2 * i + 1]);
        a[2 * i + 1] = _mm512_unpackhi_epi32(v[2 * i], v[2 * i + 1]);
    }
    for (int i = 0; i < LANES / 4; i++) {
        b[4 * i] = _mm512_unpacklo_epi64(a[4 * i], a[4 * i + 2]);
        b[4 * i + 1] = _mm512_unpackhi_epi64(a[4 * i], a[4 * i + 2]);
        b[4 * i + 2] = _mm512_unpacklo_epi64(a[4 * i + 1], a[4 * i + 3]);
        b[4 * i + 3] = _mm512_unpackhi_epi64(a[4 * i + 1], a[4 * i + 3]);
    }
    for (int j = 0; j < 4; j++) { /* b[4 i + j], part c: rows 4 i .. 4 i + 3 of column 4 c + j */
        vec even0 = _mm512_shuffle_i32x4(b[j], b[4 + j], 0x88);
        vec even1 = _mm512_shuffle_i32x4(b[8 + j], b[12 + j], 0x88);
        vec odd0 = _mm512_shuffle_i32x4(b[j], b[4 + j], 0xdd);
        vec odd1 = _mm512_shuffle_i32x4(b[8 + j], b[12 + j], 0xdd);
        v[j] = _mm512_shuffle_i32x4(even0, even1, 0x88);
        v[4 + j] = _mm512_shuffle_i32x4(odd0, odd1, 0x88);
        v[8 + j] = _mm512_shuffle_i32x4(even0, even1, 0xdd);
        v[12 + j] = _mm512_shuffle_i32x4(odd0, odd1, 0xdd);
    }
}

#include "trellis_body.h"

TRELLIS_KERNELS(avx512, 2, 12)
TRELLIS_KERNELS(avx512, 3, 12)
TRELLIS_KERNELS(avx512, 4, 12)
TRELLIS_KERNELS(avx512, 2, 16)
TRELLIS_KERNELS(avx512, 3, 16)
TRELLIS_KERNELS(avx512, 4, 16)

void pl_kernels_init_trellis_avx512(pl_kernels *table)
{
    table->product.prepare = prepare;
    SET_TRELLIS_KERNELS(table, avx512, 2, 12);
    SET_TRELLIS_KERNELS(table, avx512, 3, 12);
    SET_TRELLIS_KERNELS(table, avx512, 4, 12);
    SET_TRELLIS_KERNELS(table, avx512, 2, 16);
    SET_TRELLIS_KERNELS(table, avx512, 3, 16);
    SET_TRELLIS_KERNELS(table, avx512, 4, 16);
}
