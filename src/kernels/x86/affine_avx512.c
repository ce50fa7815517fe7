/* SPDX-License-Identifier: Apache-2.0
 *
 * Affine products for AVX-512. */
#include <immintrin.h>

#include "kernels/affine_numbers.h"
#include "kernels/kernels.h"

typedef __m512i vec;
typedef __m512 fvec;
enum { LANES = 16, RUN = 1, TILE_M = 8, DIRECT_M = 3 };

static PL_ALWAYS_INLINE vec zero(void)
{
    return _mm512_setzero_si512();
}
static PL_ALWAYS_INLINE vec load_vec(const void *p)
{
    return _mm512_loadu_si512(p);
}
static PL_ALWAYS_INLINE void store_vec(void *p, vec v)
{
    _mm512_storeu_si512(p, v);
}
static PL_ALWAYS_INLINE fvec f_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
static PL_ALWAYS_INLINE void store_floats(float *p, fvec v)
{
    _mm512_storeu_ps(p, v);
}
static PL_ALWAYS_INLINE fvec f_splat(float x)
{
    return _mm512_set1_ps(x);
}
static PL_ALWAYS_INLINE fvec f_add(fvec a, fvec b)
{
    return _mm512_add_ps(a, b);
}
static PL_ALWAYS_INLINE fvec f_mul(fvec a, fvec b)
{
    return _mm512_mul_ps(a, b);
}
static PL_ALWAYS_INLINE fvec f_of_ints(vec v)
{
    return _mm512_cvtepi32_ps(v);
}

static PL_ALWAYS_INLINE vec splat_pair(const int16_t *q)
{
    int32_t pair;
    memcpy(&pair, q, sizeof pair);
    return _mm512_set1_epi32(pair);
}

/* Written so because gcc 12 makes copies of sums in unrolled loops. */
static PL_ALWAYS_INLINE vec add_products(vec sum, vec a, vec b)
{
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
}

/* 32 codes: the two bytes that a code begins in go to a word, and there it is shifted down. */
static PL_ALWAYS_INLINE void load_words(vec w[RUN], const uint8_t *p, unsigned bits)
{
    if (bits == 8) {
        w[0] = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const void *)p));
        return;
    }
    uint8_t at[64] PL_ALIGNED(64);
    uint16_t down[32] PL_ALIGNED(64);
    PL_UNROLL
    for (size_t j = 0; j < 32; j++) { /* constants */
        at[2 * j] = (uint8_t)(j * bits / 8);
        at[2 * j + 1] = (uint8_t)(j * bits / 8 + 1);
        down[j] = (uint16_t)(j * bits % 8);
    }
    __m256i bytes = _mm256_maskz_loadu_epi8((1u << 4 * bits) - 1, p);
    vec words = _mm512_permutexvar_epi8(load_vec(at), _mm512_castsi256_si512(bytes));
    w[0] = _mm512_and_si512(_mm512_srlv_epi16(words, load_vec(down)),
                            _mm512_set1_epi16((short)((1 << bits) - 1)));
}

static PL_ALWAYS_INLINE void load_codes(vec w[RUN], const uint8_t *p, unsigned bits)
{
    load_words(w, p, bits);
}

static PL_ALWAYS_INLINE void load_q(vec v[RUN], const int16_t *q, unsigned bits)
{
    (void)bits;
    v[0] = load_vec(q);
}

/* Pairwise sums of neighbours: those of a in even lanes' places, of b in odd ones'. */
static PL_ALWAYS_INLINE vec fold(vec a, vec b)
{
    return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
}
static PL_ALWAYS_INLINE vec fold_pairs(vec a, vec b)
{
    return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

/* Of four registers that have four rows in each quarter. */
static PL_ALWAYS_INLINE vec fold_quarters(const vec v[4])
{
    vec a = _mm512_add_epi32(_mm512_shuffle_i32x4(v[0], v[1], 0x88),
                             _mm512_shuffle_i32x4(v[0], v[1], 0xdd));
    vec b = _mm512_add_epi32(_mm512_shuffle_i32x4(v[2], v[3], 0x88),
                             _mm512_shuffle_i32x4(v[2], v[3], 0xdd));
    return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}

static PL_ALWAYS_INLINE vec sum_lanes(const vec v[LANES])
{
    vec quarter[4];
    for (int i = 0; i < 4; i++)
        quarter[i] = fold_pairs(fold(v[4 * i], v[4 * i + 1]), fold(v[4 * i + 2], v[4 * i + 3]));
    return fold_quarters(quarter);
}

static PL_ALWAYS_INLINE void transpose(vec v[LANES])
{
    vec a[LANES], b[LANES];
    for (int i = 0; i < LANES; i += 2) {
        a[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        a[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
    for (int i = 0; i < LANES; i += 4)
        for (int j = 0; j < 2; j++) { /* b[i + c], quarter h: column 4h + c of rows i .. i + 3 */
            b[i + 2 * j] = _mm512_unpacklo_epi64(a[i + j], a[i + 2 + j]);
            b[i + 2 * j + 1] = _mm512_unpackhi_epi64(a[i + j], a[i + 2 + j]);
        }
    for (int c = 0; c < 4; c++) {
        vec even0 = _mm512_shuffle_i32x4(b[c], b[4 + c], 0x88);
        vec even1 = _mm512_shuffle_i32x4(b[8 + c], b[12 + c], 0x88);
        vec odd0 = _mm512_shuffle_i32x4(b[c], b[4 + c], 0xdd);
        vec odd1 = _mm512_shuffle_i32x4(b[8 + c], b[12 + c], 0xdd);
        v[c] = _mm512_shuffle_i32x4(even0, even1, 0x88);
        v[8 + c] = _mm512_shuffle_i32x4(even0, even1, 0xdd);
        v[4 + c] = _mm512_shuffle_i32x4(odd0, odd1, 0x88);
        v[12 + c] = _mm512_shuffle_i32x4(odd0, odd1, 0xdd);
    }
}

static PL_ALWAYS_INLINE short half_at(const uint8_t *p)
{
    short h;
    memcpy(&h, p, sizeof h);
    return h;
}

static PL_ALWAYS_INLINE __m128i halves_at(const uint8_t *p, size_t stride)
{
    return _mm_setr_epi16(half_at(p), half_at(p + stride), half_at(p + 2 * stride),
                          half_at(p + 3 * stride), half_at(p + 4 * stride), half_at(p + 5 * stride),
                          half_at(p + 6 * stride), half_at(p + 7 * stride));
}

static PL_ALWAYS_INLINE fvec load_numbers(const uint8_t *p, size_t stride, int type)
{
    if (type == PL_AFFINE_F32) {
        float f[LANES];
        for (size_t i = 0; i < LANES; i++) f[i] = affine_number(p + i * stride, type);
        return _mm512_loadu_ps(f);
    }
    __m256i h = _mm256_setr_m128i(halves_at(p, stride), halves_at(p + 8 * stride, stride));
    if (type == PL_AFFINE_F16) return _mm512_cvtph_ps(h);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

#include "affine_body.h"

void pl_kernels_init_affine_avx512(pl_kernels *k)
{
    k->product.affine_product = affine_product;
}
