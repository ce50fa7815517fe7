/* SPDX-License-Identifier: Apache-2.0
 *
 * The summary: sizes from the plan, measurements from the parts. */
#include "summary.h"

#include <stdio.h>
#include <string.h>

#include "allocate.h"
#include "base/memory.h"

static double bits_per_weight(uint64_t bytes, uint64_t weights)
{
    return weights ? 8.0 * (double)bytes / (double)weights : 0;
}

static void describe_item(const pl_plan_item *item, pleach_quantize_item *to)
{
    static const char *const codings[] = {"dense", "affine", "trellis"};
    const pleach_trellis *t = &item->trellis;
    snprintf(to->name, sizeof to->name, "%s", item->module.name);
    to->coding = codings[item->coding];
    to->out = item->module.out;
    to->in = item->module.in;
    to->bytes = item->bytes;
    to->bits = bits_per_weight(item->bytes, to->out * to->in);
    to->block_matrix = pl_item_in_block(item);
    if (item->coding != PL_CODING_TRELLIS) return;
    to->k = t->bits;
    to->state_bits = t->state_bits;
    to->block = t->block;
    to->axis = t->axis;
    to->predicted_loss = item->loss[t->bits - PL_MIN_K];
}

/* ---- measurements --------------------------------------------------------------------------- */

/* Why a module went without feedback, or without that between outputs. */
static void describe_fallback(const pl_plan *plan, const pl_feedback_report *f,
                              pleach_quantize_item *to)
{
    if (!plan->feedback.inputs) return;
    if (f->inputs != PL_FEEDBACK_APPLIED)
        snprintf(to->fallback, sizeof to->fallback, "no error feedback: %s",
                 pl_feedback_state_text(f->inputs));
    else if (plan->feedback.two_sided && f->outputs != PL_FEEDBACK_APPLIED)
        snprintf(to->fallback, sizeof to->fallback, "no feedback between outputs: %s",
                 pl_feedback_state_text(f->outputs));
}

static void describe_measured(const pl_plan *plan, const pl_parts *parts, size_t i,
                              pleach_quantize_item *to)
{
    double error[2];
    pl_feedback_report f;
    pl_part_error(parts, i, error);
    if (error[1] > 0) to->relative_error = error[0] / error[1];
    if (!to->k) return;
    pl_part_feedback(parts, i, &f);
    if (f.plain[1] > 0) to->proxy_loss = f.plain[0] / f.plain[1];
    to->damping = f.damping;
    describe_fallback(plan, &f, to);
}

/* Sums up over modules in the trellis. */
static void add_measured(const pl_plan *plan, const pl_parts *parts,
                         pleach_quantize_summary *s, pl_warnings *warnings)
{
    double sum = 0;
    size_t n = 0, fallbacks = 0;
    for (size_t i = 0; i < s->n_items; i++) {
        pleach_quantize_item *item = &s->items[i];
        if (!parts->files[i]) continue;
        describe_measured(plan, parts, i, item);
        if (!item->k) continue;
        sum += item->relative_error;
        fallbacks += *item->fallback != 0;
        n++;
    }
    if (n) s->relative_error = sum / (double)n;
    if (fallbacks)
        pl_warn(warnings, "%zu of %zu modules lack error feedback that was asked for; the report "
                          "says why", fallbacks, n);
}

pleach_status pl_summary_make(const pl_plan *plan, const pl_parts *parts,
                              pl_warnings *warnings, pleach_quantize_summary *s, pleach_error *err)
{
    *s = (pleach_quantize_summary){.weights = plan->weights,
                                   .bytes = plan->bytes,
                                   .block_weights = plan->block_weights,
                                   .block_bytes = plan->block_bytes,
                                   .bits = bits_per_weight(plan->bytes, plan->weights),
                                   .block_bits =
                                       bits_per_weight(plan->block_bytes, plan->block_weights),
                                   .peak_memory = plan->peak_memory,
                                   .n_items = plan->n_items};
    s->items = pl_calloc(plan->n_items, sizeof *s->items);
    if (!s->items) return pl_fail_memory(err, "the plan", plan->n_items * sizeof *s->items);
    for (size_t i = 0; i < plan->n_items; i++) describe_item(&plan->items[i], &s->items[i]);
    if (parts) add_measured(plan, parts, s, warnings);
    s->n_warnings = warnings->n;
    s->warnings = warnings->lines;
    *warnings = (pl_warnings){0};
    return PLEACH_OK;
}

void pleach_quantize_summary_free(pleach_quantize_summary *s)
{
    if (!s) return;
    pl_free(s->items);
    pl_free(s->warnings);
    *s = (pleach_quantize_summary){0};
}
