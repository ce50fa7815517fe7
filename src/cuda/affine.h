/* SPDX-License-Identifier: Apache-2.0
 *
 * Affine weights on the device: MLX groups of 2, 3, 4, 5, 6 and 8 bits as stored, and all of GGUF's
 * block types, which are taken apart into codes of as many bits, scales and biases when they are
 * uploaded: those of 32 numbers take what they take in the file, those of 256 a little more, since
 * the products of their two scales are kept in f32. */
#ifndef PL_CUDA_AFFINE_H
#define PL_CUDA_AFFINE_H

#include "device.h"
#include "format/checkpoint.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pl_cuda_affine {
    size_t out, in;
    uint32_t bits, group; /* group: 16, 32, 64 or 128 */
    pl_dtype type;        /* of scales and biases: PL_F32, PL_F16 or PL_BF16 */
    bool rounded;         /* MLX: each step of q * scale + bias is rounded to that type */
    float offset;         /* without biases w = (q - offset) * scale */
    void *codes;          /* device [out][in * bits / 32] words; owned, as are */
    void *scales;         /* [out][in / group], with `biased` pairs of scale and bias */
    bool biased;
    uint64_t bytes;
} pl_cuda_affine;

/* Whether the weight is one of these; a dense one of another type is pl_cuda_dense's. */
bool pl_cuda_affine_serves(const pl_weight *w);
uint64_t pl_cuda_affine_bytes(const pl_weight *w); /* of device memory that it will take */
pleach_status pl_cuda_affine_open(pl_cuda *d, const pl_weight *w, pl_cuda_affine *out,
                                  pleach_error *err);
void pl_cuda_affine_close(pl_cuda_affine *w); /* accepts a zeroed one */

/* As pl_cuda_dense_run with the numbers that pl_weight_rows_f32 gives, bit for bit. From
 * PL_CUDA_AFFINE_MANY rows on they are worked out some 32 MB at a time and go to cuBLAS, MLX's of
 * bf16 as bf16, the others as f32. */
enum { PL_CUDA_AFFINE_MANY = 48 };
size_t pl_cuda_affine_scratch(const pl_cuda *d, const pl_cuda_affine *w, size_t M);
void pl_cuda_affine_run(const pl_cuda *d, const pl_cuda_affine *w, const float *x, size_t M,
                        float *y, const float *scale, const float *bias, void *scratch);
/* As pl_cuda_dense_rows. */
void pl_cuda_affine_rows(const pl_cuda *d, const pl_cuda_affine *w, const int32_t *ids, size_t n,
                         float *dst);

#ifdef __cplusplus
}
#endif
#endif
