/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of neighbouring rows: attention_tiles.cu. */
#ifndef PL_CUDA_ATTENTION_TILES_CUH
#define PL_CUDA_ATTENTION_TILES_CUH

#include "attention_rows.cuh"

namespace attention {

struct tiles_args {
    pl_cuda_kv c;
    const pl_cuda_row *rows;
    const float *q;
    float *out;
    size_t M, q_stride, out_stride;
    uint32_t group; /* query heads of a key head */
    float scale;    /* log2(e) / sqrt(D) */
    /* Query heads and positions of a tile, tiles that the heads of a key head make, and whether there
     * is room for a page as stored; tiles_run sets them. */
    uint32_t heads, per, chunks;
    bool staged;
};

pleach_status tiles_open(pl_cuda *d, pleach_error *err);
bool tiles_serve(const pl_cuda *d, const pl_cuda_kv *c);
void tiles_run(const pl_cuda *d, tiles_args a);

} // namespace attention

#endif
