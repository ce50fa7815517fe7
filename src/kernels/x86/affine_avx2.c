/* SPDX-License-Identifier: Apache-2.0
 *
 * Affine products for AVX2. */
#include <immintrin.h>

#include "kernels/affine_numbers.h"
#include "kernels/kernels.h"
#include "transpose.h"

typedef __m256i vec;
typedef __m256 fvec;
enum { LANES = 8, RUN = 2, TILE_M = 4, DIRECT_M = 3 };

static PL_ALWAYS_INLINE vec zero(void)
{
    return _mm256_setzero_si256();
}
static PL_ALWAYS_INLINE vec load_vec(const void *p)
{
    return _mm256_loadu_si256(p);
}
static PL_ALWAYS_INLINE void store_vec(void *p, vec v)
{
    _mm256_storeu_si256(p, v);
}
static PL_ALWAYS_INLINE fvec f_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
static PL_ALWAYS_INLINE void store_floats(float *p, fvec v)
{
    _mm256_storeu_ps(p, v);
}
static PL_ALWAYS_INLINE fvec f_splat(float x)
{
    return _mm256_set1_ps(x);
}
static PL_ALWAYS_INLINE fvec f_add(fvec a, fvec b)
{
    return _mm256_add_ps(a, b);
}
static PL_ALWAYS_INLINE fvec f_mul(fvec a, fvec b)
{
    return _mm256_mul_ps(a, b);
}
static PL_ALWAYS_INLINE fvec f_of_ints(vec v)
{
    return _mm256_cvtepi32_ps(v);
}

static PL_ALWAYS_INLINE vec splat_pair(const int16_t *q)
{
    int32_t pair;
    memcpy(&pair, q, sizeof pair);
    return _mm256_set1_epi32(pair);
}

/* Written so because gcc 12 makes copies of sums in unrolled loops. */
static PL_ALWAYS_INLINE vec add_products(vec sum, vec a, vec b)
{
    vec product = _mm256_madd_epi16(a, b);
    __asm__("vpaddd %1, %0, %0" : "+x"(sum) : "x"(product));
    return sum;
}

static PL_ALWAYS_INLINE vec load_bytes(const uint8_t *p)
{
    return _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)p));
}

/* Where a run's 16 codes from number `first` on begin, in bytes: 16 bytes from there on are the
 * run's own and hold them; so are 8, for up to 4 bits. */
static PL_ALWAYS_INLINE size_t half_run(unsigned bits, size_t first)
{
    size_t most = 4 * bits - (bits <= 4 ? 8 : 16), at = first * bits / 8;
    return at < most ? at : most;
}

/* 16 codes: the two bytes that a code begins in go to a word, and there it is shifted to the top,
 * then down. */
static PL_ALWAYS_INLINE vec load_16(const uint8_t *run, unsigned bits, size_t first)
{
    size_t from = half_run(bits, first);
    uint8_t at[32] PL_ALIGNED(32);
    uint16_t up[16] PL_ALIGNED(32);
    PL_UNROLL
    for (size_t j = 0; j < 16; j++) { /* constants */
        size_t bit = (first + j) * bits - 8 * from;
        at[2 * j] = (uint8_t)(bit / 8);
        at[2 * j + 1] = (uint8_t)(bit / 8 + 1);
        up[j] = (uint16_t)(1u << (16 - bits - bit % 8));
    }
    vec bytes = bits <= 4 ? _mm256_broadcastq_epi64(_mm_loadl_epi64((const void *)(run + from)))
                          : _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)(run + from)));
    vec words = _mm256_shuffle_epi8(bytes, load_vec(at));
    return _mm256_srli_epi16(_mm256_mullo_epi16(words, load_vec(up)), 16 - (int)bits);
}

static PL_ALWAYS_INLINE void load_words(vec w[RUN], const uint8_t *p, unsigned bits)
{
    w[0] = bits == 8 ? load_bytes(p) : load_16(p, bits, 0);
    w[1] = bits == 8 ? load_bytes(p + 16) : load_16(p, bits, 16);
}

/* Codes of 4 bits come as 16 of even numbers and 16 of odd ones. */
static PL_ALWAYS_INLINE void load_codes(vec w[RUN], const uint8_t *p, unsigned bits)
{
    if (bits != 4) {
        load_words(w, p, bits);
        return;
    }
    vec both = load_bytes(p);
    w[0] = _mm256_and_si256(both, _mm256_set1_epi16(15));
    w[1] = _mm256_srli_epi16(both, 4);
}

static PL_ALWAYS_INLINE void load_q(vec v[RUN], const int16_t *q, unsigned bits)
{
    vec a = load_vec(q), b = load_vec(q + 16);
    if (bits == 4) {
        const vec apart = _mm256_broadcastsi128_si256(
            _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
        vec even_odd = _mm256_shuffle_epi8(a, apart), more = _mm256_shuffle_epi8(b, apart);
        a = _mm256_permute4x64_epi64(_mm256_unpacklo_epi64(even_odd, more), 0xd8);
        b = _mm256_permute4x64_epi64(_mm256_unpackhi_epi64(even_odd, more), 0xd8);
    }
    v[0] = a;
    v[1] = b;
}

static PL_ALWAYS_INLINE vec sum_lanes(const vec v[LANES])
{
    vec low = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
    vec high = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
    return _mm256_add_epi32(_mm256_permute2x128_si256(low, high, 0x20),
                            _mm256_permute2x128_si256(low, high, 0x31));
}

static PL_ALWAYS_INLINE void transpose(vec v[LANES])
{
    transpose_ints_8x8(v);
}

static PL_ALWAYS_INLINE short half_at(const uint8_t *p)
{
    short h;
    memcpy(&h, p, sizeof h);
    return h;
}

static PL_ALWAYS_INLINE fvec load_numbers(const uint8_t *p, size_t stride, int type)
{
    if (type == PL_AFFINE_F32) {
        float f[LANES];
        for (size_t i = 0; i < LANES; i++) f[i] = affine_number(p + i * stride, type);
        return _mm256_loadu_ps(f);
    }
    __m128i h = _mm_setr_epi16(half_at(p), half_at(p + stride), half_at(p + 2 * stride),
                               half_at(p + 3 * stride), half_at(p + 4 * stride),
                               half_at(p + 5 * stride), half_at(p + 6 * stride),
                               half_at(p + 7 * stride));
    if (type == PL_AFFINE_F16) return _mm256_cvtph_ps(h);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

#include "affine_body.h"

void pl_kernels_init_affine_avx2(pl_kernels *k)
{
    k->product.affine_product = affine_product;
}
