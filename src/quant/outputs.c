/* SPDX-License-Identifier: Apache-2.0
 *
 * The output's tensors: listing, converting, and cutting into shards. Files go through pl_output,
 * so each is synced before it has its name. */
#include "outputs.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/half.h"
#include "base/memory.h"
#include "format/safetensors.h"
#include "kernels/rotate.h"
#include "model/linear.h"
#include "model_folder.h"
#include "rotate_matrix.h"

/* ---- the list ------------------------------------------------------------------------------- */

static pl_output_tensor *add(pl_outputs *o, pleach_error *err)
{
    void *items = o->items;
    if (pl_grow(&items, &o->capacity, o->n + 1, sizeof *o->items) != 0) {
        pl_fail_memory(err, "the list of tensors", (o->n + 1) * sizeof *o->items);
        return NULL;
    }
    o->items = items;
    o->items[o->n] = (pl_output_tensor){0};
    return &o->items[o->n++];
}

static void set_type(pl_output_tensor *to, pl_dtype type)
{
    to->tensor.type = type;
    to->tensor.n_bytes = pl_tensor_elements(&to->tensor) * pl_dtype_get(type)->block_bytes;
}

pleach_status pl_outputs_add_tensor(pl_outputs *o, const pl_tensor *t, pl_dtype type,
                                    pleach_error *err)
{
    pl_output_tensor *to = add(o, err);
    if (!to) return PLEACH_ERR_MEMORY;
    to->tensor = *t;
    set_type(to, type);
    to->source = (pl_weight){.out = pl_tensor_rows(t), .in = pl_tensor_width(t), .weight = t};
    snprintf(to->name, sizeof to->name, "%s", t->name);
    return PLEACH_OK;
}

pleach_status pl_outputs_add_module(pl_outputs *o, const char *module, const pl_weight *w,
                                    pl_dtype type, pleach_error *err)
{
    pl_output_tensor *to = add(o, err);
    if (!to) return PLEACH_ERR_MEMORY;
    to->tensor = (pl_tensor){.n_dims = 2, .shape = {w->out, w->in}};
    set_type(to, type);
    to->source = *w;
    snprintf(to->name, sizeof to->name, "%s.weight", module);
    return PLEACH_OK;
}

pleach_status pl_outputs_add_item(pl_outputs *o, const pl_plan_item *item, pleach_error *err)
{
    PL_TRY(pl_outputs_add_module(o, item->module.name, &item->source, item->type, err));
    if (item->folded) o->items[o->n - 1].folded = item;
    return PLEACH_OK;
}

void pl_outputs_free(pl_outputs *o)
{
    pl_free(o->items);
    *o = (pl_outputs){0};
}

/* ---- one tensor ----------------------------------------------------------------------------- */

#define APPEND_NUMBERS ((size_t)1 << 20) /* converted at once */

static pleach_status append_converted(pl_safetensors_writer *w, const float *x, size_t n,
                                      pl_dtype type, uint16_t *buffer, pleach_error *err)
{
    if (type == PL_F32) return pl_safetensors_append(w, x, n * sizeof *x, err);
    for (size_t i = 0; i < n; i++)
        buffer[i] = type == PL_F16 ? pl_f32_to_fp16(x[i]) : pl_f32_to_bf16(x[i]);
    return pl_safetensors_append(w, buffer, n * sizeof *buffer, err);
}

static pleach_status append_rows(pl_safetensors_writer *w, const pl_output_tensor *t,
                                 const float *whole, pleach_error *err)
{
    const pl_weight *source = &t->source;
    uint64_t step = PL_MAX(APPEND_NUMBERS / source->in, 1), bad_row, bad_col;
    step = PL_MIN(step, source->out);
    float *rows = pl_alloc(step * source->in, sizeof *rows);
    uint16_t *buffer = pl_alloc(step * source->in, sizeof *buffer);
    pleach_status status =
        rows && buffer ? PLEACH_OK : pl_fail_memory(err, t->name, step * source->in * 6);
    for (uint64_t r = 0; status == PLEACH_OK && r < source->out; r += step) {
        uint64_t n = PL_MIN(step, source->out - r);
        if (pl_read_rows(source, whole, r, n, rows, &bad_row, &bad_col))
            status = pl_fail_value(err, t->name, bad_row, bad_col);
        else status = append_converted(w, rows, n * source->in, t->tensor.type, buffer, err);
    }
    pl_free(buffer);
    pl_free(rows);
    return status;
}

/* ---- one folded matrix ---------------------------------------------------------------------- */

typedef struct folded_work {
    pl_rows rows;
    float *values;    /* [step][in] */
    uint16_t *buffer; /* as written */
    float *signs;     /* [out] of an output rotation, or NULL */
    float tile[PL_ROTATE_COLUMNS * PL_ROTATION_MAX_BLOCK];
} folded_work;

/* All numbers stay finite in this type. */
static bool fits(const float *x, size_t n, pl_dtype type)
{
    float sum = 0; /* NaN if any is not finite */
    for (size_t i = 0; i < n; i++) {
        float v = type == PL_F16 ? pl_fp16_to_f32(pl_f32_to_fp16(x[i])) : x[i];
        sum += v - v;
    }
    return sum == 0;
}

static pleach_status append_folded_rows(pl_safetensors_writer *w, folded_work *f,
                                        const pl_output_tensor *t, uint64_t row, uint64_t n,
                                        pleach_error *err)
{
    const pl_plan_item *item = t->folded;
    uint64_t bad_row, bad_col, in = item->module.in;
    if (pl_rows_read(&f->rows, row, n, f->values, NULL, &bad_row, &bad_col))
        return pl_fail_value(err, item->module.name, bad_row, bad_col);
    for (uint64_t b = 0; f->signs && b < n; b += item->rotate_out.block)
        pl_rotate_across(pl_rotate_c, f->signs + row + b, item->rotate_out.block,
                         f->values + b * in, in, in, f->tile);
    PL_FAIL_IF(!fits(f->values, n * in, t->tensor.type), err, PLEACH_ERR_DATA,
               "%s: numbers too large for %s once norm gains are folded in", t->name,
               pl_dtype_get(t->tensor.type)->name);
    return append_converted(w, f->values, n * in, t->tensor.type, f->buffer, err);
}

static pleach_status append_all_folded(pl_safetensors_writer *w, folded_work *f,
                                       const pl_output_tensor *t, pleach_error *err)
{
    const pl_plan_item *item = t->folded;
    const pl_module *m = &item->module;
    const uint64_t block = PL_MAX(item->rotate_out.block, 1);
    uint64_t step = PL_MIN(PL_MAX(APPEND_NUMBERS / m->in / block, 1) * block, m->out);
    f->values = pl_alloc(step * m->in, sizeof *f->values);
    f->buffer = pl_alloc(step * m->in, sizeof *f->buffer);
    if (item->rotate_out.block) f->signs = pl_alloc(m->out, sizeof *f->signs);
    if (!f->values || !f->buffer || (item->rotate_out.block && !f->signs))
        return pl_fail_memory(err, t->name, step * m->in * 6);
    if (f->signs) pl_rotation_signs(&item->rotate_out, f->signs, m->out);
    PL_TRY(pl_rows_open(&f->rows, item, pl_rotate_c, err));
    for (uint64_t row = 0; row < m->out; row += step)
        PL_TRY(append_folded_rows(w, f, t, row, PL_MIN(step, m->out - row), err));
    return PLEACH_OK;
}

static pleach_status append_folded(pl_safetensors_writer *w, const pl_output_tensor *t,
                                   pleach_error *err)
{
    folded_work f = {.values = NULL};
    pleach_status status = append_all_folded(w, &f, t, err);
    pl_rows_close(&f.rows);
    pl_free(f.signs);
    pl_free(f.buffer);
    pl_free(f.values);
    pl_map_release(t->source.weight->data, t->source.weight->n_bytes);
    return status;
}

/* ---- any tensor ----------------------------------------------------------------------------- */

#define COPY_BYTES ((uint64_t)16 << 20) /* between two releases of mapped memory */

static pleach_status append_copy(pl_safetensors_writer *w, const pl_tensor *t, pleach_error *err)
{
    uint64_t row_bytes = t->n_bytes / PL_MAX(pl_tensor_rows(t), 1);
    const uint8_t *data = t->data;
    if (t->rope_heads) {
        for (uint64_t r = 0; r < pl_tensor_rows(t); r++)
            PL_TRY(pl_safetensors_append(w, pl_tensor_row(t, r), row_bytes, err));
        return PLEACH_OK;
    }
    for (uint64_t at = 0; at < t->n_bytes; at += COPY_BYTES) {
        size_t n = PL_MIN(t->n_bytes - at, COPY_BYTES);
        PL_TRY(pl_safetensors_append(w, data + at, n, err));
        pl_map_release(data + at, n);
    }
    return PLEACH_OK;
}

static pleach_status append_tensor(pl_safetensors_writer *w, const pl_output_tensor *t,
                                   pleach_error *err)
{
    const pl_weight *source = &t->source;
    if (t->folded) return append_folded(w, t, err);
    bool dense = source->coding == PL_CODING_DENSE && !source->block_scale;
    if (dense && source->weight->type == t->tensor.type) return append_copy(w, source->weight, err);
    float *whole;
    PL_TRY(pl_read_whole(source, &whole, err));
    pleach_status status = append_rows(w, t, whole, err);
    pl_free(whole);
    pl_map_release(source->weight->data, source->weight->n_bytes);
    return status;
}

/* ---- files ---------------------------------------------------------------------------------- */

/* Tensors [first, result) share a file. */
static size_t shard_end(const pl_outputs *o, size_t first, uint64_t limit)
{
    uint64_t bytes = o->items[first].tensor.n_bytes;
    size_t i = first + 1;
    while (i < o->n && bytes + o->items[i].tensor.n_bytes <= limit)
        bytes += o->items[i++].tensor.n_bytes;
    return i;
}

static pleach_status append_all(pl_safetensors_writer *w, const pl_output_tensor *t, size_t n,
                                pleach_error *err)
{
    for (size_t i = 0; i < n; i++) PL_TRY(append_tensor(w, &t[i], err));
    return PLEACH_OK;
}

static pleach_status write_file(const char *dir, const char *name, const pl_output_tensor *t,
                                size_t n, pleach_error *err)
{
    pl_safetensors_writer *w = NULL;
    char *path = pl_path_join(dir, name);
    pl_tensor *tensors = pl_alloc(n, sizeof *tensors);
    pleach_status status = path && tensors ? PLEACH_OK : pl_fail_memory(err, name, n);
    for (size_t i = 0; status == PLEACH_OK && i < n; i++) {
        tensors[i] = t[i].tensor;
        tensors[i].name = t[i].name;
    }
    if (status == PLEACH_OK) status = pl_safetensors_create(path, tensors, n, &w, err);
    if (status == PLEACH_OK) {
        status = append_all(w, t, n, err);
        if (status == PLEACH_OK) status = pl_safetensors_commit(w, err);
        else pl_safetensors_discard(w);
    }
    pl_free(tensors);
    pl_free(path);
    return status;
}

static pleach_status write_index(const char *dir, json_t *map, uint64_t bytes, pleach_error *err)
{
    json_t *index = json_pack("{s:{s:I}, s:O}", "metadata", "total_size", (json_int_t)bytes,
                              "weight_map", map);
    pleach_status status = index ? pl_write_json(dir, "model.safetensors.index.json", index, err)
                                 : pl_fail_memory(err, "the index", 0);
    json_decref(index);
    return status;
}

static pleach_status write_shards(const pl_outputs *o, const char *dir, uint64_t limit,
                                  size_t shards, json_t *map, pleach_error *err)
{
    uint64_t bytes = 0;
    for (size_t first = 0, s = 1; first < o->n; s++) {
        char name[64];
        size_t end = shard_end(o, first, limit);
        snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", s, shards);
        for (size_t i = first; i < end; i++) {
            PL_FAIL_IF(json_object_set_new(map, o->items[i].name, json_string(name)) != 0, err,
                       PLEACH_ERR_MEMORY, "out of memory: the index");
            bytes += o->items[i].tensor.n_bytes;
        }
        PL_TRY(write_file(dir, name, o->items + first, end - first, err));
        first = end;
    }
    return write_index(dir, map, bytes, err);
}

pleach_status pl_outputs_write(const pl_outputs *o, const char *dir, uint64_t shard_bytes,
                               pleach_error *err)
{
    size_t shards = 0;
    for (size_t i = 0; i < o->n; i = shard_end(o, i, shard_bytes)) shards++;
    if (shards <= 1) return write_file(dir, "model.safetensors", o->items, o->n, err);
    json_t *map = json_object();
    if (!map) return pl_fail_memory(err, "the index", 0);
    pleach_status status = write_shards(o, dir, shard_bytes, shards, map, err);
    json_decref(map);
    return status;
}
