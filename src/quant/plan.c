/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan: settings checked against the model, and a coding, geometry and size for each module. */
#include "plan.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/threads.h"
#include "budget.h"
#include "calibrate/calibrate.h"
#include "calibrate/statistics.h"
#include "calibrate/text.h"
#include "calibration.h"
#include "code_module.h"
#include "parts.h"
#include "plan_bits.h"
#include "refine.h"
#include "report.h"
#include "rotate_matrix.h"

#define DEVICE_MEMORY ((uint64_t)512 << 20) /* a driver and its libraries */

/* ---- settings ------------------------------------------------------------------------------- */

void pleach_quantize_settings_defaults(pleach_quantize_settings *s)
{
    *s = (pleach_quantize_settings){.bits = 3,
                                    .axis = -1,
                                    .state_bits = 12,
                                    .embed_bits = 8,
                                    .head_bits = 8,
                                    .rotate = PLEACH_ROTATE_INPUT_SCALE,
                                    .seed = 2,
                                    .calib = "none",
                                    .calib_tokens = 20480,
                                    .fisher = 1,
                                    .damping = 0.1,
                                    .output_damping = 1,
                                    .sweeps = 1,
                                    .output_weighting = 0.25};
}

static pleach_status check_budget(const pleach_quantize_settings *s, pleach_error *err)
{
    PL_FAIL_IF(s->budget != 0 && !(s->budget >= 2 && s->budget <= 16), err, PLEACH_ERR_ARGUMENT,
               "budget is %g, expected 2 to 16 bits a weight, or 0 for none", s->budget);
    PL_FAIL_IF(s->plan && (s->budget > 0 || s->budget_file > 0), err, PLEACH_ERR_ARGUMENT,
               "a plan and a budget both say the bits: give one of them");
    return PLEACH_OK;
}

static pleach_status check_calibration(pleach_quantize_settings *s, pleach_error *err)
{
    if (!s->calib) s->calib = "none";
    PL_FAIL_IF(!*s->calib, err, PLEACH_ERR_ARGUMENT,
               "calib is empty, expected a file, self or none");
    PL_FAIL_IF(s->calib_tokens < PL_CALIBRATION_LEAST, err, PLEACH_ERR_ARGUMENT,
               "calib tokens is %zu, expected %d or more", s->calib_tokens, PL_CALIBRATION_LEAST);
    PL_FAIL_IF(s->two_sided && !s->fisher, err, PLEACH_ERR_ARGUMENT,
               "two-sided feedback needs the backward pass that plain statistics do without");
    PL_FAIL_IF(!(s->damping >= 0 && s->damping <= 1e6), err, PLEACH_ERR_ARGUMENT,
               "damping is %g, expected 0 to 1e6", s->damping);
    PL_FAIL_IF(!(s->output_damping >= 0 && s->output_damping <= 1e6), err, PLEACH_ERR_ARGUMENT,
               "output damping is %g, expected 0 to 1e6", s->output_damping);
    PL_FAIL_IF(s->sweeps < 0 || s->sweeps > 100, err, PLEACH_ERR_ARGUMENT,
               "sweeps is %d, expected 0 to 100", s->sweeps);
    PL_FAIL_IF(!(s->output_weighting >= 0 && s->output_weighting <= 1), err, PLEACH_ERR_ARGUMENT,
               "output weighting is %g, expected 0 to 1", s->output_weighting);
    PL_FAIL_IF(s->refine < 0 || s->refine > 1000, err, PLEACH_ERR_ARGUMENT,
               "refine is %d, expected 0 to 1000 passes", s->refine);
    PL_FAIL_IF(s->refine && strcmp(s->calib, "none") == 0, err, PLEACH_ERR_ARGUMENT,
               "refining needs a text to calibrate on, and calib is none");
    PL_FAIL_IF(s->statistics && strcmp(s->calib, "none") == 0, err, PLEACH_ERR_ARGUMENT,
               "statistics are of a text, and calib is none");
    PL_FAIL_IF(s->two_sided && strcmp(s->calib, "none") == 0, err, PLEACH_ERR_ARGUMENT,
               "two-sided feedback needs a text to calibrate on, and calib is none");
    PL_FAIL_IF(s->two_sided && s->axis == 1, err, PLEACH_ERR_ARGUMENT,
               "two-sided feedback needs matrices coded along the outputs, and axis is 1");
    return PLEACH_OK;
}

static pleach_status check_settings(pleach_quantize_settings *s, pleach_error *err)
{
    unsigned cpu;
    PL_TRY(check_budget(s, err));
    PL_TRY(check_calibration(s, err));
    PL_FAIL_IF(s->bits < 2 || s->bits > 4, err, PLEACH_ERR_ARGUMENT,
               "bits is %u, expected 2, 3 or 4", s->bits);
    PL_FAIL_IF(s->axis < -1 || s->axis > 1, err, PLEACH_ERR_ARGUMENT,
               "axis is %d, expected 0 or 1, or -1 for the default", s->axis);
    PL_FAIL_IF(s->state_bits != 12 && s->state_bits != 16, err, PLEACH_ERR_ARGUMENT,
               "state bits is %u, expected 12 or 16", s->state_bits);
    PL_FAIL_IF(s->embed_bits != 4 && s->embed_bits != 8 && s->embed_bits != 16, err,
               PLEACH_ERR_ARGUMENT, "embed bits is %u, expected 4, 8 or 16", s->embed_bits);
    PL_FAIL_IF(s->head_bits != 4 && s->head_bits != 8 && s->head_bits != 16, err,
               PLEACH_ERR_ARGUMENT, "head bits is %u, expected 4, 8 or 16", s->head_bits);
    PL_FAIL_IF((unsigned)s->rotate > PLEACH_ROTATE_FOLD, err, PLEACH_ERR_ARGUMENT,
               "rotate is %d, expected a pleach_rotate", (int)s->rotate);
    PL_FAIL_IF((unsigned)s->encode > PLEACH_SEARCH_EXACT, err, PLEACH_ERR_ARGUMENT,
               "encode is %d, expected a pleach_trellis_search", (int)s->encode);
    PL_FAIL_IF(s->encode == PLEACH_SEARCH_EXACT && s->device && strcmp(s->device, "cpu"), err,
               PLEACH_ERR_ARGUMENT, "the exact search is the processor's: not with device %.40s",
               s->device);
    PL_FAIL_IF(s->threads < 0 || s->threads > PL_MAX_THREADS, err, PLEACH_ERR_ARGUMENT,
               "threads is %d, expected 0 to %d", s->threads, PL_MAX_THREADS);
    PL_FAIL_IF(pl_cpu_level(s->cpu, &cpu) != 0, err, PLEACH_ERR_ARGUMENT,
               "cpu level \"%s\" is not known or not in this machine", s->cpu);
    s->cpu = pl_cpu_name(cpu);
    if (s->axis < 0 && s->rotate != PLEACH_ROTATE_FOLD) s->axis = 0;
    if (s->threads == 0) s->threads = pl_default_threads();
    return PLEACH_OK;
}

static pl_feedback_settings plan_feedback(const pleach_quantize_settings *s)
{
    bool calibrated = strcmp(s->calib, "none") != 0;
    return (pl_feedback_settings){.inputs = calibrated,
                                  .outputs = calibrated && s->fisher && s->two_sided,
                                  .two_sided = s->two_sided != 0,
                                  .damping = s->damping,
                                  .output_damping = s->output_damping,
                                  .sweeps = s->sweeps};
}

/* A pattern that matches nothing is a slip of the user's. */
static pleach_status check_patterns(const pl_plan *plan, pleach_error *err)
{
    const pleach_quantize_settings *s = &plan->settings;
    for (size_t p = 0; p < s->n_keep; p++) {
        size_t i = 0;
        while (i < plan->n_items && fnmatch(s->keep[p], plan->items[i].module.name, 0) != 0) i++;
        PL_FAIL_IF(i == plan->n_items, err, PLEACH_ERR_ARGUMENT,
                   "keep pattern \"%s\" matches no module of %s", s->keep[p],
                   pl_checkpoint_path(plan->source));
    }
    return PLEACH_OK;
}

static bool is_kept(const pl_plan *plan, const char *module)
{
    const pleach_quantize_settings *s = &plan->settings;
    for (size_t p = 0; p < s->n_keep; p++)
        if (fnmatch(s->keep[p], module, 0) == 0) return true;
    return false;
}

/* ---- rotations ------------------------------------------------------------------------------ */

static uint64_t mix_text(uint64_t h, const char *text)
{
    for (; *text; text++) h = pl_mix64(h + 0x9e3779b97f4a7c15u + (unsigned char)*text);
    return h;
}

/* Seeds keep to 53 bits, which every JSON reader holds exactly. Modules of one role share their input's
 * signs, so that an engine rotates once for them. */
static uint64_t input_seed(uint64_t seed, const pl_module *m)
{
    return pl_mix64(pl_mix64(seed) + ((uint64_t)m->layer << 8 | m->role)) >> 11;
}

static uint64_t output_seed(uint64_t seed, const pl_module *m)
{
    return mix_text(pl_mix64(~seed), m->name) >> 11;
}

static void plan_fold(const pl_fold *f, pl_plan_item *item)
{
    const pl_module *m = &item->module;
    item->folded = true;
    item->gain = pl_fold_gain(f, m);
    if (pl_fold_writes(m)) item->rotate_out = f->rotation;
    else item->rotate_in = f->rotation;
}

static void plan_rotation(const pleach_quantize_settings *s, pl_plan_item *item)
{
    const pl_module *m = &item->module;
    if (item->folded || s->rotate == PLEACH_ROTATE_NONE) return;
    item->rotate_in = (pl_rotation){pl_rotation_block(m->in), input_seed(s->seed, m)};
    if (s->rotate == PLEACH_ROTATE_BOTH)
        item->rotate_out = (pl_rotation){pl_rotation_block(m->out), output_seed(s->seed, m)};
    /* Along axis 1 the row scales are output scales already. */
    item->output_weighting = s->output_weighting;
    item->output_scale = s->rotate == PLEACH_ROTATE_INPUT_SCALE && item->trellis.axis == 0;
}

/* ---- items ---------------------------------------------------------------------------------- */

/* A folded matrix has new numbers: of 16-bit types F16 holds them best. */
static void plan_dense(pl_plan_item *item)
{
    item->coding = PL_CODING_DENSE;
    item->type = item->source.coding == PL_CODING_DENSE && !item->source.block_scale
                     ? pl_kept_type(item->source.weight)
                     : PL_F16;
    if (item->folded && item->type != PL_F32) item->type = PL_F16;
}

static void plan_affine(pl_plan_item *item, uint32_t bits)
{
    item->group_size = item->module.in % 64 == 0 ? 64 : 32;
    item->bits = bits;
    if (item->module.in % item->group_size) plan_dense(item);
    else item->coding = PL_CODING_AFFINE;
}

static pleach_status plan_trellis(const pleach_quantize_settings *s, pl_plan_item *item,
                                  pleach_error *err)
{
    const pl_module *m = &item->module;
    uint32_t block;
    uint64_t padded;
    /* Folded: along the side that R reaches. */
    int axis = s->axis >= 0 ? s->axis : !pl_fold_writes(m);
    item->width = axis ? m->in : m->out;
    if (item->width < PL_TRELLIS_MIN_WIDTH) {
        plan_dense(item);
        return PLEACH_OK;
    }
    PL_TRY(pleach_trellis_choose_block(item->width, &block, &padded, err));
    item->coding = PL_CODING_TRELLIS;
    item->trellis = (pleach_trellis){.bits = s->bits,
                                     .state_bits = s->state_bits,
                                     .block = block,
                                     .axis = (uint32_t)axis,
                                     .rows = axis ? m->out : m->in,
                                     .cols = padded};
    plan_rotation(s, item);
    return pleach_trellis_check(&item->trellis, err);
}

static pleach_status plan_item(const pl_plan *plan, pl_plan_item *item, pleach_error *err)
{
    const pleach_quantize_settings *s = &plan->settings;
    const pl_module *m = &item->module;
    const char *stored = plan->untied && m->kind == PL_MODULE_HEAD ? plan->items[0].module.name
                                                                    : m->name;
    PL_TRY(pl_checkpoint_weight(plan->source, stored, m->out, m->in, &item->source, err));
    if (s->rotate == PLEACH_ROTATE_FOLD) plan_fold(&plan->fold, item);
    bool linear = m->kind == PL_MODULE_LINEAR;
    uint32_t affine_bits = m->kind == PL_MODULE_EMBEDDING ? s->embed_bits : s->head_bits;
    if (is_kept(plan, m->name) || (!linear && affine_bits == 16)) plan_dense(item);
    else if (linear) PL_TRY(plan_trellis(s, item, err));
    else plan_affine(item, affine_bits);
    pl_item_size(item);
    return PLEACH_OK;
}

pl_dtype pl_kept_type(const pl_tensor *t)
{
    return pl_dtype_get(t->type)->block_elements > 1 ? PL_F16 : t->type;
}

static void add_tensor(pl_item_tensors *out, const char *module, const char *part, pl_dtype type,
                       uint64_t rows, uint64_t cols)
{
    size_t i = out->n++;
    pl_tensor *t = &out->tensor[i];
    snprintf(out->name[i], sizeof out->name[i], "%s.%s", module, part);
    *t = (pl_tensor){.name = out->name[i], .type = type, .n_dims = cols ? 2 : 1,
                     .shape = {rows, cols}};
    t->n_bytes = rows * (cols ? cols : 1) * pl_dtype_get(type)->block_bytes;
}

void pl_item_tensors_get(const pl_plan_item *item, pl_dtype scale_type, pl_item_tensors *out)
{
    const pl_module *m = &item->module;
    const pleach_trellis *t = &item->trellis;
    *out = (pl_item_tensors){0};
    switch (item->coding) {
    case PL_CODING_TRELLIS:
        add_tensor(out, m->name, "weight", PL_U32, t->rows, t->cols * t->bits / 32);
        add_tensor(out, m->name, "scales", PL_F16, t->rows, 0);
        if (item->output_scale) add_tensor(out, m->name, "output_scale", PL_F16, m->out, 0);
        break;
    case PL_CODING_AFFINE:
        add_tensor(out, m->name, "weight", PL_U32, m->out, m->in * item->bits / 32);
        add_tensor(out, m->name, "scales", scale_type, m->out, m->in / item->group_size);
        add_tensor(out, m->name, "biases", scale_type, m->out, m->in / item->group_size);
        break;
    case PL_CODING_DENSE:
        add_tensor(out, m->name, "weight", item->type, m->out, m->in);
        break;
    }
}

void pl_item_size(pl_plan_item *item)
{
    pl_item_tensors parts;
    pl_item_tensors_get(item, PL_F16, &parts);
    item->bytes = 0;
    for (size_t i = 0; i < parts.n; i++) item->bytes += parts.tensor[i].n_bytes;
}

/* ---- carried tensors ------------------------------------------------------------------------ */

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The modules' names in order, in fresh memory; NULL: no memory. */
static const char **sort_modules(const pl_plan *plan)
{
    const char **names = pl_alloc(plan->n_items, sizeof *names);
    if (!names) return NULL;
    for (size_t i = 0; i < plan->n_items; i++) names[i] = plan->items[i].module.name;
    qsort(names, plan->n_items, sizeof *names, compare_names);
    return names;
}

/* True for a tensor that is part of a module's weight, the unused head of a tied model included. */
static bool is_module_part(const char *const *modules, size_t n, const char *name)
{
    static const char *const parts[] = {"weight", "scales", "biases", "output_scale",
                                        "weight_scale_inv", "weight_scale"};
    const char *dot = strrchr(name, '.');
    if (!dot) return false;
    size_t length = (size_t)(dot - name), p = 0;
    while (p < PL_COUNT(parts) && strcmp(dot + 1, parts[p]) != 0) p++;
    if (p == PL_COUNT(parts)) return false;
    if (length == 7 && !strncmp(name, "lm_head", 7)) return true;
    char module[sizeof ((pl_module *)0)->name];
    const char *key = module;
    if (length >= sizeof module) return false;
    memcpy(module, name, length);
    module[length] = 0;
    return bsearch(&key, modules, n, sizeof key, compare_names) != NULL;
}

static pleach_status plan_carried(pl_plan *plan, pleach_error *err)
{
    size_t n = pl_checkpoint_tensor_count(plan->source);
    plan->carried = pl_alloc(n, sizeof *plan->carried);
    const char **modules = sort_modules(plan);
    if (!plan->carried || !modules) {
        pl_free((void *)modules);
        return pl_fail_memory(err, "the plan", n * sizeof *plan->carried);
    }
    for (size_t i = 0; i < n; i++) {
        const pl_tensor *t = pl_checkpoint_tensor_at(plan->source, i);
        if (!is_module_part(modules, plan->n_items, t->name))
            plan->carried[plan->n_carried++] = pl_fold_tensor(&plan->fold, t);
    }
    pl_free((void *)modules);
    return PLEACH_OK;
}

/* ---- totals --------------------------------------------------------------------------------- */

/* Memory for one module beside the coder's buffers: the pages of source and statistics that are
 * being read, and the whole matrix of a source that is in the trellis itself. */
static uint64_t item_memory(const pl_plan *plan, const pl_plan_item *item)
{
    const pl_module *m = &item->module;
    const pl_feedback_settings *f = &plan->feedback;
    uint64_t whole = item->source.coding == PL_CODING_TRELLIS ? m->out * m->in * 4 : 0, numbers = 0;
    if (item->coding == PL_CODING_TRELLIS && f->inputs)
        numbers = pl_triangle_size(m->in) * (plan->settings.fisher ? 2 : 1) +
                  (f->outputs ? pl_triangle_size(m->out) : 0);
    return pl_coder_pages(item) + whole + numbers * sizeof(float);
}

void pl_plan_total(pl_plan *plan)
{
    plan->weights = plan->bytes = plan->block_weights = plan->block_bytes = 0;
    plan->part_bytes = 0;
    for (size_t i = 0; i < plan->n_items; i++) {
        const pl_plan_item *item = &plan->items[i];
        uint64_t weights = item->module.out * item->module.in;
        plan->weights += weights;
        plan->bytes += item->bytes;
        if (pl_item_in_block(item)) {
            plan->block_weights += weights;
            plan->block_bytes += item->bytes;
        }
        if (item->coding != PL_CODING_DENSE) plan->part_bytes += item->bytes;
    }
    for (size_t i = 0; i < plan->n_carried; i++) {
        const pl_tensor *t = plan->carried[i];
        uint64_t n = pl_tensor_elements(t);
        plan->weights += n;
        plan->bytes += n * pl_dtype_get(pl_kept_type(t))->block_bytes;
    }
}

/* Pages of the source and of the result, all of them. */
static uint64_t model_pages(const pl_plan *plan)
{
    uint64_t pages = plan->bytes;
    for (size_t i = 0; i < plan->n_items; i++) pages += plan->items[i].source.weight->n_bytes;
    return pages;
}

/* Before a budget is spent, so that what is promised then is kept whatever it buys: until it is
 * spent, modules have the most bits that it can give. */
static void plan_memory(pl_plan *plan)
{
    plan->module_memory = 0;
    for (size_t i = 0; i < plan->n_items; i++)
        plan->module_memory = PL_MAX(plan->module_memory, item_memory(plan, &plan->items[i]));
    plan->module_memory += pl_coder_memory(plan->items, plan->n_items, &plan->feedback);
    plan->at_once = pl_parts_at_once(plan);
    plan->peak_memory = plan->module_memory * (uint64_t)plan->at_once + PL_FIXED_MEMORY;
    plan->peak_memory = PL_MAX(plan->peak_memory, pl_calibration_memory(plan));
    if (plan->settings.refine) {
        pl_refine_settings s = pl_refine_plan(plan);
        uint64_t refining = pl_refine_memory(plan->config, &s, plan->settings.calib_tokens);
        plan->peak_memory =
            PL_MAX(plan->peak_memory, model_pages(plan) + refining + PL_FIXED_MEMORY);
    }
    if (plan->settings.report_text)
        plan->peak_memory = PL_MAX(plan->peak_memory, pl_report_memory(plan) + PL_FIXED_MEMORY);
    if (plan->settings.device && strcmp(plan->settings.device, "cpu") != 0)
        plan->peak_memory += DEVICE_MEMORY;
}

static pleach_status check_memory(const pl_plan *plan, pleach_error *err)
{
    const uint64_t allowed = plan->settings.memory;
    double least = ceil((double)plan->peak_memory * 1e-5) * 1e-4; /* in units that do, if given */
    PL_FAIL_IF(allowed && plan->peak_memory > allowed, err, PLEACH_ERR_LIMIT,
               "--memory: %.4f GB (%llu bytes) are needed, %g GB are allowed", least,
               (unsigned long long)plan->peak_memory, (double)allowed * 1e-9);
    return PLEACH_OK;
}

/* ---- opening -------------------------------------------------------------------------------- */

/* Gains and the rotation go into a head as they do not go into the embedding: the two part. */
static pleach_status list_modules(pl_plan *plan, pleach_error *err)
{
    pl_config config = *plan->config;
    plan->untied = config.tie_embeddings && plan->settings.rotate == PLEACH_ROTATE_FOLD;
    if (plan->untied) config.tie_embeddings = false;
    size_t n = pl_config_module_count(&config);
    plan->items = pl_calloc(n, sizeof *plan->items);
    if (!plan->items) return pl_fail_memory(err, "the plan", n * sizeof *plan->items);
    plan->n_items = n;
    for (size_t i = 0; i < n; i++) pl_config_module(&config, i, &plan->items[i].module);
    return PLEACH_OK;
}

static pleach_status plan_all(pl_plan *plan, pleach_error *err)
{
    PL_TRY(check_settings(&plan->settings, err));
    plan->feedback = plan_feedback(&plan->settings);
    PL_TRY(pl_pool_open(plan->settings.threads, &plan->pool, err));
    PL_TRY(pl_checkpoint_config(plan->source, &plan->config, err));
    if (plan->feedback.inputs) PL_TRY(pl_calibrate_check(plan->config, err));
    PL_FAIL_IF(plan->settings.refine && plan->config->n_experts, err, PLEACH_ERR_UNSUPPORTED,
               "refining mixtures of experts is not supported");
    if (plan->settings.rotate == PLEACH_ROTATE_FOLD)
        PL_TRY(pl_fold_open(&plan->fold, plan->source, plan->config, plan->settings.seed, err));
    PL_TRY(list_modules(plan, err));
    PL_TRY(check_patterns(plan, err));
    for (size_t i = 0; i < plan->n_items; i++) PL_TRY(plan_item(plan, &plan->items[i], err));
    PL_TRY(plan_carried(plan, err));
    PL_TRY(pl_plan_bits(plan, err));
    pl_plan_total(plan);
    plan_memory(plan);
    PL_TRY(check_memory(plan, err));
    return pl_has_budget(plan) ? pl_budget_check(plan, err) : PLEACH_OK;
}

pleach_status pl_plan_open(pl_plan *plan, const pleach_checkpoint *source,
                           const pleach_quantize_settings *settings, pleach_error *err)
{
    *plan = (pl_plan){.source = source};
    if (settings) plan->settings = *settings;
    else pleach_quantize_settings_defaults(&plan->settings);
    pleach_status status = plan_all(plan, err);
    if (status != PLEACH_OK) pl_plan_close(plan);
    return status;
}

void pl_plan_close(pl_plan *plan)
{
    pl_free(plan->items);
    pl_free((void *)plan->carried);
    pl_fold_close(&plan->fold);
    pl_pool_close(plan->pool);
    *plan = (pl_plan){0};
}
