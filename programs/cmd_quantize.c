/* SPDX-License-Identifier: Apache-2.0
 *
 * pleach quantize: a checkpoint in, a packed checkpoint out. */
#include <inttypes.h>
#include <stdio.h>

#include "commands.h"
#include "console.h"
#include "model_options.h"

typedef struct quantize_values {
    const char *source, *out, *cpu;
    int64_t bits, state_bits, embed_bits, head_bits, seed, threads;
    int axis, rotate, force, restart, dry_run, json;
    option_texts keep;
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
}

static int show_progress(void *user, const pleach_quantize_progress *p)
{
    char left[32];
    (void)user;
    progress_line(
        "%5.1f %%  %.2f M weights/s  %s left  %.40s",
        p->total ? 100 * (double)p->done / (double)p->total : 0, p->weights_per_second * 1e-6,
        p->seconds_left < 0 ? "?" : time_text(p->seconds_left, left), p->tensor ? p->tensor : "");
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
    s->rotate = (pleach_rotate)v->rotate;
    s->seed = (uint64_t)v->seed;
    s->keep = v->keep.items;
    s->n_keep = v->keep.n;
    s->threads = (int)v->threads;
    s->cpu = v->cpu;
    s->force = v->force;
    s->discard_partial = v->restart;
    s->progress = show_progress;
}

/* ---- the report ---------------------------------------------------------------------------- */

static void print_items(const pleach_quantize_summary *s)
{
    printf("%-14s %-8s %2s %5s %4s %7s  %s\n", "shape", "coding", "k", "T", "axis", "bits", "name");
    for (size_t i = 0; i < s->n_items; i++) {
        const pleach_quantize_item *t = &s->items[i];
        char shape[48];
        snprintf(shape, sizeof shape, "%" PRIu64 "x%" PRIu64, t->out, t->in);
        printf("%-14s %-8s ", shape, t->coding);
        if (t->k)
            printf("%2u %5u %4u", t->k, t->block, t->axis);
        else
            printf("%13s", "");
        printf(" %7.3f  ", t->bits);
        print_name(t->name);
        putchar('\n');
    }
    putchar('\n');
}

static void print_summary(const quantize_values *v, const pleach_quantize_summary *s)
{
    char text[32];
    if (v->dry_run) print_items(s);
    printf("whole model     %s, %.3f bits a weight, %" PRIu64 " weights\n",
           bytes_text(s->bytes, text), s->bits, s->weights);
    printf("block matrices  %s, %.3f bits a weight, %" PRIu64 " weights\n",
           bytes_text(s->block_bytes, text), s->block_bits, s->block_weights);
    if (v->dry_run) {
        printf("memory          at most %s\n", bytes_text(s->peak_memory, text));
        return;
    }
    printf("relative error  %.5f\n", s->relative_error);
    printf("time            %s", time_text(s->seconds, text));
    if (!s->resumed && s->seconds > 0)
        printf(", %.2f M weights/s", (double)s->weights * 1e-6 / s->seconds);
    if (s->resumed) printf(", %zu tensors taken over from an earlier run", s->resumed);
    putchar('\n');
}

static json_t *item_json(const pleach_quantize_item *t)
{
    json_t *o = json_pack("{s:o, s:s, s:[II], s:I, s:o, s:b}", "name", json_text(t->name), "coding",
                          t->coding, "shape", (json_int_t)t->out, (json_int_t)t->in, "bytes",
                          (json_int_t)t->bytes, "bits", json_number(t->bits), "block_matrix",
                          t->block_matrix);
    if (o && t->k) {
        json_object_set_new(o, "k", json_integer(t->k));
        json_object_set_new(o, "T", json_integer(t->block));
        json_object_set_new(o, "axis", json_integer(t->axis));
    }
    return o;
}

static int print_summary_json(const quantize_values *v, const pleach_quantize_summary *s)
{
    json_t *items = json_array();
    for (size_t i = 0; i < s->n_items; i++) json_array_append_new(items, item_json(&s->items[i]));
    json_t *o = json_pack("{s:b, s:I, s:I, s:o, s:I, s:I, s:o, s:I, s:o}", "dry_run", v->dry_run,
                          "weights", (json_int_t)s->weights, "bytes", (json_int_t)s->bytes, "bits",
                          json_number(s->bits), "block_weights", (json_int_t)s->block_weights,
                          "block_bytes", (json_int_t)s->block_bytes, "block_bits",
                          json_number(s->block_bits), "peak_memory", (json_int_t)s->peak_memory,
                          "tensors", items);
    if (o && !v->dry_run) {
        json_object_set_new(o, "relative_error", json_number(s->relative_error));
        json_object_set_new(o, "resumed", json_integer((json_int_t)s->resumed));
        json_object_set_new(o, "seconds", json_number(s->seconds));
    }
    return print_json(o);
}

static int run(const void *values)
{
    const quantize_values *v = values;
    pleach_quantize_settings settings;
    pleach_quantize_summary summary = {0};
    pleach_error err;
    int result = check_cpu(v->cpu);
    if (result != EXIT_OK) return result;
    settings_from_values(v, &settings);
    catch_interrupts(false);
    pleach_status status = v->dry_run
                               ? pleach_quantize_plan(v->source, &settings, &summary, &err)
                               : pleach_quantize(v->source, v->out, &settings, &summary, &err);
    progress_end();
    if (status != PLEACH_OK)
        result = fail_status(&err);
    else if (v->json)
        result = print_summary_json(v, &summary);
    else
        print_summary(v, &summary);
    pleach_quantize_summary_free(&summary);
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
     .help = "rotate the inputs, both sides, or the inputs with an output scale",
     OPTION_AT(quantize_values, rotate)},
    {.name = "seed",
     .type = OPTION_INTEGER,
     .argument = "N",
     .min = 0,
     .max = 9007199254740991,
     .help = "seed of the rotations",
     OPTION_AT(quantize_values, seed)},
    {.name = "keep",
     .type = OPTION_TEXTS,
     .argument = "PATTERN",
     .help = "keep modules whose names match, such as \"*.down_proj\"; may be given again",
     OPTION_AT(quantize_values, keep)},
    THREADS_OPTION(quantize_values, threads),
    CPU_OPTION(quantize_values, cpu),
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
        "full disk or a crash the same command goes on where it stopped.",
    .options = options,
    .n_options = PL_COUNT(options),
    .examples =
        (const char *const[]){"pleach quantize model.gguf model-4bit --bits 4",
                              "pleach quantize model-folder model-3bit --keep '*.down_proj' "
                              "--embed-bits 16",
                              "pleach quantize model.gguf model-2bit --bits 2 --dry-run", NULL},
    .values_size = sizeof(quantize_values),
    .defaults = defaults,
    .run = run,
};
