/* SPDX-License-Identifier: Apache-2.0
 *
 * Plain products: the part that the levels with vectors share. The including file defines fvec (a
 * register of LANES floats), its operations, and how many activation rows a tile has. Every sum has
 * its own register and its own order, so that tiles of any shape give the same bits. */
#ifndef PL_KERNELS_PRODUCT_BODY_H
#define PL_KERNELS_PRODUCT_BODY_H

#include <stdbool.h>
#include <string.h>

#include "base/compiler.h"

enum {
    TILE_W = 4,
    CHUNK = PL_MAX(64 * LANES, 512),          /* numbers of a row summed in a register */
    BLOCK_X = PL_MAX(9 / TILE_X, 1) * TILE_X, /* activation rows whose chunks stay in L1 */
    CHUNK_ROWS = 64                           /* weight rows whose chunks stay in L2 */
};

/* y[n][r] = (set) or += a chunk of R rows of w and N rows of x. */
static PL_ALWAYS_INLINE void rows_tile(float *y, size_t y_stride, const float *w, size_t w_stride,
                                       const float *x, size_t x_stride, size_t K, bool set, int R,
                                       int N)
{
    fvec sum[TILE_W][TILE_X];
    for (int r = 0; r < R; r++)
        for (int n = 0; n < N; n++) sum[r][n] = f_zero();
    size_t k = 0;
    for (; k + LANES <= K; k += LANES) {
        fvec v[TILE_X];
        for (int n = 0; n < N; n++) v[n] = f_load(x + (size_t)n * x_stride + k);
        for (int r = 0; r < R; r++) {
            fvec u = f_load(w + (size_t)r * w_stride + k);
            for (int n = 0; n < N; n++) sum[r][n] = f_fma(u, v[n], sum[r][n]);
        }
    }
    if (k < K)
        for (int r = 0; r < R; r++)
            for (int n = 0; n < N; n++)
                sum[r][n] = f_fma(f_load_first(w + (size_t)r * w_stride + k, K - k),
                                  f_load_first(x + (size_t)n * x_stride + k, K - k), sum[r][n]);
    for (int n = 0; n < N; n++) {
        fvec v[TILE_W];
        float chunk[TILE_W], *to = y + (size_t)n * y_stride;
        for (int r = 0; r < TILE_W; r++) v[r] = sum[PL_MIN(r, R - 1)][n];
        f_sum4(chunk, v);
        for (int r = 0; r < R; r++) to[r] = set ? chunk[r] : to[r] + chunk[r];
    }
}

/* R rows of w on M rows of x. */
static PL_ALWAYS_INLINE void rows_strip(float *y, size_t y_stride, const float *w, size_t w_stride,
                                        const float *x, size_t x_stride, size_t M, size_t K,
                                        bool set, int R)
{
    size_t m = 0;
    for (; m + TILE_X <= M; m += TILE_X)
        rows_tile(y + m * y_stride, y_stride, w, w_stride, x + m * x_stride, x_stride, K, set, R,
                  TILE_X);
    for (; m + 2 <= M; m += 2)
        rows_tile(y + m * y_stride, y_stride, w, w_stride, x + m * x_stride, x_stride, K, set, R,
                  2);
    if (m < M)
        rows_tile(y + m * y_stride, y_stride, w, w_stride, x + m * x_stride, x_stride, K, set, R,
                  1);
}

static PL_NOINLINE void rows_block(float *y, size_t y_stride, const float *w, size_t w_stride,
                                   size_t rows, const float *x, size_t x_stride, size_t M, size_t K,
                                   bool set)
{
    size_t r = 0;
    for (; r + TILE_W <= rows; r += TILE_W)
        rows_strip(y + r, y_stride, w + r * w_stride, w_stride, x, x_stride, M, K, set, TILE_W);
    for (; r < rows; r++)
        rows_strip(y + r, y_stride, w + r * w_stride, w_stride, x, x_stride, M, K, set, 1);
}

/* Chunks of many activation rows are copied side by side: rows a multiple of 4096 bytes apart would
 * all lie in one set of the cache. */
static void rows_tiled(float *y, size_t y_stride, const float *w, size_t w_stride, size_t rows,
                       const float *x, size_t x_stride, size_t M, size_t K)
{
    float copy[BLOCK_X * CHUNK] PL_ALIGNED(64);
    size_t chunks = PL_MAX((K + CHUNK - 1) / CHUNK, 1), even = (K + chunks - 1) / chunks;
    size_t chunk = (even + LANES - 1) / LANES * LANES;
    for (size_t r = 0; r < rows; r += CHUNK_ROWS)
        for (size_t k = 0; k < K; k += chunk)
            for (size_t m = 0; m < M; m += BLOCK_X) {
                size_t some = PL_MIN(M - m, BLOCK_X), n = PL_MIN(K - k, chunk);
                const float *from = x + m * x_stride + k;
                bool copied = some > TILE_X;
                for (size_t i = 0; copied && i < some; i++) {
                    const float *next = from + (i + BLOCK_X) * x_stride;
                    memcpy(copy + i * CHUNK, from + i * x_stride, n * sizeof *x);
                    for (size_t j = 0; m + i + BLOCK_X < M && j < n; j += 16)
                        __builtin_prefetch(next + j);
                }
                rows_block(y + m * y_stride + r, y_stride, w + r * w_stride + k, w_stride,
                           PL_MIN(rows - r, CHUNK_ROWS), copied ? copy : from,
                           copied ? CHUNK : x_stride, some, n, k == 0);
            }
}

#endif
