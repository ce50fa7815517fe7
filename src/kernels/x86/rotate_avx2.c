/* SPDX-License-Identifier: Apache-2.0
 *
 * Signs and block Hadamard transforms, AVX2. Runs of up to 64 numbers stay in registers. Blocks
 * below one vector are left to the portable version. */
#include "kernels/rotate.h"

#include "float_ops_avx2.h"

enum { LANES = 8, RUN = 8 };

/* Strides 1, 2 and 4: each lane becomes its partner plus itself, itself negated in the upper of the
 * two. a + -b is a - b to the bit. */
static PL_ALWAYS_INLINE fvec butterfly_lanes(fvec v)
{
    const fvec odd1 = _mm256_setr_ps(0, -0.f, 0, -0.f, 0, -0.f, 0, -0.f);
    const fvec odd2 = _mm256_setr_ps(0, 0, -0.f, -0.f, 0, 0, -0.f, -0.f);
    const fvec odd4 = _mm256_setr_ps(0, 0, 0, 0, -0.f, -0.f, -0.f, -0.f);
    v = _mm256_add_ps(_mm256_permute_ps(v, 0xb1), _mm256_xor_ps(v, odd1));
    v = _mm256_add_ps(_mm256_permute_ps(v, 0x4e), _mm256_xor_ps(v, odd2));
    return _mm256_add_ps(_mm256_permute2f128_ps(v, v, 1), _mm256_xor_ps(v, odd4));
}

#include "kernels/rotate_body.h"

void pl_rotate_avx2(float *x, const float *signs, size_t n, size_t block)
{
    if (block < LANES)
        pl_rotate_c(x, signs, n, block);
    else
        transform(x, signs, NULL, n, block);
}

void pl_unrotate_avx2(float *x, const float *signs, size_t n, size_t block)
{
    if (block < LANES)
        pl_unrotate_c(x, signs, n, block);
    else
        transform(x, NULL, signs, n, block);
}

void pl_kernels_init_rotate_avx2(pl_kernels *k)
{
    k->rotate = pl_rotate_avx2;
    k->unrotate = pl_unrotate_avx2;
}
