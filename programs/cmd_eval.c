/* SPDX-License-Identifier: Apache-2.0
 *
 * pleach eval: perplexity on a text, multiple-choice tasks, and the distance from a teacher. */
#include <stdio.h>

#include "base/clock.h"
#include "base/memory.h"
#include "commands.h"
#include "console.h"
#include "input.h"
#include "model_options.h"

typedef struct eval_values {
    const char *path, *text, *tasks, *teacher;
    int64_t context, chunks;
    int score, json;
    model_values model;
    session_values session; /* its cache types alone */
} eval_values;

static void defaults(void *values)
{
    eval_values *v = values;
    pleach_eval_settings s;
    pleach_eval_settings_defaults(&s);
    v->context = (int64_t)s.context;
    v->chunks = (int64_t)s.chunks;
    v->score = (int)s.score;
    model_values_defaults(&v->model);
    session_values_defaults(&v->session);
}

static int show_progress(void *user, size_t done, size_t total, double perplexity)
{
    char left[32];
    double spent = pl_seconds() - *(double *)user;
    if (done > 0)
        progress_line("chunk %zu of %zu, perplexity %.4f, %s left", done, total, perplexity,
                      time_text(spent / (double)done * (double)(total - done), left));
    return interrupted();
}

static int print_result_json(const pleach_eval_result *r, bool teacher)
{
    json_t *o =
        json_pack("{s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "chunks", (json_int_t)r->chunks,
                  "tokens", (json_int_t)r->tokens, "nll", json_number(r->nll), "nll_error",
                  json_number(r->nll_error), "perplexity", json_number(r->perplexity),
                  "perplexity_error", json_number(r->perplexity_error), "seconds",
                  json_number(r->seconds), "cache", cache_json(&r->cache));
    if (o && teacher) {
        json_object_set_new(o, "teacher_perplexity", json_number(r->teacher_perplexity));
        json_object_set_new(o, "kl", json_number(r->kl));
        json_object_set_new(o, "kl_error", json_number(r->kl_error));
        json_object_set_new(o, "kl_p99", json_number(r->kl_p99));
        json_object_set_new(o, "kl_max", json_number(r->kl_max));
        json_object_set_new(o, "same_top", json_number(r->same_top));
    }
    return print_json(o);
}

static void print_result(const pleach_eval_result *r, bool teacher)
{
    char text[32];
    printf("perplexity          %.4f +- %.4f\n", r->perplexity, r->perplexity_error);
    if (teacher) {
        printf("teacher perplexity  %.4f\n", r->teacher_perplexity);
        printf(
            "KL from teacher     %.5f +- %.5f nats a token; 99th percentile %.4f, largest %.4f\n",
            r->kl, r->kl_error, r->kl_p99, r->kl_max);
        printf("same top token      %.2f %%\n", 100 * r->same_top);
    }
    printf("scored              %zu tokens in %zu chunks, %s\n", r->tokens, r->chunks,
           time_text(r->seconds, text));
    print_cache(stdout, &r->cache);
}

static int evaluate(const eval_values *v, const pleach_model *m, const pleach_model *teacher,
                    const char *text, size_t size)
{
    pleach_error err;
    pleach_eval_result result;
    pleach_eval_settings s;
    double start = pl_seconds();
    pleach_eval_settings_defaults(&s);
    s.context = (size_t)v->context;
    s.chunks = (size_t)v->chunks;
    s.score = (pleach_score)v->score;
    s.kv = v->session.kv;
    s.kv_recent = (size_t)v->session.recent;
    s.progress = show_progress;
    s.user = &start;
    catch_interrupts(false);
    pleach_status status = pleach_eval(m, teacher, text, size, &s, &result, &err);
    progress_end();
    if (status != PLEACH_OK) return fail_status(&err);
    warn_of_cache(&result.cache);
    if (v->json) return print_result_json(&result, teacher != NULL);
    print_result(&result, teacher != NULL);
    return EXIT_OK;
}

/* ---- multiple choice ----------------------------------------------------------------------- */

static int show_tasks_progress(void *user, size_t done, size_t total, double accuracy)
{
    char left[32];
    double spent = pl_seconds() - *(double *)user;
    progress_line("item %zu of %zu, %.1f %% right, %s left", done, total, 100 * accuracy,
                  time_text(spent / (double)done * (double)(total - done), left));
    return interrupted();
}

static int print_tasks_json(const pleach_tasks_result *r, bool teacher)
{
    json_t *o = json_pack("{s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "items", (json_int_t)r->items,
                          "choices", (json_int_t)r->choices, "acc", json_number(r->acc),
                          "acc_error", json_number(r->acc_error), "acc_norm",
                          json_number(r->acc_norm), "acc_norm_error",
                          json_number(r->acc_norm_error), "seconds", json_number(r->seconds));
    if (o && teacher) {
        json_object_set_new(o, "teacher_acc", json_number(r->teacher_acc));
        json_object_set_new(o, "teacher_acc_norm", json_number(r->teacher_acc_norm));
        json_object_set_new(o, "same_choice", json_number(r->same_choice));
        json_object_set_new(o, "same_choice_norm", json_number(r->same_choice_norm));
    }
    return print_json(o);
}

static void print_tasks(const pleach_tasks_result *r, bool teacher)
{
    char text[32];
    printf("acc                 %.2f +- %.2f %%\n", 100 * r->acc, 100 * r->acc_error);
    printf("acc_norm            %.2f +- %.2f %%\n", 100 * r->acc_norm, 100 * r->acc_norm_error);
    if (teacher) {
        printf("teacher             acc %.2f %%, acc_norm %.2f %%\n", 100 * r->teacher_acc,
               100 * r->teacher_acc_norm);
        printf("same choice         %.2f %%, by bytes %.2f %%\n", 100 * r->same_choice,
               100 * r->same_choice_norm);
    }
    printf("scored              %zu items with %zu choices, %s\n", r->items, r->choices,
           time_text(r->seconds, text));
}

static int evaluate_tasks(const eval_values *v, const pleach_model *m, const pleach_model *teacher,
                          const char *lines, size_t size)
{
    pleach_error err;
    pleach_tasks_result result;
    pleach_tasks_settings s;
    double start = pl_seconds();
    pleach_tasks_settings_defaults(&s);
    s.kv = v->session.kv;
    s.kv_recent = (size_t)v->session.recent;
    s.progress = show_tasks_progress;
    s.user = &start;
    catch_interrupts(false);
    pleach_status status = pleach_eval_tasks(m, teacher, lines, size, &s, &result, &err);
    progress_end();
    if (status == PLEACH_ERR_CANCELLED) return fail_status(&err);
    if (status != PLEACH_OK) return fail("%s: %s", v->tasks, err.message);
    if (v->json) return print_tasks_json(&result, teacher != NULL);
    print_tasks(&result, teacher != NULL);
    return EXIT_OK;
}

static int run(const void *values)
{
    const eval_values *v = values;
    pleach_model *m = NULL, *teacher = NULL;
    char *text = NULL;
    size_t size = 0;
    if (!v->text == !v->tasks) return fail_usage("eval: expected one of --text and --tasks");
    int status = check_session(&v->session);
    if (status == EXIT_OK) status = read_input(v->text ? v->text : v->tasks, &text, &size);
    if (status == EXIT_OK) status = open_model(v->path, &v->model, &m);
    if (status == EXIT_OK && v->teacher) status = open_model(v->teacher, &v->model, &teacher);
    if (status == EXIT_OK)
        status = (v->text ? evaluate : evaluate_tasks)(v, m, teacher, text, size);
    pleach_model_close(teacher);
    pleach_model_close(m);
    pl_free(text);
    return status;
}

static const option options[] = {
    MODEL_OPERAND(eval_values),
    {.name = "text",
     .type = OPTION_PATH,
     .argument = "FILE",
     .help = "the text to predict; \"-\" is standard input",
     OPTION_AT(eval_values, text)},
    {.name = "tasks",
     .type = OPTION_PATH,
     .argument = "FILE",
     .help = "multiple-choice items instead, a JSON object a line: context or question, choices, "
             "answer",
     OPTION_AT(eval_values, tasks)},
    {.name = "teacher",
     .type = OPTION_PATH,
     .argument = "MODEL",
     .help = "compare with this model, usually the original: KL and the same top token",
     OPTION_AT(eval_values, teacher)},
    {.name = "ctx",
     .type = OPTION_INTEGER,
     .argument = "N",
     .min = 2,
     .max = 16777216,
     .help = "tokens in a chunk; each chunk stands alone",
     OPTION_AT(eval_values, context)},
    {.name = "chunks",
     .type = OPTION_INTEGER,
     .argument = "N",
     .min = 0,
     .max = 1000000000,
     .help = "most chunks; 0: the whole text",
     OPTION_AT(eval_values, chunks)},
    {.name = "score",
     .type = OPTION_CHOICE,
     .choices = "all|second-half",
     .help = "predictions that count; second-half: tokens ctx/2+1 to ctx-1 of a chunk",
     OPTION_AT(eval_values, score)},
    KV_OPTIONS(eval_values),
    MODEL_OPTIONS(eval_values),
    {.name = "json",
     .type = OPTION_FLAG,
     .help = "print one JSON object",
     OPTION_AT(eval_values, json)},
};

const command eval_command = {
    .name = "eval",
    .summary = "measure perplexity, tasks, and KL from a teacher",
    .description =
        "Measures how well a model predicts a text: perplexity with its standard error. With a "
        "teacher also the mean and 99th percentile of KL(teacher || model) in nats per token, and "
        "how often both have the same likeliest token. The text is cut into chunks of --ctx "
        "tokens, each on its own, without a begin token. --kv is the model's; a teacher's cache is "
        "in f32, so that a model beside itself shows what a cache type costs.\n\n"
        "With --tasks the choices of multiple-choice items are scored by their log likelihood: how "
        "often the answer is the likeliest by sum (acc) and by sum over bytes (acc_norm). An item "
        "is a line such as {\"question\": \"What is 2 + 3?\", \"choices\": [\"5\", \"6\"], "
        "\"answer\": 0}; \"context\" instead of \"question\" is taken as it is.",
    .options = options,
    .n_options = PL_COUNT(options),
    .examples = (const char *const[]){"pleach eval model-4bit --text book.txt",
                                      "pleach eval model-4bit --teacher model.gguf --text book.txt "
                                      "--chunks 16 --score second-half --json",
                                      "pleach eval model-4bit --teacher model.gguf --tasks "
                                      "items.jsonl",
                                      NULL},
    .values_size = sizeof(eval_values),
    .defaults = defaults,
    .run = run,
};
