/* SPDX-License-Identifier: Apache-2.0
 *
 * Signs and block Hadamard transforms, AVX-512. Runs of up to 256 numbers stay in registers. Blocks
 * below one vector are left to AVX2. */
#include "kernels/rotate.h"

#include "float_ops_avx512.h"

enum { LANES = 16, RUN = 16 };

/* Strides 1, 2, 4 and 8: each lane becomes its partner plus itself, itself negated in the upper of
 * the two. a + -b is a - b to the bit. */
static PL_ALWAYS_INLINE fvec butterfly_lanes(fvec v)
{
    const fvec minus = _mm512_set1_ps(-0.f);
    v = _mm512_add_ps(_mm512_permute_ps(v, 0xb1), _mm512_mask_xor_ps(v, 0xaaaa, v, minus));
    v = _mm512_add_ps(_mm512_permute_ps(v, 0x4e), _mm512_mask_xor_ps(v, 0xcccc, v, minus));
    v = _mm512_add_ps(_mm512_shuffle_f32x4(v, v, 0xb1), _mm512_mask_xor_ps(v, 0xf0f0, v, minus));
    return _mm512_add_ps(_mm512_shuffle_f32x4(v, v, 0x4e), _mm512_mask_xor_ps(v, 0xff00, v, minus));
}

#include "kernels/rotate_body.h"

void pl_rotate_avx512(float *x, const float *signs, size_t n, size_t block)
{
    if (block < LANES)
        pl_rotate_avx2(x, signs, n, block);
    else
        transform(x, signs, NULL, n, block);
}

void pl_unrotate_avx512(float *x, const float *signs, size_t n, size_t block)
{
    if (block < LANES)
        pl_unrotate_avx2(x, signs, n, block);
    else
        transform(x, NULL, signs, n, block);
}

void pl_kernels_init_rotate_avx512(pl_kernels *k)
{
    k->rotate = pl_rotate_avx512;
    k->unrotate = pl_unrotate_avx512;
}
