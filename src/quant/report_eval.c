/* SPDX-License-Identifier: Apache-2.0
 *
 * The report's figures of quality: the packed folder against its source on a text. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "pleach/model.h"
#include "report.h"

#define TEXT_LIMIT ((size_t)1 << 30)
enum { CONTEXT = 512 };

static pleach_status open_model(const pl_report *r, const char *path, pleach_model **m,
                                pleach_error *err)
{
    pleach_model_settings s;
    pleach_model_settings_defaults(&s);
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

pleach_status pl_report_check(const pleach_quantize_settings *s, pleach_error *err)
{
    pl_map map = {0};
    if (!s->report_text) return PLEACH_OK;
    PL_TRY(pl_map_open(&map, s->report_text, err));
    pl_map_close(&map);
    return PLEACH_OK;
}

pleach_status pl_report_evaluate(const pl_report *r, const char *dir, pleach_eval_result *result,
                                 pleach_error *err)
{
    pleach_model *model = NULL, *teacher = NULL;
    char *text = NULL;
    size_t size;
    pleach_eval_settings s;
    pleach_eval_settings_defaults(&s);
    s.context = CONTEXT;
    s.score = PLEACH_SCORE_SECOND_HALF;
    s.progress = progress;
    s.user = (void *)(uintptr_t)r->settings;
    pleach_status status = pl_read_file(r->settings->report_text, TEXT_LIMIT, &text, &size, err);
    if (status == PLEACH_OK) status = open_model(r, dir, &model, err);
    if (status == PLEACH_OK) status = open_model(r, r->source, &teacher, err);
    if (status == PLEACH_OK) status = pleach_eval(model, teacher, text, size, &s, result, err);
    pleach_model_close(teacher);
    pleach_model_close(model);
    pl_free(text);
    return status;
}

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
