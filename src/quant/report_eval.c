/* SPDX-License-Identifier: Apache-2.0
 *
 * The report's figures of quality: the packed folder against its source on a text. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/file.h"
#include "base/memory.h"
#include "model/attention.h"
#include "model/linear.h"
#include "model_folder.h"
#include "pleach/model.h"
#include "report.h"
#include "runtime/evaluation.h"

#define TEXT_LIMIT ((size_t)1 << 30)
enum { CONTEXT = 512 };

static pleach_status open_model(const pl_report *r, const char *path, bool weights_only,
                                pleach_model **m, pleach_error *err)
{
    pleach_model_settings s;
    pleach_model_settings_defaults(&s);
    s.weights_only = weights_only;
    s.threads = r->settings->threads;
    s.cpu = r->settings->cpu;
    return pleach_model_open(path, &s, m, err);
}

static int progress(void *user, size_t done, size_t total, double perplexity)
{
    const pleach_quantize_settings *s = user;
    (void)perplexity;
    pleach_quantize_progress p = {.stage = "evaluation", .tensor = "", .seconds_left = -1,
                                  .share = (double)done / (double)total};
    return s->progress ? s->progress(s->user, &p) : 0;
}

pleach_status pl_report_check(const pl_plan *plan, pleach_error *err)
{
    const char *path = plan->settings.report_text;
    pl_map map = {0};
    pl_tokenizer *tokenizer;
    pleach_error inner = {0};
    if (!path) return PLEACH_OK;
    PL_TRY(pl_map_open(&map, path, err));
    pl_map_close(&map);
    pleach_status status = pl_source_tokenizer(plan->source, &tokenizer, &inner);
    PL_FAIL_IF(status != PLEACH_OK, err, status, "%.300s; --report-text needs a tokenizer",
               inner.message);
    pl_tokenizer_close(tokenizer);
    return PLEACH_OK;
}

static pleach_eval_settings eval_settings(void)
{
    pleach_eval_settings s;
    pleach_eval_settings_defaults(&s);
    s.context = CONTEXT;
    s.score = PLEACH_SCORE_SECOND_HALF;
    return s;
}

/* One tokenizer serves both. */
static pleach_status open_both(const pl_report *r, const char *dir, pleach_model **model,
                               pleach_model **teacher, pleach_error *err)
{
    pleach_model_info info;
    PL_TRY(open_model(r, dir, false, model, err));
    pleach_model_get_info(*model, &info);
    return open_model(r, r->source, info.has_tokenizer, teacher, err);
}

pleach_status pl_report_evaluate(const pl_report *r, const char *dir, pleach_eval_result *result,
                                 pleach_error *err)
{
    pleach_model *model = NULL, *teacher = NULL;
    char *text = NULL;
    size_t size;
    pleach_eval_settings s = eval_settings();
    s.progress = progress;
    s.user = (void *)(uintptr_t)r->settings;
    pleach_status status = pl_read_file(r->settings->report_text, TEXT_LIMIT, &text, &size, err);
    if (status == PLEACH_OK) status = open_both(r, dir, &model, &teacher, err);
    if (status == PLEACH_OK) status = pleach_eval(model, teacher, text, size, &s, result, err);
    pleach_model_close(teacher);
    pleach_model_close(model);
    pl_free(text);
    return status;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* A module's weight as the scratch of products in the source, or in the result, depends on it. */
static pl_linear shape_of(const pl_plan_item *item, bool coded)
{
    pl_linear l = {.w = item->source};
    if (!coded || item->coding == PL_CODING_DENSE) return l;
    l.w = (pl_weight){.coding = item->coding, .out = item->module.out, .in = item->module.in,
                      .bits = item->bits, .group_size = item->group_size};
    if (item->coding == PL_CODING_AFFINE) return l;
    l.w.trellis = item->trellis;
    l.w.rotate_in = item->rotate_in;
    l.w.rotate_out = item->rotate_out;
    return l;
}

/* Scratch of the largest products: modules that share an input are multiplied together. */
static uint64_t product_scratch(const pl_plan *plan, const pl_compute *c, bool coded)
{
    uint64_t most = 0;
    for (size_t i = 0, n; i < plan->n_items; i += n) {
        pl_linear group[3];
        const pl_linear *list[3] = {&group[0], &group[1], &group[2]};
        const pl_module *first = &plan->items[i].module;
        for (n = 0; n < 3 && i + n < plan->n_items; n++) {
            const pl_module *m = &plan->items[i + n].module;
            if (n > 0 && (m->kind != PL_MODULE_LINEAR || m->kind != first->kind ||
                          m->layer != first->layer || m->input != first->input))
                break;
            group[n] = shape_of(&plan->items[i + n], coded);
        }
        most = PL_MAX(most, pl_linear_scratch(c, list, n, CONTEXT));
    }
    return most;
}

uint64_t pl_report_memory(const pl_plan *plan)
{
    const pl_config *g = plan->config;
    const pleach_eval_settings s = eval_settings();
    pl_compute c = {.pool = plan->pool, .arith = PLEACH_ARITH_INT16};
    pl_map text = {0};
    unsigned cpu;
    if (!plan->settings.report_text) return 0;
    /* One that cannot be opened is refused by pl_report_check. */
    if (pl_map_open(&text, plan->settings.report_text, NULL) != PLEACH_OK) return 0;
    uint64_t size = PL_MIN(text.size, TEXT_LIMIT), pages = 0;
    pl_map_close(&text);
    if (pl_cpu_level(plan->settings.cpu, &cpu) == 0) pl_kernels_init(&c.kernels, cpu);
    for (size_t i = 0; i < plan->n_items; i++) pages += plan->items[i].source.weight->n_bytes;
    uint64_t attention =
        pl_attention_scratch(&c, g->n_heads, g->n_kv_heads, g->head_dim, 2 * CONTEXT);
    return pages + plan->bytes + pl_eval_memory(g, &s, size) + 2 * attention +
           product_scratch(plan, &c, false) + product_scratch(plan, &c, true);
}

/* ---- the command ----------------------------------------------------------------------------- */

/* A word as a shell takes it. */
static void put_word(FILE *f, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "%+,-./:=@_";
    bool quoted = word[strspn(word, plain)] != 0 || !*word;
    fputs(quoted ? " '" : " ", f);
    for (; *word; word++) {
        if (*word == '\'') fputs("'\\''", f);
        else fputc(*word, f);
    }
    if (quoted) fputc('\'', f);
}

char *pl_report_command(const pl_report *r, const char *out)
{
    char *command = NULL;
    size_t size;
    FILE *f = open_memstream(&command, &size);
    if (!f) return NULL;
    fputs("pleach eval", f);
    put_word(f, out);
    fputs(" --teacher", f);
    put_word(f, r->source);
    fputs(" --text", f);
    put_word(f, r->settings->report_text);
    fprintf(f, " --ctx %d --score second-half", CONTEXT);
    if (fclose(f) == 0) return command;
    free(command);
    return NULL;
}
