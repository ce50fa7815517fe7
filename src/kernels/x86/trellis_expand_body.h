/* SPDX-License-Identifier: Apache-2.0
 *
 * Packed numbers as plain ones, for x86: the part that all levels share. The including file has
 * what trellis_float_body.h asks for and pair_states(s, code, k, L, crossed)  2 LANES neighbouring
 * numbers in the order of the result, whose last number's code begins at `code`: s[0] the first,
 * third
 *                               ..., s[1] the second, fourth ...; crossed: as store_pairs wants
 *   halves(a, b)                f32 rounded to bf16, a in the low and b in the high half of a lane
 *   halves_of_factor(a, b)      the same where no number is half-way between two
 *   store_pairs(to, a, b, nt)   such f32 in their order, where decode is wanted
 *   store_vec(to, v, nt)        past the caches if nt; before others read it, pl_stream_end
 *
 * Neighbours lie in one lane's halves, so that nothing needs to be put in order afterwards. */
#ifndef PL_KERNELS_TRELLIS_EXPAND_BODY_H
#define PL_KERNELS_TRELLIS_EXPAND_BODY_H

#include <immintrin.h>
#include <math.h>
#include <stdbool.h>

#include "base/compiler.h"
#include "kernels/expand_factor.h"
#include "trellis_codes.h"

/* What makes weights of numbers: the row's scale, or its factor f with -1.5 * 2^23 f. */
typedef struct row_scale {
    fvec scale, offset;
} row_scale;

static PL_ALWAYS_INLINE row_scale by_factor(float scale)
{
    float factor = pl_expand_factor(scale);
    return (row_scale){f_splat(factor), f_splat(factor * -0x1.8p23f)};
}

/* y times the row's factor, from 1.5 * 2^23 + y: what is taken off is exact, and gone before the
 * sum is rounded. */
static PL_ALWAYS_INLINE fvec times_factor(fvec anchored, row_scale r)
{
    return f_fma(anchored, r.scale, r.offset);
}

/* y / 147.80... correctly rounded, times the scale: two constants make up the inverse to 48 bits,
 * and the fused multiply-add rounds once. That this is so for every y is one of the tests. */
static PL_ALWAYS_INLINE fvec times_scale(fvec y, row_scale r)
{
    const float high = 0x1.bb688ep-8f, low = -0x1.e90d7cp-33f;
    return f_mul(f_fma(y, f_splat(high), f_mul(y, f_splat(low))), r.scale);
}

/* Whether blocks of 32 numbers and more at p can be stored past the caches. */
static PL_ALWAYS_INLINE bool streams(const void *p, bool wanted)
{
    return wanted && (uintptr_t)p % sizeof(vec) == 0;
}

/* Numbers of a run, the least that a block has; bytes of its codes, with some to spare. */
enum { RUN = 32, END_BYTES = 4 * RUN / 8 + 16 };

/* Holds v in a register and in its place among others of these. */
#define HOLD(v) __asm__ volatile("" : "+v"(v))

/* What is made of a row's numbers; bytes of one. */
enum { BF16_BY_FACTOR, BF16_BY_SCALE, F32 };

static PL_ALWAYS_INLINE size_t plain_bytes(int kind)
{
    return kind == F32 ? 4 : 2;
}

/* 32 numbers, each step of the work for all of them together: processors look ahead, but not as far
 * as it takes to keep all units busy with the one after the other. */
static PL_ALWAYS_INLINE void expand_run(uint8_t *dst, const uint8_t *code, row_scale r, int k,
                                        int L, int kind, bool nt)
{
    enum { N = RUN / LANES };
    const fvec unit = f_splat(1.0f / PL_TRELLIS_DIVISOR);
    vec x[N];
    fvec w[N];
    PL_UNROLL
    for (int i = 0; i < N; i += 2)
        pair_states(x + i, code + (N - 2 - i) * LANES * k / 8, k, L, kind == F32);
    PL_UNROLL
    for (int i = 0; i < N; i++) {
        x[i] = congruence(x[i]);
        HOLD(x[i]);
    }
    PL_UNROLL
    for (int i = 0; i < N; i++) {
        w[i] = kind == BF16_BY_FACTOR  ? anchored(x[i])
               : kind == BF16_BY_SCALE ? times_scale(real(x[i]), r)
                                       : f_mul(real(x[i]), unit);
        HOLD(w[i]);
    }
    PL_UNROLL
    for (int i = 0; i < N; i++)
        w[i] = kind == BF16_BY_FACTOR ? times_factor(w[i], r)
               : kind == F32          ? f_mul(w[i], r.scale)
                                      : w[i];
    PL_UNROLL
    for (int i = 0; i < N; i += 2, dst += 2 * LANES * plain_bytes(kind))
        if (kind == F32)
            store_pairs(dst, w[i], w[i + 1], nt);
        else if (kind == BF16_BY_FACTOR)
            store_vec(dst, halves_of_factor(w[i], w[i + 1]), nt);
        else
            store_vec(dst, halves(w[i], w[i + 1]), nt);
}

/* A block's results begin with its last codes, which wrap to its start: the codes of the first run
 * are copied together, a block ahead because they are read at once. */
static PL_ALWAYS_INLINE void make_end(uint8_t *end, const uint8_t *block, size_t bytes, int k)
{
    const size_t n = RUN * (size_t)k / 8;
    memcpy(end, block + bytes - n, n);
    memcpy(end + n, block, 8);
    for (size_t i = 0; i < bytes; i += 64) prefetch(block + bytes + i); /* read backwards */
}

static PL_ALWAYS_INLINE void expand_blocks(void *plain, const uint8_t *codes, size_t T,
                                           size_t blocks, row_scale r, int k, int L, int kind,
                                           bool nt)
{
    const size_t bytes = T * (size_t)k / 8, step = RUN * (size_t)k / 8;
    const size_t run_bytes = RUN * plain_bytes(kind);
    uint8_t *dst = plain;
    uint8_t ends[2][END_BYTES] = {{0}};
    make_end(ends[0], codes, bytes, k);
    for (size_t b = 0; b < blocks; b++) {
        const uint8_t *code = codes + bytes - step;
        codes += bytes;
        if (b + 1 < blocks) make_end(ends[(b + 1) % 2], codes, bytes, k);
        expand_run(dst, ends[b % 2], r, k, L, kind, nt);
        dst += run_bytes;
        for (size_t t = RUN; t < T; t += RUN, dst += run_bytes)
            expand_run(dst, code -= step, r, k, L, kind, nt);
    }
}

static PL_ALWAYS_INLINE void expand(uint16_t *dst, const uint8_t *codes, size_t T, size_t blocks,
                                    float scale, int k, int L, bool nt)
{
    if (pl_has_expand_factor(scale)) {
        expand_blocks(dst, codes, T, blocks, by_factor(scale), k, L, BF16_BY_FACTOR, nt);
    } else { /* a NaN whose rounding does not overflow */
        row_scale r = {f_splat(isnan(scale) ? NAN : scale), f_splat(0)};
        expand_blocks(dst, codes, T, blocks, r, k, L, BF16_BY_SCALE, nt);
    }
}

static PL_ALWAYS_INLINE void decode(float *dst, const uint8_t *codes, size_t T, size_t blocks,
                                    float scale, int k, int L, bool nt)
{
    row_scale r = {f_splat(scale), f_splat(0)};
    expand_blocks(dst, codes, T, blocks, r, k, L, F32, nt);
}

#define PLAIN(isa, expand, type, k, L)                                                             \
    static void expand##_k##k##_l##L##_##isa(type *dst, const uint8_t *codes, size_t T,            \
                                             size_t blocks, float scale, bool stream)              \
    {                                                                                              \
        if (streams(dst, stream))                                                                  \
            expand(dst, codes, T, blocks, scale, k, L, true);                                      \
        else                                                                                       \
            expand(dst, codes, T, blocks, scale, k, L, false);                                     \
    }

#define PLAINS(isa, expand, type) PL_EACH_CODE_OF(PLAIN, isa, expand, type)

#define EXPANDS(isa) PLAINS(isa, expand, uint16_t)
#define DECODES(isa) PLAINS(isa, decode, float)

#define SET_PLAIN(f, isa, expand, k, L)                                                            \
    (f)->expand[k - 2][L == 16] = expand##_k##k##_l##L##_##isa;

#define SET_PLAINS(f, isa, expand) PL_EACH_CODE_OF(SET_PLAIN, f, isa, expand)

#define SET_EXPANDS(f, isa) SET_PLAINS(f, isa, expand)
#define SET_DECODES(f, isa) SET_PLAINS(f, isa, decode)

#endif
