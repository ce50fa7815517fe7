/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear layers on the device: opening, and which class of kernels a product goes to. */
#include "linear.h"

#include <assert.h>
#include <string.h>

#include "base/compiler.h"
#include "trellis_any.h"
#include "trellis_blas.h"
#include "trellis_half.h"
#include "trellis_limbs.h"
#include "trellis_many.h"
#include "trellis_tiles.h"
#include "vector.h"

/* ---- classes of trellis products ------------------------------------------------------------- */

typedef struct trellis_class {
    pleach_status (*prepare)(pl_cuda *d, pleach_error *err); /* or NULL */
    bool (*serves)(const pl_cuda *d, const pl_cuda_trellis *w, size_t M);
    size_t (*scratch)(const pl_cuda *d, const pl_cuda_trellis *w, size_t M);
    void (*run)(const pl_cuda *d, const pl_cuda_product *p, void *scratch);
} trellis_class;

#define CLASS(name, prepare)                                                                       \
    {                                                                                              \
        prepare, pl_cuda_trellis_##name##_serves, pl_cuda_trellis_##name##_scratch,                \
            pl_cuda_trellis_##name##_run                                                           \
    }

/* The first that serves; the last serves everything, and has the same bits for every M. */
static const trellis_class classes[] = {
    CLASS(limbs, pl_cuda_trellis_limbs_prepare),
    CLASS(tiles, pl_cuda_trellis_tiles_prepare),
    CLASS(many, pl_cuda_trellis_many_prepare),
    CLASS(half, pl_cuda_trellis_half_prepare),
    CLASS(blas, pl_cuda_trellis_blas_prepare),
    CLASS(any, NULL),
};

static const trellis_class *const any = &classes[PL_COUNT(classes) - 1];

static const trellis_class *choose(const pl_cuda *d, const pl_cuda_trellis *w, size_t M)
{
    for (const trellis_class *c = classes; !d->batch_invariant && c < any; c++)
        if (c->serves(d, w, M)) return c;
    return any;
}

static pleach_status prepare_classes(pl_cuda *d, pleach_error *err)
{
    for (const trellis_class *c = classes; c < any; c++) PL_TRY(c->prepare(d, err));
    return PLEACH_OK;
}

/* ---- opening --------------------------------------------------------------------------------- */

static pleach_status send_vector(pl_cuda *d, const float *host, size_t n, float **out,
                                 pl_cuda_linear *l, pleach_error *err)
{
    void *p;
    if (!host) return PLEACH_OK;
    PL_TRY(pl_cuda_alloc(d, &p, n * sizeof *host, "a layer's vectors", err));
    *out = p;
    l->bytes += n * sizeof *host;
    return pl_cuda_upload(d, p, host, n * sizeof *host, err);
}

static uint64_t weight_bytes(const pl_weight *w)
{
    if (w->coding == PL_CODING_TRELLIS) return pl_cuda_trellis_bytes(&w->trellis);
    return pl_cuda_affine_serves(w) ? pl_cuda_affine_bytes(w) : pl_cuda_dense_bytes(w);
}

uint64_t pl_cuda_linear_bytes(const pl_linear *host)
{
    const pl_weight *w = &host->w;
    uint64_t vectors = (host->input_signs ? w->in : 0) + (host->output_signs ? w->out : 0) +
                       (host->output_scale ? w->out : 0) + (host->bias ? w->out : 0);
    return weight_bytes(w) + vectors * sizeof(float);
}

static pleach_status open_weight(pl_cuda *d, const pl_weight *w, pl_cuda_linear *l,
                                 pleach_error *err)
{
    if (w->coding == PL_CODING_TRELLIS) {
        PL_TRY(prepare_classes(d, err));
        PL_TRY(pl_cuda_trellis_open(d, &w->trellis, w->weight->data, w->scales->data, &l->trellis,
                                    err));
        l->bytes += l->trellis.bytes;
    } else if (pl_cuda_affine_serves(w)) {
        PL_TRY(pl_cuda_affine_open(d, w, &l->affine, err));
        l->bytes += l->affine.bytes;
    } else {
        PL_TRY(pl_cuda_dense_open(d, w, &l->dense, err));
        l->bytes += l->dense.bytes;
    }
    return PLEACH_OK;
}

static pleach_status open_parts(pl_cuda *d, const pl_linear *host, pl_cuda_linear *l,
                                pleach_error *err)
{
    PL_TRY(open_weight(d, &host->w, l, err));
    PL_TRY(send_vector(d, host->input_signs, l->in, &l->input_signs, l, err));
    PL_TRY(send_vector(d, host->output_signs, l->out, &l->output_signs, l, err));
    PL_TRY(send_vector(d, host->output_scale, l->out, &l->output_scale, l, err));
    return send_vector(d, host->bias, l->out, &l->bias, l, err);
}

pleach_status pl_cuda_linear_open(pl_cuda *d, const pl_linear *host, pl_cuda_linear *out,
                                  pleach_error *err)
{
    *out = (pl_cuda_linear){.out = host->w.out,
                            .in = host->w.in,
                            .rotate_in = host->w.rotate_in,
                            .rotate_out = host->w.rotate_out};
    pleach_status status = open_parts(d, host, out, err);
    if (status != PLEACH_OK) pl_cuda_linear_close(out);
    return status;
}

void pl_cuda_linear_close(pl_cuda_linear *l)
{
    pl_cuda_trellis_close(&l->trellis);
    pl_cuda_affine_close(&l->affine);
    pl_cuda_dense_close(&l->dense);
    pl_cuda_free(l->input_signs);
    pl_cuda_free(l->output_signs);
    pl_cuda_free(l->output_scale);
    pl_cuda_free(l->bias);
    *l = (pl_cuda_linear){0};
}

/* ---- applying -------------------------------------------------------------------------------- */

/* Hands out pieces of a buffer, or with base NULL only adds up what is needed. */
typedef struct cursor {
    uint8_t *base;
    size_t used;
} cursor;

static void *take(cursor *at, size_t bytes)
{
    void *p = at->base ? at->base + at->used : NULL;
    at->used += (bytes + 255) / 256 * 256;
    return p;
}

static bool same_rotation(const pl_rotation *a, const pl_rotation *b)
{
    return a->block == b->block && (a->block == 0 || a->seed == b->seed);
}

bool pl_cuda_linear_rotation(const pl_cuda_linear *const *layers, size_t n, pl_cuda_rotation *r)
{
    for (size_t i = 1; i < n; i++)
        if (!same_rotation(&layers[0]->rotate_in, &layers[i]->rotate_in)) return false;
    *r = (pl_cuda_rotation){layers[0]->input_signs, layers[0]->rotate_in.block};
    return true;
}

/* What layer i reads: the caller's input, an earlier layer's rotated one, or its own, which it then
 * has to make. */
typedef struct input {
    const float *x;
    float *rotated;
} input;

static void plan_inputs(const pl_cuda_linear *const *layers, size_t n, const float *x, size_t M,
                        bool rotated, cursor *at, input *inputs)
{
    for (size_t i = 0; i < n; i++) {
        const pl_rotation *r = &layers[i]->rotate_in;
        size_t j = 0;
        inputs[i] = (input){x, NULL};
        if (rotated || !r->block) continue;
        while (j < i && !same_rotation(&layers[j]->rotate_in, r)) j++;
        if (j == i) inputs[i].rotated = take(at, M * layers[i]->in * sizeof *x);
        inputs[i].x = j < i ? inputs[j].x : inputs[i].rotated;
    }
}

static size_t product_scratch(const pl_cuda *d, const pl_cuda_linear *l, size_t M)
{
    if (l->dense.data) return pl_cuda_dense_scratch(d, &l->dense, M);
    if (l->affine.codes) return pl_cuda_affine_scratch(d, &l->affine, M);
    return l->trellis.codes ? choose(d, &l->trellis, M)->scratch(d, &l->trellis, M) : 0;
}

/* Layers run one after another and share what their products need; those of the last class may run
 * together. */
static size_t scratch_of(const pl_cuda *d, const pl_cuda_linear *const *layers, size_t n, size_t M)
{
    input inputs[PL_LINEAR_GROUP];
    cursor at = {0};
    size_t sum = 0;
    plan_inputs(layers, n, NULL, M, false, &at, inputs);
    for (size_t i = 0; i < n; i++) sum += (product_scratch(d, layers[i], M) + 255) / 256 * 256;
    return at.used + sum;
}

size_t pl_cuda_linear_scratch(const pl_cuda *d, const pl_cuda_linear *const *layers, size_t n,
                              size_t M)
{
    size_t most = 0;
    assert(n <= PL_LINEAR_GROUP);
    for (size_t m = M; m; m = m > 16 ? m / 2 : m - 1) { /* classes change with M */
        size_t bytes = scratch_of(d, layers, n, m);
        most = PL_MAX(most, bytes);
    }
    return most + M * (n == 2 ? layers[1]->out : 0) * sizeof(float) + 256; /* swiglu's second */
}

static pl_cuda_product product_of(const pl_cuda_linear *l, const float *x, size_t M, float *y)
{
    bool turned = l->rotate_out.block != 0;
    return (pl_cuda_product){.w = &l->trellis,
                             .in = l->in,
                             .out = l->out,
                             .M = M,
                             .x = x,
                             .x_stride = l->in,
                             .y = y,
                             .y_stride = l->out,
                             .output_scale = turned ? NULL : l->output_scale,
                             .bias = turned ? NULL : l->bias};
}

/* All but what `any` does in one go. */
static void run_product(const pl_cuda *d, const pl_cuda_linear *l, const pl_cuda_product *p,
                        void *scratch)
{
    if (l->trellis.codes)
        choose(d, &l->trellis, p->M)->run(d, p, scratch);
    else if (l->affine.codes)
        pl_cuda_affine_run(d, &l->affine, p->x, p->M, p->y, p->output_scale, p->bias, scratch);
    else
        pl_cuda_dense_run(d, &l->dense, p->x, p->M, p->y, p->output_scale, p->bias, scratch);
}

/* Layers of one input whose products go in one launch. */
static bool run_group(const pl_cuda *d, const pl_cuda_linear *const *layers, size_t n,
                      const input *inputs, size_t M, float *const *y)
{
    const pl_cuda_trellis *weights[PL_LINEAR_GROUP];
    pl_cuda_product products[PL_LINEAR_GROUP];
    if (d->batch_invariant || n < 2) return false;
    for (size_t i = 0; i < n; i++) {
        if (!layers[i]->trellis.codes || inputs[i].x != inputs[0].x) return false;
        weights[i] = &layers[i]->trellis;
        products[i] = product_of(layers[i], inputs[i].x, M, y[i]);
    }
    if (!pl_cuda_trellis_limbs_group_serves(d, weights, n, M)) return false;
    pl_cuda_trellis_limbs_group(d, products, n);
    return true;
}

static void run_products(const pl_cuda *d, const pl_cuda_linear *const *layers, size_t n,
                         const input *inputs, size_t M, float *const *y, void *scratch)
{
    pl_cuda_product together[PL_LINEAR_GROUP];
    size_t n_together = 0;
    if (run_group(d, layers, n, inputs, M, y)) return;
    for (size_t i = 0; i < n; i++) {
        const pl_cuda_linear *l = layers[i];
        pl_cuda_product p = product_of(l, inputs[i].x, M, y[i]);
        if (l->trellis.codes && choose(d, &l->trellis, M) == any)
            together[n_together++] = p;
        else
            run_product(d, l, &p, scratch);
    }
    pl_cuda_trellis_any_run_all(d, together, n_together, scratch);
}

void pl_cuda_linear_apply(const pl_cuda *d, const pl_cuda_linear *const *layers, size_t n,
                          const float *x, bool rotated, size_t M, float *const *y, void *scratch)
{
    input inputs[PL_LINEAR_GROUP];
    cursor at = {.base = scratch};
    assert(n <= PL_LINEAR_GROUP);
    if (!M) return;
    plan_inputs(layers, n, x, M, rotated, &at, inputs);
    for (size_t i = 0; i < n; i++) {
        pl_cuda_rotation r = {layers[i]->input_signs, layers[i]->rotate_in.block};
        if (inputs[i].rotated) pl_cuda_rotate(d, inputs[i].rotated, x, layers[i]->in, M, &r);
    }
    run_products(d, layers, n, inputs, M, y, at.base + at.used);
    for (size_t i = 0; i < n; i++) {
        const pl_cuda_linear *l = layers[i];
        pl_cuda_rotation r = {l->output_signs, l->rotate_out.block};
        if (r.block) pl_cuda_unrotate(d, y[i], l->out, M, &r, l->output_scale, l->bias);
    }
}

/* Whether one launch does gate, up and what is between them. */
static bool swiglu_is_one(const pl_cuda *d, const pl_cuda_linear *gate, const pl_cuda_linear *up,
                          size_t M)
{
    return !d->batch_invariant && gate->trellis.codes && up->trellis.codes && gate->in == up->in &&
           gate->out == up->out && !gate->rotate_out.block && !up->rotate_out.block &&
           same_rotation(&gate->rotate_in, &up->rotate_in) &&
           pl_cuda_trellis_limbs_swiglu_serves(d, &gate->trellis, &up->trellis, M);
}

static void run_swiglu(const pl_cuda *d, const pl_cuda_linear *gate, const pl_cuda_linear *up,
                       const float *x, bool rotated, size_t M, float *y,
                       const pl_cuda_rotation *then, void *scratch)
{
    pl_cuda_rotation r = {gate->input_signs, gate->rotate_in.block};
    if (r.block && !rotated) {
        pl_cuda_rotate(d, scratch, x, gate->in, M, &r);
        x = scratch;
    }
    pl_cuda_product products[] = {product_of(gate, x, M, y), product_of(up, x, M, y)};
    pl_cuda_trellis_limbs_swiglu(d, &products[0], &products[1], then);
}

void pl_cuda_linear_swiglu(const pl_cuda *d, const pl_cuda_linear *gate, const pl_cuda_linear *up,
                           const float *x, bool rotated, size_t M, float *y,
                           const pl_cuda_rotation *then, void *scratch)
{
    const pl_cuda_linear *layers[] = {gate, up};
    cursor at = {.base = scratch};
    if (!M) return;
    if (swiglu_is_one(d, gate, up, M)) {
        run_swiglu(d, gate, up, x, rotated, M, y, then, scratch);
        return;
    }
    float *up_y = take(&at, M * up->out * sizeof *up_y);
    pl_cuda_linear_apply(d, layers, 2, x, rotated, M, (float *const[]){y, up_y}, at.base + at.used);
    pl_cuda_silu_mul(d, y, y, up_y, gate->out, M, then);
}

void pl_cuda_linear_rows(const pl_cuda *d, const pl_cuda_linear *l, const int32_t *ids, size_t n,
                         float *dst)
{
    if (l->affine.codes)
        pl_cuda_affine_rows(d, &l->affine, ids, n, dst);
    else
        pl_cuda_dense_rows(d, &l->dense, ids, n, dst);
}
