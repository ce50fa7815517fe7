/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention on packed pages for AVX2. Keys are arranged so that a register has eight positions side
 * by side: a score is then a sum in one lane, over the numbers in order, with no sum across lanes.
 * Values are taken as they lie, eight numbers of one position in a register. Rows are taken up to
 * four at a time to share what was unpacked; no order of a sum depends on it. */
#include <string.h>

#include "codec/turboquant.h"
#include "kernels/kernels.h"
#include "kernels/vector.h"
#include "softmax_avx2.h"

enum {
    P = PL_ATTEND_BLOCK,
    GROUP = PL_TURBOQUANT_GROUP,
    STEP = 16, /* positions whose keys are arranged at a time */
    MOST_GROUPS = PL_TURBOQUANT_MAX_DIM / GROUP
};

/* Codes of 5 bits are widened to bytes before they are arranged. */
static PL_ALWAYS_INLINE uint32_t lane_bits(uint32_t bits) { return bits == 5 ? 8 : bits; }

static PL_ALWAYS_INLINE __m256 load_fp16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

/* ---- queries: [D] as they are, then the sums over groups -------------------------------------- */

static void prepare_avx2(float *dst, const float *q, size_t rows, const pl_turboquant *type)
{
    size_t D = type->dim;
    for (; rows; rows--, q += D, dst += D + PL_ATTEND_SUMS) {
        memcpy(dst, q, D * sizeof *q);
        memset(dst + D, 0, PL_ATTEND_SUMS * sizeof *dst);
        for (size_t i = 0; i < D; i++) dst[D + i / GROUP] += q[i];
    }
}

/* ---- keys, arranged -------------------------------------------------------------------------- */

/* 32 codes of 5 bits, or the 16 of a last group and 16 that are not used, as bytes. */
static PL_ALWAYS_INLINE __m256i widen5(const uint8_t *p)
{
    /* 8 codes are 5 bytes. An even code, at bit 10m, is moved to the top of the 16 bits that hold
     * it, an odd one likewise; then both to their bytes. */
    const __m256i even = _mm256_setr_epi8(0, 1, 1, 2, 2, 3, 3, 4, 5, 6, 6, 7, 7, 8, 8, 9, 0, 1, 1,
                                          2, 2, 3, 3, 4, 5, 6, 6, 7, 7, 8, 8, 9);
    const __m256i odd = _mm256_setr_epi8(0, 1, 1, 2, 3, 4, 4, 5, 5, 6, 6, 7, 8, 9, 9, 10, 0, 1, 1,
                                         2, 3, 4, 4, 5, 5, 6, 6, 7, 8, 9, 9, 10);
    const __m256i even_up = _mm256_set1_epi64x(0x0020008002000800);
    const __m256i odd_up = _mm256_set1_epi64x(0x0100040000100040);
    __m256i x = _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)p)),
        _mm_loadu_si128((const __m128i *)(p + 10)), 1);
    __m256i a = _mm256_mullo_epi16(_mm256_shuffle_epi8(x, even), even_up);
    __m256i b = _mm256_mullo_epi16(_mm256_shuffle_epi8(x, odd), odd_up);
    b = _mm256_and_si256(_mm256_srli_epi16(b, 3), _mm256_set1_epi16(0x1f00));
    return _mm256_or_si256(_mm256_srli_epi16(a, 11), b);
}

/* Bytes 32*slab .. of a token's codes, as they are, or widened; of 8 bits made unsigned. */
static PL_ALWAYS_INLINE __m256i load_slab(const uint8_t *codes, size_t slab, uint32_t bits)
{
    if (bits == 5) return widen5(codes + 20 * slab);
    __m256i x = _mm256_loadu_si256((const __m256i *)(codes + 32 * slab));
    return bits == 8 ? _mm256_xor_si256(x, _mm256_set1_epi8(-128)) : x;
}

/* words[w][j] = word w of the slab of position j, for eight positions. */
static PL_ALWAYS_INLINE void transpose(uint32_t (*words)[STEP], const __m256i x[8])
{
    __m256i a[8], b[8];
    for (size_t i = 0; i < 8; i += 2) {
        a[i] = _mm256_unpacklo_epi32(x[i], x[i + 1]);
        a[i + 1] = _mm256_unpackhi_epi32(x[i], x[i + 1]);
    }
    for (size_t i = 0; i < 8; i += 4)
        for (size_t h = 0; h < 2; h++) {
            b[i + 2 * h] = _mm256_unpacklo_epi64(a[i + h], a[i + h + 2]);
            b[i + 2 * h + 1] = _mm256_unpackhi_epi64(a[i + h], a[i + h + 2]);
        }
    for (size_t i = 0; i < 4; i++) {
        _mm256_store_si256((__m256i *)words[i], _mm256_permute2x128_si256(b[i], b[i + 4], 0x20));
        _mm256_store_si256((__m256i *)words[i + 4],
                           _mm256_permute2x128_si256(b[i], b[i + 4], 0x31));
    }
}

/* The codes of STEP positions; the last slab may reach into what follows them in the page. */
static PL_ALWAYS_INLINE void arrange(uint32_t (*words)[STEP], const uint8_t *codes, size_t stride,
                                     size_t D, uint32_t bits)
{
    size_t slabs = (D * lane_bits(bits) / 8 + 31) / 32;
    for (size_t s = 0; s < slabs; s++)
        for (size_t j = 0; j < STEP; j += 8) {
            __m256i x[8];
            for (size_t i = 0; i < 8; i++) x[i] = load_slab(codes + (j + i) * stride, s, bits);
            transpose((uint32_t(*)[STEP])(words[8 * s] + j), x);
        }
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
            __m256 scale = load_fp16(scales + g * P + 8 * h);
            __m256 zero = _mm256_sub_ps(load_fp16(zeros + g * P + 8 * h), _mm256_set1_ps(bias));
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

/* All rows' scores of the positions [first, end), rounded out to steps. */
static PL_ALWAYS_INLINE void scores_bits(uint32_t bits, const pl_attend_tile *t,
                                         const uint8_t *keys, size_t first, size_t end)
{
    uint32_t words[PL_TURBOQUANT_MAX_DIM / 4][STEP] PL_ALIGNED(32);
    const uint32_t b = lane_bits(bits);
    const float bias = bits == 8 ? 128 : 0;
    size_t D = t->dim, stride = D * bits / 8, row = D + PL_ATTEND_SUMS;
    const uint16_t *scales = (const uint16_t *)(keys + P * stride);
    const uint16_t *zeros = scales + (D + GROUP - 1) / GROUP * P;
    for (size_t j = first / STEP * STEP; j < end; j += STEP) {
        arrange(words, keys + j * stride, stride, D, bits);
        size_t r = 0;
        for (; r + 4 <= t->rows; r += 4)
            scores_step(4, b, bias, t->q + r * row, D, words, scales + j, zeros + j,
                        t->scores + r * P + j);
        for (; r + 2 <= t->rows; r += 2)
            scores_step(2, b, bias, t->q + r * row, D, words, scales + j, zeros + j,
                        t->scores + r * P + j);
        if (r < t->rows)
            scores_step(1, b, bias, t->q + r * row, D, words, scales + j, zeros + j,
                        t->scores + r * P + j);
    }
}

static void scores_k2(const pl_attend_tile *t, const uint8_t *keys, size_t first, size_t end)
{
    scores_bits(2, t, keys, first, end);
}

static void scores_k4(const pl_attend_tile *t, const uint8_t *keys, size_t first, size_t end)
{
    scores_bits(4, t, keys, first, end);
}

static void scores_k5(const pl_attend_tile *t, const uint8_t *keys, size_t first, size_t end)
{
    scores_bits(5, t, keys, first, end);
}

static void scores_k8(const pl_attend_tile *t, const uint8_t *keys, size_t first, size_t end)
{
    scores_bits(8, t, keys, first, end);
}

static void add_scores(uint32_t bits, const pl_attend_tile *t, const uint8_t *keys, size_t first,
                       size_t end)
{
    switch (bits) {
    case 2:
        scores_k2(t, keys, first, end);
        return;
    case 4:
        scores_k4(t, keys, first, end);
        return;
    case 5:
        scores_k5(t, keys, first, end);
        return;
    default:
        scores_k8(t, keys, first, end);
    }
}

/* ---- values ---------------------------------------------------------------------------------- */

enum { PLAIN = 32 }; /* "bits" of centroids that are looked up already, as f32 */

/* The centroids of eight codes at p, whose bytes end at p + 8 or before. */
static PL_ALWAYS_INLINE __m256 look_up(uint32_t bits, const uint8_t *p, const float *table)
{
    if (bits == PLAIN) return _mm256_loadu_ps((const float *)p);
    if (bits == 8) {
        __m128i codes = _mm_loadl_epi64((const __m128i *)p);
        return _mm256_i32gather_ps(table, _mm256_cvtepu8_epi32(codes), 4);
    }
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

/* One group of the values of a page. */
typedef struct group {
    const uint8_t *codes; /* of position 0 */
    size_t stride, n;     /* bytes between positions; numbers */
    const uint16_t *scales;
    const float *table;
} group;

/* out[r][0 .. 8V) += sum over lo <= j < hi of weights[r][j] * centroid. */
static PL_ALWAYS_INLINE void values_chunk(size_t R, size_t V, uint32_t bits, float *out, size_t D,
                                          const float (*weights)[P], const group *g, size_t at,
                                          size_t lo, size_t hi)
{
    __m256 acc[4][4];
    for (size_t r = 0; r < R; r++)
        for (size_t i = 0; i < V; i++) acc[r][i] = _mm256_loadu_ps(out + r * D + at + 8 * i);
    const uint8_t *codes = g->codes + lo * g->stride + at * bits / 8;
    for (size_t j = lo; j < hi; j++, codes += g->stride) {
        __m256 v[4];
        for (size_t i = 0; i < V; i++) v[i] = look_up(bits, codes + i * bits, g->table);
        for (size_t r = 0; r < R; r++) {
            __m256 p = _mm256_broadcast_ss(weights[r] + j);
            for (size_t i = 0; i < V; i++) acc[r][i] = _mm256_fmadd_ps(p, v[i], acc[r][i]);
        }
    }
    for (size_t r = 0; r < R; r++)
        for (size_t i = 0; i < V; i++) _mm256_storeu_ps(out + r * D + at + 8 * i, acc[r][i]);
}

/* weights = exp(score - max) * scale where the row looks, 0 elsewhere. */
static void weigh(float *weights, const float *p, const uint16_t *scales, size_t lo, size_t hi)
{
    for (size_t j = 0; j < P; j += 8)
        _mm256_store_ps(weights + j, _mm256_mul_ps(_mm256_loadu_ps(p + j), load_fp16(scales + j)));
    for (size_t j = 0; j < lo; j++) weights[j] = 0;
    for (size_t j = hi; j < P; j++) weights[j] = 0;
}

/* Rows r .. r + R of the tile, 16 numbers at a time: R * V sums are what the registers hold. */
static PL_ALWAYS_INLINE void values_rows(size_t R, uint32_t bits, const pl_attend_tile *t, size_t r,
                                         const group *g, float *out)
{
    float weights[4][P] PL_ALIGNED(32);
    size_t lo = P, hi = 0;
    for (size_t i = 0; i < R; i++) {
        size_t l = t->lo[r + i], h = t->hi[r + i];
        weigh(weights[i], t->scores + (r + i) * P, g->scales, l, h);
        lo = l < h ? PL_MIN(lo, l) : lo;
        hi = l < h ? PL_MAX(hi, h) : hi;
    }
    for (size_t at = 0; at < g->n; at += 16)
        values_chunk(R, 2, bits, out + r * t->dim, t->dim, (const float(*)[P])weights, g, at, lo,
                     hi);
}

static PL_ALWAYS_INLINE void values_tile(uint32_t bits, const pl_attend_tile *t, const group *g,
                                         float *out)
{
    size_t r = 0;
    for (; r + 4 <= t->rows; r += 4) values_rows(4, bits, t, r, g, out);
    if (r + 2 <= t->rows) {
        values_rows(2, bits, t, r, g, out);
        r += 2;
    }
    if (r < t->rows) values_rows(1, bits, t, r, g, out);
}

static void values_plain(const pl_attend_tile *t, const group *g, float *out)
{
    values_tile(PLAIN, t, g, out);
}

/* More than four rows read centroids from a table of the group that is filled once. */
static PL_ALWAYS_INLINE void values_bits(uint32_t bits, const pl_attend_tile *t, const group *g,
                                         float *out, size_t first, size_t end)
{
    if (t->rows <= 4) {
        values_tile(bits, t, g, out);
        return;
    }
    float found[P][GROUP] PL_ALIGNED(32);
    for (size_t j = first; j < end; j++)
        for (size_t i = 0; i < g->n; i += 8)
            _mm256_store_ps(found[j] + i,
                            look_up(bits, g->codes + j * g->stride + i * bits / 8, g->table));
    group plain = *g;
    plain.codes = (const uint8_t *)found;
    plain.stride = sizeof found[0];
    values_plain(t, &plain, out);
}

static void values_v2(const pl_attend_tile *t, const group *g, float *out, size_t first, size_t end)
{
    values_bits(2, t, g, out, first, end);
}

static void values_v3(const pl_attend_tile *t, const group *g, float *out, size_t first, size_t end)
{
    values_bits(3, t, g, out, first, end);
}

static void values_v4(const pl_attend_tile *t, const group *g, float *out, size_t first, size_t end)
{
    values_bits(4, t, g, out, first, end);
}

static void values_v5(const pl_attend_tile *t, const group *g, float *out, size_t first, size_t end)
{
    values_bits(5, t, g, out, first, end);
}

static void values_v8(const pl_attend_tile *t, const group *g, float *out, size_t first, size_t end)
{
    values_bits(8, t, g, out, first, end);
}

typedef void values_fn(const pl_attend_tile *t, const group *g, float *out, size_t first,
                       size_t end);

static void add_values(uint32_t bits, const pl_attend_tile *t, const uint8_t *values, size_t first,
                       size_t end)
{
    static values_fn *const by_bits[] = {[2] = values_v2, [3] = values_v3, [4] = values_v4,
                                         [5] = values_v5, [8] = values_v8};
    size_t D = t->dim, stride = D * bits / 8;
    group g = {.codes = values,
               .stride = stride,
               .scales = (const uint16_t *)(values + P * stride),
               .table = pl_turboquant_centroids(bits)};
    for (size_t at = 0; at < D; at += GROUP, g.codes += 4 * bits, g.scales += P) {
        g.n = PL_MIN(D - at, (size_t)GROUP);
        by_bits[bits](t, &g, t->out + at, first, end);
    }
}

/* ---- together -------------------------------------------------------------------------------- */

static void softmax(const pl_attend_tile *t)
{
    for (size_t r = 0; r < t->rows; r++) {
        if (t->lo[r] == t->hi[r]) continue;
        float keep = softmax_row(t->scores + r * P, t->lo[r], t->hi[r], &t->max[r], &t->sum[r]);
        if (keep != 1.0f) scale_row(t->out + r * t->dim, keep, t->dim);
    }
}

static void attend_packed_avx2(const pl_attend_tile *t, const pl_turboquant *type,
                               const uint8_t *keys, const uint8_t *values, size_t n)
{
    (void)n;
    size_t first = P, end = 0;
    for (size_t r = 0; r < t->rows; r++)
        if (t->lo[r] < t->hi[r]) {
            first = PL_MIN(first, t->lo[r]);
            end = PL_MAX(end, t->hi[r]);
        }
    if (first >= end) return;
    add_scores(type->key_bits, t, keys, first, end);
    softmax(t);
    add_values(type->value_bits, t, values, first, end);
}

void pl_kernels_init_packed_avx2(pl_kernels *k)
{
    k->attend_prepare = prepare_avx2;
    k->attend_packed = attend_packed_avx2;
}
