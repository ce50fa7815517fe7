/* SPDX-License-Identifier: Apache-2.0
 *
 * Norms, rotary positions, SiLU and argmax on a device, against the portable kernels and doubles.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "check_cuda.h"
#include "cuda/attention.h"
#include "cuda/vector.h"
#include "model/rope.h"

/* ---- norm ------------------------------------------------------------------------------------ */

static void norm_row(const pl_kernels *c, float *y, float *x, const float *update,
                     const float *gain, size_t n, float eps, const float *signs, size_t block)
{
    double sum = 0;
    if (update) c->axpy_f32(x, 1, update, n);
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * x[i];
    for (size_t i = 0; i < n; i++)
        y[i] = (float)(x[i] / sqrt(sum / (double)n + (double)eps) * gain[i]);
    if (block) c->rotate(y, signs, n, block);
}

static void check_norm(check *t, const pl_kernels *c, pl_cuda *d)
{
    static double want[40000], bound[40000];
    for (int round = 0; check_round(t, round, 60); round++) {
        check_release(t);
        check_cuda_release(t, d);
        size_t block = check_below(t, 3) ? (size_t)1 << check_below(t, 12) : 0;
        size_t n = block ? block * (1 + check_below(t, (uint32_t)(9000 / block)))
                         : 1 + check_below(t, 9000);
        if (round % 8 == 7) n = block ? (20000 / block + 1) * block : 20001;
        size_t M = 1 + check_below(t, 3);
        bool add = check_below(t, 2);
        float *x = check_buffer(t, 4 * n * M, 4), *y = check_buffer(t, 4 * n * M, 4);
        float *update = check_buffer(t, 4 * n * M, 4), *gain = check_buffer(t, 4 * n, 4);
        float *signs = check_buffer(t, 4 * n, 4), *got = check_buffer(t, 4 * n * M, 4);
        for (size_t m = 0; m < M; m++) check_fill_f32(t, x + m * n, n);
        for (size_t i = 0; i < n * M; i++) { /* squares are to fit */
            x[i] = fmaxf(fminf(x[i], 1e15f), -1e15f);
            update[i] = (float)check_normal(t);
        }
        for (size_t i = 0; i < n; i++) {
            gain[i] = (float)check_normal(t);
            signs[i] = check_below(t, 2) ? 1.0f : -1.0f;
        }
        float *dx = check_cuda_copy(t, d, x, 4 * n * M), *dy = check_cuda_buffer(t, d, 4 * n * M);
        float *du = add ? check_cuda_copy(t, d, update, 4 * n * M) : NULL;
        pl_cuda_rotation r = {check_cuda_copy(t, d, signs, 4 * n), block};
        if (add && check_below(t, 2)) dy = du;
        pl_cuda_rms_norm(d, dy, dx, du, check_cuda_copy(t, d, gain, 4 * n), n, M, 1e-5f, &r);
        for (size_t m = 0; m < M; m++)
            norm_row(c, y + m * n, x + m * n, add ? update + m * n : NULL, gain, n, 1e-5f, signs,
                     block);
        if (!check_cuda_fetch(t, d, got, dx, 4 * n * M)) return;
        if (!check_same(t, got, x, 4 * n * M)) return;
        if (!check_cuda_fetch(t, d, got, dy, 4 * n * M)) return;
        for (size_t m = 0; m < M; m++) {
            for (size_t i = 0; i < n; i++) {
                size_t first = block ? i / block * block : i, end = block ? first + block : i + 1;
                double size = 0;
                for (size_t j = first; block && j < end && i == first; j++)
                    size += (double)y[m * n + j] * y[m * n + j];
                want[i] = y[m * n + i];
                bound[i] = block && i > first ? bound[i - 1]
                           : block            ? 2e-6 * sqrt(size) + 1e-37
                                              : 1e-6 * fabs(want[i]) + 1e-37;
            }
            if (!check_close(t, got + m * n, want, bound, n)) {
                check_fail(t, "n %zu, block %zu, row %zu of %zu, add %d", n, block, m, M, add);
                return;
            }
        }
    }
}

typedef struct norm_problem {
    pl_cuda *d;
    float *x, *y, *gain;
    pl_cuda_rotation r;
    size_t n, M;
} norm_problem;

static void queue_norm(void *user, int i)
{
    const norm_problem *p = user;
    (void)i;
    pl_cuda_rms_norm(p->d, p->y, p->x, p->y, p->gain, p->n, p->M, 1e-5f, &p->r);
}

static void bench_norm(check *t, pl_cuda *d, size_t n, size_t M, size_t block)
{
    norm_problem p = {.d = d, .n = n, .M = M, .r.block = block};
    char label[64];
    snprintf(label, sizeof label, "GB/s norm %zu x %zu, block %zu", M, n, block);
    check_cuda_release(t, d);
    p.x = check_cuda_buffer(t, d, 4 * n * M);
    p.y = check_cuda_buffer(t, d, 4 * n * M);
    p.gain = check_cuda_buffer(t, d, 4 * n);
    p.r.signs = check_cuda_buffer(t, d, 4 * n);
    check_cuda_bench(t, d, queue_norm, &p, 20, 16e-9 * (double)(n * M), label);
}

/* ---- rotary positions ------------------------------------------------------------------------ */

static void turn_heads(const pl_kernels *c, float *x, size_t heads, size_t D, const float *norm,
                       float eps, const float *cosine, const float *sine, size_t half)
{
    for (size_t h = 0; h < heads; h++, x += D) {
        if (norm) c->rms_norm(x, x, norm, D, eps);
        c->rope(x, cosine, sine, half);
    }
}

/* Rows turned and put into pages of f32, one each, side by side; the pages. */
static float *put_turned(check *t, pl_cuda *d, const pl_cuda_rope *p, size_t K, size_t D, size_t M)
{
    size_t bytes = pl_cuda_kv_page_bytes(PL_KV_F32, (uint32_t)K, (uint32_t)D);
    pl_cuda_row rows[8];
    void *pages[8];
    uint8_t *memory = check_cuda_buffer(t, d, M * bytes);
    for (size_t m = 0; m < M; m++) {
        rows[m] = (pl_cuda_row){(uint32_t)m, 0};
        pages[m] = memory + m * bytes;
    }
    pl_cuda_kv kv = {.type = PL_KV_F32, .n_kv_heads = (uint32_t)K, .head_dim = (uint32_t)D,
                     .pages = check_cuda_copy(t, d, pages, sizeof pages), .pages_stride = 1};
    const pl_cuda_row *device_rows = check_cuda_copy(t, d, rows, sizeof rows);
    pl_cuda_kv_put(d, &kv, device_rows, M, p->k, K * D, p->k, K * D, p);
    return (float *)memory;
}

/* What was put are the keys. */
static void check_keys(check *t, pl_cuda *d, const float *pages, const float *keys, size_t K,
                       size_t D, size_t M)
{
    float *put = check_buffer(t, 4 * D, 4);
    for (size_t i = 0; check_good(t) && i < M * K; i++)
        if (check_cuda_fetch(t, d, put, pages + i * 2 * PL_CACHE_PAGE * D, 4 * D))
            check_same(t, put, keys + i * D, 4 * D);
}

static void check_rope(check *t, const pl_kernels *c, pl_cuda *d)
{
    static double want[20000], bound[20000];
    for (int round = 0; check_round(t, round, 30); round++) {
        check_release(t);
        check_cuda_release(t, d);
        size_t D = 2 + check_below(t, 256), half = 1 + check_below(t, (uint32_t)D / 2),
               M = 1 + check_below(t, 4);
        size_t H = 1 + check_below(t, 9), K = 1 + check_below(t, 4), nq = M * H * D, nk = M * K * D;
        bool norm = check_below(t, 2);
        float *q = check_buffer(t, 4 * nq, 4), *k = check_buffer(t, 4 * nk, 4);
        float *gq = check_buffer(t, 4 * D, 4), *gk = check_buffer(t, 4 * D, 4);
        float *frequencies = check_buffer(t, 4 * half, 4), *got = check_buffer(t, 4 * (nq + nk), 4);
        float *cosine = check_buffer(t, 4 * half * M, 4), *sine = check_buffer(t, 4 * half * M, 4);
        int32_t positions[8];
        float scale = check_below(t, 2) ? 1.0f : 1.25f;
        for (size_t i = 0; i < nq; i++) q[i] = (float)check_normal(t);
        for (size_t i = 0; i < nk; i++) k[i] = (float)check_normal(t);
        for (size_t i = 0; i < D; i++) {
            gq[i] = (float)check_normal(t);
            gk[i] = (float)check_normal(t);
        }
        for (size_t i = 0; i < half; i++)
            frequencies[i] = (float)pow(1e4, -(double)i / (double)half);
        for (size_t m = 0; m < M; m++) {
            positions[m] = (int32_t)check_below(t, 1 << 20);
            pl_rope_table(frequencies, half, (size_t)positions[m], scale, cosine + m * half,
                          sine + m * half);
        }
        float *dc = check_cuda_buffer(t, d, 4 * half * M),
              *ds = check_cuda_buffer(t, d, 4 * half * M);
        pl_cuda_rope_table(d, dc, ds, check_cuda_copy(t, d, positions, sizeof positions),
                           check_cuda_copy(t, d, frequencies, 4 * half), half, M, scale);
        pl_cuda_rope p = {.q = check_cuda_copy(t, d, q, 4 * nq),
                          .k = check_cuda_copy(t, d, k, 4 * nk),
                          .heads = (uint32_t)H,
                          .half = half,
                          .q_norm = norm ? check_cuda_copy(t, d, gq, 4 * D) : NULL,
                          .k_norm = norm ? check_cuda_copy(t, d, gk, 4 * D) : NULL,
                          .eps = 1e-6f,
                          .cos = dc,
                          .sin = ds};
        float *page = put_turned(t, d, &p, K, D, M);
        for (size_t m = 0; m < M; m++) {
            turn_heads(c, q + m * H * D, H, D, norm ? gq : NULL, 1e-6f, cosine + m * half,
                       sine + m * half, half);
            turn_heads(c, k + m * K * D, K, D, norm ? gk : NULL, 1e-6f, cosine + m * half,
                       sine + m * half, half);
        }
        for (int side = 0; side < 2; side++) {
            size_t n = side ? nk : nq;
            if (!check_cuda_fetch(t, d, got, side ? p.k : p.q, 4 * n)) return;
            for (size_t i = 0; i < n; i++) {
                want[i] = side ? k[i] : q[i];
                bound[i] = 4e-6 * (1 + fabs(want[i]));
            }
            check_close(t, got, want, bound, n);
        }
        check_keys(t, d, page, got, K, D, M);
    }
}

/* ---- SiLU, sums, argmax ---------------------------------------------------------------------- */

static void check_silu(check *t, const pl_kernels *c, pl_cuda *d)
{
    for (int round = 0; check_round(t, round, 40); round++) {
        check_release(t);
        check_cuda_release(t, d);
        size_t block = check_below(t, 2) ? (size_t)1 << check_below(t, 12) : 0;
        size_t n = block ? block * (1 + check_below(t, (uint32_t)(9000 / block)))
                         : 1 + check_below(t, 9000);
        size_t M = 1 + check_below(t, 3);
        float *gate = check_buffer(t, 4 * n * M, 4), *up = check_buffer(t, 4 * n * M, 4);
        float *signs = check_buffer(t, 4 * n, 4), *got = check_buffer(t, 4 * n * M, 4);
        for (size_t i = 0; i < n * M; i++) {
            gate[i] = (float)(check_normal(t) * (check_below(t, 50) ? 4 : 60));
            up[i] = (float)check_normal(t);
        }
        for (size_t i = 0; i < n; i++) signs[i] = check_below(t, 2) ? 1.0f : -1.0f;
        float *dg = check_cuda_copy(t, d, gate, 4 * n * M),
              *du = check_cuda_copy(t, d, up, 4 * n * M);
        float *dy = check_below(t, 2) ? dg : check_cuda_buffer(t, d, 4 * n * M);
        pl_cuda_rotation r = {check_cuda_copy(t, d, signs, 4 * n), block};
        pl_cuda_silu_mul(d, dy, dg, du, n, M, block || check_below(t, 2) ? &r : NULL);
        c->silu_mul(gate, gate, up, n * M);
        for (size_t m = 0; block && m < M; m++) c->rotate(gate + m * n, signs, n, block);
        if (check_cuda_fetch(t, d, got, dy, 4 * n * M) && !check_same(t, got, gate, 4 * n * M))
            check_fail(t, "n %zu, block %zu, M %zu", n, block, M);
        if (!check_good(t)) return;
        pl_cuda_add(d, dy, du, n * M);
        for (size_t i = 0; i < n * M; i++) gate[i] += up[i];
        if (check_cuda_fetch(t, d, got, dy, 4 * n * M)) check_same(t, got, gate, 4 * n * M);
    }
}

static void check_argmax(check *t, pl_cuda *d)
{
    for (int round = 0; check_round(t, round, 40); round++) {
        check_release(t);
        check_cuda_release(t, d);
        size_t n = 1 + check_below(t, check_below(t, 2) ? 300 : 60000), M = 1 + check_below(t, 4);
        float *x = check_buffer(t, 4 * n * M, 4);
        int32_t want[8] = {0}, got[8];
        for (size_t m = 0; m < M; m++) {
            float *row = x + m * n;
            size_t best = 0;
            uint32_t kind = check_below(t, 6);
            bool bad = false;
            for (size_t i = 0; i < n; i++) {
                float v = (float)check_normal(t);
                row[i] = kind == 0   ? floorf(2 * v)
                         : kind == 1 ? (check_below(t, (uint32_t)n) ? v : NAN)
                         : kind == 2 ? (check_below(t, (uint32_t)n) ? v : INFINITY)
                         : kind == 3 ? (check_below(t, 2) ? 0.0f : -0.0f)
                         : kind == 4 ? (i % 7 ? -INFINITY : v - 100)
                                     : -INFINITY;
                if (isnan(row[i])) bad = true;
                if (row[i] > row[best]) best = i;
            }
            want[m] = bad || !isfinite(row[best]) ? -1 : (int32_t)best;
        }
        int32_t *ids = check_cuda_buffer(t, d, 4 * M);
        pl_cuda_argmax(d, ids, check_cuda_copy(t, d, x, 4 * n * M), n, M,
                       check_cuda_buffer(t, d, pl_cuda_argmax_scratch(n, M)));
        if (check_cuda_fetch(t, d, got, ids, 4 * M)) check_same(t, got, want, 4 * M);
    }
}

void check_cuda_vector(check *t, const pl_kernels *c, pl_cuda *d)
{
    if (check_begin(t, true, "vector_norm")) {
        check_norm(t, c, d);
        bench_norm(t, d, 576, 1, 64);
        bench_norm(t, d, 5120, 1, 0);
        bench_norm(t, d, 5120, 1, 256);
        bench_norm(t, d, 4096, 1, 4096);
        bench_norm(t, d, 5120, 512, 256);
        check_cuda_release(t, d);
        check_end(t);
    }
    if (check_begin(t, true, "vector_rope")) {
        check_rope(t, c, d);
        check_cuda_release(t, d);
        check_end(t);
    }
    if (check_begin(t, true, "vector_silu")) {
        check_silu(t, c, d);
        check_cuda_release(t, d);
        check_end(t);
    }
    if (check_begin(t, true, "vector_argmax")) {
        check_argmax(t, d);
        check_cuda_release(t, d);
        check_end(t);
    }
}
