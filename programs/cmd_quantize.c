/* SPDX-License-Identifier: Apache-2.0
 *
 * pleach quantize: a checkpoint in, a packed checkpoint out. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "commands.h"
#include "console.h"
#include "model_options.h"
#include "quantize_summary.h"

typedef struct quantize_values {
    const char *source, *out, *cpu, *device, *budget, *plan, *save_plan, *report_text;
    const char *calib, *statistics;
    double budget_file, memory; /* GB */
    double damping, output_damping; /* in means of the diagonal */
    double output_weighting;
    int64_t refine;
    int64_t calib_tokens;
    int plain_hessian, two_sided;
    int64_t bits, state_bits, embed_bits, head_bits, seed, threads;
    int axis, rotate, encode, force, restart, dry_run, json;
    option_texts keep, bits_for;
    uint64_t given;
} quantize_values;

static void defaults(void *values)
{
    quantize_values *v = values;
    pleach_quantize_settings s;
    pleach_quantize_settings_defaults(&s);
    v->bits = s.bits;
    v->state_bits = s.state_bits;
    v->embed_bits = s.embed_bits;
    v->head_bits = s.head_bits;
    v->seed = (int64_t)s.seed;
    v->axis = s.axis;
    v->rotate = (int)s.rotate;
    v->encode = (int)s.encode;
    v->calib = "self";
    v->device = "cpu";
    v->calib_tokens = (int64_t)s.calib_tokens;
    v->damping = s.damping;
    v->output_damping = s.output_damping;
    v->output_weighting = s.output_weighting;
    v->refine = s.refine;
}

/* Before the work, and out at once; JSON has it at the end. */
static void show_promise(void *values, uint64_t bytes)
{
    const quantize_values *v = values;
    if (v->json) return;
    print_memory(bytes);
    fflush(stdout);
}

static int show_progress(void *user, const pleach_quantize_progress *p)
{
    char text[32];
    (void)user;
    const char *left = p->seconds_left < 0 ? "?" : time_text(p->seconds_left, text);
    if (strcmp(p->stage, "coding") == 0)
        progress_line("%5.1f %%  %.2f M weights/s  %s left  %.40s", 100 * p->share,
                      p->weights_per_second * 1e-6, left, p->tensor);
    else if (strcmp(p->stage, "evaluation") == 0)
        progress_line("evaluation %5.1f %%", 100 * p->share);
    else
        progress_line("calibration %5.1f %%  %s left  %s %.40s", 100 * p->share, left, p->stage,
                      p->tensor);
    return interrupted();
}

static void settings_from_values(const quantize_values *v, pleach_quantize_settings *s)
{
    pleach_quantize_settings_defaults(s);
    s->bits = (uint32_t)v->bits;
    s->axis = v->axis;
    s->state_bits = (uint32_t)v->state_bits;
    s->embed_bits = (uint32_t)v->embed_bits;
    s->head_bits = (uint32_t)v->head_bits;
    s->encode = (pleach_trellis_search)v->encode;
    s->rotate = v->rotate == ROTATE_SCALE ? PLEACH_ROTATE_INPUT_SCALE : (pleach_rotate)v->rotate;
    s->seed = (uint64_t)v->seed;
    s->calib = v->calib;
    s->calib_tokens = (size_t)v->calib_tokens;
    s->statistics = v->statistics;
    s->memory = (uint64_t)(v->memory * 1e9);
    s->fisher = !v->plain_hessian;
    s->two_sided = v->two_sided;
    s->damping = v->damping;
    s->output_damping = v->output_damping;
    s->output_weighting = v->output_weighting;
    s->refine = (int)v->refine;
    s->keep = v->keep.items;
    s->n_keep = v->keep.n;
    s->budget_file = (uint64_t)(v->budget_file * 1e9);
    s->plan = v->plan;
    s->report_text = v->report_text;
    s->bits_for = v->bits_for.items;
    s->n_bits_for = v->bits_for.n;
    s->threads = (int)v->threads;
    s->cpu = v->cpu;
    s->device = v->device;
    s->force = v->force;
    s->discard_partial = v->restart;
    s->progress = show_progress;
    s->promise = show_promise;
    s->user = (void *)(uintptr_t)v;
}

/* ---- several budgets ----------------------------------------------------------------------- */

#define MOST_BUDGETS 16

typedef struct budget_list {
    size_t n;
    double bits[MOST_BUDGETS];
    char text[MOST_BUDGETS][16]; /* as given */
} budget_list;

/* The same work twice, under two names or one, is a slip of the user's. */
static int check_new(const budget_list *b)
{
    for (size_t i = 0; i < b->n; i++)
        if (b->bits[i] == b->bits[b->n])
            return fail_usage("--budget: \"%s\" and \"%s\" are the same number", b->text[i],
                              b->text[b->n]);
    return EXIT_OK;
}

/* "2.5,3,3.5" */
static int parse_budgets(const char *list, budget_list *b)
{
    if (!list) return EXIT_OK;
    for (;;) {
        size_t size = strcspn(list, ",");
        char *text = b->text[b->n], *end;
        if (b->n == MOST_BUDGETS)
            return fail_usage("--budget: more than %d budgets", MOST_BUDGETS);
        snprintf(text, sizeof b->text[0], "%.*s", (int)size, list);
        b->bits[b->n] = strtod(text, &end);
        if (size >= sizeof b->text[0] || !size || strspn(text, "0123456789.") != size || *end ||
            !(b->bits[b->n] >= 2 && b->bits[b->n] <= 16))
            return fail_usage("--budget: expected bits a weight from 2 to 16, or several with "
                              "commas between, found \"%s\"", text);
        if (check_new(b)) return EXIT_USAGE;
        b->n++;
        if (!list[size]) return EXIT_OK;
        list += size + 1;
    }
}

/* OUT, or OUT-2.5 where there are several budgets. Fresh memory (pl_free). */
static char *output_name(const quantize_values *v, const budget_list *b, size_t i)
{
    size_t size = strlen(v->out) + sizeof b->text[0] + 2, end = strlen(v->out);
    char *name = pl_alloc(size, 1);
    while (end > 1 && v->out[end - 1] == '/') end--;
    if (name && b->n > 1) snprintf(name, size, "%.*s-%s", (int)end, v->out, b->text[i]);
    else if (name) snprintf(name, size, "%s", v->out);
    return name;
}

/* A folder and the plain files in it, as far as they can be removed. */
static void remove_files(const char *folder)
{
    DIR *dir = opendir(folder);
    if (!dir) return;
    for (struct dirent *e; (e = readdir(dir));) unlinkat(dirfd(dir), e->d_name, 0);
    closedir(dir);
    rmdir(folder);
}

static bool given(const quantize_values *v, const char *option)
{
    return options_given(&quantize_command, v, option);
}

static int check_values(const quantize_values *v, const budget_list *b)
{
    bool budget = v->budget != NULL, file = given(v, "budget-file");
    if (budget && file)
        return fail_usage("--budget and --budget-file both say what may be spent: give one");
    if ((budget || file) && given(v, "bits"))
        return fail_usage("--bits: %s says the bits: give one of them",
                          budget ? "--budget" : "--budget-file");
    if (b->n > 1 && v->save_plan)
        return fail_usage("--save-plan: there is a plan for each of %zu budgets", b->n);
    int status = check_cpu(v->cpu);
    return status == EXIT_OK ? check_device(v->device) : status;
}

/* One folder; a JSON object goes to *json when it is not NULL. */
static int quantize_one(const quantize_values *v, const budget_list *b, size_t i, json_t **json)
{
    pleach_quantize_settings settings;
    pleach_quantize_summary summary = {0};
    pleach_error err;
    char *out = output_name(v, b, i);
    if (!out) return fail("out of memory: a path");
    settings_from_values(v, &settings);
    if (b->n) settings.budget = b->bits[i];
    pleach_status status = v->dry_run
                               ? pleach_quantize_plan(v->source, &settings, &summary, &err)
                               : pleach_quantize(v->source, out, &settings, &summary, &err);
    progress_end();
    if (status == PLEACH_OK && v->save_plan)
        status = pleach_quantize_save_plan(&summary, v->save_plan, &err);
    if (status == PLEACH_OK && json) *json = summary_json(&summary, out, v->dry_run);
    else if (status == PLEACH_OK) print_summary(&summary, out, v->dry_run);
    pleach_quantize_summary_free(&summary);
    pl_free(out);
    return status == PLEACH_OK ? EXIT_OK : fail_status(&err);
}

static int quantize_all(const quantize_values *v, const budget_list *b, json_t *list)
{
    int result = EXIT_OK;
    for (size_t i = 0; result == EXIT_OK && i < PL_MAX(b->n, 1); i++) {
        json_t *one = NULL;
        if (i && !v->json) putchar('\n');
        result = quantize_one(v, b, i, v->json ? &one : NULL);
        if (one) json_array_append_new(list, one);
    }
    return result;
}

/* Several budgets share one calibration in OUT.statistics, which goes when all are done. */
static int quantize_shared(const quantize_values *v, const budget_list *b, json_t *list)
{
    quantize_values shared = *v;
    size_t size = strlen(v->out) + sizeof ".statistics", end = strlen(v->out);
    char *folder = pl_alloc(size, 1);
    if (!folder) return fail("out of memory: a path");
    while (end > 1 && v->out[end - 1] == '/') end--;
    snprintf(folder, size, "%.*s.statistics", (int)end, v->out);
    shared.statistics = folder;
    int result = quantize_all(&shared, b, list);
    if (result == EXIT_OK && !v->dry_run) remove_files(folder);
    pl_free(folder);
    return result;
}

static int run(const void *values)
{
    const quantize_values *v = values;
    budget_list budgets = {0};
    json_t *list = v->json ? json_array() : NULL;
    int result = parse_budgets(v->budget, &budgets);
    if (result == EXIT_OK) result = check_values(v, &budgets);
    catch_interrupts(false);
    bool shared = budgets.n > 1 && !v->statistics && strcmp(v->calib, "none") != 0;
    if (result == EXIT_OK)
        result = (shared ? quantize_shared : quantize_all)(v, &budgets, list);
    if (result == EXIT_OK && v->json)
        result = print_json(json_incref(budgets.n > 1 ? list : json_array_get(list, 0)));
    json_decref(list);
    return result;
}

static const option options[] = {
    {.argument = "SRC",
     .type = OPTION_PATH,
     .required = true,
     .help = "the checkpoint: a Hugging Face folder or a GGUF file",
     OPTION_AT(quantize_values, source)},
    {.argument = "OUT",
     .type = OPTION_PATH,
     .required = true,
     .help = "the folder to write",
     OPTION_AT(quantize_values, out)},
    {.name = "bits",
     .type = OPTION_INTEGER,
     .choices = "2|3|4",
     .min = 2,
     .max = 4,
     .help = "bits per weight of linear layers",
     OPTION_AT(quantize_values, bits)},
    {.name = "budget",
     .type = OPTION_TEXT,
     .argument = "BITS",
     .help = "spend so many bits a weight on average, such as 2.5, where they help most; several "
             "with commas between make OUT-2.5, OUT-3, ...",
     OPTION_AT(quantize_values, budget)},
    {.name = "budget-file",
     .type = OPTION_REAL,
     .argument = "GB",
     .min = 0,
     .max = 1e6,
     .automatic = "none",
     .help = "the same by the size of all weights' files, in 10^9 bytes",
     OPTION_AT(quantize_values, budget_file)},
    {.name = "bits-for",
     .type = OPTION_TEXTS,
     .argument = "PATTERN=K",
     .help = "bits of modules whose names match, such as \"*.v_proj=4\"; may be given again",
     OPTION_AT(quantize_values, bits_for)},
    {.name = "plan",
     .type = OPTION_PATH,
     .argument = "FILE",
     .help = "bits of each module by a plan file",
     OPTION_AT(quantize_values, plan)},
    {.name = "save-plan",
     .type = OPTION_PATH,
     .argument = "FILE",
     .help = "write the plan as a file, to be edited and given back",
     OPTION_AT(quantize_values, save_plan)},
    {.name = "axis",
     .type = OPTION_CHOICE,
     .choices = "0|1",
     .automatic = "what measured better",
     .help = "coded along the outputs (0) or the inputs (1)",
     OPTION_AT(quantize_values, axis)},
    {.name = "state-bits",
     .type = OPTION_INTEGER,
     .choices = "12|16",
     .min = 12,
     .max = 16,
     .help = "bits of trellis state; 16 is better and slower",
     OPTION_AT(quantize_values, state_bits)},
    {.name = "encode",
     .type = OPTION_CHOICE,
     .choices = "normal|fast|exact",
     .help = "how hard to look for each block's codes: fast takes a tenth less time and leaves 0.1 "
             "% more error, exact is a slow check",
     OPTION_AT(quantize_values, encode)},
    {.name = "embed-bits",
     .type = OPTION_INTEGER,
     .choices = "4|8|16",
     .min = 4,
     .max = 16,
     .help = "bits of the embedding; 16 keeps it as it is",
     OPTION_AT(quantize_values, embed_bits)},
    {.name = "head-bits",
     .type = OPTION_INTEGER,
     .choices = "4|8|16",
     .min = 4,
     .max = 16,
     .help = "bits of an output head that is not the embedding",
     OPTION_AT(quantize_values, head_bits)},
    {.name = "rotate",
     .type = OPTION_CHOICE,
     .choices = ROTATE_CHOICES,
     .help = "rotate inputs (input), both sides (both), or inputs with an output scale (online or "
             "scale) at run time; or fold one rotation into the weights for good (fold)",
     OPTION_AT(quantize_values, rotate)},
    {.name = "seed",
     .type = OPTION_INTEGER,
     .argument = "N",
     .min = 0,
     .max = 9007199254740991,
     .help = "seed of the rotations",
     OPTION_AT(quantize_values, seed)},
    {.name = "calib",
     .type = OPTION_PATH,
     .argument = "FILE",
     .automatic = "self",
     .help = "text or JSONL (.jsonl) to calibrate on, or self: text that the model writes, or none",
     OPTION_AT(quantize_values, calib)},
    {.name = "calib-tokens",
     .type = OPTION_INTEGER,
     .argument = "N",
     .min = 32,
     .max = 1e9,
     .help = "how many tokens of it at most",
     OPTION_AT(quantize_values, calib_tokens)},
    {.name = "statistics",
     .type = OPTION_PATH,
     .argument = "DIR",
     .automatic = "a folder that is gone at the end",
     .help = "keep what calibration finds in DIR, or use what another run found there",
     OPTION_AT(quantize_values, statistics)},
    {.name = "memory",
     .type = OPTION_REAL,
     .argument = "GB",
     .min = 0,
     .max = 1e6,
     .automatic = "no limit",
     .help = "what the run may use, in 10^9 bytes; with less it takes longer",
     OPTION_AT(quantize_values, memory)},
    {.name = "plain-hessian",
     .type = OPTION_FLAG,
     .help = "no backward pass: tokens count alike, whatever their part in the loss",
     OPTION_AT(quantize_values, plain_hessian)},
    {.name = "two-sided",
     .type = OPTION_FLAG,
     .help = "error feedback between outputs too",
     OPTION_AT(quantize_values, two_sided)},
    {.name = "damping",
     .type = OPTION_REAL,
     .argument = "X",
     .min = 0,
     .max = 1e6,
     .help = "added to the diagonal of input statistics, in means of it",
     OPTION_AT(quantize_values, damping)},
    {.name = "output-damping",
     .type = OPTION_REAL,
     .argument = "X",
     .min = 0,
     .max = 1e6,
     .help = "the same for output statistics",
     OPTION_AT(quantize_values, output_damping)},
    {.name = "output-weighting",
     .type = OPTION_REAL,
     .argument = "X",
     .min = 0,
     .max = 1,
     .help = "how far outputs that matter more to the loss are coded finer, 0 to 1",
     OPTION_AT(quantize_values, output_weighting)},
    {.name = "refine",
     .type = OPTION_INTEGER,
     .argument = "N",
     .min = 0,
     .max = 1000,
     .help = "fit the scales to the predictions of SRC in so many passes over the calibration text "
             "after coding; slow",
     OPTION_AT(quantize_values, refine)},
    {.name = "report-text",
     .type = OPTION_PATH,
     .argument = "FILE",
     .help = "score the result on this text against SRC, for OUT/report.html",
     OPTION_AT(quantize_values, report_text)},
    {.name = "keep",
     .type = OPTION_TEXTS,
     .argument = "PATTERN",
     .help = "keep modules whose names match, such as \"*.down_proj\"; may be given again",
     OPTION_AT(quantize_values, keep)},
    THREADS_OPTION(quantize_values, threads),
    CPU_OPTION(quantize_values, cpu),
    DEVICE_OPTION(quantize_values, device),
    {.name = "force",
     .type = OPTION_FLAG,
     .help = "replace OUT if it is there",
     OPTION_AT(quantize_values, force)},
    {.name = "restart",
     .type = OPTION_FLAG,
     .help = "start over where partial work with other settings lies",
     OPTION_AT(quantize_values, restart)},
    {.name = "dry-run",
     .type = OPTION_FLAG,
     .help = "print the plan, its size and memory, and write nothing",
     OPTION_AT(quantize_values, dry_run)},
    {.name = "json",
     .type = OPTION_FLAG,
     .help = "print one JSON object",
     OPTION_AT(quantize_values, json)},
};

const command quantize_command = {
    .name = "quantize",
    .summary = "pack a checkpoint into 2, 3 or 4 bits a weight",
    .description =
        "Packs the linear layers of a checkpoint into a bitshift trellis, and its embedding and "
        "output head into affine groups; norms and biases stay.\n\n"
        "OUT appears only when it is whole. Work in progress lies in OUT.partial: after Ctrl-C, a "
        "full disk or a crash the same command goes on where it stopped.\n\n"
        "Text is run through the model first, to see which errors of the weights matter: by "
        "default text that the model writes itself, better a text of the kind it is wanted for. "
        "Runs with the same --statistics DIR share what was found. --calib none is quick, needs "
        "no tokenizer, and costs quality.",
    .options = options,
    .n_options = PL_COUNT(options),
    .examples =
        (const char *const[]){"pleach quantize model.gguf model-4bit --bits 4",
                              "pleach quantize model.gguf model-3bit --calib texts.jsonl "
                              "--statistics model.statistics",
                              "pleach quantize model-folder model-3bit --keep '*.down_proj' "
                              "--embed-bits 16",
                              "pleach quantize model.gguf model --budget 2.5,3,3.5",
                              "pleach quantize model.gguf model-4bit --calib none",
                              "pleach quantize model.gguf model-2bit --bits 2 --dry-run", NULL},
    .values_size = sizeof(quantize_values),
    .given = offsetof(quantize_values, given),
    .defaults = defaults,
    .run = run,
};
