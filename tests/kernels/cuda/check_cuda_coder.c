/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole modules coded by the device: as good as the processor's, with and without error feedback,
 * and what is reported is what the codes stand for. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/threads.h"
#include "calibrate/statistics.h"
#include "check_cuda.h"
#include "cuda/coder.h"
#include "quant/code_module.h"
#include "quant/rotate_matrix.h"

/* One matrix with statistics of its inputs, as an item of a plan. */
typedef struct module {
    size_t out, in;
    char path[32];
    pl_map map; /* [out][in] f32 */
    pl_tensor source;
    pl_plan_item item;
    pl_module_statistics stats;
    float *packed; /* [in][in] */
} module;

typedef struct kind {
    uint32_t k, L, axis;
    size_t out, in;
    bool rotate, scale, feedback;
} kind;

static void must(pleach_status status, const pleach_error *err)
{
    if (status == PLEACH_OK) return;
    fprintf(stderr, "check-kernels: %s\n", err->message);
    exit(1);
}

static void write_source(check *t, module *m)
{
    pleach_error err;
    float *w = malloc(m->out * m->in * sizeof *w);
    int file;
    strcpy(m->path, "/tmp/check-kernels-XXXXXX");
    if (!w || (file = mkstemp(m->path)) < 0) abort();
    for (size_t i = 0; i < m->out * m->in; i++)
        w[i] = (float)(check_normal(t) * .02 * (double)(1 + i / m->in % 3 + i % 7 % 2));
    if (write(file, w, m->out * m->in * sizeof *w) < 0) abort();
    close(file);
    free(w);
    must(pl_map_open(&m->map, m->path, &err), &err);
}

/* H = A A^T of a narrow A, and a diagonal: features that go together. */
static float *make_statistics(check *t, size_t n)
{
    enum { RANK = 24 };
    double *a = malloc(n * RANK * sizeof *a);
    float *packed = malloc(pl_triangle_size(n) * sizeof *packed), *to = packed;
    if (!a || !packed) abort();
    for (size_t i = 0; i < n * RANK; i++) a[i] = check_normal(t);
    for (size_t i = 0; i < n; i++)
        for (size_t j = i; j < n; j++) {
            double sum = i == j ? .5 + (double)(i % 5) : 0;
            for (size_t r = 0; r < RANK; r++) sum += a[i * RANK + r] * a[j * RANK + r];
            *to++ = (float)sum;
        }
    free(a);
    return packed;
}

static module make(check *t, const kind *k)
{
    pleach_error err;
    module m = {.out = k->out, .in = k->in};
    write_source(t, &m);
    m.packed = make_statistics(t, m.in);
    m.stats = (pl_module_statistics){.in = m.in, .out = m.out, .tokens = 1000, .input = m.packed};
    m.item = (pl_plan_item){.module = {.name = "m", .kind = PL_MODULE_LINEAR, .out = m.out,
                                       .in = m.in},
                            .coding = PL_CODING_TRELLIS, .width = k->axis ? m.in : m.out};
    m.item.trellis = (pleach_trellis){.bits = k->k, .state_bits = k->L, .axis = k->axis,
                                      .rows = k->axis ? m.out : m.in};
    must(pleach_trellis_choose_block(m.item.width, &m.item.trellis.block, &m.item.trellis.cols,
                                     &err), &err);
    if (k->rotate) m.item.rotate_in = (pl_rotation){pl_rotation_block(m.in), 7};
    m.item.output_scale = k->scale && !k->axis;
    return m;
}

/* Pointers within: not to be done before m is where it stays. */
static void finish(module *m)
{
    pl_item_tensors tensors;
    m->source = (pl_tensor){.name = "m.weight", .type = PL_F32, .n_dims = 2,
                            .shape = {m->out, m->in}, .data = m->map.data,
                            .n_bytes = m->out * m->in * 4};
    m->item.source = (pl_weight){.out = m->out, .in = m->in, .weight = &m->source};
    pl_item_tensors_get(&m->item, PL_F16, &tensors);
    m->item.bytes = 0;
    for (size_t i = 0; i < tensors.n; i++) m->item.bytes += tensors.tensor[i].n_bytes;
}

static void drop(module *m)
{
    pl_map_close(&m->map);
    unlink(m->path);
    free(m->packed);
}

typedef struct outcome {
    double error, power, weighted, decoded; /* decoded: |W - Q|^2 of what a reader sees */
    pl_feedback_state state;
    uint64_t hash;
} outcome;

static uint64_t hash_of(const pl_coded *c)
{
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < c->tensors.n; i++)
        for (size_t b = 0; b < c->tensors.tensor[i].n_bytes; b++)
            h = (h ^ ((const uint8_t *)c->data[i])[b]) * 1099511628211u;
    return h;
}

static double decoded_error(const module *m, pl_coded *c)
{
    pleach_error err;
    pl_tensor *t = c->tensors.tensor;
    const float *w = (const float *)(const void *)m->map.data;
    float *q = malloc(m->out * m->in * sizeof *q);
    double sum = 0;
    if (!q) abort();
    for (size_t i = 0; i < c->tensors.n; i++) t[i].data = c->data[i];
    pl_weight coded = {.coding = PL_CODING_TRELLIS, .out = m->out, .in = m->in, .weight = &t[0],
                       .scales = &t[1], .trellis = m->item.trellis, .rotate_in = m->item.rotate_in,
                       .rotate_out = m->item.rotate_out};
    if (m->item.output_scale) coded.output_scale = &t[2];
    must(pl_weight_dense_f32(&coded, q, &err), &err);
    for (size_t i = 0; i < m->out * m->in; i++) sum += pow((double)w[i] - q[i], 2);
    free(q);
    return sum;
}

static outcome code(const module *m, const pl_kernels *kernels, pl_pool *pool,
                    pl_coding_device *device, bool feedback)
{
    pleach_error err;
    pl_coded coded;
    pl_coder coder = {.kernels = kernels, .pool = pool, .device = device,
                      .feedback = {.inputs = feedback, .damping = .01, .sweeps = 1}};
    must(pl_coder_open(&coder, &m->item, 1, &err), &err);
    must(pl_code_module(&coder, &m->item, feedback ? &m->stats : NULL, &coded, &err), &err);
    outcome o = {.error = coded.error, .power = coded.power, .weighted = coded.feedback.weighted[0],
                 .state = coded.feedback.inputs, .hash = hash_of(&coded),
                 .decoded = decoded_error(m, &coded)};
    pl_coder_close(&coder);
    return o;
}

static void compare(check *t, const char *what, double got, double want, double share)
{
    if (!(fabs(got - want) <= share * fabs(want)))
        check_fail(t, "%s: %.9g, expected %.9g within %g", what, got, want, share);
}

static void check_kind(check *t, const pl_kernels *c, pl_pool *pool, pl_coding_device *device,
                       const kind *k)
{
    module m = make(t, k);
    finish(&m);
    const outcome here = code(&m, c, pool, NULL, k->feedback);
    const outcome there = code(&m, c, pool, device, k->feedback);
    const outcome again = code(&m, c, pool, device, k->feedback);
    compare(t, "power", there.power, here.power, 1e-12);
    compare(t, "error reported", there.error, there.decoded, 1e-4);
    compare(t, "error", there.error, here.error, k->feedback ? .02 : .004);
    if (k->feedback) compare(t, "loss", there.weighted, here.weighted, .02);
    if (there.state != here.state)
        check_fail(t, "feedback: %s, expected %s", pl_feedback_state_text(there.state),
                   pl_feedback_state_text(here.state));
    if (there.hash != again.hash) check_fail(t, "other codes the second time");
    check_note(t, "%.4f of the processor's", k->feedback ? there.weighted / here.weighted
                                                         : there.error / here.error);
    drop(&m);
}

/* A row of NaN and one too large are refused in the processor's words. */
static void check_refusals(check *t, pl_coding_device *device)
{
    enum { ROWS = 3, COLS = 256 };
    static float x[ROWS][COLS];
    static uint32_t codes[ROWS][COLS * 2 / 32];
    uint16_t scales[ROWS];
    double squares[ROWS];
    pleach_error err = {0};
    const pleach_trellis shape = {.bits = 2, .state_bits = 12, .block = 256, .axis = 1,
                                  .rows = ROWS, .cols = COLS};
    pl_device_rows rows = {.t = &shape, .width = COLS, .code_rms = 1, .matrix = x[0],
                           .codes = codes[0], .scales = scales, .squares = squares};
    for (int bad = 0; bad < 2; bad++) {
        for (int i = 0; i < ROWS * COLS; i++) x[i / COLS][i % COLS] = (float)check_normal(t);
        x[1][7] = bad ? 1e30f : NAN;
        pleach_status status = device->rows(device, &rows, 0, ROWS, &err);
        const char *words = bad ? "row 1 is too large for an fp16 scale"
                                : "row 1 holds NaN or infinity";
        if (status != PLEACH_ERR_DATA || !strstr(err.message, words))
            check_fail(t, "status %d, \"%s\", expected \"%s\"", (int)status, err.message, words);
    }
}

void check_cuda_coder(check *t, const pl_kernels *c, pl_cuda *d)
{
    static const kind kinds[] = {
        {3, 12, 0, 512, 256, true, true, false},  {2, 12, 1, 256, 768, true, false, false},
        {4, 12, 0, 576, 192, false, true, false}, {4, 16, 1, 32, 256, true, false, false},
        {3, 12, 0, 512, 256, true, true, true},   {2, 12, 0, 896, 192, true, false, true},
        {4, 12, 0, 1000, 200, false, true, true}, {3, 12, 1, 256, 600, true, false, true},
    };
    char name[16];
    pl_coding_device *device;
    pl_pool *pool;
    pleach_error err;
    snprintf(name, sizeof name, "cuda:%d", d->index);
    must(pl_cuda_coder_open(name, &device, &err), &err);
    must(pl_pool_open(pl_default_threads(), &pool, &err), &err);
    for (size_t i = 0; i < PL_COUNT(kinds); i++) {
        const kind *k = &kinds[i];
        if (!check_begin(t, true, "coder_%s_k%u_l%u_axis%u_%zux%zu",
                         k->feedback ? "feedback" : "rows", k->k, k->L, k->axis, k->out, k->in))
            continue;
        check_kind(t, c, pool, device, k);
        check_end(t);
    }
    if (check_begin(t, true, "coder_refusals")) {
        check_refusals(t, device);
        check_end(t);
    }
    pl_pool_close(pool);
    device->close(device);
}
