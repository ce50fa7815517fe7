/* SPDX-License-Identifier: Apache-2.0
 *
 * Affine products: the part that the x86 levels share. The including file defines
 *
 *   vec, fvec, LANES       registers of LANES 32-bit integers or floats
 *   RUN                    registers that hold 32 numbers of 16 bits
 *   TILE_M, DIRECT_M       activation rows that meet a tile at a time; most that need none
 *   load_words             32 codes in their order
 *   load_codes, load_q     32 codes and activations, both in any one order
 *   add_products           sum[i] += a[2i] b[2i] + a[2i + 1] b[2i + 1]
 *   sum_lanes              lane r: the sum of the lanes of v[r]
 *   transpose              a square of 32-bit numbers
 *   load_numbers           scales or biases of LANES rows
 *
 * and a few operations of loading, storing and on floats. A row of weights is a lane of f32 sums. With few activation rows
 * a row's codes are multiplied where they lie and the lanes of a group's sum are added up; with
 * more, codes are laid out first so that a lane of integer sums is a row as well. */
#ifndef PL_KERNELS_AFFINE_BODY_H
#define PL_KERNELS_AFFINE_BODY_H

#include <stdbool.h>

#include "base/compiler.h"
#include "kernels/affine_numbers.h"

enum {
    CHUNK = 512,              /* inputs at a time: a multiple of every group */
    MOST_GROUPS = CHUNK / 32, /* in a chunk */
    TILE_ROWS = 2 * LANES
};

/* A chunk of some rows: LANES of them or TILE_ROWS. */
typedef struct strip {
    const pl_affine_product *p;
    size_t row, first, n; /* first row; inputs [first, first + n) */
    const uint8_t *codes;
    float scales[MOST_GROUPS][TILE_ROWS], biases[MOST_GROUPS][TILE_ROWS];
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

/* The same chunk of the rows that follow, to the second-level cache. */
static PL_ALWAYS_INLINE void prefetch_rows(const uint8_t *p, size_t stride, size_t rows, size_t n)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < n; i += 64)
            _mm_prefetch((const char *)(p + r * stride + i), _MM_HINT_T1);
}

static void begin_strip(strip *s, size_t rows)
{
    const pl_affine_product *p = s->p;
    s->codes = p->codes + s->row * p->row_bytes + s->first * p->bits / 8;
    prefetch_rows(s->codes + rows * p->row_bytes, p->row_bytes, rows, s->n * p->bits / 8);
    if (p->type == PL_AFFINE_BF16)
        read_numbers(s, rows, PL_AFFINE_BF16);
    else if (p->type == PL_AFFINE_F16)
        read_numbers(s, rows, PL_AFFINE_F16);
    else
        read_numbers(s, rows, PL_AFFINE_F32);
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
    size_t stride = p->row_bytes, group = p->group;
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
static PL_ALWAYS_INLINE void lay_out(strip *s, unsigned bits)
{
    size_t stride = s->p->row_bytes;
    for (size_t r = 0; r < TILE_ROWS; r += LANES) {
        const uint8_t *codes = s->codes + r * stride;
        for (size_t i = 0; i < s->n; i += 32, codes += 4 * bits) {
            vec v[LANES][RUN];
            for (size_t j = 0; j < LANES; j++) load_words(v[j], codes + j * stride, bits);
            for (size_t h = 0; h < RUN; h++) {
                vec square[LANES];
                for (size_t j = 0; j < LANES; j++) square[j] = v[j][h];
                transpose(square);
                for (size_t j = 0; j < LANES; j++)
                    store_vec(s->words + ((i / 2 + h * LANES + j) * TILE_ROWS + r) * 2, square[j]);
            }
        }
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

static PL_NOINLINE void multiply_tile(const strip *s)
{
    size_t m = 0;
    for (; m + TILE_M <= s->p->M; m += TILE_M) tile_rows(s, m, TILE_M);
    for (; m + 2 <= s->p->M; m += 2) tile_rows(s, m, 2);
    if (m < s->p->M) tile_rows(s, m, 1);
}

/* ---- the product ----------------------------------------------------------------------------- */

#define STRIPS(bits)                                                                               \
    static PL_NOINLINE void direct##bits(strip *s)                                                 \
    {                                                                                              \
        for (size_t m = 0; m < s->p->M; m++) direct_strip(s, m, bits);                             \
    }                                                                                              \
    static PL_NOINLINE void tile##bits(strip *s)                                                   \
    {                                                                                              \
        lay_out(s, bits);                                                                          \
        multiply_tile(s);                                                                          \
    }

STRIPS(2)
STRIPS(3)
STRIPS(4)
STRIPS(5)
STRIPS(6)
STRIPS(8)

/* The last rows, when they are no whole strip, begin among those before them. */
static void affine_product(const pl_affine_product *p)
{
    typedef void strip_fn(strip *s);
    static strip_fn *const direct[] = {[2] = direct2, [3] = direct3, [4] = direct4,
                                       [5] = direct5, [6] = direct6, [8] = direct8};
    static strip_fn *const tile[] = {[2] = tile2, [3] = tile3, [4] = tile4,
                                     [5] = tile5, [6] = tile6, [8] = tile8};
    bool few = p->M <= DIRECT_M || p->rows < TILE_ROWS;
    strip_fn *multiply = (few ? direct : tile)[p->bits];
    size_t rows = few ? LANES : TILE_ROWS;
    strip s;
    s.p = p;
    if (p->rows < LANES) {
        pl_affine_product_c(p);
        return;
    }
    for (size_t r = 0; r < p->rows; r += rows) {
        s.row = PL_MIN(r, p->rows - rows);
        for (s.first = 0; s.first < p->n; s.first += CHUNK) {
            s.n = PL_MIN(p->n - s.first, CHUNK);
            begin_strip(&s, rows);
            multiply(&s);
        }
    }
}

#endif
