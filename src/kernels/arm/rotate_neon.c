/* SPDX-License-Identifier: Apache-2.0
 *
 * Signs and block Hadamard transforms, NEON. Runs of up to 64 numbers stay in registers. Blocks
 * below one vector are left to the portable version. */
#include "kernels/rotate.h"

#include "float_ops_neon.h"

enum { LANES = 4, RUN = 16 };

/* Strides 1 and 2: sums of partners in one register, differences in another, then zipped. */
static PL_ALWAYS_INLINE fvec butterfly_lanes(fvec v)
{
    fvec low = vtrn1q_f32(v, v), high = vtrn2q_f32(v, v);
    v = vtrn1q_f32(vaddq_f32(low, high), vsubq_f32(low, high));
    float64x2_t w = vreinterpretq_f64_f32(v);
    low = vreinterpretq_f32_f64(vtrn1q_f64(w, w));
    high = vreinterpretq_f32_f64(vtrn2q_f64(w, w));
    return vreinterpretq_f32_f64(vtrn1q_f64(vreinterpretq_f64_f32(vaddq_f32(low, high)),
                                            vreinterpretq_f64_f32(vsubq_f32(low, high))));
}

#include "kernels/rotate_body.h"

static void rotate_neon(float *x, const float *signs, size_t n, size_t block)
{
    if (block < LANES)
        pl_rotate_c(x, signs, n, block);
    else
        transform(x, signs, NULL, n, block);
}

static void unrotate_neon(float *x, const float *signs, size_t n, size_t block)
{
    if (block < LANES)
        pl_unrotate_c(x, signs, n, block);
    else
        transform(x, NULL, signs, n, block);
}

void pl_kernels_init_rotate_neon(pl_kernels *k)
{
    k->rotate = rotate_neon;
    k->unrotate = unrotate_neon;
}
