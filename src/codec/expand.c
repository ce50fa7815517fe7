/* SPDX-License-Identifier: Apache-2.0
 *
 * Coded matrices as plain numbers: which blocks lie where; the numbers are the kernels'. */
#include "expand.h"

#include <string.h>

#include "base/compiler.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/half.h"

enum { STREAM_BYTES = 16 << 20 }; /* results from here on are written past the caches */

static float scale_at(const void *scales, uint64_t row)
{
    uint16_t h;
    memcpy(&h, (const uint8_t *)scales + 2 * row, sizeof h);
    return pl_fp16_to_f32(h);
}

static const uint8_t *block_at(const pleach_trellis *t, const void *codes, uint64_t row, uint64_t b)
{
    return (const uint8_t *)codes + 4 * pl_trellis_block_at(t, row, b);
}

/* Blocks of a row that lie side by side. */
static uint64_t run_of(const pleach_trellis *t)
{
    return t->interleaved ? 2 : t->cols / t->block;
}

static void decode_rows(const pleach_trellis *t, const pl_kernels *k, float *dst, const void *codes,
                        const void *scales, uint64_t first, uint64_t n, bool stream)
{
    pl_trellis_decode_fn *decode = k->floats.decode[t->bits - 2][t->state_bits == 16];
    for (uint64_t row = first; row < first + n; row++)
        for (uint64_t b = 0; b < t->cols / t->block; b += run_of(t), dst += run_of(t) * t->block)
            decode(dst, block_at(t, codes, row, b), t->block, run_of(t), scale_at(scales, row),
                   stream);
}

void pl_trellis_decode_rows(const pleach_trellis *t, const pl_kernels *k, float *dst,
                            const void *codes, const void *scales, uint64_t first, uint64_t n)
{
    decode_rows(t, k, dst, codes, scales, first, n, false);
}

void pl_trellis_decode_column(const pleach_trellis *t, float *dst, const void *codes,
                              const void *scales, uint64_t col)
{
    size_t T = t->block, bytes = T * t->bits / 8, bit = (T - 1 - col % T) * t->bits;
    for (uint64_t row = 0; row < t->rows; row++) {
        const uint8_t *block = block_at(t, codes, row, col / T);
        uint32_t word = 0;
        for (size_t i = 0; i < 3; i++) /* 7 bits before the state and its 16, round the end */
            word |= (uint32_t)block[(bit / 8 + i) % bytes] << 8 * i;
        uint16_t state = (uint16_t)(word >> bit % 8 & ((1u << t->state_bits) - 1));
        pl_trellis_decode_states(dst + row, &state, 1, scale_at(scales, row));
    }
}

static void best_kernels(pl_kernels *k)
{
    unsigned cpu = PL_CPU_C;
    pl_cpu_level(NULL, &cpu);
    pl_kernels_init(k, cpu);
}

pleach_status pleach_trellis_expand(const pleach_trellis *t, uint16_t *dst, const uint32_t *src,
                                    const uint16_t *scales)
{
    pl_kernels k;
    PL_TRY(pleach_trellis_check(t, NULL));
    best_kernels(&k);
    pl_trellis_expand_fn *expand = k.floats.expand[t->bits - 2][t->state_bits == 16];
    bool stream = t->rows * t->cols * sizeof *dst >= STREAM_BYTES;
    for (uint64_t row = 0; row < t->rows; row++)
        for (uint64_t b = 0; b < t->cols / t->block; b += run_of(t), dst += run_of(t) * t->block)
            expand(dst, block_at(t, src, row, b), t->block, run_of(t), scale_at(scales, row),
                   stream);
    pl_stream_end();
    return PLEACH_OK;
}

pleach_status pleach_trellis_decode(const pleach_trellis *t, float *dst, const uint32_t *src,
                                    const uint16_t *scales)
{
    pl_kernels k;
    PL_TRY(pleach_trellis_check(t, NULL));
    best_kernels(&k);
    decode_rows(t, &k, dst, src, scales, 0, t->rows,
                t->rows * t->cols * sizeof *dst >= STREAM_BYTES);
    pl_stream_end();
    return PLEACH_OK;
}
