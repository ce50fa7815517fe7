/* SPDX-License-Identifier: Apache-2.0
 *
 * Dense and affine weights to the device, some rows at a time through host memory. */
#include <string.h>

#include "affine.h"
#include "base/compiler.h"
#include "base/memory.h"
#include "blas.h"
#include "dense.h"
#include "format/block_types.h"

enum { PIECE = 8 << 20 }; /* bytes of host memory that rows go through */

/* Host memory for some rows of an array on the device. */
typedef struct stage {
    pl_cuda *d;
    uint8_t *host, *device;
    size_t row_bytes, rows; /* rows that the host memory holds */
} stage;

static pleach_status open_stage(pl_cuda *d, stage *s, size_t row_bytes, size_t rows, void **device,
                                uint64_t *bytes, pleach_error *err)
{
    *s = (stage){.d = d, .row_bytes = row_bytes};
    s->rows = PL_MIN(rows, PL_MAX(PIECE / row_bytes, (size_t)1));
    PL_TRY(pl_cuda_alloc(d, device, rows * row_bytes, "weights", err));
    *bytes += rows * row_bytes;
    s->device = *device;
    s->host = pl_calloc(s->rows, row_bytes);
    return s->host ? PLEACH_OK : pl_fail_memory(err, "weights", s->rows * row_bytes);
}

/* Sends n rows from `row` on, n <= rows. */
static pleach_status send(stage *s, size_t row, size_t n, pleach_error *err)
{
    return pl_cuda_upload(s->d, s->device + row * s->row_bytes, s->host, n * s->row_bytes, err);
}

/* ---- dense ----------------------------------------------------------------------------------- */

static size_t number_bytes(pl_dtype type)
{
    return type == PL_F32 ? 4 : 2;
}

static pl_cuda_dense describe_dense(const pl_weight *w)
{
    pl_dtype type = w->weight->type;
    return (pl_cuda_dense){
        .type = type == PL_F16 || type == PL_BF16 ? type : PL_F32, .out = w->out, .in = w->in};
}

static size_t dense_row_bytes(const pl_cuda_dense *w)
{
    return (w->in + 7) / 8 * 8 * number_bytes(w->type);
}

uint64_t pl_cuda_dense_bytes(const pl_weight *w)
{
    pl_cuda_dense d = describe_dense(w);
    return d.out * dense_row_bytes(&d);
}

static pleach_status upload_dense(pl_cuda *d, const pl_weight *w, pl_cuda_dense *out, stage *s,
                                  pleach_error *err)
{
    size_t size = number_bytes(out->type);
    PL_TRY(open_stage(d, s, dense_row_bytes(out), out->out, &out->data, &out->bytes, err));
    for (size_t row = 0; row < out->out; row += s->rows) {
        size_t n = PL_MIN(s->rows, out->out - row);
        for (size_t i = 0; i < n; i++) {
            uint8_t *to = s->host + i * s->row_bytes;
            if (out->type == w->weight->type)
                memcpy(to, pl_tensor_row(w->weight, row + i), out->in * size);
            else
                pl_weight_rows_f32(w, row + i, 1, (float *)(void *)to);
        }
        PL_TRY(send(s, row, n, err));
    }
    return PLEACH_OK;
}

pleach_status pl_cuda_dense_open(pl_cuda *d, const pl_weight *w, pl_cuda_dense *out,
                                 pleach_error *err)
{
    stage s = {0};
    *out = describe_dense(w);
    pleach_status status = upload_dense(d, w, out, &s, err);
    if (status == PLEACH_OK) status = pl_cuda_blas_open(d, err);
    pl_free(s.host);
    if (status != PLEACH_OK) pl_cuda_dense_close(out);
    return status;
}

void pl_cuda_dense_close(pl_cuda_dense *w)
{
    pl_cuda_free(w->data);
    *w = (pl_cuda_dense){0};
}

/* ---- GGUF blocks ----------------------------------------------------------------------------- */

/* Bytes [from, from + n) of a block set to `fill`. */
typedef struct patch {
    uint8_t from, n, fill;
} patch;

/* Every GGUF block is affine, factor * (code - offset) - base, with numbers that its decoder can be
 * made to tell: with factors of 1 and bases of 0 it gives the codes, with codes of offset + 1 and
 * bases of 0 the factors, with factors of 0 the bases. The patches lay that into a copy. Layouts:
 * format/block_types.c. */
typedef struct block_kind {
    pl_dtype type;
    uint8_t bits, group, offset;
    uint8_t d, base;         /* where the fp16 factor and base of the block are; base 255: none */
    patch ones[2], units[3]; /* codes that give 1; factors of sub-blocks that give 1 */
} block_kind;

enum { NO_BASE = 255, MOST_BLOCK = 256 };

static const block_kind kinds[] = {
    {PL_Q4_0, 4, 32, 8, 0, NO_BASE, {{2, 16, 0x99}}, {{0}}},
    {PL_Q4_1, 4, 32, 0, 0, 2, {{4, 16, 0x11}}, {{0}}},
    {PL_Q5_0, 5, 32, 16, 0, NO_BASE, {{2, 4, 0xff}, {6, 16, 0x11}}, {{0}}},
    {PL_Q5_1, 5, 32, 0, 0, 2, {{4, 4, 0}, {8, 16, 0x11}}, {{0}}},
    {PL_Q8_0, 8, 32, 128, 0, NO_BASE, {{2, 32, 1}}, {{0}}},
    {PL_Q2_K, 2, 16, 0, 80, 82, {{16, 64, 0x55}}, {{0, 16, 1}}},
    {PL_Q3_K,
     3,
     16,
     4,
     108,
     NO_BASE,
     {{0, 32, 0xff}, {32, 64, 0x55}},
     {{96, 8, 0x11}, {104, 4, 0xaa}}},
    {PL_Q4_K, 4, 32, 0, 0, 2, {{16, 128, 0x11}}, {{4, 4, 1}, {8, 4, 0}, {12, 4, 1}}},
    {PL_Q5_K, 5, 32, 0, 0, 2, {{16, 32, 0}, {48, 128, 0x11}}, {{4, 4, 1}, {8, 4, 0}, {12, 4, 1}}},
    {PL_Q6_K, 6, 16, 32, 208, NO_BASE, {{0, 128, 0x11}, {128, 64, 0xaa}}, {{192, 16, 1}}},
};

static const block_kind *find_kind(pl_dtype type)
{
    for (size_t i = 0; i < PL_COUNT(kinds); i++)
        if (kinds[i].type == type) return &kinds[i];
    return NULL;
}

/* The block's numbers after patches, with its factor and base replaced where they are >= 0. */
static void decode_patched(const block_kind *k, const uint8_t *block, const patch *patches,
                           size_t n, int factor, int base, float *dst)
{
    uint8_t copy[MOST_BLOCK];
    memcpy(copy, block, pl_dtype_get(k->type)->block_bytes);
    for (size_t i = 0; i < n; i++) memset(copy + patches[i].from, patches[i].fill, patches[i].n);
    uint16_t d = (uint16_t)factor, b = (uint16_t)base;
    if (factor >= 0) memcpy(copy + k->d, &d, sizeof d);
    if (base >= 0 && k->base != NO_BASE) memcpy(copy + k->base, &b, sizeof b);
    pl_dequantize_blocks(k->type, copy, dst, 1);
}

/* Appends n codes of so many bits to a string of bits that is 0 so far. */
static void pack(uint8_t *dst, size_t first, const float *codes, size_t n, uint32_t bits,
                 float offset)
{
    for (size_t i = 0; i < n; i++) {
        size_t bit = (first + i) * bits;
        uint32_t code = (uint32_t)(codes[i] + offset) << bit % 8;
        dst[bit / 8] |= (uint8_t)code;
        if (bit % 8 + bits > 8) dst[bit / 8 + 1] |= (uint8_t)(code >> 8);
    }
}

/* Where a row's scales and biases go: numbers of `size` bytes, with biases in pairs. */
typedef struct row_scales {
    uint8_t *to;
    size_t size;
    bool biased;
} row_scales;

static void put_scale(const row_scales *s, size_t group, const void *scale, const void *bias)
{
    uint8_t *to = s->to + group * s->size * (s->biased ? 2 : 1);
    memcpy(to, scale, s->size);
    if (s->biased) memcpy(to + s->size, bias, s->size);
}

/* One row: its codes, and scales and biases as fp16 for groups of a whole block, else f32. */
static void split_row(const block_kind *k, const uint8_t *block, size_t in, uint8_t *codes,
                      const row_scales *scales)
{
    const pl_dtype_info *info = pl_dtype_get(k->type);
    size_t n = info->block_elements;
    float x[MOST_BLOCK], bases[MOST_BLOCK];
    for (size_t first = 0; first < in; first += n, block += info->block_bytes) {
        decode_patched(k, block, k->units, PL_COUNT(k->units), 0x3c00, 0, x);
        pack(codes, first, x, n, k->bits, k->offset);
        if (n == k->group) {
            put_scale(scales, first / n, block + k->d, &block[k->base == NO_BASE ? 0 : k->base]);
            continue;
        }
        decode_patched(k, block, k->ones, PL_COUNT(k->ones), -1, 0, x);
        decode_patched(k, block, NULL, 0, 0, -1, bases);
        for (size_t i = 0; i < n; i += k->group)
            put_scale(scales, (first + i) / k->group, &x[i], &bases[i]);
    }
}

/* ---- affine ---------------------------------------------------------------------------------- */

bool pl_cuda_affine_serves(const pl_weight *w)
{
    return w->coding == PL_CODING_AFFINE ||
           (w->coding == PL_CODING_DENSE && find_kind(w->weight->type));
}

static void describe(const pl_weight *w, pl_cuda_affine *a)
{
    const block_kind *k = find_kind(w->weight->type);
    *a = (pl_cuda_affine){.out = w->out, .in = w->in, .bits = w->bits, .group = w->group_size};
    if (w->coding == PL_CODING_AFFINE) {
        a->type = w->scales->type;
        a->rounded = a->type != PL_F32;
        a->biased = true;
        return;
    }
    a->bits = k->bits;
    a->group = k->group;
    a->offset = k->offset;
    a->biased = k->base != NO_BASE;
    a->type = k->group == pl_dtype_get(k->type)->block_elements ? PL_F16 : PL_F32;
}

static size_t code_bytes(const pl_cuda_affine *a)
{
    return a->in * a->bits / 8;
}

static size_t scale_bytes(const pl_cuda_affine *a)
{
    return a->in / a->group * number_bytes(a->type) * (a->biased ? 2 : 1);
}

uint64_t pl_cuda_affine_bytes(const pl_weight *w)
{
    pl_cuda_affine a;
    describe(w, &a);
    return a.out * (code_bytes(&a) + scale_bytes(&a));
}

static void take_row(const pl_weight *w, size_t row, uint8_t *codes, size_t n,
                     const row_scales *to)
{
    const uint8_t *stored = pl_tensor_row(w->weight, row);
    if (w->coding != PL_CODING_AFFINE) {
        memset(codes, 0, n);
        split_row(find_kind(w->weight->type), stored, w->in, codes, to);
        return;
    }
    const uint8_t *scales = pl_tensor_row(w->scales, row), *biases = pl_tensor_row(w->biases, row);
    memcpy(codes, stored, n);
    for (size_t g = 0; g < w->in / w->group_size; g++)
        put_scale(to, g, scales + g * to->size, biases + g * to->size);
}

static pleach_status upload_affine(pl_cuda *d, const pl_weight *w, pl_cuda_affine *a, stage *codes,
                                   stage *scales, pleach_error *err)
{
    size_t size = number_bytes(a->type), bytes = code_bytes(a), of_scales = scale_bytes(a);
    PL_TRY(open_stage(d, codes, bytes, a->out, &a->codes, &a->bytes, err));
    PL_TRY(open_stage(d, scales, of_scales, a->out, &a->scales, &a->bytes, err));
    size_t most = PL_MIN(codes->rows, scales->rows);
    for (size_t row = 0; row < a->out; row += most) {
        size_t n = PL_MIN(most, a->out - row);
        for (size_t i = 0; i < n; i++) {
            row_scales to = {scales->host + i * of_scales, size, a->biased};
            take_row(w, row + i, codes->host + i * bytes, bytes, &to);
        }
        PL_TRY(send(codes, row, n, err));
        PL_TRY(send(scales, row, n, err));
    }
    return PLEACH_OK;
}

pleach_status pl_cuda_affine_open(pl_cuda *d, const pl_weight *w, pl_cuda_affine *out,
                                  pleach_error *err)
{
    stage codes = {0}, scales = {0};
    describe(w, out);
    pleach_status status = upload_affine(d, w, out, &codes, &scales, err);
    if (status == PLEACH_OK) status = pl_cuda_blas_open(d, err);
    pl_free(codes.host);
    pl_free(scales.host);
    if (status != PLEACH_OK) pl_cuda_affine_close(out);
    return status;
}

void pl_cuda_affine_close(pl_cuda_affine *w)
{
    pl_cuda_free(w->codes);
    pl_cuda_free(w->scales);
    *w = (pl_cuda_affine){0};
}
