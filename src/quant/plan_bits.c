/* SPDX-License-Identifier: Apache-2.0
 *
 * Bits of single modules. A plan file is written a module a line, to be edited by hand; what it
 * says besides bits and shape is for the reader's eyes. */
#include "plan_bits.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "budget.h"
#include "format/json.h"

#define PLAN_FORMAT "pleach plan 1"
#define PLAN_LIMIT ((size_t)16 << 20)

void pl_item_set_bits(pl_plan_item *item, uint32_t k)
{
    item->trellis.bits = k;
    pl_item_size(item);
}

json_t *pl_plan_bits_json(const pl_plan *plan)
{
    json_t *o = json_object();
    int failed = o == NULL;
    for (size_t i = 0; i < plan->n_items; i++) {
        const pl_plan_item *item = &plan->items[i];
        if (item->coding == PL_CODING_TRELLIS)
            failed |= json_object_set_new(o, item->module.name, json_integer(item->trellis.bits));
    }
    if (!failed) return o;
    json_decref(o);
    return NULL;
}

/* ---- reading a plan file -------------------------------------------------------------------- */

static bool has_shape(const json_t *entry, uint64_t out, uint64_t in)
{
    const json_t *shape = json_object_get(entry, "shape");
    return json_array_size(shape) == 2 &&
           json_integer_value(json_array_get(shape, 0)) == (json_int_t)out &&
           json_integer_value(json_array_get(shape, 1)) == (json_int_t)in;
}

static pleach_status read_entry(const char *file, const json_t *modules, pl_plan_item *item,
                                pleach_error *err)
{
    const pl_module *m = &item->module;
    const json_t *entry = json_object_get(modules, m->name);
    char prefix[200];
    uint32_t k;
    PL_FAIL_IF(!json_is_object(entry), err, PLEACH_ERR_MISMATCH,
               "%s: says nothing about %s; is it of another model?", file, m->name);
    PL_FAIL_IF(!has_shape(entry, m->out, m->in), err, PLEACH_ERR_MISMATCH,
               "%s: %s is not [%llu, %llu] there; is it of another model?", file, m->name,
               (unsigned long long)m->out, (unsigned long long)m->in);
    snprintf(prefix, sizeof prefix, "modules.%s.", m->name);
    PL_TRY(pl_json_u32((pl_json_source){file, prefix}, entry, "bits", 2, 4, &k, err));
    pl_item_set_bits(item, k);
    return PLEACH_OK;
}

static pleach_status check_names(const pl_plan *plan, const char *file, const json_t *modules,
                                 pleach_error *err)
{
    json_t *known = pl_plan_bits_json(plan), *value;
    const char *name, *unknown = NULL;
    if (!known) return pl_fail_memory(err, file, 0);
    json_object_foreach((json_t *)(uintptr_t)modules, name, value)
        if (!unknown && !json_object_get(known, name)) unknown = name;
    json_decref(known);
    PL_FAIL_IF(unknown, err, PLEACH_ERR_MISMATCH,
               "%s: \"%.160s\" is no module in the trellis of %s", file, unknown,
               pl_checkpoint_path(plan->source));
    return PLEACH_OK;
}

static pleach_status read_modules(pl_plan *plan, const char *file, const json_t *root,
                                  pleach_error *err)
{
    const json_t *modules = json_object_get(root, "modules");
    const char *format = json_string_value(json_object_get(root, "format"));
    PL_FAIL_IF(!format || strcmp(format, PLAN_FORMAT) != 0 || !json_is_object(modules), err,
               PLEACH_ERR_FORMAT, "%s: expected a plan file (\"format\": \"" PLAN_FORMAT "\")",
               file);
    PL_TRY(check_names(plan, file, modules, err));
    for (size_t i = 0; i < plan->n_items; i++)
        if (plan->items[i].coding == PL_CODING_TRELLIS)
            PL_TRY(read_entry(file, modules, &plan->items[i], err));
    return PLEACH_OK;
}

static pleach_status read_plan(pl_plan *plan, const char *file, pleach_error *err)
{
    json_t *root;
    PL_TRY(pl_json_read(file, PLAN_LIMIT, &root, NULL, err));
    pleach_status status = read_modules(plan, file, root, err);
    json_decref(root);
    return status;
}

/* ---- patterns ------------------------------------------------------------------------------- */

static pleach_status apply_pattern(pl_plan *plan, const char *text, pleach_error *err)
{
    char pattern[200];
    const char *equals = strrchr(text, '=');
    size_t length = equals ? (size_t)(equals - text) : 0, found = 0;
    PL_FAIL_IF(length == 0 || length >= sizeof pattern || !strchr("234", equals[1]) ||
                   !equals[1] || equals[2],
               err, PLEACH_ERR_ARGUMENT,
               "bits for \"%.200s\": expected PATTERN=2, PATTERN=3 or PATTERN=4", text);
    snprintf(pattern, sizeof pattern, "%.*s", (int)length, text);
    for (size_t i = 0; i < plan->n_items; i++) {
        pl_plan_item *item = &plan->items[i];
        if (item->coding != PL_CODING_TRELLIS || fnmatch(pattern, item->module.name, 0) != 0)
            continue;
        pl_item_set_bits(item, (uint32_t)(equals[1] - '0'));
        item->bits_fixed = true;
        found++;
    }
    PL_FAIL_IF(!found, err, PLEACH_ERR_ARGUMENT,
               "bits for \"%s\": matches no module in the trellis of %s", text,
               pl_checkpoint_path(plan->source));
    return PLEACH_OK;
}

pleach_status pl_plan_bits(pl_plan *plan, pleach_error *err)
{
    const pleach_quantize_settings *s = &plan->settings;
    if (s->plan) PL_TRY(read_plan(plan, s->plan, err));
    for (size_t i = 0; i < s->n_bits_for; i++) PL_TRY(apply_pattern(plan, s->bits_for[i], err));
    for (size_t i = 0; pl_has_budget(plan) && i < plan->n_items; i++) {
        pl_plan_item *item = &plan->items[i];
        if (item->coding == PL_CODING_TRELLIS && !item->bits_fixed)
            pl_item_set_bits(item, PL_MAX_K);
    }
    return PLEACH_OK;
}

/* ---- writing a plan file -------------------------------------------------------------------- */

static bool write_item(FILE *f, const pleach_quantize_item *item, bool first)
{
    json_t *name = json_string(item->name);
    json_t *entry = json_pack("{s:i, s:[II], s:I}", "bits", (int)item->k, "shape",
                              (json_int_t)item->out, (json_int_t)item->in, "bytes",
                              (json_int_t)item->bytes);
    if (entry && item->predicted_loss > 0)
        json_object_set_new(entry, "loss", json_real(item->predicted_loss));
    char *key = json_dumps(name, JSON_ENCODE_ANY),
         *value = json_dumps(entry, JSON_REAL_PRECISION(6));
    bool written = key && value && fprintf(f, "%s\n  %s: %s", first ? "" : ",", key, value) > 0;
    free(value);
    free(key);
    json_decref(entry);
    json_decref(name);
    return written;
}

static bool write_plan(FILE *f, const pleach_quantize_summary *s)
{
    bool good = fprintf(f, "{\"format\": \"" PLAN_FORMAT "\",\n \"block_bits\": %.6f,\n"
                           " \"modules\": {", s->block_bits) > 0, first = true;
    for (size_t i = 0; good && i < s->n_items; i++) {
        if (!s->items[i].k) continue;
        good = write_item(f, &s->items[i], first);
        first = false;
    }
    return good && fputs("\n }}\n", f) >= 0;
}

pleach_status pleach_quantize_save_plan(const pleach_quantize_summary *summary, const char *path,
                                        pleach_error *err)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    bool good = f && write_plan(f, summary);
    if (f) good = fclose(f) == 0 && good;
    pleach_status status =
        good ? pl_write_file(path, text, size, err) : pl_fail_memory(err, path, 0);
    free(text);
    return status;
}
