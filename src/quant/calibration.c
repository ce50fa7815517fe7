/* SPDX-License-Identifier: Apache-2.0
 *
 * From the quantiser's settings to statistics. */
#include "calibration.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/random.h"
#include "calibrate/self_text.h"
#include "calibrate/text.h"
#include "format/safetensors.h"
#include "model_folder.h"
#include "output_path.h"

enum { CHUNK = 512, LABEL_SEED = 1, SELF_SEED = 1, BINDING_VERSION = 1 };

#define TEXT_FILE "calibration-text.safetensors" /* in the work folder */
#define TEXT_TENSOR "ids"

static bool wanted(const pleach_quantize_settings *s)
{
    return strcmp(s->calib, "none") != 0;
}

static bool writes_itself(const pleach_quantize_settings *s)
{
    return strcmp(s->calib, "self") == 0;
}

static size_t chunk_tokens(const pl_plan *plan)
{
    return PL_MIN((size_t)plan->config->context_length, (size_t)CHUNK);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* What does not scale with the settings: the program, and pages of the source, one block or the
 * head at a time. */
static uint64_t fixed_memory(const pl_plan *plan)
{
    uint64_t most = 0, block = 0;
    for (size_t i = 0; i < plan->n_items; i++) {
        const pl_module *m = &plan->items[i].module;
        uint64_t bytes = plan->items[i].source.weight->n_bytes;
        if (m->kind == PL_MODULE_LINEAR && i > 0 && m->layer == plan->items[i - 1].module.layer)
            block += bytes;
        else
            block = bytes;
        most = PL_MAX(most, block);
    }
    return most + PL_FIXED_MEMORY;
}

static pl_calibrate_settings make_settings(const pl_plan *plan)
{
    const pleach_quantize_settings *s = &plan->settings;
    uint64_t fixed = fixed_memory(plan);
    pl_calibrate_settings c = {.chunk = chunk_tokens(plan), .fisher = s->fisher != 0,
                               .output = s->fisher && s->two_sided, .seed = LABEL_SEED};
    if (s->memory) c.memory = s->memory > fixed ? s->memory - fixed : 1;
    return c;
}

/* Text is written with all of the model at hand. */
static uint64_t text_memory(const pl_plan *plan, uint64_t limit, size_t *parallel)
{
    uint64_t pages = 0;
    size_t chunk = chunk_tokens(plan);
    for (size_t i = 0; i < plan->n_items; i++) pages += plan->items[i].source.weight->n_bytes;
    uint64_t rest = limit > pages + PL_FIXED_MEMORY ? limit - pages - PL_FIXED_MEMORY : 1;
    *parallel = pl_self_text_parallel(plan->config, chunk, limit ? rest : 0);
    return pages + PL_FIXED_MEMORY + pl_self_text_memory(plan->config, chunk, *parallel);
}

uint64_t pl_calibration_memory(const pl_plan *plan)
{
    const pleach_quantize_settings *s = &plan->settings;
    size_t parallel;
    if (!wanted(s)) return 0;
    pl_calibrate_settings c = make_settings(plan);
    uint64_t gathering = fixed_memory(plan) + pl_calibrate_memory(plan->config, &c);
    uint64_t writing = writes_itself(s) ? text_memory(plan, s->memory, &parallel) : 0;
    return PL_MAX(gathering, writing);
}

/* ---- text ------------------------------------------------------------------------------------ */

static pleach_status open_tokenizer(pl_calibration *c, const pl_plan *plan, pleach_error *err)
{
    pleach_error inner = {0};
    pleach_status status = pl_source_tokenizer(plan->source, &c->tokenizer, &inner);
    PL_FAIL_IF(status != PLEACH_OK, err, status,
               "%.300s; calibration needs a tokenizer, --calib none does without", inner.message);
    return PLEACH_OK;
}

static json_t *describe_file(const pl_calibration *c, size_t chunk)
{
    uint64_t hash = 0;
    char hex[17];
    for (size_t i = 0; i < c->ids.n; i++) hash = pl_mix64(hash * 3 + (uint32_t)c->ids.ids[i]);
    snprintf(hex, sizeof hex, "%016" PRIx64, hash);
    return json_pack("{s:s, s:I, s:s, s:I}", "kind", "file", "tokens", (json_int_t)c->ids.n, "ids",
                     hex, "chunk", (json_int_t)chunk);
}

static pleach_status read_text(pl_calibration *c, const pl_plan *plan, pleach_error *err)
{
    const pleach_quantize_settings *s = &plan->settings;
    size_t chunk = chunk_tokens(plan);
    if (writes_itself(s)) {
        c->text = json_pack("{s:s, s:I, s:i, s:I}", "kind", "self", "tokens",
                            (json_int_t)s->calib_tokens, "seed", SELF_SEED, "chunk",
                            (json_int_t)chunk);
    } else {
        PL_TRY(pl_calibration_text(c->tokenizer, s->calib, s->calib_tokens, chunk, &c->ids, err));
        c->text = describe_file(c, chunk);
    }
    return c->text ? PLEACH_OK : pl_fail_memory(err, "the job file", 0);
}

pleach_status pl_calibration_open(pl_calibration *c, const pl_plan *plan, pl_warnings *warnings,
                                  pleach_error *err)
{
    if (!wanted(&plan->settings)) return PLEACH_OK;
    c->wanted = true;
    PL_TRY(open_tokenizer(c, plan, err));
    PL_TRY(read_text(c, plan, err));
    size_t n = writes_itself(&plan->settings) ? plan->settings.calib_tokens : c->ids.n;
    size_t chunk = chunk_tokens(plan);
    PL_FAIL_IF(plan->settings.refine && n < 2 * chunk, err, PLEACH_ERR_ARGUMENT,
               "refining: %zu tokens of calibration text, expected %zu at least", n, 2 * chunk);
    if (n < PL_CALIBRATION_FEW)
        pl_warn(warnings, "calibration on %zu tokens alone: statistics from so few mislead", n);
    return PLEACH_OK;
}

void pl_calibration_close(pl_calibration *c)
{
    pl_tokenizer_close(c->tokenizer);
    pl_free(c->ids.ids);
    json_decref(c->text);
    pl_statistics_close(c->statistics);
    *c = (pl_calibration){0};
}

/* ---- statistics ------------------------------------------------------------------------------ */

static pleach_status check_disk(const pl_plan *plan, size_t n, const pl_calibrate_settings *s,
                                const char *dir, pleach_error *err)
{
    if (mkdir(dir, 0777) != 0 && errno != EEXIST) return pl_fail_errno(err, "create", dir);
    uint64_t need = pl_calibrate_disk(plan->config, n, s), there = pl_disk_free(dir);
    PL_FAIL_IF(there < need, err, PLEACH_ERR_NO_SPACE,
               "%s: no space: calibration needs %llu bytes, %llu are free", dir,
               (unsigned long long)need, (unsigned long long)there);
    return PLEACH_OK;
}

/* Progress of writing, as calibration reports its own. */
static int report_text(void *user, double share)
{
    const pl_calibrate_settings *s = user;
    pl_calibrate_progress p = {.stage = "text", .share = share};
    return s->progress ? s->progress(s->user, &p) : 0;
}

/* The file that keeps the model's own text, so that a run that is stopped while it gathers
 * statistics need not write it again. */
static bool read_kept_text(pl_calibration *c, const pl_plan *plan, const char *path)
{
    pl_safetensors *file = NULL;
    size_t n = plan->settings.calib_tokens;
    if (!pl_exists(path) || pl_safetensors_open(path, &file, NULL) != PLEACH_OK) return false;
    const pl_tensor *t = pl_safetensors_find(file, TEXT_TENSOR);
    int32_t *ids = pl_alloc(n, sizeof *ids);
    bool kept = ids && t && t->type == PL_I32 && t->n_bytes == n * sizeof *ids;
    if (kept) memcpy(ids, t->data, n * sizeof *ids);
    if (kept) kept = pl_ids_append(&c->ids, ids, n, NULL) == PLEACH_OK;
    pl_free(ids);
    pl_safetensors_close(file);
    return kept;
}

static pleach_status keep_text(const pl_calibration *c, const char *path, pleach_error *err)
{
    pl_safetensors_writer *w;
    pl_tensor t = {.name = TEXT_TENSOR, .type = PL_I32, .n_dims = 1, .shape = {c->ids.n}};
    PL_TRY(pl_safetensors_create(path, &t, 1, &w, err));
    pleach_status status =
        pl_safetensors_append(w, c->ids.ids, c->ids.n * sizeof *c->ids.ids, err);
    if (status == PLEACH_OK) return pl_safetensors_commit(w, err);
    pl_safetensors_discard(w);
    return status;
}

static pleach_status write_text(pl_calibration *c, const pl_plan *plan, const pl_transformer *t,
                                const pl_compute *compute, const char *path,
                                pl_calibrate_settings *s, pleach_error *err)
{
    pl_self_text_settings set = {.tokens = plan->settings.calib_tokens, .chunk = s->chunk,
                                 .seed = SELF_SEED, .progress = report_text, .user = s};
    text_memory(plan, plan->settings.memory, &set.parallel);
    if (read_kept_text(c, plan, path)) return PLEACH_OK;
    PL_TRY(pl_self_text(t, compute, c->tokenizer, &set, &c->ids, err));
    return keep_text(c, path, err);
}

static pleach_status gather(pl_calibration *c, const pl_plan *plan, const pl_compute *compute,
                            const json_t *binding, const char *dir, const char *text,
                            pl_calibrate_settings *s, pleach_error *err)
{
    pl_transformer *t;
    pleach_status status = PLEACH_OK;
    PL_TRY(pl_transformer_open(plan->source, &t, err));
    if (writes_itself(&plan->settings)) status = write_text(c, plan, t, compute, text, s, err);
    if (status == PLEACH_OK)
        status = pl_calibrate(t, compute, c->ids.ids, c->ids.n, s, binding, dir, err);
    pl_transformer_close(t);
    return status;
}

/* What the statistics lack that the run asks for. */
static pleach_status check_gathered(const pl_calibration *c, const pleach_quantize_settings *s,
                                    const char *dir, pleach_error *err)
{
    pl_statistics_info info;
    pl_statistics_get_info(c->statistics, &info);
    PL_FAIL_IF(s->fisher && !info.fisher, err, PLEACH_ERR_MISMATCH,
               "%s: statistics without a backward pass, which this run asks for "
               "(--plain-hessian does without)", dir);
    PL_FAIL_IF(s->two_sided && !info.output, err, PLEACH_ERR_MISMATCH,
               "%s: statistics of inputs alone; two-sided feedback needs those of outputs", dir);
    return PLEACH_OK;
}

/* Matrices without statistics, or with those of some tokens alone. */
typedef struct gaps {
    size_t all, none, some, idle; /* idle: of experts that no token was routed to */
    const char *first_none, *first_some, *first_idle;
} gaps;

static pleach_status find_gaps(const pl_calibration *c, const pl_plan *plan, gaps *g,
                               pleach_error *err)
{
    pl_statistics_info info;
    pl_statistics_get_info(c->statistics, &info);
    for (size_t i = 0; i < plan->n_items; i++) {
        const pl_module *m = &plan->items[i].module;
        pl_module_statistics s;
        if (m->kind != PL_MODULE_LINEAR) continue;
        PL_TRY(pl_statistics_get(c->statistics, m, &s, err));
        g->all++;
        if (m->expert) {
            if (s.tokens == 0 && g->idle++ == 0) g->first_idle = m->name;
        } else if (s.tokens == 0) {
            if (g->none++ == 0) g->first_none = m->name;
        } else if (s.tokens != info.tokens) {
            if (g->some++ == 0) g->first_some = m->name;
        }
    }
    return PLEACH_OK;
}

static pleach_status warn_of_gaps(const pl_calibration *c, const pl_plan *plan,
                                  pl_warnings *warnings, pleach_error *err)
{
    pl_statistics_info info;
    gaps g = {0};
    pl_statistics_get_info(c->statistics, &info);
    PL_TRY(find_gaps(c, plan, &g, err));
    if (g.none)
        pl_warn(warnings, "calibration: %zu of %zu matrices, from %s on, have no statistics: their "
                "inputs are not finite or too large", g.none, g.all, g.first_none);
    if (g.some)
        pl_warn(warnings,
                "calibration: %zu of %zu matrices, from %s on, lack statistics of some of "
                "%llu tokens: inputs are not finite or too large",
                g.some, g.all, g.first_some, (unsigned long long)info.tokens);
    if (g.idle)
        pl_warn(warnings,
                "calibration: %zu of %zu matrices, from %s on, are of experts that no token of the "
                "text was routed to: they are coded without feedback",
                g.idle, g.all, g.first_idle);
    return PLEACH_OK;
}

static pleach_status open_statistics(pl_calibration *c, const pl_plan *plan,
                                     const pl_compute *compute, const json_t *binding,
                                     const char *dir, const char *text, pl_calibrate_settings *s,
                                     pleach_error *err)
{
    pleach_status status = pl_statistics_open(dir, binding, &c->statistics, err);
    if (status != PLEACH_ERR_MISSING) return status;
    size_t n = writes_itself(&plan->settings) ? plan->settings.calib_tokens : c->ids.n;
    PL_TRY(check_disk(plan, n, s, dir, err));
    PL_TRY(gather(c, plan, compute, binding, dir, text, s, err));
    return pl_statistics_open(dir, binding, &c->statistics, err);
}

static json_t *make_binding(const pl_calibration *c, const json_t *source)
{
    return json_pack("{s:i, s:O, s:O}", "version", BINDING_VERSION, "model", source, "text",
                     c->text);
}

pleach_status pl_calibration_find(pl_calibration *c, const pl_plan *plan, const json_t *source,
                                  pl_warnings *warnings, pleach_error *err)
{
    const char *dir = plan->settings.statistics;
    if (!c->wanted || !dir) return PLEACH_OK;
    json_t *binding = make_binding(c, source);
    if (!binding) return pl_fail_memory(err, "calibration", 0);
    pleach_status status = pl_statistics_open(dir, binding, &c->statistics, err);
    json_decref(binding);
    if (status == PLEACH_ERR_MISSING) return PLEACH_OK;
    if (status == PLEACH_OK) status = check_gathered(c, &plan->settings, dir, err);
    if (status == PLEACH_OK) status = warn_of_gaps(c, plan, warnings, err);
    return status;
}

pleach_status pl_calibration_run(pl_calibration *c, const pl_plan *plan, const pl_kernels *kernels,
                                 const json_t *source, const char *work_dir,
                                 pl_calibrate_progress_fn *progress, void *user,
                                 pl_warnings *warnings, pleach_error *err)
{
    const pleach_quantize_settings *set = &plan->settings;
    if (!c->wanted) return PLEACH_OK;
    pl_calibrate_settings s = make_settings(plan);
    pl_compute compute = {.kernels = *kernels, .pool = plan->pool, .arith = PLEACH_ARITH_F32};
    s.progress = progress;
    s.user = user;
    json_t *binding = make_binding(c, source);
    char *inside = pl_path_join(work_dir, "statistics"), *text = pl_path_join(work_dir, TEXT_FILE);
    const char *dir = set->statistics ? set->statistics : inside;
    pleach_status status =
        binding && inside && text ? PLEACH_OK : pl_fail_memory(err, "calibration", 0);
    if (status == PLEACH_OK)
        status = open_statistics(c, plan, &compute, binding, dir, text, &s, err);
    if (status == PLEACH_OK) status = check_gathered(c, set, dir, err);
    if (status == PLEACH_OK) status = warn_of_gaps(c, plan, warnings, err);
    json_decref(binding);
    pl_free(inside);
    pl_free(text);
    return status;
}

pleach_status pl_calibration_need_text(pl_calibration *c, const pl_plan *plan,
                                       const pl_kernels *kernels, const char *work_dir,
                                       pl_calibrate_progress_fn *progress, void *user,
                                       pleach_error *err)
{
    if (c->ids.n > 0) return PLEACH_OK;
    pl_calibrate_settings s = make_settings(plan);
    pl_compute compute = {.kernels = *kernels, .pool = plan->pool, .arith = PLEACH_ARITH_F32};
    s.progress = progress;
    s.user = user;
    pl_transformer *t = NULL;
    char *path = pl_path_join(work_dir, TEXT_FILE);
    pleach_status status = path ? pl_transformer_open(plan->source, &t, err)
                                : pl_fail_memory(err, "calibration", 0);
    if (status == PLEACH_OK) status = write_text(c, plan, t, &compute, path, &s, err);
    pl_transformer_close(t);
    pl_free(path);
    return status;
}
