/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver: plans, codes module after module into the work folder, then puts the result together
 * and publishes it. */
#include "pleach/quantize.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/file.h"
#include "base/memory.h"
#include "budget.h"
#include "calibration.h"
#include "coding_device.h"
#include "job.h"
#include "format/safetensors.h"
#include "model_folder.h"
#include "outputs.h"
#include "parts.h"
#include "plan_bits.h"
#include "refine.h"
#include "report.h"
#include "summary.h"
#include "pleach/pleach.h"
#include "warnings.h"

typedef struct run {
    pl_plan plan;
    pl_output_path path;
    pl_job job;
    pl_kernels kernels;
    pl_coding_device *device; /* or NULL */
    pl_calibration calibration;
    json_t *source; /* its fingerprint */
    pl_parts parts;
    pl_safetensors *refined; /* scales that replace those of the parts, or NULL */
    pl_refine_result refine_result;
    /* Progress. */
    uint64_t total;
    double start;
    double first_share; /* of calibration, at its first report; -1: none yet */
    pl_warnings warnings;
    pleach_quantize_summary summary;
} run;

static uint64_t item_weights(const pl_plan_item *item)
{
    return item->module.out * item->module.in;
}

/* ---- progress ------------------------------------------------------------------------------- */

/* Time left is counted from what this run did: beyond the share `from` that it found done. */
static int tell(const run *r, pleach_quantize_progress p, double from)
{
    const pleach_quantize_settings *s = &r->plan.settings;
    double here = p.share - from;
    if (!s->progress) return 0;
    p.total = r->total;
    p.seconds = pl_seconds() - r->start;
    p.seconds_left = here > 0 ? p.seconds * (1 - p.share) / here : -1;
    if (p.done && here > 0 && p.seconds > 0)
        p.weights_per_second = here * (double)r->total / p.seconds;
    return s->progress(s->user, &p);
}

static int report_coding(void *user, const char *module, uint64_t done)
{
    const run *r = user;
    double total = (double)PL_MAX(r->total, 1);
    pleach_quantize_progress p = {.stage = "coding", .tensor = module, .done = done,
                                  .share = (double)done / total};
    return tell(r, p, (double)r->parts.resumed_weights / total);
}

static int report_calibration(void *user, const pl_calibrate_progress *c)
{
    run *r = user;
    char name[40];
    snprintf(name, sizeof name, "model.layers.%u", c->block);
    if (r->first_share < 0) r->first_share = c->share;
    pleach_quantize_progress p = {.stage = c->stage, .tensor = name, .share = c->share};
    return tell(r, p, r->first_share);
}

static int report_refining(void *user, double share)
{
    pleach_quantize_progress p = {.stage = "refining", .tensor = "scales", .share = share};
    return tell(user, p, 0);
}

/* ---- the result ----------------------------------------------------------------------------- */

static pleach_status check_disk(const run *r, pleach_error *err)
{
    uint64_t need = r->plan.part_bytes + r->plan.bytes + ((uint64_t)4 << 20);
    for (size_t i = 0; i < r->plan.n_items; i++)
        if (r->parts.files[i]) need -= r->plan.items[i].bytes;
    uint64_t there = pl_disk_free(r->path.parent);
    PL_FAIL_IF(there < need, err, PLEACH_ERR_NO_SPACE,
               "%s: no space: %llu bytes are needed for the work and the result, %llu are free",
               r->path.parent, (unsigned long long)need, (unsigned long long)there);
    return PLEACH_OK;
}

static pleach_status list_outputs(const run *r, pl_outputs *o, pleach_error *err)
{
    for (size_t i = 0; i < r->plan.n_items; i++) {
        const pl_plan_item *item = &r->plan.items[i];
        if (item->coding == PL_CODING_DENSE) PL_TRY(pl_outputs_add_item(o, item, err));
        const pl_safetensors *part = r->parts.files[i];
        for (size_t t = 0; part && t < pl_safetensors_count(part); t++) {
            const pl_tensor *tensor = pl_safetensors_tensor(part, t);
            const pl_tensor *better =
                r->refined ? pl_safetensors_find(r->refined, tensor->name) : NULL;
            if (better) tensor = better;
            if (pl_part_is_output(tensor))
                PL_TRY(pl_outputs_add_tensor(o, tensor, tensor->type, err));
        }
    }
    for (size_t i = 0; i < r->plan.n_carried; i++)
        PL_TRY(pl_outputs_add_tensor(o, r->plan.carried[i], pl_kept_type(r->plan.carried[i]), err));
    return PLEACH_OK;
}

static pleach_status write_weights(const run *r, pleach_error *err)
{
    pl_outputs o = {0};
    pleach_status status = list_outputs(r, &o, err);
    if (status == PLEACH_OK) status = pl_outputs_write(&o, r->path.staging, PL_SHARD_BYTES, err);
    pl_outputs_free(&o);
    return status;
}

/* ---- config --------------------------------------------------------------------------------- */

static void add_rotation(json_t *trellis, const char *key, const pl_rotation *r)
{
    if (!r->block) return;
    json_object_set_new(trellis, key,
                        json_pack("{s:s, s:i, s:I}", "kind", "hadamard", "block", (int)r->block,
                                  "seed", (json_int_t)r->seed));
}

static json_t *module_entry(const pl_plan_item *item)
{
    const pleach_trellis *t = &item->trellis;
    if (item->coding == PL_CODING_DENSE) return json_false();
    if (item->coding == PL_CODING_AFFINE)
        return json_pack("{s:i, s:i}", "bits", (int)item->bits, "group_size",
                         (int)item->group_size);
    json_t *trellis = json_pack("{s:i, s:s, s:i}", "L", (int)t->state_bits, "code", "1mad", "axis",
                                (int)t->axis);
    if (item->width != t->cols)
        json_object_set_new(trellis, "width", json_integer((json_int_t)item->width));
    if (!item->folded) {
        add_rotation(trellis, "input_rotation", &item->rotate_in);
        add_rotation(trellis, "output_rotation", &item->rotate_out);
    }
    if (item->output_scale) json_object_set_new(trellis, "output_scale", json_true());
    return json_pack("{s:i, s:i, s:s, s:o}", "bits", (int)t->bits, "group_size", (int)t->block,
                     "mode", "trellis", "trellis", trellis);
}

static pleach_status write_config(const run *r, pleach_error *err)
{
    json_t *config;
    PL_TRY(pl_source_config(r->plan.source, &config, err));
    json_t *map = json_pack("{s:i, s:i, s:s}", "group_size", 64, "bits", 8, "mode", "affine");
    int failed = map == NULL;
    for (size_t i = 0; i < r->plan.n_items; i++) {
        const pl_plan_item *item = &r->plan.items[i];
        failed |= json_object_set_new(map, item->module.name, module_entry(item));
    }
    if (r->plan.untied)
        failed |= json_object_set_new(config, "tie_word_embeddings", json_false());
    failed |= json_object_set(config, "quantization", map);
    failed |= json_object_set(config, "quantization_config", map);
    pleach_status status = failed ? pl_fail_memory(err, "config.json", 0)
                                  : pl_write_json(r->path.staging, "config.json", config, err);
    json_decref(map);
    json_decref(config);
    return status;
}

/* ---- the report ----------------------------------------------------------------------------- */

/* A text that cannot be scored costs the run nothing but the figures. */
static pleach_status evaluate(run *r, pl_report *report, pleach_eval_result *eval,
                              pleach_error *err)
{
    pleach_error inner;
    pleach_status status = pl_report_evaluate(report, r->path.staging, eval, &inner);
    PL_FAIL_IF(status == PLEACH_ERR_CANCELLED, err, status, "%s", inner.message);
    if (status == PLEACH_OK) report->eval = eval;
    else pl_warn(&r->warnings, "not evaluated: %s", inner.message);
    return PLEACH_OK;
}

static pleach_status make_summary(run *r, pleach_error *err)
{
    PL_TRY(pl_summary_make(&r->plan, &r->parts, &r->warnings, &r->summary, err));
    r->summary.refined = r->refine_result.kept;
    r->summary.refine_before = r->refine_result.before;
    r->summary.refine_after = r->refine_result.after;
    return PLEACH_OK;
}

static pleach_status write_report(run *r, pleach_error *err)
{
    pl_report report = {.source = pl_checkpoint_path(r->plan.source),
                        .settings = &r->plan.settings, .summary = &r->summary};
    pleach_eval_result eval;
    char *command = NULL;
    if (r->plan.settings.report_text) {
        PL_TRY(evaluate(r, &report, &eval, err));
        report.command = command = pl_report_command(&report, r->path.out);
    }
    pleach_status status = make_summary(r, err);
    if (report.eval) {
        r->summary.evaluated = 1;
        r->summary.kl = eval.kl;
        r->summary.perplexity = eval.perplexity;
        r->summary.same_top = eval.same_top;
    }
    if (status == PLEACH_OK) status = pl_report_write(&report, r->path.staging, err);
    free(command);
    return status;
}

static pleach_status stage_model(run *r, pleach_error *err)
{
    PL_TRY(pl_output_stage(&r->path, err));
    PL_TRY(write_weights(r, err));
    PL_TRY(pl_write_side_files(r->plan.source, r->path.staging, err));
    return write_config(r, err);
}

/* ---- refining ------------------------------------------------------------------------------- */

/* The model as it is coded lies in staging. */
static pleach_status refine_staged(run *r, const char *path, pleach_error *err)
{
    pleach_checkpoint *staged;
    pl_transformer *source = NULL, *coded = NULL;
    pl_refine_settings s = pl_refine_plan(&r->plan);
    pl_compute c = {.kernels = r->kernels, .pool = r->plan.pool, .arith = PLEACH_ARITH_F32};
    pl_refine_result result;
    s.progress = report_refining;
    s.user = r;
    PL_TRY(pl_checkpoint_open(r->path.staging, &staged, err));
    pleach_status status = pl_transformer_open(staged, &coded, err);
    if (status == PLEACH_OK) status = pl_transformer_open(r->plan.source, &source, err);
    if (status == PLEACH_OK)
        status = pl_refine(source, coded, &c, r->calibration.ids.ids, r->calibration.ids.n, &s,
                           path, &result, err);
    pl_transformer_close(source);
    pl_transformer_close(coded);
    pleach_checkpoint_close(staged);
    return status;
}

static pleach_status open_refined(run *r, const char *path, pleach_error *err)
{
    pl_refine_result result;
    PL_TRY(pl_safetensors_open(path, &r->refined, err));
    PL_FAIL_IF(!pl_refine_read_result(r->refined, &result), err, PLEACH_ERR_IO,
               "%s: not what was written there", path);
    r->refine_result = result;
    return PLEACH_OK;
}

static pleach_status refine(run *r, pleach_error *err)
{
    if (r->plan.settings.refine == 0) return PLEACH_OK;
    char *path = pl_path_join(r->path.partial, "refined.safetensors");
    pleach_status status = path ? PLEACH_OK : pl_fail_memory(err, "a path", 0);
    if (status == PLEACH_OK && !pl_exists(path)) {
        r->first_share = -1;
        r->start = pl_seconds();
        status = pl_calibration_need_text(&r->calibration, &r->plan, &r->kernels, r->path.partial,
                                          report_calibration, r, err);
        if (status == PLEACH_OK) status = stage_model(r, err);
        r->start = pl_seconds();
        if (status == PLEACH_OK) status = refine_staged(r, path, err);
    }
    if (status == PLEACH_OK) status = open_refined(r, path, err);
    pl_free(path);
    return status;
}

static pleach_status assemble(run *r, pleach_error *err)
{
    PL_TRY(refine(r, err));
    PL_TRY(stage_model(r, err));
    PL_TRY(write_report(r, err));
    return pl_output_publish(&r->path, err);
}

/* ---- calls ---------------------------------------------------------------------------------- */

static json_t *bits_binding(const pl_plan *plan)
{
    const pleach_quantize_settings *s = &plan->settings;
    json_t *patterns = json_array();
    for (size_t i = 0; i < s->n_bits_for; i++)
        json_array_append_new(patterns, json_string(s->bits_for[i]));
    return json_pack("{s:f, s:I, s:o, s:o}", "budget", s->budget, "budget of the files",
                     (json_int_t)s->budget_file, "patterns", patterns, "plan",
                     s->plan ? pl_plan_bits_json(plan) : json_null());
}

static json_t *calibration_binding(const run *r)
{
    const pleach_quantize_settings *s = &r->plan.settings;
    if (!r->calibration.wanted) return json_null();
    return json_pack("{s:O, s:b, s:b, s:f, s:f, s:i, s:f, s:i}", "text", r->calibration.text,
                     "backward pass", s->fisher, "two-sided", s->two_sided, "damping", s->damping,
                     "output damping", s->output_damping, "sweeps", s->sweeps, "output weighting",
                     s->output_weighting, "refine", s->refine);
}

/* What resuming must find unchanged. */
static json_t *make_binding(const run *r)
{
    const pl_plan *plan = &r->plan;
    const pleach_quantize_settings *s = &plan->settings;
    json_t *keep = json_array();
    for (size_t i = 0; i < s->n_keep; i++) json_array_append_new(keep, json_string(s->keep[i]));
    return json_pack("{s:s, s:s, s:O, s:{s:i, s:i, s:i, s:i, s:i, s:i, s:I, s:i, s:s, s:o, s:o}, "
                     "s:o}",
                     "work", "quantize", "version", PLEACH_VERSION, "source", r->source, "settings",
                     "bits", (int)s->bits, "axis", s->axis, "state bits", (int)s->state_bits,
                     "embed bits", (int)s->embed_bits, "head bits", (int)s->head_bits, "rotate",
                     (int)s->rotate, "seed", (json_int_t)s->seed, "encode", (int)s->encode,
                     "device", r->device ? "cuda" : "cpu", "keep", keep, "bits by module",
                     bits_binding(plan), "calibration", calibration_binding(r));
}

static pleach_status open_job(run *r, pleach_error *err)
{
    r->source = pl_source_fingerprint(r->plan.source, r->plan.pool);
    json_t *binding = make_binding(r);
    if (!binding) return pl_fail_memory(err, "the job file", 0);
    pleach_status status =
        pl_job_open(&r->job, &r->path, binding, r->plan.settings.discard_partial, err);
    json_decref(binding);
    return status;
}

static pleach_status spend_budget(pl_plan *plan, const pl_statistics *statistics,
                                  const pl_kernels *kernels, pl_warnings *warnings,
                                  pleach_error *err)
{
    if (!pl_has_budget(plan)) return PLEACH_OK;
    PL_TRY(pl_budget_measure(plan, statistics, kernels, warnings, err));
    return pl_budget_spend(plan, err);
}

static void note_skipped(const pl_plan *plan, pl_warnings *warnings)
{
    size_t n = pl_checkpoint_skipped(plan->source);
    if (n)
        pl_warn(warnings, "%zu tensors of parts that are not run, such as a vision tower, are left out",
                n);
}

static void note_untied(const pl_plan *plan, pl_warnings *warnings)
{
    if (!plan->untied) return;
    const pl_plan_item *head = &plan->items[plan->n_items - 1];
    pl_warn(warnings, "folding parts the output head from the embedding: it takes %llu bytes of "
                      "its own", (unsigned long long)head->bytes);
}

static pleach_status calibrate(run *r, pleach_error *err)
{
    if (pl_output_published(&r->path) && !pl_has_budget(&r->plan)) return PLEACH_OK;
    r->first_share = -1;
    r->start = pl_seconds();
    return pl_calibration_run(&r->calibration, &r->plan, &r->kernels, r->source, r->path.partial,
                              report_calibration, r, &r->warnings, err);
}

static pleach_status work(run *r, pleach_error *err)
{
    for (size_t i = 0; i < r->plan.n_items; i++)
        if (r->plan.items[i].coding != PL_CODING_DENSE) r->total += item_weights(&r->plan.items[i]);
    r->parts = (pl_parts){.plan = &r->plan, .job = &r->job, .kernels = &r->kernels,
                          .statistics = r->calibration.statistics, .device = r->device,
                          .progress = report_coding, .user = r};
    PL_TRY(pl_parts_find(&r->parts, err));
    r->start = pl_seconds();
    if (!pl_output_published(&r->path)) {
        PL_TRY(pl_output_check_free(&r->path, r->plan.settings.force, err));
        PL_TRY(check_disk(r, err));
        PL_TRY(pl_parts_make(&r->parts, err));
        return assemble(r, err);
    }
    return make_summary(r, err);
}

/* A full disk in the middle of the work: what to do about it. */
static pleach_status explain(const run *r, pleach_status status, pleach_error *err)
{
    if (status != PLEACH_ERR_NO_SPACE || !err) return status;
    pleach_error inner = *err;
    return pl_fail(err, status, "%.300s; what was done is kept in %.120s", inner.message,
                   r->path.partial);
}

static pleach_status quantize(run *r, const char *source, const char *out,
                              const pleach_quantize_settings *settings,
                              pleach_quantize_summary *summary, pleach_error *err)
{
    unsigned cpu;
    double start = pl_seconds();
    PL_TRY(pl_plan_open(&r->plan, r->plan.source, settings, err));
    PL_TRY(pl_check_side_files(r->plan.source, err));
    PL_TRY(pl_report_check(&r->plan, err));
    if (pl_cpu_level(r->plan.settings.cpu, &cpu) == 0) pl_kernels_init(&r->kernels, cpu);
    PL_TRY(pl_coding_device_open(r->plan.settings.device, &r->device, err));
    if (r->device) pl_pool_lend(r->plan.pool, r->device->products);
    PL_TRY(pl_output_path_open(&r->path, source, out, r->plan.settings.force, err));
    PL_TRY(pl_calibration_open(&r->calibration, &r->plan, &r->warnings, err));
    const pleach_quantize_settings *set = &r->plan.settings;
    if (set->promise) set->promise(set->user, r->plan.peak_memory);
    PL_TRY(open_job(r, err));
    PL_TRY(calibrate(r, err));
    PL_TRY(spend_budget(&r->plan, r->calibration.statistics, &r->kernels, &r->warnings, err));
    note_untied(&r->plan, &r->warnings);
    note_skipped(&r->plan, &r->warnings);
    pleach_status status = work(r, err);
    if (status != PLEACH_OK) return explain(r, status, err);
    if (summary) {
        *summary = r->summary;
        r->summary = (pleach_quantize_summary){0};
        summary->resumed = r->parts.resumed;
        summary->seconds = pl_seconds() - start;
    }
    return pl_job_remove(&r->job, err);
}

pleach_status pleach_quantize(const char *source, const char *out,
                              const pleach_quantize_settings *settings,
                              pleach_quantize_summary *summary, pleach_error *err)
{
    run r = {.job.lock = -1};
    pleach_checkpoint *c;
    if (summary) *summary = (pleach_quantize_summary){0};
    PL_TRY(pl_checkpoint_open(source, &c, err));
    r.plan.source = c;
    pleach_status status = quantize(&r, source, out, settings, summary, err);
    pl_safetensors_close(r.refined);
    pl_parts_close(&r.parts);
    pl_free(r.warnings.lines);
    pleach_quantize_summary_free(&r.summary);
    pl_calibration_close(&r.calibration);
    json_decref(r.source);
    if (r.job.path) pl_job_close(&r.job);
    pl_output_path_close(&r.path);
    pl_plan_close(&r.plan);
    pl_coding_device_close(r.device);
    pleach_checkpoint_close(c);
    if (status != PLEACH_OK && summary) pleach_quantize_summary_free(summary);
    return status;
}

/* Statistics that another run left make the plan that a run with them would. */
static pleach_status find_statistics(const pl_plan *plan, pl_calibration *calibration,
                                     pl_warnings *warnings, pleach_error *err)
{
    if (!pl_has_budget(plan) || !plan->settings.statistics) return PLEACH_OK;
    PL_TRY(pl_calibration_open(calibration, plan, warnings, err));
    json_t *fingerprint = pl_source_fingerprint(plan->source, plan->pool);
    if (!fingerprint) return pl_fail_memory(err, "the plan", 0);
    pleach_status status = pl_calibration_find(calibration, plan, fingerprint, warnings, err);
    json_decref(fingerprint);
    return status;
}

static pleach_status plan_alone(pl_plan *plan, pl_calibration *calibration, pl_warnings *warnings,
                                pleach_quantize_summary *summary, pleach_error *err)
{
    unsigned cpu;
    pl_kernels kernels;
    if (pl_cpu_level(plan->settings.cpu, &cpu) == 0) pl_kernels_init(&kernels, cpu);
    PL_TRY(find_statistics(plan, calibration, warnings, err));
    PL_TRY(spend_budget(plan, calibration->statistics, &kernels, warnings, err));
    note_untied(plan, warnings);
    note_skipped(plan, warnings);
    return pl_summary_make(plan, NULL, warnings, summary, err);
}

pleach_status pleach_quantize_plan(const char *source, const pleach_quantize_settings *settings,
                                   pleach_quantize_summary *summary, pleach_error *err)
{
    pleach_checkpoint *c;
    pl_plan plan = {0};
    pl_calibration calibration = {0};
    pl_warnings warnings = {0};
    *summary = (pleach_quantize_summary){0};
    PL_TRY(pl_checkpoint_open(source, &c, err));
    pleach_status status = pl_plan_open(&plan, c, settings, err);
    if (status == PLEACH_OK) status = plan_alone(&plan, &calibration, &warnings, summary, err);
    pl_free(warnings.lines);
    pl_calibration_close(&calibration);
    pl_plan_close(&plan);
    pleach_checkpoint_close(c);
    return status;
}
