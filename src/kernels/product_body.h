/* SPDX-License-Identifier: Apache-2.0
 *
 * Plain products: the part that the levels with vectors share. The including file defines fvec (a
 * register of LANES floats), its operations, and how many activation rows a tile has. Every sum has
 * its own register and its own order, so that tiles of any shape give the same bits. */
#ifndef PL_KERNELS_PRODUCT_BODY_H
#define PL_KERNELS_PRODUCT_BODY_H

enum { TILE_W = 4 };

/* y[n][r] for R rows of w and N rows of x. */
static PL_ALWAYS_INLINE void rows_tile(float *y, size_t y_stride, const float *w, size_t w_stride,
                                       const float *x, size_t x_stride, size_t K, int R, int N)
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
    for (int n = 0; n < N; n++)
        for (int r = 0; r < R; r++) y[(size_t)n * y_stride + (size_t)r] = f_sum(sum[r][n]);
}

/* R rows of w on all rows of x. */
static PL_ALWAYS_INLINE void rows_strip(float *y, size_t y_stride, const float *w, size_t w_stride,
                                        const float *x, size_t x_stride, size_t M, size_t K, int R)
{
    size_t m = 0;
    for (; m + TILE_X <= M; m += TILE_X)
        rows_tile(y + m * y_stride, y_stride, w, w_stride, x + m * x_stride, x_stride, K, R,
                  TILE_X);
    for (; m + 2 <= M; m += 2)
        rows_tile(y + m * y_stride, y_stride, w, w_stride, x + m * x_stride, x_stride, K, R, 2);
    if (m < M)
        rows_tile(y + m * y_stride, y_stride, w, w_stride, x + m * x_stride, x_stride, K, R, 1);
}

static void rows_tiled(float *y, size_t y_stride, const float *w, size_t w_stride, size_t rows,
                     const float *x, size_t x_stride, size_t M, size_t K)
{
    size_t r = 0;
    for (; r + TILE_W <= rows; r += TILE_W)
        rows_strip(y + r, y_stride, w + r * w_stride, w_stride, x, x_stride, M, K, TILE_W);
    for (; r < rows; r++)
        rows_strip(y + r, y_stride, w + r * w_stride, w_stride, x, x_stride, M, K, 1);
}

/* Two registers of columns on N rows of x. */
static PL_ALWAYS_INLINE void columns_tile(float *y, size_t y_stride, const float *w,
                                          size_t w_stride, const float *x, size_t x_stride,
                                          size_t K, int N)
{
    fvec sum[TILE_W][2];
    for (int n = 0; n < N; n++) {
        sum[n][0] = f_load(y + (size_t)n * y_stride);
        sum[n][1] = f_load(y + (size_t)n * y_stride + LANES);
    }
    for (size_t k = 0; k < K; k++) {
        fvec w0 = f_load(w + k * w_stride), w1 = f_load(w + k * w_stride + LANES);
        for (int n = 0; n < N; n++) {
            fvec v = f_splat(x[(size_t)n * x_stride + k]);
            sum[n][0] = f_fma(w0, v, sum[n][0]);
            sum[n][1] = f_fma(w1, v, sum[n][1]);
        }
    }
    for (int n = 0; n < N; n++) {
        f_store(y + (size_t)n * y_stride, sum[n][0]);
        f_store(y + (size_t)n * y_stride + LANES, sum[n][1]);
    }
}

static void columns_tiled(float *y, size_t y_stride, const float *w, size_t w_stride, size_t cols,
                        const float *x, size_t x_stride, size_t M, size_t K)
{
    for (size_t c = 0; c < cols; c += 2 * LANES) {
        size_t m = 0;
        for (; m + TILE_W <= M; m += TILE_W)
            columns_tile(y + m * y_stride + c, y_stride, w + c, w_stride, x + m * x_stride,
                         x_stride, K, TILE_W);
        for (; m < M; m++)
            columns_tile(y + m * y_stride + c, y_stride, w + c, w_stride, x + m * x_stride,
                         x_stride, K, 1);
    }
}

#endif
