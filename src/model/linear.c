/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear layers: opening and closing. What they compute is linear_apply.c. */
#include "linear.h"

#include "base/memory.h"
#include "base/random.h"

void pl_rotation_signs(const pl_rotation *r, float *signs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t h = pl_mix64(r->seed + 0x9e3779b97f4a7c15u * (uint64_t)(i + 1));
        signs[i] = h & 1 ? -1.0f : 1.0f;
    }
}

float *pl_rotation_make_signs(const pl_rotation *r, size_t n)
{
    float *signs = pl_alloc(n, sizeof *signs);
    if (signs) pl_rotation_signs(r, signs, n);
    return signs;
}

static pleach_status read_vector(const pl_tensor *t, uint64_t n, float **out, pleach_error *err)
{
    PL_FAIL_IF(pl_tensor_elements(t) != n || pl_tensor_width(t) != n, err, PLEACH_ERR_SHAPE,
               "%s: %llu elements, expected a vector of %llu", t->name,
               (unsigned long long)pl_tensor_elements(t), (unsigned long long)n);
    *out = pl_alloc(n, sizeof **out);
    if (!*out) return pl_fail_memory(err, t->name, n * sizeof **out);
    pl_tensor_row_f32(t, 0, *out);
    return PLEACH_OK;
}

static pleach_status make_signs(const pl_rotation *r, uint64_t n, float **out, pleach_error *err)
{
    *out = pl_rotation_make_signs(r, n);
    return *out ? PLEACH_OK : pl_fail_memory(err, "rotation signs", n * sizeof **out);
}

static pleach_status open_parts(pl_linear *l, pleach_error *err)
{
    const pl_weight *w = &l->w;
    if (w->bias) PL_TRY(read_vector(w->bias, w->out, &l->bias, err));
    if (w->output_scale) PL_TRY(read_vector(w->output_scale, w->out, &l->output_scale, err));
    if (w->rotate_in.block) PL_TRY(make_signs(&w->rotate_in, w->in, &l->input_signs, err));
    if (w->rotate_out.block) PL_TRY(make_signs(&w->rotate_out, w->out, &l->output_signs, err));
    if (w->coding == PL_CODING_TRELLIS)
        PL_TRY(read_vector(w->scales, w->trellis.rows, &l->row_scales, err));
    return PLEACH_OK;
}

/* Kernels cannot fail: what they do not serve is refused here. */
static pleach_status check_trellis(const pl_weight *w, pleach_error *err)
{
    const pleach_trellis *t = &w->trellis;
    uint64_t rows = t->axis ? w->out : w->in, width = t->axis ? w->in : w->out;
    PL_TRY(pleach_trellis_check(t, err));
    PL_FAIL_IF(t->rows != rows || width > t->cols || t->cols - width >= t->block, err,
               PLEACH_ERR_SHAPE,
               "%s: %llu x %llu codes in blocks of %u along axis %u, expected %llu rows of %llu",
               w->weight->name, (unsigned long long)t->rows, (unsigned long long)t->cols, t->block,
               t->axis, (unsigned long long)rows, (unsigned long long)width);
    return PLEACH_OK;
}

pleach_status pl_linear_open(pl_linear *l, const pl_weight *w, pleach_error *err)
{
    *l = (pl_linear){0};
    if (w->coding == PL_CODING_TRELLIS) PL_TRY(check_trellis(w, err));
    l->w = *w;
    pleach_status status = open_parts(l, err);
    if (status != PLEACH_OK) pl_linear_close(l);
    return status;
}

void pl_linear_close(pl_linear *l)
{
    pl_free(l->bias);
    pl_free(l->input_signs);
    pl_free(l->output_signs);
    pl_free(l->output_scale);
    pl_free(l->row_scales);
    *l = (pl_linear){0};
}

void pl_linear_row(const pl_linear *l, uint64_t row, float *dst)
{
    pl_weight_rows_f32(&l->w, row, 1, dst);
}
