/* SPDX-License-Identifier: Apache-2.0
 *
 * Affine products in portable C. */
#include "kernels/affine_numbers.h"
#include "kernels/kernels.h"

enum { MOST_GROUP = 128 };

static PL_ALWAYS_INLINE void unpack(int16_t *dst, const uint8_t *src, size_t n, unsigned bits)
{
    for (size_t i = 0; bits == 8 && i < n; i++) dst[i] = src[i];
    for (size_t i = 0; bits < 8 && i < n; i += 8, src += bits) {
        uint64_t word = affine_eight(src, bits);
        for (unsigned j = 0; j < 8; j++)
            dst[i + j] = (int16_t)(word >> j * bits & ((1u << bits) - 1));
    }
}

static void unpack_group(int16_t *dst, const uint8_t *src, size_t n, unsigned bits)
{
    switch (bits) {
    case 2:
        unpack(dst, src, n, 2);
        break;
    case 3:
        unpack(dst, src, n, 3);
        break;
    case 4:
        unpack(dst, src, n, 4);
        break;
    case 5:
        unpack(dst, src, n, 5);
        break;
    case 6:
        unpack(dst, src, n, 6);
        break;
    default:
        unpack(dst, src, n, 8);
    }
}

static int32_t dot(const int16_t *a, const int16_t *b, size_t n)
{
    int32_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

void pl_affine_product_c(const pl_affine_product *p)
{
    size_t groups = p->n / p->group, size = affine_number_bytes(p->type);
    int16_t codes[MOST_GROUP] = {0};
    for (size_t r = 0; r < p->rows; r++)
        for (size_t g = 0; g < groups; g++) {
            const uint8_t *src = p->codes + r * p->row_bytes + g * p->group * p->bits / 8;
            size_t at = (r * groups + g) * size;
            float scale = affine_number((const uint8_t *)p->scales + at, p->type);
            float bias = affine_number((const uint8_t *)p->biases + at, p->type);
            unpack_group(codes, src, p->group, p->bits);
            for (size_t m = 0; m < p->M; m++) {
                const float *step = p->steps + m * p->step_stride + 2 * g;
                int32_t sum = dot(p->q + m * p->q_stride + g * p->group, codes, p->group);
                float *to = p->out + m * p->out_stride + r;
                float part = (float)sum * step[0] * scale + step[1] * bias;
                *to = (g ? *to : 0.0f) + part;
            }
        }
}

void pl_kernels_init_affine_c(pl_kernels *k)
{
    k->product.affine_product = pl_affine_product_c;
}
