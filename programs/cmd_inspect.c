/* SPDX-License-Identifier: Apache-2.0
 *
 * pleach inspect: what a model's files hold, tensor by tensor. */
#include <inttypes.h>
#include <stdio.h>

#include "commands.h"
#include "console.h"
#include "model_options.h"

typedef struct inspect_values {
    const char *path;
    int json;
    session_values session;
} inspect_values;

static void defaults(void *values)
{
    inspect_values *v = values;
    session_values_defaults(&v->session);
}

static void shape_text(const pleach_tensor_info *t, char *text, size_t size)
{
    size_t used = 0;
    text[0] = 0;
    for (uint32_t d = 0; d < t->n_dims && d < PL_COUNT(t->shape) && used < size; d++)
        used += (size_t)snprintf(text + used, size - used, "%s%" PRIu64, d ? "x" : "", t->shape[d]);
}

/* "k 3 axis 0 T 256 L 12 rotate 64/0": what only a trellis weight has. */
static void trellis_text(const pleach_tensor_info *t, char *text, size_t size)
{
    char rotation[48] = "";
    text[0] = 0;
    if (t->k == 0) return;
    if (t->rotate_in || t->rotate_out)
        snprintf(rotation, sizeof rotation, " rotate %u/%u", t->rotate_in, t->rotate_out);
    snprintf(text, size, "k %u axis %u T %u L %u%s%s", t->k, t->axis, t->block, t->state_bits,
             t->interleaved ? " interleaved" : "", rotation);
}

static void print_tensor(const pleach_tensor_info *t)
{
    char shape[96], trellis[96], scales[48] = "";
    shape_text(t, shape, sizeof shape);
    trellis_text(t, trellis, sizeof trellis);
    if (t->scale_min != 0 || t->scale_max != 0)
        snprintf(scales, sizeof scales, "%.3g..%.3g", (double)t->scale_min, (double)t->scale_max);
    printf("%-14s %-8s %-6s %6.3f  %-36s %-20s ", shape, t->coding, t->type, t->bits, trellis,
           scales);
    print_name(t->name);
    putchar('\n');
}

static json_t *tensor_json(const pleach_tensor_info *t)
{
    json_t *shape = json_array();
    for (uint32_t d = 0; d < t->n_dims && d < PL_COUNT(t->shape); d++)
        json_array_append_new(shape, json_integer((json_int_t)t->shape[d]));
    json_t *o =
        json_pack("{s:o, s:s, s:s, s:o, s:I, s:o, s:b}", "name", json_text(t->name), "coding",
                  t->coding, "type", t->type, "shape", shape, "bytes", (json_int_t)t->bytes, "bits",
                  json_number(t->bits), "block_matrix", t->block_matrix);
    if (o && (t->scale_min != 0 || t->scale_max != 0)) {
        json_object_set_new(o, "scale_min", json_number((double)t->scale_min));
        json_object_set_new(o, "scale_max", json_number((double)t->scale_max));
    }
    if (o && t->k)
        json_object_set_new(o, "trellis",
                            json_pack("{s:i, s:i, s:i, s:i, s:b, s:I, s:i, s:i}", "k", (int)t->k,
                                      "L", (int)t->state_bits, "T", (int)t->block, "axis",
                                      (int)t->axis, "interleaved", (int)t->interleaved, "padded",
                                      (json_int_t)t->padded, "rotate_in", (int)t->rotate_in,
                                      "rotate_out", (int)t->rotate_out));
    return o;
}

static double bits_each(uint64_t bytes, uint64_t weights)
{
    return weights ? 8 * (double)bytes / (double)weights : 0;
}

/* reason: why there is no cache, where there is none. */
static void print_totals(const pleach_checkpoint_totals *t, const pleach_cache_info *cache,
                         const char *reason)
{
    char size[32];
    printf("\n%-16s %" PRIu64 " weights, %s, %.3f bits each\n", "block matrices", t->block_weights,
           bytes_text(t->block_bytes, size), bits_each(t->block_bytes, t->block_weights));
    printf("%-16s %" PRIu64 " weights, %s, %.3f bits each\n", "all tensors", t->weights,
           bytes_text(t->bytes, size), bits_each(t->bytes, t->weights));
    if (t->active_weights < t->weights)
        printf("%-16s %" PRIu64 " weights, %s, %.3f bits each\n", "of which a token",
               t->active_weights, bytes_text(t->active_bytes, size),
               bits_each(t->active_bytes, t->active_weights));
    printf("%-16s %s\n", "files", bytes_text(t->file_bytes, size));
    if (t->skipped)
        printf("%-16s %" PRIu64 " tensors of parts that are not run, such as a vision tower\n",
               "left out", t->skipped);
    if (cache->context)
        print_cache(stdout, cache);
    else
        printf("cache: none: %s\n", reason);
}

static json_t *totals_json(const pleach_checkpoint_totals *t)
{
    return json_pack("{s:I, s:I, s:o, s:I, s:I, s:o, s:I, s:I, s:I, s:I}", "weights", (json_int_t)t->weights,
                     "bytes", (json_int_t)t->bytes, "bits",
                     json_number(bits_each(t->bytes, t->weights)), "block_weights",
                     (json_int_t)t->block_weights, "block_bytes", (json_int_t)t->block_bytes,
                     "block_bits", json_number(bits_each(t->block_bytes, t->block_weights)),
                     "file_bytes", (json_int_t)t->file_bytes, "active_weights",
                     (json_int_t)t->active_weights, "active_bytes", (json_int_t)t->active_bytes,
                     "skipped", (json_int_t)t->skipped);
}

/* Prints the table, or fills `list`. */
static pleach_status show_tensors(const pleach_checkpoint *c, json_t *list, pleach_error *err)
{
    if (!list)
        printf("%-14s %-8s %-6s %6s  %-36s %-20s %s\n", "shape", "coding", "type", "bits",
               "trellis, rotation in/out", "scales", "name");
    for (size_t i = 0; i < pleach_checkpoint_count(c); i++) {
        pleach_tensor_info t;
        pleach_status status = pleach_checkpoint_tensor(c, i, &t, err);
        if (status != PLEACH_OK) return status;
        if (list)
            json_array_append_new(list, tensor_json(&t));
        else
            print_tensor(&t);
    }
    return PLEACH_OK;
}

/* What a session's cache would take; no types, and why, for a model that this build cannot run. */
static pleach_status cache_of(const inspect_values *v, const pleach_checkpoint *c,
                              pleach_cache_info *info, pleach_error *err)
{
    pleach_session_settings s;
    session_settings(&v->session, &s);
    pleach_status status = pleach_checkpoint_cache_info(c, &s, info, err);
    return status == PLEACH_ERR_UNSUPPORTED || status == PLEACH_ERR_MISSING ? PLEACH_OK : status;
}

static int run(const void *values)
{
    const inspect_values *v = values;
    pleach_checkpoint *c = NULL;
    pleach_checkpoint_totals totals;
    pleach_cache_info cache = {0};
    pleach_error err, why;
    if (check_session(&v->session) != EXIT_OK) return EXIT_USAGE;
    json_t *list = v->json ? json_array() : NULL;
    int result = EXIT_OK;
    pleach_status status = pleach_checkpoint_open(v->path, &c, &err);
    if (status == PLEACH_OK) status = pleach_checkpoint_total(c, &totals, &err);
    if (status == PLEACH_OK && (status = cache_of(v, c, &cache, &why)) != PLEACH_OK) err = why;
    if (status == PLEACH_OK) status = show_tensors(c, list, &err);
    if (status != PLEACH_OK)
        result = fail_status(&err);
    else if (v->json)
        result =
            print_json(json_pack("{s:o, s:o, s:O}", "totals", totals_json(&totals), "cache",
                                 cache.context ? cache_json(&cache) : json_null(), "tensors",
                                 list));
    else
        print_totals(&totals, &cache, why.message);
    if (result == EXIT_OK) warn_of_cache(&cache);
    json_decref(list);
    pleach_checkpoint_close(c);
    return result;
}

static const option options[] = {
    MODEL_OPERAND(inspect_values),
    SESSION_OPTIONS(inspect_values),
    {.name = "json",
     .type = OPTION_FLAG,
     .help = "print one JSON object",
     OPTION_AT(inspect_values, json)},
};

const command inspect_command = {
    .name = "inspect",
    .summary = "list the tensors of a model",
    .description = "Lists every tensor: shape, coding, stored type, bits per weight with scales "
                   "and padding counted, the trellis and its rotation, the range of its scales; "
                   "then the totals, and what the attention cache takes with --kv and --ctx.",
    .options = options,
    .n_options = PL_COUNT(options),
    .examples = (const char *const[]){"pleach inspect model-4bit",
                                      "pleach inspect model.gguf --json | jq .totals", NULL},
    .values_size = sizeof(inspect_values),
    .defaults = defaults,
    .run = run,
};
