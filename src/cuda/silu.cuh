/* SPDX-License-Identifier: Apache-2.0
 *
 * SiLU with the bits of the CPU's silu_mul (kernels/vector.h has the method): nothing is fused. */
#ifndef PL_CUDA_SILU_CUH
#define PL_CUDA_SILU_CUH

static __device__ __forceinline__ float pl_madd(float a, float b, float c)
{
    return __fadd_rn(__fmul_rn(a, b), c);
}

/* e^x within 2 units in the last place; 0 below -87.3, infinity above 88.7. */
static __device__ __forceinline__ float pl_exp(float x)
{
    float clamped = x < -87.3f ? -87.3f : x > 88.7f ? 88.7f : x;
    float shifted = pl_madd(clamped, 1.44269504f, 12582912.0f);
    float n = __fsub_rn(shifted, 12582912.0f);
    float r =
        __fsub_rn(__fsub_rn(clamped, __fmul_rn(n, 0.693359375f)), __fmul_rn(n, -2.12194440e-4f));
    float p = 1.0f / 5040;
    p = pl_madd(p, r, 1.0f / 720);
    p = pl_madd(p, r, 1.0f / 120);
    p = pl_madd(p, r, 1.0f / 24);
    p = pl_madd(p, r, 1.0f / 6);
    p = pl_madd(p, r, 0.5f);
    p = pl_madd(p, r, 1.0f);
    p = pl_madd(p, r, 1.0f);
    int e = __float_as_int(shifted) - 0x4b400000, half = e >> 1;
    float a = __int_as_float((half + 127) << 23), b = __int_as_float((e - half + 127) << 23);
    float result = __fmul_rn(__fmul_rn(p, a), b);
    result = x > 88.7f ? __int_as_float(0x7f800000) : result;
    return x < -87.3f ? 0.0f : result;
}

/* gate / (1 + exp(-gate)) * up */
static __device__ __forceinline__ float pl_silu_mul(float gate, float up)
{
    return __fmul_rn(__fdiv_rn(gate, __fadd_rn(1.0f, pl_exp(-gate))), up);
}

#endif
