/* SPDX-License-Identifier: Apache-2.0
 *
 * Binding: from a module's name to its weight with everything that belongs to it, shapes checked
 * against each other, against the quantisation map and against what the model expects. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "checkpoint_files.h"
#include "tensor.h"

#define MAX_SIDE ((uint64_t)1 << 32) /* rows or columns of a matrix */

/* One module being bound. */
typedef struct binding {
    const pleach_checkpoint *c;
    const char *module;
    pl_weight *w;
    pleach_error *err;
} binding;

static const pl_tensor *find_part(const binding *b, const char *part)
{
    char name[256];
    int n = snprintf(name, sizeof name, "%s.%s", b->module, part);
    return n < (int)sizeof name ? pl_checkpoint_find(b->c, name) : NULL;
}

static pleach_status need_part(const binding *b, const char *part, const pl_tensor **t)
{
    *t = find_part(b, part);
    PL_FAIL_IF(!*t, b->err, PLEACH_ERR_MISSING, "%s: tensor %s.%s is missing", b->c->path,
               b->module, part);
    return PLEACH_OK;
}

/* Two shapes that should be the same, as one line. */
static pleach_status wrong_shape(const binding *b, const char *part, const pl_tensor *t,
                                 const char *expected)
{
    char found[PL_SHAPE_TEXT];
    return pl_fail(b->err, PLEACH_ERR_SHAPE, "%s: tensor %s.%s is %s %s, expected %s", b->c->path,
                   b->module, part, pl_dtype_get(t->type)->name,
                   pl_tensor_shape_text(t, found, sizeof found), expected);
}

static bool is_vector(const pl_tensor *t, uint64_t n)
{
    return t->n_dims == 1 && t->shape[0] == n;
}

static bool is_matrix(const pl_tensor *t, uint64_t rows, uint64_t cols)
{
    return t->n_dims == 2 && t->shape[0] == rows && t->shape[1] == cols;
}

static bool is_float(const pl_tensor *t)
{
    return t->type == PL_F32 || t->type == PL_F16 || t->type == PL_BF16;
}

static uint64_t divide_up(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

/* ---- dense --------------------------------------------------------------------------------- */

/* The scales of an 8-bit float weight: one for each tile of rows and columns. */
static pleach_status bind_fp8(const binding *b)
{
    static const char part[] = "weight_scale_inv";
    pl_weight *w = b->w;
    const uint32_t *block = b->c->quant.fp8_block;
    if (!block[0]) {
        /* Without a word in the config the numbers stand for themselves, unless scales lie by. */
        const char *stray = find_part(b, part)             ? part
                            : find_part(b, "weight_scale") ? "weight_scale"
                                                           : NULL;
        PL_FAIL_IF(stray, b->err, PLEACH_ERR_UNSUPPORTED,
                   "%s: tensor %s.%s is there, but config.json has no fp8 quantization_config",
                   b->c->path, b->module, stray);
        return PLEACH_OK;
    }
    PL_TRY(need_part(b, part, &w->block_scale));
    uint64_t rows = divide_up(w->out, block[0]), cols = divide_up(w->in, block[1]);
    const pl_tensor *t = w->block_scale;
    if (!is_matrix(t, rows, cols) || (t->type != PL_F32 && t->type != PL_BF16)) {
        char expected[100];
        snprintf(expected, sizeof expected, "F32 or BF16 [%" PRIu64 ", %" PRIu64 "]", rows, cols);
        return wrong_shape(b, part, t, expected);
    }
    w->fp8_block[0] = block[0];
    w->fp8_block[1] = block[1];
    return PLEACH_OK;
}

static pleach_status bind_dense(const binding *b)
{
    pl_weight *w = b->w;
    const pl_tensor *t = w->weight;
    w->coding = PL_CODING_DENSE;
    if (!pl_dtype_get(t->type)->numeric || t->n_dims != 2)
        return wrong_shape(b, "weight", t, "a matrix of numbers");
    w->out = t->shape[0];
    w->in = t->shape[1];
    return t->type == PL_F8_E4M3 ? bind_fp8(b) : PLEACH_OK;
}

/* ---- affine -------------------------------------------------------------------------------- */

static pleach_status bind_affine(const binding *b, const pl_quant_entry *e)
{
    pl_weight *w = b->w;
    char expected[100];
    w->coding = PL_CODING_AFFINE;
    w->bits = e->bits;
    w->group_size = e->group_size;
    PL_TRY(need_part(b, "scales", &w->scales));
    PL_TRY(need_part(b, "biases", &w->biases));
    const pl_tensor *s = w->scales, *t = w->weight;
    if (s->n_dims != 2 || !is_float(s) || s->shape[1] > MAX_SIDE)
        return wrong_shape(b, "scales", s, "a matrix of F32, F16 or BF16");
    w->out = s->shape[0];
    w->in = s->shape[1] * e->group_size;
    uint64_t words = w->in * e->bits / 32; /* groups are whole words */
    if (t->type != PL_U32 || !is_matrix(t, w->out, words)) {
        snprintf(expected, sizeof expected,
                 "U32 [%" PRIu64 ", %" PRIu64 "] for %u bits in groups of %u", w->out, words,
                 e->bits, e->group_size);
        return wrong_shape(b, "weight", t, expected);
    }
    if (w->biases->type != s->type || !is_matrix(w->biases, s->shape[0], s->shape[1])) {
        snprintf(expected, sizeof expected, "%s [%" PRIu64 ", %" PRIu64 "] like the scales",
                 pl_dtype_get(s->type)->name, s->shape[0], s->shape[1]);
        return wrong_shape(b, "biases", w->biases, expected);
    }
    return PLEACH_OK;
}

/* ---- trellis ------------------------------------------------------------------------------- */

/* Geometry from the shape of the codes: [rows][words], or [cols / 2T][rows][words of 2T]. */
static pleach_status trellis_shape(const binding *b, const pl_quant_entry *e, uint64_t rows)
{
    const pl_tensor *t = b->w->weight;
    pleach_trellis *g = &b->w->trellis;
    uint64_t pair = 2 * (uint64_t)e->group_size * e->bits / 32;
    uint64_t row_words = 0;
    if (t->n_dims == 2)
        row_words = t->shape[1];
    else if (t->n_dims == 3 && t->shape[2] == pair && t->shape[0] <= MAX_SIDE)
        row_words = t->shape[0] * pair;
    uint64_t found_rows = t->n_dims == 2 ? t->shape[0] : t->n_dims == 3 ? t->shape[1] : 0;
    if (t->type != PL_U32 || row_words > MAX_SIDE || row_words * 32 % e->bits != 0 ||
        row_words * 32 / e->bits % e->group_size != 0 || found_rows != rows || row_words == 0) {
        char expected[160];
        snprintf(expected, sizeof expected,
                 "U32 [%" PRIu64 ", words of whole blocks of %u weights of %u bits]%s", rows,
                 e->group_size, e->bits, t->n_dims == 3 ? " or its interleaved form" : "");
        return wrong_shape(b, "weight", t, expected);
    }
    *g = (pleach_trellis){.bits = e->bits,
                          .state_bits = e->state_bits,
                          .block = e->group_size,
                          .axis = e->axis,
                          .interleaved = t->n_dims == 3,
                          .rows = rows,
                          .cols = row_words * 32 / e->bits};
    pleach_error why;
    PL_FAIL_IF(pleach_trellis_check(g, &why) != PLEACH_OK, b->err, PLEACH_ERR_SHAPE,
               "%s: tensor %s.weight: %.200s", b->c->path, b->module, why.message);
    return PLEACH_OK;
}

static pleach_status check_rotation(const binding *b, const char *side, const pl_rotation *r,
                                    uint64_t width)
{
    PL_FAIL_IF(r->block && width % r->block != 0, b->err, PLEACH_ERR_SHAPE,
               "%s: %s: %s rotation block %u does not divide %" PRIu64, b->c->path, b->module, side,
               r->block, width);
    return PLEACH_OK;
}

static pleach_status bind_trellis(const binding *b, const pl_quant_entry *e)
{
    pl_weight *w = b->w;
    w->coding = PL_CODING_TRELLIS;
    PL_TRY(need_part(b, "scales", &w->scales));
    if (w->scales->type != PL_F16 || w->scales->n_dims != 1)
        return wrong_shape(b, "scales", w->scales, "F16 with one number for each stored row");
    uint64_t rows = w->scales->shape[0];
    PL_TRY(trellis_shape(b, e, rows));
    uint64_t cols = w->trellis.cols, width = e->width ? e->width : cols;
    PL_FAIL_IF(width > cols || cols - width >= e->group_size, b->err, PLEACH_ERR_SHAPE,
               "%s: tensor %s.weight codes %" PRIu64
               " weights a row, which does not fit width %" PRIu64 " in blocks of %u",
               b->c->path, b->module, cols, width, e->group_size);
    w->out = e->axis ? rows : width;
    w->in = e->axis ? width : rows;
    w->rotate_in = e->rotate_in;
    w->rotate_out = e->rotate_out;
    PL_TRY(check_rotation(b, "input", &w->rotate_in, w->in));
    PL_TRY(check_rotation(b, "output", &w->rotate_out, w->out));
    if (!e->output_scale) return PLEACH_OK;
    PL_TRY(need_part(b, "output_scale", &w->output_scale));
    if (!is_vector(w->output_scale, w->out) || !is_float(w->output_scale)) {
        char expected[60];
        snprintf(expected, sizeof expected, "F32, F16 or BF16 [%" PRIu64 "]", w->out);
        return wrong_shape(b, "output_scale", w->output_scale, expected);
    }
    return PLEACH_OK;
}

/* ---- all ----------------------------------------------------------------------------------- */

/* By the map's entry, by its default where scales and biases lie by, else dense. */
static pleach_status bind_coding(const binding *b)
{
    const pl_quant_map *map = &b->c->quant;
    const pl_quant_entry *e = pl_quant_map_find(map, b->module);
    if (!e && find_part(b, "scales")) {
        PL_FAIL_IF(!map->has_default || !find_part(b, "biases"), b->err, PLEACH_ERR_MISSING,
                   "%s: tensor %s.scales is there, but config.json does not say how it is coded",
                   b->c->path, b->module);
        e = &map->fallback;
    }
    switch (e ? e->coding : PL_CODING_DENSE) {
    case PL_CODING_AFFINE:
        return bind_affine(b, e);
    case PL_CODING_TRELLIS:
        return bind_trellis(b, e);
    default:
        return bind_dense(b);
    }
}

static pleach_status bind_bias(const binding *b)
{
    const pl_tensor *t = find_part(b, "bias");
    if (!t) return PLEACH_OK;
    if (!is_vector(t, b->w->out) || !pl_dtype_get(t->type)->numeric) {
        char expected[60];
        snprintf(expected, sizeof expected, "[%" PRIu64 "] numbers", b->w->out);
        return wrong_shape(b, "bias", t, expected);
    }
    b->w->bias = t;
    return PLEACH_OK;
}

pleach_status pl_checkpoint_weight(const pleach_checkpoint *c, const char *module, uint64_t out,
                                   uint64_t in, pl_weight *w, pleach_error *err)
{
    binding b = {c, module, w, err};
    *w = (pl_weight){0};
    PL_TRY(need_part(&b, "weight", &w->weight));
    PL_TRY(bind_coding(&b));
    PL_FAIL_IF(w->out == 0 || w->in == 0, err, PLEACH_ERR_SHAPE,
               "%s: %s is an empty matrix [%" PRIu64 ", %" PRIu64 "]", c->path, module, w->out,
               w->in);
    PL_FAIL_IF(w->out > MAX_SIDE || w->in > MAX_SIDE, err, PLEACH_ERR_SHAPE,
               "%s: %s is too large: [%" PRIu64 ", %" PRIu64 "]", c->path, module, w->out, w->in);
    PL_FAIL_IF((out && w->out != out) || (in && w->in != in), err, PLEACH_ERR_SHAPE,
               "%s: %s is a matrix [%" PRIu64 ", %" PRIu64 "], the config expects [%" PRIu64
               ", %" PRIu64 "]",
               c->path, module, w->out, w->in, out ? out : w->out, in ? in : w->in);
    return bind_bias(&b);
}
