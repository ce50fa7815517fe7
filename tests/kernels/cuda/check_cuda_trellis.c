/* SPDX-License-Identifier: Apache-2.0
 *
 * Trellis weights on the device: every word where trellis.h says, and back in the file's order. */
#include <string.h>

#include "base/half.h"
#include "check_cuda.h"
#include "codec/trellis.h"
#include "cuda/trellis.h"

static pleach_trellis random_shape(check *t)
{
    static const uint32_t blocks[] = {256, 256, 256, 32, 192, 1024};
    pleach_trellis s = {.bits = 2 + check_below(t, 3), .state_bits = 12 + 4 * check_below(t, 2),
                        .block = blocks[check_below(t, 6)], .axis = check_below(t, 2),
                        .rows = check_below(t, 100)};
    s.cols = s.block * (1 + check_below(t, 9));
    if (s.block == 256 && s.bits == 3 && s.axis == 0 && s.cols % 512 == 0)
        s.interleaved = check_below(t, 2);
    return s;
}

/* The word of the units that is word `word` of the block. */
static size_t unit_word(const pleach_trellis *s, size_t row, size_t block, size_t word)
{
    size_t k = s->bits, tiles = (s->rows + 15) / 16, blocks = s->cols / 256, unit, g, q, of_lane;
    if (s->axis) {
        unit = row / 16 * blocks + block;
        g = row % 8;
        q = word / (2 * k);
        of_lane = row % 16 / 8 * 2 * k + word % (2 * k);
    } else {
        unit = block * tiles + row / 16;
        g = word / k;
        q = row % 4;
        of_lane = row % 16 / 4 * k + word % k;
    }
    return unit * 128 * k + of_lane / 4 * 128 + (4 * g + q) * 4 + of_lane % 4;
}

/* got = what is on the device, in the file's order; false if anything else is there but zeros. */
static bool in_file_order(const pleach_trellis *s, uint32_t *got, uint32_t *units, size_t n)
{
    for (size_t row = 0; row < s->rows; row++)
        for (size_t b = 0; b < s->cols / 256; b++)
            for (size_t i = 0; i < 8 * s->bits; i++) {
                uint32_t *word = units + unit_word(s, row, b, i);
                got[pl_trellis_block_at(s, row, b) + i] = *word;
                *word = 0;
            }
    for (size_t i = 0; i < n; i++)
        if (units[i]) return false;
    return true;
}

static void check_upload_round(check *t, pl_cuda *d)
{
    pleach_error err;
    pl_cuda_trellis w;
    pleach_trellis s = random_shape(t);
    size_t n = pleach_trellis_words(&s), filled = s.block == 256 ? (s.rows + 15) / 16 * 16 : s.rows;
    size_t on_device = filled * s.cols / 32 * s.bits;
    uint32_t *codes = check_buffer(t, 4 * n, 1), *got = check_buffer(t, 4 * n, 4);
    uint32_t *back = check_buffer(t, 4 * on_device, 4);
    uint16_t *scales = check_buffer(t, 2 * s.rows, 1);
    float *want = check_buffer(t, 4 * filled, 4), *there = check_buffer(t, 4 * filled, 4);
    check_fill(t, codes, 4 * n);
    check_fill(t, scales, 2 * s.rows);
    memset(want, 0, 4 * filled);
    for (size_t r = 0; r < s.rows; r++) {
        uint16_t h;
        memcpy(&h, (uint8_t *)scales + 2 * r, 2);
        want[r] = pl_fp16_to_f32(h);
    }
    if (pl_cuda_trellis_open(d, &s, codes, scales, &w, &err) != PLEACH_OK) {
        check_fail(t, "%s", err.message);
        return;
    }
    if (w.bytes != 4 * on_device + 4 * filled)
        check_fail(t, "%zu bytes, expected %zu", (size_t)w.bytes, 4 * on_device + 4 * filled);
    check_cuda_fetch(t, d, back, w.codes, 4 * on_device);
    check_cuda_fetch(t, d, there, w.scales, 4 * filled);
    if (w.units != (s.block == 256)) check_fail(t, "T = %u, units %d", s.block, w.units);
    if (!w.units)
        memcpy(got, back, 4 * n);
    else if (!in_file_order(&s, got, back, on_device))
        check_fail(t, "rows that are not there have codes");
    check_same(t, got, codes, 4 * n);
    check_same(t, there, want, 4 * filled);
    pl_cuda_trellis_close(&w);
}

static void check_refused(check *t, pl_cuda *d)
{
    pleach_error err;
    pl_cuda_trellis w;
    pleach_trellis s = {.bits = 5, .state_bits = 12, .block = 256, .rows = 1, .cols = 256};
    if (!check_begin(t, true, "trellis_refused")) return;
    if (pl_cuda_trellis_open(d, &s, NULL, NULL, &w, &err) != PLEACH_ERR_SHAPE || w.codes)
        check_fail(t, "5 bits were not refused");
    s.bits = 4;
    s.rows = s.cols = (uint64_t)1 << 21;
    if (pl_cuda_trellis_open(d, &s, NULL, NULL, &w, &err) != PLEACH_ERR_MEMORY || w.codes)
        check_fail(t, "2 TB of weights were not refused");
    pl_cuda_trellis_close(&w);
    check_end(t);
}

void check_cuda_trellis(check *t, const pl_kernels *c, pl_cuda *d)
{
    (void)c;
    if (check_begin(t, true, "trellis_units")) {
        for (int round = 0; check_round(t, round, 200); round++) {
            check_release(t);
            check_upload_round(t, d);
        }
        check_end(t);
    }
    check_refused(t, d);
}
