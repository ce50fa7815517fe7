/* SPDX-License-Identifier: Apache-2.0
 *
 * Plain products in portable C, and the activations' rounding to 16 bits. Rows of plain codings are
 * left to format/. */
#include "kernels/kernels.h"
#include "kernels/vector.h"

PL_NUMBER_KERNELS(c)

static float dot_8(const float *w, const float *x, size_t K)
{
    float lane[8] = {0};
    size_t k = 0;
    for (; k + 8 <= K; k += 8)
        for (size_t j = 0; j < 8; j++) lane[j] += w[k + j] * x[k + j];
    for (size_t j = 0; k + j < K; j++) lane[j] += w[k + j] * x[k + j];
    for (size_t j = 0; j < 4; j++) lane[j] += lane[j + 4];
    return (lane[0] + lane[2]) + (lane[1] + lane[3]);
}

static void rows_c(float *y, size_t y_stride, const float *w, size_t w_stride, size_t rows,
                   const float *x, size_t x_stride, size_t M, size_t K)
{
    for (size_t m = 0; m < M; m++)
        for (size_t r = 0; r < rows; r++)
            y[m * y_stride + r] = dot_8(w + r * w_stride, x + m * x_stride, K);
}

void pl_kernels_init_product_c(pl_kernels *k)
{
    k->product.quantize_i16 = quantize_i16_c;
    k->product.quantize_i8 = quantize_i8_c;
    k->product.quantize_i16x2 = quantize_i16x2_c;
    k->product.rows = rows_c;
}
