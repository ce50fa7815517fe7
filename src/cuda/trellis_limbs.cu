/* SPDX-License-Identifier: Apache-2.0
 *
 * How the work of trellis_limbs.h is cut for a shape and a device, and its launch. */
#include "base/compiler.h"
#include "kernels/codes.h"
#include "trellis_limbs.cuh"

enum {
    MOST_SLICES = 32,
    MOST_WAVES = 64,
    SLICE_BYTES = 48 << 10 /* of x for each block, from which on slices pay, up to good_slices */
};

static size_t good_slices(int C)
{
    return C == 8 ? 2 : 4;
}

static int class_of(size_t M)
{
    return M == 1 ? 1 : M <= 4 ? 4 : 8;
}

static pleach_status prepare(pl_limbs_kernel *kernel, size_t bytes, pleach_error *err)
{
    return pl_cuda_check(cudaFuncSetAttribute((const void *)kernel,
                                              cudaFuncAttributeMaxDynamicSharedMemorySize,
                                              (int)bytes),
                         "preparing products of trellis weights", err);
}

pleach_status pl_cuda_trellis_limbs_prepare(pl_cuda *d, pleach_error *err)
{
#define PREPARE(k, L)                                                                              \
    for (int C = 1; C <= 8; C += C == 1 ? 3 : 4) {                                                 \
        PL_TRY(prepare(pl_limbs_axis0(k, L, C), d->shared_bytes, err));                            \
        PL_TRY(prepare(pl_limbs_axis1(k, L, C), d->shared_bytes, err));                            \
    }
    PL_EACH_CODE(PREPARE)
#undef PREPARE
    for (uint32_t L = 12; L <= 16; L += 4)
        for (int C = 1; C <= 4; C += 3) {
            PL_TRY(prepare(pl_limbs_axis0(0, L, C), d->shared_bytes, err));
            PL_TRY(prepare(pl_limbs_axis1(0, L, C), d->shared_bytes, err));
        }
    return PLEACH_OK;
}

/* ---- the cut --------------------------------------------------------------------------------- */

/* Most parts that one of `blocks` equal runs over parts of `len` units meets. */
static size_t parts_of(size_t parts, size_t len, size_t blocks)
{
    size_t run = (parts * len + blocks - 1) / blocks;
    return PL_MIN(parts, (run + len - 2) / len + 1);
}

/* Shared memory with the cut that `j` has now. */
static size_t shared_of(const pl_limbs_job *j, uint32_t axis, int C)
{
    size_t len = j->units / j->slices, longest = (j->units + j->slices - 1) / j->slices;
    size_t parts = parts_of((size_t)j->tiles * j->matrices, len, j->blocks);
    if (longest > len)
        parts = PL_MAX(parts, parts_of((size_t)j->tiles * j->matrices, longest, j->blocks));
    return axis ? pl_limbs_axis1_shared(C, parts, longest) : pl_limbs_axis0_shared(C, parts);
}

/* Sets slices and blocks; the shared memory, or 0 where nothing fits. */
static size_t cut(const pl_cuda *d, pl_limbs_job *j, uint32_t axis, size_t M)
{
    const int C = class_of(M), walkers = axis ? PL_LIMBS_THREADS / 32 : pl_limbs_axis0_walkers(C);
    const uint32_t outputs = axis ? 16 : 256;
    size_t first = 1, most = axis ? PL_MIN((size_t)MOST_SLICES, (size_t)j->units) : 1;
    if (axis)
        while (first < PL_MIN(most, good_slices(C)) &&
               j->units * 1024 * (size_t)C > first * SLICE_BYTES)
            first *= 2;
    for (size_t waves = 1; waves <= MOST_WAVES; waves *= 2)
        for (size_t slices = first; slices <= most; slices++) {
            size_t units = (size_t)j->tiles * j->matrices * (j->units / slices);
            size_t blocks = PL_MAX((size_t)d->sms / slices, (size_t)1) * waves;
            j->slices = (uint32_t)slices;
            j->blocks = (uint32_t)PL_MIN(blocks, (units + walkers - 1) / walkers);
            size_t shared = shared_of(j, axis, C);
            size_t sums = slices * ((size_t)j->tiles * j->matrices + j->blocks) * C * outputs;
            if (shared <= d->shared_bytes && 4 * sums <= PL_CUDA_EXCHANGE &&
                (units + j->tiles * j->matrices + 1) * (j->blocks + 1) < UINT32_MAX)
                return shared;
        }
    return 0;
}

static pl_limbs_matrix matrix_of(const pl_cuda_trellis *w)
{
    pl_limbs_matrix m = {};
    m.codes = (const uint4 *)w->codes;
    m.scales = w->scales;
    m.k = w->shape.bits;
    return m;
}

static pl_limbs_job job_of(const pl_cuda_trellis *w, uint32_t matrices)
{
    pl_limbs_job j = {};
    size_t tiles = (size_t)(w->shape.rows + 15) / 16, blocks = (size_t)(w->shape.cols / 256);
    j.w[0] = matrix_of(w);
    j.matrices = matrices;
    j.tiles = (uint32_t)(w->shape.axis ? tiles : blocks);
    j.units = (uint32_t)(w->shape.axis ? blocks : tiles);
    return j;
}

static bool fits(const pl_cuda *d, const pl_cuda_trellis *w, uint32_t matrices, size_t M)
{
    if (!w->units || M < 1 || M > PL_CUDA_LIMBS_ROWS) return false;
    if (w->shape.rows < 1 || w->shape.rows > UINT32_MAX / 16 || w->shape.cols > UINT32_MAX / 16)
        return false;
    pl_limbs_job j = job_of(w, matrices);
    return cut(d, &j, w->shape.axis, M) != 0;
}

bool pl_cuda_trellis_limbs_serves(const pl_cuda *d, const pl_cuda_trellis *w, size_t M)
{
    return fits(d, w, 1, M);
}

size_t pl_cuda_trellis_limbs_scratch(const pl_cuda *d, const pl_cuda_trellis *w, size_t M)
{
    (void)d, (void)w, (void)M;
    return 0;
}

/* ---- launches -------------------------------------------------------------------------------- */

/* Tiles [tile, tile + j->tiles) of a product, as one of the job's matrices. */
static pl_limbs_matrix piece_of(const pl_limbs_job *j, const pl_cuda_product *p, size_t tile)
{
    const bool axis = p->w->shape.axis;
    size_t first = tile * (axis ? 16 : 256), width = (size_t)j->tiles * (axis ? 16 : 256);
    pl_limbs_matrix m = matrix_of(p->w);
    m.codes += tile * j->units * 32 * m.k;
    if (axis) m.scales += first;
    m.output_scale = p->output_scale ? p->output_scale + first : NULL;
    m.bias = p->bias ? p->bias + first : NULL;
    m.y = p->y + first;
    m.y_stride = p->y_stride;
    m.out = (uint32_t)(p->out > first ? PL_MIN(p->out - first, width) : 0);
    return m;
}

/* The products in pieces as large as the smallest of them. */
static void queue(const pl_cuda *d, const pl_cuda_product *p, size_t n, bool swiglu,
                  const pl_cuda_rotation *r)
{
    const pleach_trellis *s = &p->w->shape;
    pl_limbs_job j = job_of(p->w, 0);
    uint32_t k = s->bits;
    for (size_t i = 1; i < n; i++) {
        j.tiles = PL_MIN(j.tiles, job_of(p[i].w, 0).tiles);
        if (p[i].w->shape.bits != k) k = 0;
    }
    for (size_t i = 0; i < n; i++)
        for (size_t tile = 0; tile < job_of(p[i].w, 0).tiles; tile += j.tiles)
            j.w[j.matrices++] = piece_of(&j, &p[i], tile);
    j.swiglu = swiglu;
    if (r) {
        j.rotation = (uint32_t)r->block;
        j.signs = r->signs;
    }
    j.M = (uint32_t)p->M;
    j.in = (uint32_t)p->in;
    j.x = p->x;
    j.x_stride = p->x_stride;
    j.exchange = d->exchange;
    size_t shared = cut(d, &j, s->axis, p->M);
    int C = class_of(p->M);
    pl_limbs_kernel *kernel =
        s->axis ? pl_limbs_axis1(k, s->state_bits, C) : pl_limbs_axis0(k, s->state_bits, C);
    pl_launch(d, kernel, dim3(j.slices * j.blocks), dim3(PL_LIMBS_THREADS), shared, j);
}

void pl_cuda_trellis_limbs_run(const pl_cuda *d, const pl_cuda_product *p, void *scratch)
{
    (void)scratch;
    queue(d, p, 1, false, NULL);
}

bool pl_cuda_trellis_limbs_swiglu_serves(const pl_cuda *d, const pl_cuda_trellis *gate,
                                         const pl_cuda_trellis *up, size_t M)
{
    const pleach_trellis *a = &gate->shape, *b = &up->shape;
    return gate->units && up->units && a->axis == b->axis && a->rows == b->rows &&
           a->cols == b->cols && (a->bits == b->bits || M <= 4) && a->state_bits == b->state_bits &&
           fits(d, gate, 2, M);
}

void pl_cuda_trellis_limbs_swiglu(const pl_cuda *d, const pl_cuda_product *gate,
                                  const pl_cuda_product *up, const pl_cuda_rotation *r)
{
    const pl_cuda_product both[] = {*gate, *up};
    bool turns = r && r->block, here = turns && gate->w->shape.axis == 0 && r->block <= 256;
    queue(d, both, 2, true, here ? r : NULL);
    if (turns && !here) pl_cuda_rotate(d, gate->y, gate->y, gate->out, gate->M, r);
}

bool pl_cuda_trellis_limbs_group_serves(const pl_cuda *d, const pl_cuda_trellis *const *w,
                                        size_t n, size_t M)
{
    const pleach_trellis *a = &w[0]->shape;
    size_t pieces = 0, smallest = 0;
    for (size_t i = 0; i < n; i++) {
        const pleach_trellis *b = &w[i]->shape;
        bool alike = w[i]->units && a->axis == b->axis && a->state_bits == b->state_bits &&
                     (a->axis ? a->cols == b->cols : a->rows == b->rows) &&
                     (a->bits == b->bits || M <= 4);
        if (!alike) return false;
        if (job_of(w[i], 0).tiles < job_of(w[smallest], 0).tiles) smallest = i;
    }
    size_t tiles = job_of(w[smallest], 0).tiles;
    for (size_t i = 0; i < n; i++) {
        size_t own = job_of(w[i], 0).tiles;
        if (tiles == 0 || own % tiles) return false;
        pieces += own / tiles;
    }
    return pieces <= PL_CUDA_LIMBS_GROUP && fits(d, w[smallest], (uint32_t)pieces, M);
}

void pl_cuda_trellis_limbs_group(const pl_cuda *d, const pl_cuda_product *products, size_t n)
{
    queue(d, products, n, false, NULL);
}
