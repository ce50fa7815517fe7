/* SPDX-License-Identifier: Apache-2.0
 *
 * Trellis products for AVX-512 with VNNI and VBMI: what is particular to 16 lanes. vpdpbusd with
 * ones sums the four bytes of a number, on top of another's sum moved up 16 bits; vpdpwssd
 * multiplies the pair. */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "kernels/crossovers.h"
#include "trellis_windows_avx512.h"

enum {
    STRIP_ROWS = 8,   /* activation rows in one pass over a strip */
    DIRECT_M = PL_MOST_REGISTER_ROWS, /* most activation rows without a tile */
    DIRECT_SUMS = 16, /* of axis 0 in registers */
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
    return _mm512_set1_epi32(x);
}

static PL_ALWAYS_INLINE vec add_vec(vec a, vec b)
{
    return _mm512_add_epi32(a, b);
}

static PL_ALWAYS_INLINE vec load_vec(const void *p)
{
    return _mm512_loadu_si512(p);
}

static PL_ALWAYS_INLINE void store_vec(void *p, vec v)
{
    _mm512_storeu_si512(p, v);
}

static PL_ALWAYS_INLINE vec add_words(vec sum, vec weights, vec q, int i8)
{
    if (i8)
        __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(weights), "v"(q));
    else
        __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(weights), "v"(q));
    return sum;
}

static PL_ALWAYS_INLINE vec finish(vec sum, vec bias, int i8)
{
    return _mm512_add_epi32(i8 ? _mm512_slli_epi32(sum, 3) : sum, bias);
}

static PL_ALWAYS_INLINE void add_scaled(float *sums, vec integer, float step)
{
    __m512 f = _mm512_mul_ps(_mm512_set1_ps(step), _mm512_cvtepi32_ps(integer));
    _mm512_storeu_ps(sums, _mm512_add_ps(_mm512_loadu_ps(sums), f));
}

/* `unit` times y + 510 of a in the low and of b in the high 16 bits. */
static PL_ALWAYS_INLINE vec join(vec a, vec b, char unit)
{
    const vec bytes = _mm512_set1_epi8(unit);
    vec high = _mm512_slli_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), b, bytes), 16);
    return _mm512_dpbusd_epi32(high, a, bytes);
}

static PL_ALWAYS_INLINE int word_numbers(int i8, int M)
{
    (void)M;
    return i8 ? 4 : 2;
}

/* Two numbers as y + 510, or four as h, which is the upper byte of 64 (y + 510). */
static PL_ALWAYS_INLINE vec word_of(vec a, vec b, vec c, vec d, int i8, int n)
{
    (void)n;
    if (!i8) return join(a, b, 1);
    const vec upper = _mm512_set1_epi16((short)0xff00);
    vec even = _mm512_srli_epi32(join(a, c, 64), 8), odd = join(b, d, 64);
    return _mm512_ternarylogic_epi32(upper, odd, even, 0xca);
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

PL_EACH_CODE_OF(TRELLIS_KERNELS, avx512)

void pl_kernels_init_trellis_avx512(pl_kernels *table)
{
    table->product.prepare = prepare;
    table->product.prepare_i8 = prepare_i8;
    PL_EACH_CODE_OF(SET_TRELLIS_KERNELS, table, avx512)
}
