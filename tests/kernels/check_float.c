/* SPDX-License-Identifier: Apache-2.0
 *
 * Packed matrices in floating point: products against doubles worked out from the state definition
 * within their bound, M rows against each row alone bit for bit; plain numbers bit for bit. */
#include "check.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "base/half.h"
#include "codec/trellis.h"

static const char *const types[] = {"f32", "bf16"};

/* ---- products -------------------------------------------------------------------------------- */

/* A random coded matrix with random activations. */
typedef struct problem {
    pleach_trellis t;
    int type;
    size_t M, split, width, x_bytes; /* width: what an activation row has */
    uint8_t *codes;
    float *scales;
    float *x; /* [M][width] */
    uint8_t *prepared;
    void *scratch;
} problem;

static void prepare(const pl_kernels *kernels, problem *p)
{
    const pl_float_kernels *f = &kernels->floats;
    size_t T = p->t.block;
    for (size_t m = 0; m < p->M; m++) {
        void *dst = p->prepared + m * p->x_bytes;
        if (p->t.axis)
            f->prepare1[p->type](dst, p->x + m * p->width, p->width, T, p->t.cols / T);
        else
            f->prepare0[p->type](dst, p->x + m * p->width, p->scales, p->width);
    }
}

static void make_problem(check *t, problem *p, unsigned axis, unsigned k, unsigned L, int type)
{
    static const uint32_t blocks[] = {32, 64, 96, 128, 160, 192, 224, 256, 288, 384, 512, 1024};
    uint32_t T = blocks[check_below(t, check_below(t, 4) ? 8 : PL_COUNT(blocks))];
    size_t M = check_below(t, 2) ? 1 + check_below(t, 9) : 1 + check_below(t, 40);
    *p = (problem){.M = M, .type = type, .split = 64 * (1 + check_below(t, 4))};
    p->t = (pleach_trellis){.bits = k,
                            .state_bits = L,
                            .block = T,
                            .axis = axis,
                            .rows = 1 + check_below(t, axis ? 70 : 300),
                            .cols = (uint64_t)T * (1 + check_below(t, check_below(t, 4) ? 3 : 20))};
    if (T > 256) p->t.rows = 1 + p->t.rows % 40;
    size_t bytes = pleach_trellis_words(&p->t) * 4;
    p->codes = check_fenced(t, bytes);
    check_fill(t, p->codes, bytes);
    p->width = axis ? p->t.cols - check_below(t, 32) : p->t.rows;
    p->x_bytes =
        axis ? pl_float_prepared_bytes(T, p->t.cols / T) : pl_float_prepared_bytes(p->t.rows, 1);
    p->x = check_buffer(t, M * p->width * 4, 4);
    for (size_t m = 0; m < M; m++) check_fill_f32(t, p->x + m * p->width, p->width);
    p->scales = check_buffer(t, p->t.rows * 4, 4);
    for (size_t r = 0; r < p->t.rows; r++)
        p->scales[r] = pl_fp16_to_f32(pl_f32_to_fp16((float)check_normal(t)));
    p->prepared = check_buffer(t, M * p->x_bytes, 64);
    p->scratch = check_buffer(t, pl_float_product_scratch(T, M), 64);
}

/* Block column b (axis 0) or everything (axis 1) of stored rows from `row` on. */
static void run(const pl_kernels *kernels, const problem *p, size_t b, size_t row, size_t m0,
                size_t M, bool tile, float *out)
{
    size_t T = p->t.block, blocks = p->t.cols / T, bytes = pl_trellis_block_words(&p->t) * 4;
    pl_float_product job = {.codes = p->codes + row * blocks * bytes + (p->t.axis ? 0 : b * bytes),
                            .row_bytes = blocks * bytes,
                            .rows = p->t.rows - row,
                            .block = T,
                            .blocks = blocks,
                            .split = p->split,
                            .scales = p->scales + row,
                            .M = M,
                            .tile = tile,
                            .x = p->prepared + m0 * p->x_bytes,
                            .x_bytes = p->x_bytes,
                            .first = row,
                            .out = out,
                            .out_stride = p->t.axis ? p->t.rows - row : T,
                            .scratch = p->scratch};
    const pl_float_kernels *f = &kernels->floats;
    unsigned k = p->t.bits - 2, L = p->t.state_bits == 16;
    (p->t.axis ? f->axis1 : f->axis0)[p->type][k][L](&job);
}

static float bf16(float x)
{
    return pl_bf16_to_f32(pl_f32_to_bf16(x));
}

static void check_formula(check *t, const problem *p, size_t b, size_t row, const float *got)
{
    size_t T = p->t.block, blocks = p->t.cols / T, rows = p->t.rows - row;
    size_t outputs = p->t.axis ? rows : T, terms = p->t.axis ? p->t.cols : rows;
    static double want[1024], bound[1024];
    uint16_t states[PL_TRELLIS_MAX_BLOCK];
    uint32_t words[PL_TRELLIS_MAX_WORDS];
    for (size_t m = 0; m < p->M; m++) {
        memset(want, 0, sizeof want);
        memset(bound, 0, sizeof bound);
        for (size_t r = 0; r < rows; r++)
            for (size_t c = p->t.axis ? 0 : b; c < (p->t.axis ? blocks : b + 1); c++) {
                memcpy(words,
                       p->codes + ((row + r) * blocks + c) * pl_trellis_block_words(&p->t) * 4,
                       pl_trellis_block_words(&p->t) * 4);
                pl_trellis_states(&p->t, states, words);
                for (size_t i = 0; i < T; i++) {
                    size_t at = p->t.axis ? c * T + i : row + r;
                    float x = at < p->width ? p->x[m * p->width + at] : 0;
                    float w = (float)pl_trellis_y(states[i]);
                    if (p->type == PL_FLOAT_BF16) {
                        w = bf16(w / PL_TRELLIS_DIVISOR * p->scales[row + r]);
                        x = bf16(x);
                    } else if (!p->t.axis) {
                        x *= p->scales[at];
                    }
                    want[p->t.axis ? r : i] += (double)w * (double)x;
                    bound[p->t.axis ? r : i] += fabs((double)w * (double)x);
                }
            }
        for (size_t i = 0; i < outputs; i++) /* bf16 may take denormals for zeros */
            bound[i] = ((double)terms + 8) * (FLT_EPSILON * bound[i] + 600 * (double)FLT_MIN);
        if (!check_close(t, got + m * outputs, want, bound, outputs)) return;
    }
}

static void check_products(check *t, const pl_kernels *isa, unsigned axis, unsigned k, unsigned L,
                           int type)
{
    for (int round = 0; check_round(t, round, 40); round++) {
        problem p;
        check_release(t);
        make_problem(t, &p, axis, k, L, type);
        size_t T = p.t.block, b = check_below(t, (uint32_t)(p.t.cols / T));
        size_t row = check_below(t, 3) ? 0 : check_below(t, (uint32_t)p.t.rows) & ~1u;
        size_t outputs = axis ? p.t.rows - row : T;
        float *all = check_buffer(t, p.M * outputs * 4, 4), *one = check_buffer(t, outputs * 4, 4);
        prepare(isa, &p);
        run(isa, &p, b, row, 0, p.M, false, all);
        check_formula(t, &p, b, row, all);
        for (size_t m = 0; m < p.M && check_good(t); m++) {
            run(isa, &p, b, row, m, 1, false, one);
            check_same(t, one, all + m * outputs, outputs * 4);
        }
        size_t m0 = check_below(t, (uint32_t)p.M), M = 1 + check_below(t, (uint32_t)(p.M - m0));
        float *some = check_buffer(t, M * outputs * 4, 4);
        run(isa, &p, b, row, m0, M, true, some);
        check_same(t, some, all + m0 * outputs, M * outputs * 4);
    }
}

/* 1536 stored rows of 1536 numbers, M activation rows. */
static void bench(check *t, const pl_kernels *isa, unsigned axis, unsigned k, unsigned L, int type,
                  size_t M, uint32_t T, const char *label)
{
    check_release(t);
    problem p = {.M = M, .type = type, .split = 256, .width = 1536};
    p.t = (pleach_trellis){
        .bits = k, .state_bits = L, .block = T, .axis = axis, .rows = 1536, .cols = 1536};
    p.codes = check_buffer(t, pleach_trellis_words(&p.t) * 4, 1);
    p.scales = check_buffer(t, p.t.rows * 4, 64);
    p.x = check_buffer(t, M * p.width * 4, 64);
    p.x_bytes = axis ? pl_float_prepared_bytes(T, 1536 / T) : pl_float_prepared_bytes(1536, 1);
    p.prepared = check_buffer(t, M * p.x_bytes, 64);
    p.scratch = check_buffer(t, pl_float_product_scratch(T, M), 64);
    for (size_t r = 0; r < p.t.rows; r++) p.scales[r] = 1;
    for (size_t i = 0; i < M * p.width; i++) p.x[i] = 1;
    prepare(isa, &p);
    float *out = check_buffer(t, M * 1536 * 4, 64);
    size_t blocks = p.t.cols / T, bytes = pl_trellis_block_words(&p.t) * 4;
    pl_float_product job = {.row_bytes = blocks * bytes,
                            .rows = axis ? 32 : 1536,
                            .block = T,
                            .blocks = blocks,
                            .split = 256,
                            .M = M,
                            .x = p.prepared,
                            .x_bytes = p.x_bytes,
                            .out_stride = axis ? 1536 : T,
                            .scratch = p.scratch};
    check_bench(t, 1e-9 * 1536 * 1536 * (double)M, label)
    {
        for (size_t r = 0; axis && r < 1536; r += 32) {
            job.codes = p.codes + r * job.row_bytes;
            job.scales = p.scales + r;
            job.out = out + r;
            isa->floats.axis1[type][k - 2][L == 16](&job);
        }
        for (size_t b = 0; !axis && b < blocks; b++) {
            job.codes = p.codes + b * bytes;
            job.scales = p.scales;
            job.out = out;
            isa->floats.axis0[type][k - 2][L == 16](&job);
        }
    }
}

static void check_axis(check *t, const pl_kernels *c, const pl_kernels *isa, unsigned axis,
                       unsigned k, unsigned L, int type)
{
    const pl_float_kernels *f = &isa->floats, *of_c = &c->floats;
    int i = L == 16;
    bool improved = axis ? f->axis1[type][k - 2][i] != of_c->axis1[type][k - 2][i]
                         : f->axis0[type][k - 2][i] != of_c->axis0[type][k - 2][i];
    if (!check_begin(t, improved, "float_axis%u_%s_k%u_l%u", axis, types[type], k, L)) return;
    check_products(t, isa, axis, k, L, type);
    bench(t, isa, axis, k, L, type, 1, 256, "Gw/s");
    bench(t, isa, axis, k, L, type, 1, 192, "Gw/s T192");
    bench(t, isa, axis, k, L, type, 4, 256, "Gmac/s M4");
    bench(t, isa, axis, k, L, type, 8, 256, "Gmac/s M8");
    bench(t, isa, axis, k, L, type, 192, 256, "Gmac/s M192");
    check_end(t);
}

/* ---- plain numbers --------------------------------------------------------------------------- */

static bool is_nan(const void *p, bool half, size_t i)
{
    uint16_t h;
    float f;
    memcpy(&h, (const uint8_t *)p + 2 * i, 2);
    if (half) return (h & 0x7fff) > 0x7f80;
    memcpy(&f, (const uint8_t *)p + 4 * i, 4);
    return isnan(f);
}

static void expand(const pl_kernels *kernels, const pleach_trellis *g, void *dst,
                   const uint8_t *codes, size_t blocks, float scale, bool half, bool stream)
{
    unsigned k = g->bits - 2, L = g->state_bits == 16;
    if (half)
        kernels->floats.expand[k][L](dst, codes, g->block, blocks, scale, stream);
    else
        kernels->floats.decode[k][L](dst, codes, g->block, blocks, scale, stream);
}

/* From the state definition. */
static void expect(void *want, const pleach_trellis *g, const uint8_t *codes, size_t blocks,
                   float scale, bool half)
{
    for (size_t b = 0; b < blocks; b++) {
        uint32_t words[PL_TRELLIS_MAX_WORDS];
        uint16_t states[PL_TRELLIS_MAX_BLOCK];
        memcpy(words, codes + b * pl_trellis_block_words(g) * 4, pl_trellis_block_words(g) * 4);
        pl_trellis_states(g, states, words);
        for (size_t i = 0; i < g->block; i++) {
            float y = (float)pl_trellis_y(states[i]);
            float f = y * (1.0f / PL_TRELLIS_DIVISOR) * scale;
            uint16_t h = pl_f32_to_bf16(y / PL_TRELLIS_DIVISOR * scale);
            if (half)
                memcpy((uint8_t *)want + 2 * (b * g->block + i), &h, 2);
            else
                memcpy((uint8_t *)want + 4 * (b * g->block + i), &f, 4);
        }
    }
}

/* 64 MB of bf16 or 128 of f32 beside what memset writes, and one row again and again. */
static void bench_plain(check *t, const pl_kernels *isa, unsigned k, unsigned L, bool half)
{
    enum { T = 256, BLOCKS = 20, N = T * BLOCKS, ROWS = 6400 };
    size_t size = half ? 2 : 4, bytes = BLOCKS * T * k / 8;
    pleach_trellis g = {.bits = k, .state_bits = L, .block = T};
    check_release(t);
    uint8_t *codes = check_buffer(t, ROWS * bytes, 4), *dst = check_buffer(t, ROWS * N * size, 64);
    double gigabytes = 1e-9 * N * ROWS * (double)size;
    check_bench(t, gigabytes, "GB/s streamed")
    {
        for (size_t r = 0; r < ROWS; r++)
            expand(isa, &g, dst + r * N * size, codes + r * bytes, BLOCKS, 1, half, true);
    }
    check_bench(t, gigabytes, "stored")
    {
        for (size_t r = 0; r < ROWS; r++)
            expand(isa, &g, dst + r * N * size, codes + r * bytes, BLOCKS, 1, half, false);
    }
    check_bench(t, gigabytes, "cached")
    {
        for (size_t r = 0; r < ROWS; r++)
            expand(isa, &g, dst, codes + r * bytes, BLOCKS, 1, half, false);
    }
    check_bench(t, gigabytes, "memset") memset(dst, 1, ROWS * N * size);
}

static void check_plain(check *t, const pl_kernels *isa, bool improved, unsigned k, unsigned L,
                        bool half)
{
    if (!check_begin(t, improved, "float_%s_k%u_l%u", half ? "expand" : "decode", k, L)) return;
    size_t size = half ? 2 : 4;
    for (int round = 0; check_round(t, round, 80); round++) {
        check_release(t);
        pleach_trellis g = {.bits = k, .state_bits = L, .block = 32 * (1 + check_below(t, 32))};
        size_t blocks = 1 + check_below(t, 5), n = blocks * g.block;
        size_t bytes = blocks * pl_trellis_block_words(&g) * 4;
        uint8_t *codes = check_fenced(t, bytes);
        uint8_t *want = check_buffer(t, n * size, size), *got = check_buffer(t, n * size, size);
        check_fill(t, codes, bytes);
        float scale = pl_fp16_to_f32((uint16_t)check_rnd(t)); /* any bits, NaN too */
        expect(want, &g, codes, blocks, scale, half);
        expand(isa, &g, got, codes, blocks, scale, half, check_below(t, 2));
        for (size_t i = 0; i < n; i++) /* any NaN will do */
            if (is_nan(want, half, i) && is_nan(got, half, i))
                memcpy(got + i * size, want + i * size, size);
        check_same(t, got, want, n * size);
    }
    if (check_benches(t)) bench_plain(t, isa, k, L, half);
    check_end(t);
}

void check_float(check *t, const pl_kernels *c, const pl_kernels *isa)
{
    for (unsigned k = 2; k <= 4; k++)
        for (unsigned L = 12; L <= 16; L += 4) {
            int i = L == 16;
            for (int type = 0; type < PL_FLOAT_TYPES; type++)
                for (unsigned axis = 0; axis < 2; axis++) check_axis(t, c, isa, axis, k, L, type);
            check_plain(t, isa, isa->floats.expand[k - 2][i] != c->floats.expand[k - 2][i], k, L,
                        true);
            check_plain(t, isa, isa->floats.decode[k - 2][i] != c->floats.decode[k - 2][i], k, L,
                        false);
        }
}
