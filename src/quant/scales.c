/* SPDX-License-Identifier: Apache-2.0
 *
 * Multipliers of scales: applying them, their gradients, Adam, and the tensors they end in. */
#include "scales.h"

#include <math.h>
#include <string.h>

#include "base/half.h"
#include "base/memory.h"
#include "format/safetensors.h"

enum { SLAB = 64 }; /* rows whose gradients are summed by one thread */

/* ---- opening -------------------------------------------------------------------------------- */

/* Rows of an axis 1 weight are outputs only while no rotation mixes them. */
static bool rows_are_outputs(const pl_weight *w)
{
    return w->trellis.axis == 1 && !w->rotate_out.block;
}

static size_t claim(pl_scales *s, bool wanted, size_t n)
{
    if (!wanted) return SIZE_MAX;
    s->n += n;
    return s->n - n;
}

static void bind(pl_scales *s, const pl_layer *l, uint32_t layer, unsigned which)
{
    const pl_linear *linears[PL_BLOCK_LINEARS];
    pl_layer_linears(l, linears);
    for (int i = 0; i < PL_BLOCK_LINEARS; i++) {
        const pl_weight *w = &linears[i]->w;
        bool coded = w->coding == PL_CODING_TRELLIS;
        bool output = coded && (w->output_scale || rows_are_outputs(w));
        bool input = coded && w->trellis.axis == 0;
        s->blocks[layer][i] =
            (pl_module_scales){.linear = linears[i],
                               .output = claim(s, output && which & PL_SCALES_OUTPUT, w->out),
                               .input = claim(s, input && which & PL_SCALES_INPUT, w->in)};
    }
}

pleach_status pl_scales_open(pl_scales *s, const pl_transformer *t, unsigned which,
                             pleach_error *err)
{
    *s = (pl_scales){.n_layers = t->config->n_layers};
    s->blocks = pl_calloc(s->n_layers, sizeof *s->blocks);
    if (!s->blocks) return pl_fail_memory(err, "scales", s->n_layers * sizeof *s->blocks);
    for (uint32_t i = 0; i < s->n_layers; i++) bind(s, &t->layers[i], i, which);
    float **arrays[] = {&s->value, &s->gradient, &s->mean, &s->square};
    for (size_t i = 0; i < PL_COUNT(arrays); i++)
        if (!(*arrays[i] = pl_calloc(s->n + 1, sizeof **arrays[i]))) {
            pl_scales_close(s);
            return pl_fail_memory(err, "scales", s->n * sizeof **arrays[i]);
        }
    for (size_t i = 0; i < s->n; i++) s->value[i] = 1;
    return PLEACH_OK;
}

void pl_scales_close(pl_scales *s)
{
    pl_free(s->blocks);
    pl_free(s->value);
    pl_free(s->gradient);
    pl_free(s->mean);
    pl_free(s->square);
    *s = (pl_scales){0};
}

/* ---- weights and their gradients ------------------------------------------------------------ */

static void rotate(const pl_block *b, const pl_linear *l, float *row)
{
    if (l->input_signs)
        b->c->kernels.rotate(row, l->input_signs, l->w.in, l->w.rotate_in.block);
}

/* Linear layer i of a block, its weights and gradients. */
typedef struct scales_job {
    const pl_scales *s;
    const pl_block *b;
    const pl_module_scales *m;
    int i;
    float *dW, *sums; /* sums: [slabs][2][in] the sums, and room for a row; or NULL */
} scales_job;

static void apply_row(void *job, size_t o, int thread)
{
    const scales_job *j = job;
    const pl_module_scales *m = j->m;
    const pl_linear *l = m->linear;
    const float *value = j->s->value;
    size_t in = j->b->in[j->i];
    float *row = j->b->weight[j->i] + o * in;
    (void)thread;
    if (m->input != SIZE_MAX) {
        rotate(j->b, l, row);
        for (size_t k = 0; k < in; k++) row[k] *= value[m->input + k];
        if (l->input_signs)
            j->b->c->kernels.unrotate(row, l->input_signs, in, l->w.rotate_in.block);
    }
    float a = m->output == SIZE_MAX ? 1 : value[m->output + o];
    for (size_t k = 0; k < in; k++) row[k] *= a;
}

void pl_scales_apply(const pl_scales *s, pl_block *b, uint32_t layer)
{
    for (int i = 0; i < PL_BLOCK_LINEARS; i++) {
        const pl_module_scales *m = &s->blocks[layer][i];
        scales_job job = {.s = s, .b = b, .m = m, .i = i};
        if (m->output != SIZE_MAX || m->input != SIZE_MAX)
            pl_pool_run(b->c->pool, b->out[i], apply_row, &job);
    }
}

/* Of the rows of a slab; its sums receive the sum over them of (dW R) (W R). */
static void slab_gradient(void *job, size_t slab, int thread)
{
    const scales_job *j = job;
    const pl_scales *s = j->s;
    const pl_block *b = j->b;
    const pl_module_scales *m = j->m;
    const int i = j->i;
    size_t in = b->in[i], first = slab * SLAB, end = PL_MIN(first + SLAB, b->out[i]);
    float *dW = j->dW, *sums = j->sums ? j->sums + slab * 2 * in : NULL;
    float *row = sums ? sums + in : NULL;
    (void)thread;
    for (size_t o = first; o < end; o++) {
        const float *w = b->weight[i] + o * in;
        float *d = dW + o * in;
        if (m->output != SIZE_MAX)
            s->gradient[m->output + o] +=
                b->c->kernels.dot_f32(d, w, in) / s->value[m->output + o];
        if (!sums) continue;
        memcpy(row, w, in * sizeof *row);
        rotate(b, m->linear, row);
        rotate(b, m->linear, d);
        for (size_t k = 0; k < in; k++) sums[k] += d[k] * row[k];
    }
}

pleach_status pl_scales_add_gradient(pl_scales *s, const pl_block *b, uint32_t layer, int linear,
                                     float *dW, pleach_error *err)
{
    const pl_module_scales *m = &s->blocks[layer][linear];
    size_t in = b->in[linear], out = b->out[linear], slabs = (out + SLAB - 1) / SLAB;
    float *sums = NULL;
    if (m->input != SIZE_MAX && !(sums = pl_calloc(slabs * 2 * in, sizeof *sums)))
        return pl_fail_memory(err, "gradients of scales", slabs * 2 * in * sizeof *sums);
    scales_job job = {s, b, m, linear, dW, sums};
    pl_pool_run(b->c->pool, slabs, slab_gradient, &job);
    for (size_t i = 0; sums && i < slabs; i++)
        for (size_t j = 0; j < in; j++)
            s->gradient[m->input + j] += sums[i * 2 * in + j] / s->value[m->input + j];
    pl_free(sums);
    return PLEACH_OK;
}

void pl_scales_step(pl_scales *s, double rate)
{
    const float beta1 = 0.9f, beta2 = 0.95f;
    s->step++;
    double first = 1 - pow(beta1, (double)s->step), second = 1 - pow(beta2, (double)s->step);
    for (size_t i = 0; i < s->n; i++) {
        float g = s->gradient[i];
        s->mean[i] = beta1 * s->mean[i] + (1 - beta1) * g;
        s->square[i] = beta2 * s->square[i] + (1 - beta2) * g * g;
        double by = rate * (s->mean[i] / first) / (sqrt(s->square[i] / second) + 1e-8);
        s->value[i] -= (float)by;
        s->gradient[i] = 0;
    }
}

/* ---- the result ----------------------------------------------------------------------------- */

static pleach_status append(pl_safetensors_writer *w, const pl_tensor *t, const float *multiplier,
                            pleach_error *err)
{
    size_t n = (size_t)pl_tensor_elements(t);
    float *values = pl_alloc(n, sizeof *values);
    uint16_t *half = pl_alloc(n, sizeof *half);
    pleach_status status = values && half ? PLEACH_OK : pl_fail_memory(err, t->name, n * 6);
    if (status == PLEACH_OK) {
        pl_tensor_row_f32(t, 0, values);
        for (size_t i = 0; i < n; i++) {
            float m = multiplier[i] * values[i];
            half[i] = pl_f32_to_fp16(fminf(fmaxf(m, -65504), 65504));
        }
        status = pl_safetensors_append(w, half, n * sizeof *half, err);
    }
    pl_free(values);
    pl_free(half);
    return status;
}

typedef struct changed {
    const pl_tensor *tensor;
    const float *multiplier;
} changed;

/* A module's scales of stored rows carry its multipliers of outputs where it has no output scale. */
static size_t list_changed(const pl_scales *s, changed *list)
{
    size_t n = 0;
    for (uint32_t layer = 0; layer < s->n_layers; layer++)
        for (int i = 0; i < PL_BLOCK_LINEARS; i++) {
            const pl_module_scales *m = &s->blocks[layer][i];
            const pl_weight *w = &m->linear->w;
            if (m->output != SIZE_MAX)
                list[n++] = (changed){w->output_scale ? w->output_scale : w->scales,
                                      s->value + m->output};
            if (m->input != SIZE_MAX) list[n++] = (changed){w->scales, s->value + m->input};
        }
    return n;
}

pleach_status pl_scales_write(const pl_scales *s, const char *path, const double *note,
                              size_t n_note, pleach_error *err)
{
    size_t most = (size_t)s->n_layers * PL_BLOCK_LINEARS * 2 + 1;
    changed *list = pl_alloc(most, sizeof *list);
    pl_tensor *tensors = pl_alloc(most, sizeof *tensors);
    pl_safetensors_writer *w = NULL;
    pleach_status status = list && tensors ? PLEACH_OK
                                           : pl_fail_memory(err, "scales", most * sizeof *list);
    size_t n = status == PLEACH_OK ? list_changed(s, list) : 0;
    for (size_t i = 0; i < n; i++) tensors[i] = *list[i].tensor;
    if (status == PLEACH_OK) {
        tensors[n] = (pl_tensor){.name = PL_SCALES_NOTE, .type = PL_F64, .n_dims = 1,
                                 .shape = {n_note}, .n_bytes = n_note * sizeof *note};
        status = pl_safetensors_create(path, tensors, n + 1, &w, err);
    }
    for (size_t i = 0; status == PLEACH_OK && i < n; i++)
        status = append(w, list[i].tensor, list[i].multiplier, err);
    if (status == PLEACH_OK) status = pl_safetensors_append(w, note, n_note * sizeof *note, err);
    if (status == PLEACH_OK) status = pl_safetensors_commit(w, err);
    else pl_safetensors_discard(w);
    pl_free(list);
    pl_free(tensors);
    return status;
}
