/* SPDX-License-Identifier: Apache-2.0
 *
 * Trellis products in floating point for AVX2 and FMA. */
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#include "trellis_windows_avx2.h"

typedef __m256 fvec, mvec;
#define PAIR 1
enum {
    DIRECT_SUMS = 8,
    STRIP_ROWS = 6, /* activation rows on two registers of outputs: 12 sums, 2 weights, 1 more */
    TILE_X = 3      /* activation rows on four rows of weights */
};

static PL_ALWAYS_INLINE fvec f_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

static PL_ALWAYS_INLINE void f_store(float *p, fvec v)
{
    _mm256_storeu_ps(p, v);
}

static PL_ALWAYS_INLINE fvec f_splat(float x)
{
    return _mm256_set1_ps(x);
}

static PL_ALWAYS_INLINE fvec f_mul(fvec a, fvec b)
{
    return _mm256_mul_ps(a, b);
}

static PL_ALWAYS_INLINE fvec f_fma(fvec a, fvec b, fvec c)
{
    return _mm256_fmadd_ps(a, b, c);
}

static PL_ALWAYS_INLINE fvec fold(fvec a, fvec b)
{
    return _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
}

/* Lane r: the sum of the lanes of v[r]. */
static PL_ALWAYS_INLINE __m128 f_sum4(const fvec v[4])
{
    fvec a = fold(v[0], v[2]), b = fold(v[1], v[3]); /* 0 2 0 2 ..., 1 3 1 3 ... */
    fvec c = fold(a, b);
    return _mm_add_ps(_mm256_castps256_ps128(c), _mm256_extractf128_ps(c, 1));
}

static PL_ALWAYS_INLINE mvec m_load(const void *p)
{
    return _mm256_loadu_ps(p);
}

static PL_ALWAYS_INLINE void m_store(void *p, mvec v)
{
    _mm256_store_ps(p, v);
}

static PL_ALWAYS_INLINE mvec m_splat(const void *p)
{
    return _mm256_broadcast_ss(p);
}

static PL_ALWAYS_INLINE fvec mac(fvec sum, mvec w, mvec x)
{
    return _mm256_fmadd_ps(w, x, sum);
}

static PL_ALWAYS_INLINE vec byte_sums(vec x)
{
    vec words = _mm256_maddubs_epi16(x, _mm256_set1_epi8(1));
    return _mm256_madd_epi16(words, _mm256_set1_epi16(1));
}

static PL_ALWAYS_INLINE fvec real(vec x)
{
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(byte_sums(x), _mm256_set1_epi32(510)));
}

static PL_ALWAYS_INLINE fvec anchored(vec x)
{
    return _mm256_castsi256_ps(_mm256_add_epi32(byte_sums(x), _mm256_set1_epi32(0x4b400000 - 510)));
}

/* Half a unit of what is dropped carries into the upper half. */
static PL_ALWAYS_INLINE vec carried(fvec v)
{
    return _mm256_add_epi32(_mm256_castps_si256(v), _mm256_set1_epi32(0x8000));
}

static PL_ALWAYS_INLINE fvec round_weight(fvec v)
{
    return _mm256_castsi256_ps(_mm256_and_si256(carried(v), _mm256_set1_epi32(-0x10000)));
}

/* ---- plain numbers --------------------------------------------------------------------------- */

/* The same, but that ties become even. */
static PL_ALWAYS_INLINE vec carried_even(fvec v)
{
    vec bits = _mm256_castps_si256(v);
    vec odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    return _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
}

static PL_ALWAYS_INLINE vec upper_halves(vec a, vec b)
{
    return _mm256_blend_epi16(_mm256_srli_epi32(a, 16), b, 0xaa);
}

static PL_ALWAYS_INLINE vec halves(fvec a, fvec b)
{
    return upper_halves(carried_even(a), carried_even(b));
}

static PL_ALWAYS_INLINE vec halves_of_factor(fvec a, fvec b)
{
    return upper_halves(carried(a), carried(b));
}

static PL_ALWAYS_INLINE void store_vec(void *to, vec v, bool nt)
{
    if (nt)
        _mm256_stream_si256(to, v);
    else
        _mm256_storeu_si256(to, v);
}

#include "trellis_float_body.h"

static PL_ALWAYS_INLINE void decode_span(float *y, const uint8_t *code, size_t lanes, fvec scale,
                                         int k, int L, int first, bool nt)
{
    windows w = open_windows(code, k, first);
    const fvec unit = f_splat(1.0f / PL_TRELLIS_DIVISOR);
    fvec v[8];
    for (int i = 0; i < 8; i++) v[7 - i] = f_mul(f_mul(real(number(w, k, L, i)), unit), scale);
    transpose_8x8(v);
    for (size_t l = lanes; l-- > 0;) store_vec(y - 8 * l, _mm256_castps_si256(v[l]), nt);
}

static PL_ALWAYS_INLINE void decode_blocks(float *dst, const uint8_t *codes, size_t T,
                                           size_t blocks, float scale, int k, int L, bool nt)
{
    size_t bytes = T * (size_t)k / 8;
    fvec factor = f_splat(scale);
    uint8_t tails[2][TAIL_BYTES]; /* made a block ahead, for it is read at once */
    make_tail(tails[0], codes, T, k);
    for (size_t b = 0; b < blocks; b++, codes += bytes, dst += T) {
        uint8_t *tail = tails[b % 2];
        if (b + 1 < blocks) make_tail(tails[(b + 1) % 2], codes + bytes, T, k);
        for (size_t s = (T + SPAN - 1) / SPAN; s-- > 0;) { /* in the order of the result */
            span_codes at = span_of(codes, 0, tail, s, T, k);
            size_t lanes = PL_MIN((T - s * SPAN) / 8, LANES);
            float *to = dst + T - 8 - s * SPAN;
            if (lanes < LANES)
                decode_span(to, at.code, 4, factor, k, L, 0, nt);
            else if (k == 4 && at.first)
                decode_span(to, at.code, LANES, factor, k, L, 1, nt);
            else
                decode_span(to, at.code, LANES, factor, k, L, 0, nt);
        }
    }
}

#define DECODE(k, L)                                                                               \
    static void decode_k##k##_l##L##_avx2(float *dst, const uint8_t *codes, size_t T,              \
                                          size_t blocks, float scale, bool stream)                 \
    {                                                                                              \
        if (streams(dst, stream))                                                                  \
            decode_blocks(dst, codes, T, blocks, scale, k, L, true);                               \
        else                                                                                       \
            decode_blocks(dst, codes, T, blocks, scale, k, L, false);                              \
    }

DECODE(2, 12)
DECODE(3, 12)
DECODE(4, 12)
DECODE(2, 16)
DECODE(3, 16)
DECODE(4, 16)
EXPANDS(avx2)

FLOAT_PRODUCTS(avx2, f32, PL_FLOAT_F32)
FLOAT_PRODUCTS(avx2, bf16, PL_FLOAT_BF16)

void pl_kernels_init_float_avx2(pl_kernels *table)
{
    pl_float_kernels *f = &table->floats;
    SET_FLOAT_PRODUCTS(f, avx2, f32, PL_FLOAT_F32);
    SET_FLOAT_PRODUCTS(f, avx2, bf16, PL_FLOAT_BF16);
    SET_EXPANDS(f, avx2);
    f->decode[0][0] = decode_k2_l12_avx2;
    f->decode[1][0] = decode_k3_l12_avx2;
    f->decode[2][0] = decode_k4_l12_avx2;
    f->decode[0][1] = decode_k2_l16_avx2;
    f->decode[1][1] = decode_k3_l16_avx2;
    f->decode[2][1] = decode_k4_l16_avx2;
}
