/* SPDX-License-Identifier: Apache-2.0 */
#include "trellis_units.h"

#include "launch.cuh"

enum { THREADS = 256 };

struct geometry {
    uint32_t k, axis, interleaved;
    uint64_t rows, blocks, tiles; /* blocks of a row; tiles of 16 rows */
};

static __device__ uint64_t block_at(const geometry &s, uint64_t row, uint64_t block)
{
    if (s.interleaved) return ((block / 2 * s.rows + row) * 2 + block % 2) * 8 * s.k;
    return (row * s.blocks + block) * 8 * s.k;
}

/* One thread a word. */
static __global__ void permute(geometry s, uint32_t *units, const uint32_t *stored, uint64_t n)
{
    uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    pl_wait_for_previous();
    if (i >= n) return;
    uint32_t in_unit = (uint32_t)(i % (128 * s.k)), lane = in_unit / 4 % 32;
    uint32_t word = in_unit / 128 * 4 + in_unit % 4; /* of the lane's 4 k */
    uint64_t unit = i / (128 * s.k), row, block;
    uint32_t at;
    if (s.axis) {
        row = unit / s.blocks * 16 + lane / 4 + word / (2 * s.k) * 8;
        block = unit % s.blocks;
        at = lane % 4 * 2 * s.k + word % (2 * s.k);
    } else {
        row = unit % s.tiles * 16 + lane % 4 + word / s.k * 4;
        block = unit / s.tiles;
        at = lane / 4 * s.k + word % s.k;
    }
    units[i] = row < s.rows ? stored[block_at(s, row, block) + at] : 0;
}

void pl_cuda_trellis_permute(const pl_cuda *d, const pleach_trellis *shape, uint32_t *units,
                             const uint32_t *stored)
{
    geometry s = {shape->bits, shape->axis, shape->interleaved, shape->rows,
                  shape->cols / shape->block, (shape->rows + 15) / 16};
    uint64_t n = s.tiles * s.blocks * 128 * s.k;
    if (n) pl_launch(d, permute, dim3((unsigned)((n + THREADS - 1) / THREADS)), dim3(THREADS), 0, s,
                     units, stored, n);
}
