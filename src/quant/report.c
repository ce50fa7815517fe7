/* SPDX-License-Identifier: Apache-2.0
 *
 * The report as JSON, and both files. */
#include "report.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "model_folder.h"
#include "pleach/pleach.h"

static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

/* Null for bytes that are no UTF-8, as a path may hold. */
static json_t *text(const char *s)
{
    json_t *t = s ? json_string(s) : NULL;
    return t ? t : json_null();
}

static json_t *texts(const char *const *items, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(list, text(items[i]));
    return list;
}

static json_t *settings_json(const pleach_quantize_settings *s)
{
    static const char *const rotations[] = {"none", "input", "both", "online", "fold"};
    static const char *const searches[] = {"normal", "fast", "exact"};
    json_t *o =
        json_pack("{s:i, s:f, s:I, s:o, s:i, s:i, s:i, s:i, s:s, s:I, s:s, s:o, s:o}", "bits",
                  (int)s->bits, "budget", s->budget, "budget_file", (json_int_t)s->budget_file,
                  "plan", text(s->plan), "axis", s->axis, "state_bits", (int)s->state_bits,
                  "embed_bits", (int)s->embed_bits, "head_bits", (int)s->head_bits, "rotate",
                  rotations[s->rotate], "seed", (json_int_t)s->seed, "encode", searches[s->encode],
                  "bits_for", texts(s->bits_for, s->n_bits_for), "keep", texts(s->keep, s->n_keep));
    json_t *calibration =
        json_pack("{s:o, s:I, s:b, s:b, s:o, s:o, s:i, s:o, s:i}", "text", text(s->calib), "tokens",
                  (json_int_t)s->calib_tokens, "fisher", s->fisher, "two_sided", s->two_sided,
                  "damping", number(s->damping), "output_damping", number(s->output_damping),
                  "sweeps", s->sweeps, "output_weighting", number(s->output_weighting), "refine",
                  s->refine);
    if (o) json_object_set_new(o, "calibration", calibration);
    return o;
}

static json_t *totals_json(const pleach_quantize_summary *s)
{
    json_t *refining = json_null();
    if (s->refine_before > 0)
        refining = json_pack("{s:i, s:o, s:o}", "passes_kept", s->refined, "held_out_kl_before",
                             number(s->refine_before), "held_out_kl_after",
                             number(s->refine_after));
    return json_pack("{s:I, s:I, s:o, s:I, s:I, s:o, s:o, s:o}", "weights", (json_int_t)s->weights,
                     "bytes", (json_int_t)s->bytes, "bits", number(s->bits), "block_weights",
                     (json_int_t)s->block_weights, "block_bytes", (json_int_t)s->block_bytes,
                     "block_bits", number(s->block_bits), "relative_error",
                     number(s->relative_error), "refining", refining);
}

static json_t *module_json(const pleach_quantize_item *t)
{
    json_t *o = json_pack("{s:o, s:s, s:[II], s:I, s:o, s:b, s:o}", "name", text(t->name), "coding",
                          t->coding, "shape", (json_int_t)t->out, (json_int_t)t->in, "bytes",
                          (json_int_t)t->bytes, "bits", number(t->bits), "block_matrix",
                          t->block_matrix, "relative_error", number(t->relative_error));
    if (!o || !t->k) return o;
    json_t *trellis = json_pack("{s:i, s:i, s:i, s:i, s:o, s:o, s:o, s:o}", "k", (int)t->k, "L",
                                (int)t->state_bits, "T", (int)t->block, "axis", (int)t->axis,
                                "predicted_loss", number(t->predicted_loss), "proxy_loss",
                                number(t->proxy_loss), "damping", number(t->damping), "fallback",
                                *t->fallback ? text(t->fallback) : json_null());
    json_object_update(o, trellis);
    json_decref(trellis);
    return o;
}

static json_t *eval_json(const pl_report *r)
{
    const pleach_eval_result *e = r->eval;
    if (!e) return json_null();
    return json_pack("{s:o, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "command", text(r->command),
                     "chunks", (json_int_t)e->chunks, "tokens", (json_int_t)e->tokens, "kl",
                     number(e->kl), "kl_error", number(e->kl_error), "perplexity",
                     number(e->perplexity), "perplexity_error", number(e->perplexity_error),
                     "teacher_perplexity", number(e->teacher_perplexity), "same_top",
                     number(e->same_top));
}

static json_t *report_json(const pl_report *r)
{
    const pleach_quantize_summary *s = r->summary;
    json_t *modules = json_array(), *warnings = json_array();
    for (size_t i = 0; i < s->n_items; i++)
        json_array_append_new(modules, module_json(&s->items[i]));
    for (size_t i = 0; i < s->n_warnings; i++)
        json_array_append_new(warnings, text(s->warnings[i]));
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "pleach", PLEACH_VERSION, "source",
                     text(r->source), "settings", settings_json(r->settings), "totals",
                     totals_json(s), "evaluation", eval_json(r), "warnings", warnings, "modules",
                     modules);
}

static pleach_status write_html(const pl_report *r, const char *dir, pleach_error *err)
{
    char *path = pl_path_join(dir, "report.html"), *html = pl_report_html(r);
    pleach_status status = path && html ? pl_write_file(path, html, strlen(html), err)
                                        : pl_fail_memory(err, "report.html", 0);
    free(html);
    pl_free(path);
    return status;
}

pleach_status pl_report_write(const pl_report *r, const char *dir, pleach_error *err)
{
    json_t *o = report_json(r);
    if (!o) return pl_fail_memory(err, "quantize-report.json", 0);
    pleach_status status = pl_write_json(dir, "quantize-report.json", o, err);
    json_decref(o);
    return status == PLEACH_OK ? write_html(r, dir, err) : status;
}
