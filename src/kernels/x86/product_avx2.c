/* SPDX-License-Identifier: Apache-2.0
 *
 * Plain products for AVX2, and rows of plain codings as f32. */
#include <immintrin.h>
#include <stdbool.h>

#include "kernels/kernels.h"
#include "kernels/vector.h"

typedef __m256 fvec;
enum { LANES = 8, TILE_X = 3 };

static PL_ALWAYS_INLINE fvec f_zero(void)
{
    return _mm256_setzero_ps();
}
static PL_ALWAYS_INLINE fvec f_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
static PL_ALWAYS_INLINE fvec f_fma(fvec a, fvec b, fvec c)
{
    return _mm256_fmadd_ps(a, b, c);
}

/* p[0..n), n < LANES, zeros after. */
static PL_ALWAYS_INLINE fvec f_load_first(const float *p, size_t n)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_maskload_ps(p, _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane));
}

static PL_ALWAYS_INLINE fvec f_fold(fvec a, fvec b)
{
    return _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
}

/* sums[r]: the sum of the lanes of v[r]. */
static PL_ALWAYS_INLINE void f_sum4(float sums[4], const fvec v[4])
{
    fvec all = f_fold(f_fold(v[0], v[2]), f_fold(v[1], v[3]));
    _mm_storeu_ps(sums, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
}

#include "kernels/product_body.h"

PL_NUMBER_KERNELS(avx2)

/* ---- rows of plain codings ------------------------------------------------------------------- */

static PL_ALWAYS_INLINE __m256 floats_of_bytes(__m128i bytes) /* the low eight, unsigned */
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
}

static PL_ALWAYS_INLINE float half_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h)));
}

static void bf16_avx2(float *dst, const void *src, size_t n)
{
    for (size_t i = 0; i < n; i += 8) {
        __m128i h = _mm_loadu_si128((const void *)((const uint8_t *)src + 2 * i));
        __m256i bits = _mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16);
        _mm256_storeu_ps(dst + i, _mm256_castsi256_ps(bits));
    }
}

static void f16_avx2(float *dst, const void *src, size_t n)
{
    for (size_t i = 0; i < n; i += 8) {
        __m128i h = _mm_loadu_si128((const void *)((const uint8_t *)src + 2 * i));
        _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(h));
    }
}

/* Blocks of 32 as in GGUF: fp16 d, [fp16 m,] codes; 4-bit codes 0..15 in low nibbles, 16..31 high.
 */

static void q8_0_avx2(float *dst, const void *src, size_t n)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < n; i += 32, p += 34) {
        __m256 d = _mm256_set1_ps(half_at(p));
        for (size_t j = 0; j < 32; j += 8) {
            __m256i q = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)(p + 2 + j)));
            _mm256_storeu_ps(dst + i + j, _mm256_mul_ps(_mm256_cvtepi32_ps(q), d));
        }
    }
}

static PL_ALWAYS_INLINE void nibbles(__m128i half[4], const uint8_t *p)
{
    __m128i both = _mm_loadu_si128((const void *)p), mask = _mm_set1_epi8(15);
    half[0] = _mm_and_si128(both, mask);
    half[2] = _mm_and_si128(_mm_srli_epi16(both, 4), mask);
    half[1] = _mm_srli_si128(half[0], 8);
    half[3] = _mm_srli_si128(half[2], 8);
}

static void q4_0_avx2(float *dst, const void *src, size_t n)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < n; i += 32, p += 18) {
        __m256 d = _mm256_set1_ps(half_at(p)), eight = _mm256_set1_ps(8);
        __m128i q[4];
        nibbles(q, p + 2);
        for (size_t j = 0; j < 4; j++)
            _mm256_storeu_ps(dst + i + 8 * j,
                             _mm256_mul_ps(_mm256_sub_ps(floats_of_bytes(q[j]), eight), d));
    }
}

static void q4_1_avx2(float *dst, const void *src, size_t n)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < n; i += 32, p += 20) {
        __m256 d = _mm256_set1_ps(half_at(p)), min = _mm256_set1_ps(half_at(p + 2));
        __m128i q[4];
        nibbles(q, p + 4);
        for (size_t j = 0; j < 4; j++)
            _mm256_storeu_ps(dst + i + 8 * j,
                             _mm256_add_ps(_mm256_mul_ps(floats_of_bytes(q[j]), d), min));
    }
}

/* Numbers with their last `drop` mantissa bits rounded away, ties to even: 1.5 * 2^drop times a
 * number's power of two, added and taken off again, leaves no room for them. -0 becomes 0. Four
 * registers go through it side by side, for each step waits three cycles for the one before. */
static PL_ALWAYS_INLINE void round_bits(__m256 v[4], int drop)
{
    const __m256i exponent = _mm256_set1_epi32(0x7f800000);
    const __m256i more = _mm256_set1_epi32((drop << 23) + 0x400000);
    __m256 big[4];
    for (int i = 0; i < 4; i++)
        big[i] = _mm256_castsi256_ps(
            _mm256_add_epi32(_mm256_and_si256(_mm256_castps_si256(v[i]), exponent), more));
    for (int i = 0; i < 4; i++) v[i] = _mm256_add_ps(v[i], big[i]);
    for (int i = 0; i < 4; i++) v[i] = _mm256_sub_ps(v[i], big[i]);
}

/* To fp16 and back by rounding to its 11 bits: numbers below its normal range are multiples of
 * 2^-24 here, as scale and bias are, and so have 11 bits or fewer already. The caller keeps to
 * numbers that stay below fp16's largest. */
static PL_ALWAYS_INLINE void round_to(__m256 v[4], int type)
{
    if (type == PL_AFFINE_BF16) round_bits(v, 16);
    if (type == PL_AFFINE_F16) round_bits(v, 13);
}

static PL_ALWAYS_INLINE __m256 splat_number(const void *values, size_t i, int type)
{
    uint16_t h;
    float f;
    if (type == PL_AFFINE_F32) {
        memcpy(&f, (const uint8_t *)values + 4 * i, sizeof f);
        return _mm256_set1_ps(f);
    }
    memcpy(&h, (const uint8_t *)values + 2 * i, sizeof h);
    if (type == PL_AFFINE_BF16) return _mm256_set1_ps(pl_bf16_to_f32(h));
    return _mm256_cvtph_ps(_mm_set1_epi16((short)h));
}

/* Eight codes are `bits` bytes; pdep puts each into a byte of its own. */
static PL_ALWAYS_INLINE __m256 eight_codes(const uint8_t *p, int bits)
{
    uint64_t word = p[0]; /* byte by byte, for a copy to memory and back would stall */
    for (int i = 1; i < bits; i++) word |= (uint64_t)p[i] << 8 * i;
    if (bits < 8) word = _pdep_u64(word, 0x0101010101010101u * ((1u << bits) - 1));
    return floats_of_bytes(_mm_cvtsi64_si128((long long)word));
}

/* One number as pl_weight_rows_f32 rounds it, for groups with huge or no numbers in them. */
static float careful_number(float q, float scale, float bias, int type)
{
    float v = q * scale;
    if (type == PL_AFFINE_BF16)
        return pl_bf16_to_f32(pl_f32_to_bf16(pl_bf16_to_f32(pl_f32_to_bf16(v)) + bias));
    if (type == PL_AFFINE_F16)
        return pl_fp16_to_f32(pl_f32_to_fp16(pl_fp16_to_f32(pl_f32_to_fp16(v)) + bias));
    return v + bias;
}

/* 32 codes. */
static PL_ALWAYS_INLINE void affine_run(float *dst, const uint8_t *src, __m256 scale, __m256 bias,
                                        int bits, int type)
{
    __m256 v[4];
    for (int i = 0; i < 4; i++) v[i] = eight_codes(src + i * bits, bits);
    for (int i = 0; i < 4; i++) v[i] = _mm256_mul_ps(v[i], scale);
    round_to(v, type);
    for (int i = 0; i < 4; i++) v[i] = _mm256_add_ps(v[i], bias);
    round_to(v, type);
    for (int i = 0; i < 4; i++) _mm256_storeu_ps(dst + 8 * i, v[i]);
}

static PL_ALWAYS_INLINE void affine_row(float *dst, const uint8_t *src, const void *scales,
                                        const void *biases, size_t n, size_t group, int bits,
                                        int type)
{
    for (size_t i = 0; i < n; i += group) {
        __m256 scale = splat_number(scales, i / group, type);
        __m256 bias = splat_number(biases, i / group, type);
        float a = _mm256_cvtss_f32(scale), b = _mm256_cvtss_f32(bias);
        bool careful = !(255 * fabsf(a) + fabsf(b) < 6e4f);
        for (size_t j = i; j < i + group; j += 32, src += 4 * bits) {
            if (!careful) {
                affine_run(dst + j, src, scale, bias, bits, type);
                continue;
            }
            for (int e = 0; e < 4; e++)
                _mm256_storeu_ps(dst + j + 8 * e, eight_codes(src + e * bits, bits));
            for (size_t e = j; e < j + 32; e++) dst[e] = careful_number(dst[e], a, b, type);
        }
    }
}

#define AFFINE_ROW(bits, name, type)                                                               \
    static void affine##bits##_##name##_avx2(float *dst, const void *src, const void *scales,      \
                                             const void *biases, size_t n, size_t group)           \
    {                                                                                              \
        affine_row(dst, src, scales, biases, n, group, bits, type);                                \
    }
#define AFFINE_ROWS(bits)                                                                          \
    AFFINE_ROW(bits, bf16, PL_AFFINE_BF16)                                                         \
    AFFINE_ROW(bits, f16, PL_AFFINE_F16)                                                           \
    AFFINE_ROW(bits, f32, PL_AFFINE_F32)
#define SET_AFFINE_ROWS(bits)                                                                      \
    k->product.affine[bits][PL_AFFINE_BF16] = affine##bits##_bf16_avx2;                            \
    k->product.affine[bits][PL_AFFINE_F16] = affine##bits##_f16_avx2;                              \
    k->product.affine[bits][PL_AFFINE_F32] = affine##bits##_f32_avx2

AFFINE_ROWS(2)
AFFINE_ROWS(3)
AFFINE_ROWS(4)
AFFINE_ROWS(5)
AFFINE_ROWS(6)
AFFINE_ROWS(8)

void pl_kernels_init_product_avx2(pl_kernels *k)
{
    k->product.quantize_i16 = quantize_i16_avx2;
    k->product.quantize_i8 = quantize_i8_avx2;
    k->product.quantize_i16x2 = quantize_i16x2_avx2;
    k->product.rows = rows_tiled;
    k->product.bf16 = bf16_avx2;
    k->product.f16 = f16_avx2;
    k->product.q8_0 = q8_0_avx2;
    k->product.q4_0 = q4_0_avx2;
    k->product.q4_1 = q4_1_avx2;
    SET_AFFINE_ROWS(2);
    SET_AFFINE_ROWS(3);
    SET_AFFINE_ROWS(4);
    SET_AFFINE_ROWS(5);
    SET_AFFINE_ROWS(6);
    SET_AFFINE_ROWS(8);
}
