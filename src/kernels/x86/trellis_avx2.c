/* SPDX-License-Identifier: Apache-2.0
 *
 * Trellis products for AVX2: what is particular to 8 lanes without VNNI. The four bytes of a number
 * become two 16-bit sums (vpmaddubsw with ones), which vpmaddwd multiplies with the activation in
 * both halves and adds. */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "kernels/crossovers.h"
#include "transpose.h"
#include "trellis_windows_avx2.h"

enum {
    STRIP_ROWS = 4, /* activation rows in one pass over a strip: 8 sums, 2 weights, 2 more */
    DIRECT_M = PL_MOST_REGISTER_ROWS, /* most activation rows without a tile */
    DIRECT_SUMS = 8, /* of axis 0 in registers */
};

/* Holds v in a register and in its place among others of these: compilers else load a vector again
 * for each of its users, or compute many at once and run out of registers. */
static PL_ALWAYS_INLINE vec keep(vec v)
{
    __asm__ volatile("" : "+v"(v));
    return v;
}

static PL_ALWAYS_INLINE vec splat(int32_t x)
{
    return _mm256_set1_epi32(x);
}

static PL_ALWAYS_INLINE vec add_vec(vec a, vec b)
{
    return _mm256_add_epi32(a, b);
}

static PL_ALWAYS_INLINE vec load_vec(const void *p)
{
    return _mm256_loadu_si256((const void *)p);
}

static PL_ALWAYS_INLINE void store_vec(void *p, vec v)
{
    _mm256_storeu_si256(p, v);
}

static PL_ALWAYS_INLINE vec add_words(vec sum, vec weights, vec q, int i8)
{
    (void)i8;
    vec product = _mm256_madd_epi16(weights, q);
    __asm__("vpaddd %1, %0, %0" : "+x"(sum) : "x"(product));
    return sum;
}

static PL_ALWAYS_INLINE vec finish(vec sum, vec bias, int i8)
{
    (void)i8;
    return _mm256_add_epi32(sum, bias);
}

static PL_ALWAYS_INLINE void add_scaled(float *sums, vec integer, float step)
{
    __m256 f = _mm256_mul_ps(_mm256_set1_ps(step), _mm256_cvtepi32_ps(integer));
    _mm256_storeu_ps(sums, _mm256_add_ps(_mm256_loadu_ps(sums), f));
}

/* y + 510 of a in the low and of b in the high 16 bits. */
static PL_ALWAYS_INLINE vec join(vec a, vec b)
{
    const vec bytes = _mm256_set1_epi8(1), words = _mm256_set1_epi16(1);
    vec low = _mm256_madd_epi16(_mm256_maddubs_epi16(a, bytes), words);
    vec high = _mm256_madd_epi16(_mm256_maddubs_epi16(b, bytes), words);
    return _mm256_or_si256(low, _mm256_slli_epi32(high, 16));
}

/* With 16 bits and one activation row, the two halves of one number; else two numbers. */
static PL_ALWAYS_INLINE int word_numbers(int i8, int M)
{
    return M == 1 && !i8 ? 1 : 2;
}

/* Numbers as y + 510, or 8 h. */
static PL_ALWAYS_INLINE vec word_of(vec a, vec b, vec c, vec d, int i8, int n)
{
    (void)c;
    (void)d;
    if (n == 1) return _mm256_maddubs_epi16(a, _mm256_set1_epi8(1));
    vec word = join(a, b);
    if (i8) word = _mm256_slli_epi16(_mm256_and_si256(word, _mm256_set1_epi16(~3)), 1);
    return word;
}

static PL_ALWAYS_INLINE vec fold(vec a, vec b)
{
    return add_vec(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
}

static PL_ALWAYS_INLINE vec fold_wide(vec a, vec b)
{
    return add_vec(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
}

/* Lane r: the sum of the lanes of v[r]. */
static PL_ALWAYS_INLINE vec sum_lanes(const vec v[LANES])
{
    vec low = fold_wide(fold(v[0], v[1]), fold(v[2], v[3]));
    vec high = fold_wide(fold(v[4], v[5]), fold(v[6], v[7]));
    return add_vec(_mm256_permute2x128_si256(low, high, 0x20),
                   _mm256_permute2x128_si256(low, high, 0x31));
}

static PL_ALWAYS_INLINE void transpose(vec v[LANES])
{
    transpose_ints_8x8(v);
}

#include "trellis_body.h"

PL_EACH_CODE_OF(TRELLIS_KERNELS, avx2)

void pl_kernels_init_trellis_avx2(pl_kernels *table)
{
    table->product.prepare = prepare;
    table->product.prepare_i8 = prepare_i8;
    PL_EACH_CODE_OF(SET_TRELLIS_KERNELS, table, avx2)
}
