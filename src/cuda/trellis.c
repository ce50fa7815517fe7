/* SPDX-License-Identifier: Apache-2.0
 *
 * Trellis weights to the device: the words in units where T allows it, the scales as f32. */
#include "trellis.h"

#include <string.h>

#include "base/half.h"
#include "base/memory.h"
#include "trellis_units.h"

/* Stored rows as they lie on the device. */
static size_t rows_of(const pl_cuda_trellis *w)
{
    size_t rows = (size_t)w->shape.rows;
    return w->units ? (rows + PL_CUDA_UNIT_ROWS - 1) / PL_CUDA_UNIT_ROWS * PL_CUDA_UNIT_ROWS : rows;
}

static size_t code_bytes(const pl_cuda_trellis *w)
{
    return rows_of(w) * (size_t)w->shape.cols / 8 * w->shape.bits;
}

static pl_cuda_trellis describe(const pleach_trellis *shape)
{
    return (pl_cuda_trellis){.shape = *shape, .units = shape->block == PL_CUDA_UNIT_BLOCK};
}

uint64_t pl_cuda_trellis_bytes(const pleach_trellis *shape)
{
    pl_cuda_trellis w = describe(shape);
    return code_bytes(&w) + rows_of(&w) * sizeof(float);
}

/* Through device memory that holds the words in the file's order for a moment. */
static pleach_status upload_units(pl_cuda *d, pl_cuda_trellis *w, const void *codes,
                                  pleach_error *err)
{
    void *stored;
    size_t bytes = 4 * pleach_trellis_words(&w->shape);
    PL_TRY(pl_cuda_alloc(d, &stored, bytes, "weights on their way to the device", err));
    pleach_status status = pl_cuda_upload(d, stored, codes, bytes, err);
    if (status == PLEACH_OK) {
        pl_cuda_trellis_permute(d, &w->shape, w->codes, stored);
        status = pl_cuda_sync(d, err);
    }
    pl_cuda_free(stored);
    return status;
}

static pleach_status upload_codes(pl_cuda *d, pl_cuda_trellis *w, const void *codes,
                                  pleach_error *err)
{
    void *p;
    PL_TRY(pl_cuda_alloc(d, &p, code_bytes(w), "trellis weights", err));
    w->codes = p;
    if (w->units) return upload_units(d, w, codes, err);
    return pl_cuda_upload(d, w->codes, codes, code_bytes(w), err);
}

static pleach_status upload_scales(pl_cuda *d, pl_cuda_trellis *w, const void *scales,
                                   pleach_error *err)
{
    void *p;
    size_t n = rows_of(w);
    PL_TRY(pl_cuda_alloc(d, &p, n * sizeof(float), "scales of trellis weights", err));
    w->scales = p;
    float *values = pl_calloc(n ? n : 1, sizeof *values);
    if (!values) return pl_fail_memory(err, "scales of trellis weights", n * sizeof *values);
    for (size_t r = 0; r < w->shape.rows; r++) {
        uint16_t h;
        memcpy(&h, (const uint8_t *)scales + 2 * r, sizeof h);
        values[r] = pl_fp16_to_f32(h);
    }
    pleach_status status = pl_cuda_upload(d, p, values, n * sizeof *values, err);
    pl_free(values);
    return status;
}

pleach_status pl_cuda_trellis_open(pl_cuda *d, const pleach_trellis *shape, const void *codes,
                                   const void *scales, pl_cuda_trellis *out, pleach_error *err)
{
    memset(out, 0, sizeof *out);
    PL_TRY(pleach_trellis_check(shape, err));
    *out = describe(shape);
    PL_FAIL_IF(shape->interleaved && !out->units, err, PLEACH_ERR_SHAPE,
               "interleaved blocks of %u numbers, expected %d", shape->block, PL_CUDA_UNIT_BLOCK);
    pleach_status status = upload_codes(d, out, codes, err);
    if (status == PLEACH_OK) status = upload_scales(d, out, scales, err);
    if (status == PLEACH_OK)
        out->bytes = pl_cuda_trellis_bytes(shape);
    else
        pl_cuda_trellis_close(out);
    return status;
}

void pl_cuda_trellis_close(pl_cuda_trellis *w)
{
    pl_cuda_free(w->codes);
    pl_cuda_free(w->scales);
    memset(w, 0, sizeof *w);
}
