/* SPDX-License-Identifier: Apache-2.0
 *
 * From losses and a limit to bits. */
#include "budget.h"

#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "code_trellis.h"
#include "codec/encoder.h"
#include "outputs.h"
#include "plan_bits.h"
#include "rotate_matrix.h"

/* ---- limits --------------------------------------------------------------------------------- */

/* At most so long is a tensor's entry in a safetensors header beside its name, and a header's
 * fixed part with its padding. */
#define ENTRY_BYTES  160
#define HEADER_BYTES 1024

static uint64_t header_bytes(const pl_plan *plan)
{
    uint64_t sum = HEADER_BYTES + plan->bytes / PL_SHARD_BYTES * HEADER_BYTES;
    for (size_t i = 0; i < plan->n_items; i++) {
        pl_item_tensors parts;
        pl_item_tensors_get(&plan->items[i], PL_F16, &parts);
        for (size_t t = 0; t < parts.n; t++) sum += strlen(parts.name[t]) + ENTRY_BYTES;
    }
    for (size_t i = 0; i < plan->n_carried; i++)
        sum += strlen(plan->carried[i]->name) + ENTRY_BYTES;
    return sum;
}

/* Modules in the trellis as choices, in the plan's order, and what the rest takes. */
typedef struct choices {
    pl_choice *items;
    size_t n;
    uint64_t block, file; /* bytes of the other block matrices; of all else in the files */
    uint64_t least;       /* bytes the choices take at least */
} choices;

static pleach_status make_choices(const pl_plan *plan, choices *c, pleach_error *err)
{
    *c = (choices){.block = plan->block_bytes, .file = plan->bytes + header_bytes(plan)};
    c->items = pl_calloc(plan->n_items, sizeof *c->items);
    if (!c->items) return pl_fail_memory(err, "the budget", plan->n_items * sizeof *c->items);
    for (size_t i = 0; i < plan->n_items; i++) {
        pl_plan_item item = plan->items[i];
        if (item.coding != PL_CODING_TRELLIS) continue;
        pl_choice *choice = &c->items[c->n++];
        c->block -= item.bytes;
        c->file -= item.bytes;
        choice->fixed = item.bits_fixed ? item.trellis.bits : 0;
        memcpy(choice->loss, item.loss, sizeof choice->loss);
        for (uint32_t k = PL_MIN_K; k <= PL_MAX_K; k++) {
            pl_item_set_bits(&item, k);
            choice->bytes[k - PL_MIN_K] = item.bytes;
        }
    }
    c->least = pl_allocate_floor(c->items, c->n);
    return PLEACH_OK;
}

/* Bytes that the choices may take together. */
static pleach_status find_limit(const pl_plan *plan, const choices *c, uint64_t *limit,
                                pleach_error *err)
{
    const pleach_quantize_settings *s = &plan->settings;
    *limit = UINT64_MAX;
    if (s->budget > 0) {
        double weights = (double)plan->block_weights, all = floor(s->budget * weights / 8);
        double least = (double)(c->least + c->block);
        PL_FAIL_IF(all < least, err, PLEACH_ERR_LIMIT,
                   "a budget of %g bits cannot be met: with 2 bits wherever there is a choice the "
                   "block matrices take %.4f, scales and padding counted",
                   s->budget, ceil(8e4 * least / weights) / 1e4);
        *limit = (uint64_t)all - c->block;
    }
    if (s->budget_file > 0) {
        uint64_t least = c->least + c->file;
        PL_FAIL_IF(s->budget_file < least, err, PLEACH_ERR_LIMIT,
                   "a budget of %llu bytes cannot be met: with 2 bits wherever there is a choice "
                   "the files of weights take %llu",
                   (unsigned long long)s->budget_file, (unsigned long long)least);
        *limit = PL_MIN(*limit, s->budget_file - c->file);
    }
    return PLEACH_OK;
}

pleach_status pl_budget_check(const pl_plan *plan, pleach_error *err)
{
    choices c;
    uint64_t limit;
    PL_TRY(make_choices(plan, &c, err));
    pleach_status status = find_limit(plan, &c, &limit, err);
    pl_free(c.items);
    return status;
}

/* ---- spending ------------------------------------------------------------------------------- */

static pleach_status spend(pl_plan *plan, choices *c, pleach_error *err)
{
    uint64_t limit;
    PL_TRY(find_limit(plan, c, &limit, err));
    if (!pl_allocate(c->items, c->n, limit)) return pl_fail_memory(err, "the budget", 0);
    for (size_t i = 0, at = 0; i < plan->n_items; i++)
        if (plan->items[i].coding == PL_CODING_TRELLIS)
            pl_item_set_bits(&plan->items[i], c->items[at++].k);
    pl_plan_total(plan);
    return PLEACH_OK;
}

pleach_status pl_budget_spend(pl_plan *plan, pleach_error *err)
{
    choices c;
    PL_TRY(make_choices(plan, &c, err));
    pleach_status status = spend(plan, &c, err);
    pl_free(c.items);
    return status;
}

/* ---- losses by the weights alone ---------------------------------------------------------------- */

#define POWER_ROWS 256

typedef struct power_work {
    const pl_plan_item *item;
    pl_pool *pool;
    float *rows, *whole;
    double sums[POWER_ROWS];
} power_work;

static void square_row(void *work, size_t r, int thread)
{
    power_work *w = work;
    size_t in = w->item->module.in;
    const float *x = w->rows + r * in, *gain = w->item->gain;
    double sum = 0;
    (void)thread;
    for (size_t i = 0; i < in; i++) {
        double v = gain ? (double)x[i] * gain[i] : x[i];
        sum += v * v;
    }
    w->sums[r] = sum;
}

/* |W|^2: rows are squared in parallel and added in order. */
static pleach_status add_rows(power_work *w, uint64_t row, uint64_t n, double *power,
                              pleach_error *err)
{
    const pl_module *m = &w->item->module;
    uint64_t bad_row, bad_col;
    if (pl_read_rows(&w->item->source, w->whole, row, n, w->rows, &bad_row, &bad_col))
        return pl_fail_value(err, m->name, bad_row, bad_col);
    pl_pool_run(w->pool, n, square_row, w);
    for (uint64_t r = 0; r < n; r++) *power += w->sums[r];
    return PLEACH_OK;
}

static pleach_status measure_power(power_work *w, double *power, pleach_error *err)
{
    const pl_module *m = &w->item->module;
    w->rows = pl_alloc(POWER_ROWS * m->in, sizeof *w->rows);
    if (!w->rows) return pl_fail_memory(err, m->name, POWER_ROWS * m->in * sizeof *w->rows);
    PL_TRY(pl_read_whole(&w->item->source, &w->whole, err));
    *power = 0;
    for (uint64_t row = 0; row < m->out; row += POWER_ROWS)
        PL_TRY(add_rows(w, row, PL_MIN(m->out - row, POWER_ROWS), power, err));
    return PLEACH_OK;
}

static pleach_status measure_item(const pl_plan *plan, pl_plan_item *item, pleach_error *err)
{
    power_work w = {.item = item, .pool = plan->pool};
    double power = 0;
    pleach_status status = measure_power(&w, &power, err);
    for (uint32_t k = PL_MIN_K; k <= PL_MAX_K; k++)
        item->loss[k - PL_MIN_K] =
            pl_encoder_gaussian_error(k, item->trellis.state_bits) * power;
    pl_map_release(item->source.weight->data, item->source.weight->n_bytes);
    pl_free(w.rows);
    pl_free(w.whole);
    return status;
}

/* ---- by statistics -------------------------------------------------------------------------- */

static pleach_status predict_item(const pl_coder *coder, const pl_statistics *statistics,
                                  pl_plan_item *item, pleach_error *err)
{
    pl_module_statistics m;
    pl_feedback_report report = {0};
    PL_TRY(pl_statistics_get(statistics, &item->module, &m, err));
    pleach_status status = pl_estimate_trellis(coder, item, &m, &report, err);
    /* Without gradients the errors of different layers' outputs only compare as shares of them. */
    double power = m.gradient > 0 ? 1 : report.weighted[1];
    pl_module_statistics_release(&m);
    for (int i = 0; i < PL_N_K; i++) {
        double loss = power > 0 ? report.estimate[i] / power : 0;
        item->loss[i] = isfinite(loss) ? loss : 0;
    }
    return status;
}

/* Modules without an estimate get what their share of the squared weights comes to. */
static pleach_status fill_in(pl_plan *plan, pleach_error *err)
{
    double known = 0, known_plain = 0;
    for (size_t i = 0; i < plan->n_items; i++) {
        pl_plan_item plain = plan->items[i];
        if (!(plain.loss[0] > 0)) continue;
        PL_TRY(measure_item(plan, &plain, err));
        known += plan->items[i].loss[0];
        known_plain += plain.loss[0];
    }
    double unit = known_plain > 0 ? known / known_plain : 1;
    for (size_t i = 0; i < plan->n_items; i++) {
        pl_plan_item *item = &plan->items[i];
        if (item->coding != PL_CODING_TRELLIS || item->loss[0] > 0) continue;
        PL_TRY(measure_item(plan, item, err));
        for (int k = 0; k < PL_N_K; k++) item->loss[k] *= unit;
    }
    return PLEACH_OK;
}

static pleach_status predict_all(pl_plan *plan, const pl_statistics *statistics,
                                 const pl_coder *coder, pl_warnings *warnings, pleach_error *err)
{
    size_t missing = 0;
    for (size_t i = 0; i < plan->n_items; i++) {
        if (plan->items[i].coding != PL_CODING_TRELLIS) continue;
        PL_TRY(predict_item(coder, statistics, &plan->items[i], err));
        missing += !(plan->items[i].loss[0] > 0);
    }
    if (!missing) return PLEACH_OK;
    pl_warn(warnings, "%zu modules have no usable statistics: their bits go by the error of the "
                      "weights", missing);
    return fill_in(plan, err);
}

static pleach_status measure_by_statistics(pl_plan *plan, const pl_statistics *statistics,
                                           const pl_kernels *kernels, pl_warnings *warnings,
                                           pleach_error *err)
{
    pl_coder coder = {.kernels = kernels, .cpu = plan->settings.cpu,
                      .search = plan->settings.encode,
                      .pool = plan->pool, .feedback = plan->feedback};
    pleach_status status = pl_coder_open(&coder, plan->items, plan->n_items, err);
    if (status == PLEACH_OK) status = predict_all(plan, statistics, &coder, warnings, err);
    pl_coder_close(&coder);
    return status;
}

pleach_status pl_budget_measure(pl_plan *plan, const pl_statistics *statistics,
                                const pl_kernels *kernels, pl_warnings *warnings, pleach_error *err)
{
    if (statistics) return measure_by_statistics(plan, statistics, kernels, warnings, err);
    pl_warn(warnings, "no %s: the budget is spent by the error of the weights alone",
            strcmp(plan->settings.calib, "none") ? "statistics yet" : "calibration");
    for (size_t i = 0; i < plan->n_items; i++)
        if (plan->items[i].coding == PL_CODING_TRELLIS)
            PL_TRY(measure_item(plan, &plan->items[i], err));
    return PLEACH_OK;
}
