/* SPDX-License-Identifier: Apache-2.0
 *
 * Affine products: the part that the x86 levels share. The including file defines
 *
 *   vec, fvec, LANES       registers of LANES 32-bit integers or floats
 *   RUN                    registers that hold 32 numbers of 16 bits
 *   TILE_M, DIRECT_M       activation rows that meet a tile at a time; most that need none
 *   load_q, load_codes     32 activations and codes of 4 or 8 bits, both in the same order
 *   add_products           sum[i] += a[2i] b[2i] + a[2i + 1] b[2i + 1]
 *   sum_lanes              lane r: the sum of the lanes of v[r]
 *   transpose              a square of 32-bit numbers
 *   load_numbers           scales or biases of LANES rows
 *   spread                 eight codes of `bits` bits to bytes
 *
 * and the few operations on floats. A row of weights is a lane of f32 sums. With few activation rows
 * a row's codes are multiplied where they lie and the lanes of a group's sum are added up; with
 * more, codes are laid out first so that a lane of integer sums is a row as well. */
#ifndef PL_KERNELS_AFFINE_BODY_H
#define PL_KERNELS_AFFINE_BODY_H

#include <stdbool.h>

#include "base/compiler.h"
#include "kernels/affine_numbers.h"

enum {
    CHUNK = 512,              /* inputs at a time */
    MOST_GROUPS = CHUNK / 32, /* in a chunk */
    TILE_ROWS = 2 * LANES
};

/* A chunk of some rows: LANES of them or TILE_ROWS. */
typedef struct strip {
    const pl_affine_product *p;
    size_t row, first, n; /* first row; inputs [first, first + n) */
    const uint8_t *codes; /* of `bits` bits, stride bytes from a row to the next */
    size_t stride;
    unsigned bits;
    float scales[MOST_GROUPS][TILE_ROWS], biases[MOST_GROUPS][TILE_ROWS];
    uint8_t bytes[TILE_ROWS][CHUNK];
    int16_t words[CHUNK * TILE_ROWS] PL_ALIGNED(64); /* a tile: pairs of each row side by side */
} strip;

static PL_ALWAYS_INLINE void read_numbers(strip *s, size_t rows, int type)
{
    const pl_affine_product *p = s->p;
    size_t size = affine_number_bytes(type), stride = p->n / p->group * size;
    size_t at = s->row * stride + s->first / p->group * size;
    const uint8_t *scales = (const uint8_t *)p->scales + at;
    const uint8_t *biases = (const uint8_t *)p->biases + at;
    for (size_t g = 0; g < s->n / p->group; g++, scales += size, biases += size)
        for (size_t r = 0; r < rows; r += LANES) {
            store_floats(s->scales[g] + r, load_numbers(scales + r * stride, stride, type));
            store_floats(s->biases[g] + r, load_numbers(biases + r * stride, stride, type));
        }
}

static PL_ALWAYS_INLINE void spread_rows(strip *s, size_t rows, unsigned bits)
{
    for (size_t r = 0; r < rows; r++) {
        const uint8_t *src = s->codes + r * s->stride;
        for (size_t i = 0; i < s->n; i += 8, src += bits) {
            uint64_t eight = spread(affine_eight(src, bits), bits);
            memcpy(s->bytes[r] + i, &eight, 8);
        }
    }
    s->codes = s->bytes[0];
    s->stride = CHUNK;
    s->bits = 8;
}

/* The same chunk of the rows that follow, to the second-level cache. */
static PL_ALWAYS_INLINE void prefetch_rows(const uint8_t *p, size_t stride, size_t rows, size_t n)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < n; i += 64)
            _mm_prefetch((const char *)(p + r * stride + i), _MM_HINT_T1);
}

static void begin_strip(strip *s, size_t rows, bool direct)
{
    const pl_affine_product *p = s->p;
    s->codes = p->codes + s->row * p->row_bytes + s->first * p->bits / 8;
    s->stride = p->row_bytes;
    s->bits = p->bits;
    prefetch_rows(s->codes + rows * s->stride, s->stride, rows, s->n * s->bits / 8);
    if (p->type == PL_AFFINE_BF16)
        read_numbers(s, rows, PL_AFFINE_BF16);
    else if (p->type == PL_AFFINE_F16)
        read_numbers(s, rows, PL_AFFINE_F16);
    else
        read_numbers(s, rows, PL_AFFINE_F32);
    if (p->bits == 2)
        spread_rows(s, rows, 2);
    else if (p->bits == 3)
        spread_rows(s, rows, 3);
    else if (p->bits == 5)
        spread_rows(s, rows, 5);
    else if (p->bits == 6)
        spread_rows(s, rows, 6);
    else if (p->bits == 4 && !direct)
        spread_rows(s, rows, 4);
}

/* One group's integer sums, LANES rows from r on, added to f32 ones. */
static PL_ALWAYS_INLINE fvec add_group(fvec sum, vec total, const strip *s, size_t g, size_t r,
                                       const float *step)
{
    fvec a = f_mul(f_mul(f_of_ints(total), f_splat(step[0])), f_load(s->scales[g] + r));
    return f_add(sum, f_add(a, f_mul(f_splat(step[1]), f_load(s->biases[g] + r))));
}

/* ---- few activation rows --------------------------------------------------------------------- */

static PL_ALWAYS_INLINE void direct_strip(const strip *s, size_t m, unsigned bits)
{
    const pl_affine_product *p = s->p;
    const int16_t *q = p->q + m * p->q_stride + s->first;
    const float *step = p->steps + m * p->step_stride + s->first / p->group * 2;
    const uint8_t *codes = s->codes;
    size_t stride = s->stride, group = p->group;
    float *out = p->out + m * p->out_stride + s->row;
    fvec sum = s->first ? f_load(out) : f_splat(0);
    for (size_t g = 0; g < s->n / group; g++, step += 2) {
        vec sums[LANES];
        for (size_t r = 0; r < LANES; r++) sums[r] = zero();
        for (size_t i = 0; i < group; i += 32, q += 32, codes += 4 * bits) {
            vec v[RUN], w[RUN];
            load_q(v, q, bits);
            for (size_t r = 0; r < LANES; r++) {
                load_codes(w, codes + r * stride, bits);
                for (int j = 0; j < RUN; j++) sums[r] = add_products(sums[r], w[j], v[j]);
            }
        }
        sum = add_group(sum, sum_lanes(sums), s, g, 0, step);
    }
    store_floats(out, sum);
}

/* ---- tiles ----------------------------------------------------------------------------------- */

/* Pairs of codes with rows side by side: words[pair][row][2]. */
static void lay_out(strip *s)
{
    for (size_t r = 0; r < TILE_ROWS; r += LANES)
        for (size_t i = 0; i < s->n; i += 2 * LANES) {
            vec v[LANES];
            for (size_t j = 0; j < LANES; j++)
                v[j] = load_bytes(s->codes + (r + j) * s->stride + i);
            transpose(v);
            for (size_t j = 0; j < LANES; j++)
                store_vec(s->words + ((i / 2 + j) * TILE_ROWS + r) * 2, v[j]);
        }
}

/* N activation rows from m on. */
static PL_ALWAYS_INLINE void tile_rows(const strip *s, size_t m, int N)
{
    const pl_affine_product *p = s->p;
    const int16_t *q = p->q + m * p->q_stride + s->first, *words = s->words;
    const float *step = p->steps + m * p->step_stride + s->first / p->group * 2;
    float *out = p->out + m * p->out_stride + s->row;
    float sum[TILE_M][TILE_ROWS] PL_ALIGNED(64) = {{0}};
    for (int i = 0; i < N && s->first; i++)
        memcpy(sum[i], out + (size_t)i * p->out_stride, sizeof sum[i]);
    for (size_t g = 0; g < s->n / p->group; g++, step += 2) {
        vec total[2][TILE_M];
        for (int i = 0; i < N; i++) total[0][i] = total[1][i] = zero();
        for (size_t k = 0; k < p->group; k += 2, q += 2, words += 2 * TILE_ROWS) {
            vec a = load_vec(words), b = load_vec(words + 2 * LANES);
            for (int i = 0; i < N; i++) {
                vec pair = splat_pair(q + (size_t)i * p->q_stride);
                total[0][i] = add_products(total[0][i], a, pair);
                total[1][i] = add_products(total[1][i], b, pair);
            }
        }
        for (int i = 0; i < N; i++)
            for (int h = 0; h < 2; h++) {
                float *to = sum[i] + h * LANES;
                store_floats(to, add_group(f_load(to), total[h][i], s, g, (size_t)h * LANES,
                                           step + (size_t)i * p->step_stride));
            }
    }
    for (int i = 0; i < N; i++)
        memcpy(out + (size_t)i * p->out_stride, sum[i], sizeof sum[i]);
}

static PL_NOINLINE void tile_strip(strip *s)
{
    size_t m = 0;
    lay_out(s);
    for (; m + TILE_M <= s->p->M; m += TILE_M) tile_rows(s, m, TILE_M);
    for (; m + 2 <= s->p->M; m += 2) tile_rows(s, m, 2);
    if (m < s->p->M) tile_rows(s, m, 1);
}

/* ---- the product ----------------------------------------------------------------------------- */

static PL_NOINLINE void direct_rows(strip *s)
{
    for (size_t m = 0; m < s->p->M; m++)
        if (s->bits == 4)
            direct_strip(s, m, 4);
        else
            direct_strip(s, m, 8);
}

/* The last rows, when they are no whole strip, begin among those before them. */
static void affine_product(const pl_affine_product *p)
{
    strip s;
    bool direct = p->M <= DIRECT_M || p->rows < TILE_ROWS;
    size_t rows = direct ? LANES : TILE_ROWS, chunk = CHUNK / p->group * p->group;
    s.p = p;
    if (p->rows < LANES) {
        pl_affine_product_c(p);
        return;
    }
    for (size_t r = 0; r < p->rows; r += rows) {
        s.row = PL_MIN(r, p->rows - rows);
        for (s.first = 0; s.first < p->n; s.first += chunk) {
            s.n = PL_MIN(p->n - s.first, chunk);
            begin_strip(&s, rows, direct);
            (direct ? direct_rows : tile_strip)(&s);
        }
    }
}

#endif
