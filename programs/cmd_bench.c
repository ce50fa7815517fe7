/* SPDX-License-Identifier: Apache-2.0
 *
 * pleach bench: tokens per second of prompts and of generation, beside what the memory allows. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/random.h"
#include "bench.h"
#include "commands.h"
#include "console.h"
#include "model_options.h"
#include "runtime/session.h"

typedef struct bench_values {
    const char *path;
    int64_t repeats, generated, sequences, streams;
    int json, tune;
    model_values model;
    session_values session;
    uint64_t given;
} bench_values;

static void defaults(void *values)
{
    bench_values *v = values;
    v->repeats = 5;
    v->generated = 32;
    v->sequences = 1;
    model_values_defaults(&v->model);
    session_values_defaults(&v->session);
}

/* ---- the model ----------------------------------------------------------------------------- */

enum { MOST_SEQUENCES = 256 };

typedef struct bench {
    const pleach_model *model;
    pleach_model_info info;
    bool device; /* not this processor */
    pleach_session *session, *others[MOST_SEQUENCES]; /* others[0] is session */
    size_t sequences;
    int32_t *ids;
    size_t n_ids;
    float *logits;
    size_t repeats;
} bench;

static pleach_status time_prompt(bench *b, size_t n, rate *out, pleach_error *err)
{
    double seconds[MOST_REPEATS];
    for (size_t r = 0; r < b->repeats; r++) {
        PL_TRY(pleach_session_truncate(b->session, 0, err));
        PL_FAIL_IF(interrupted(), err, PLEACH_ERR_CANCELLED, "interrupted");
        progress_line("prompt of %zu tokens, run %zu of %zu", n, r + 1, b->repeats);
        double start = pl_seconds();
        PL_TRY(pleach_session_feed(b->session, b->ids, n, b->logits, err));
        seconds[r] = pl_seconds() - start;
    }
    *out = rate_of(seconds, b->repeats, (double)n);
    return PLEACH_OK;
}

enum { OPENING = 8 }; /* tokens that generation goes on from */

/* n single tokens after the opening; a run's time is that of all n. */
static pleach_status time_generation(bench *b, size_t n, rate *out, pleach_error *err)
{
    double seconds[MOST_REPEATS];
    for (size_t r = 0; r < b->repeats; r++) {
        PL_TRY(pleach_session_truncate(b->session, 0, err));
        PL_TRY(pleach_session_feed(b->session, b->ids, OPENING, b->logits, err));
        PL_FAIL_IF(interrupted(), err, PLEACH_ERR_CANCELLED, "interrupted");
        progress_line("%zu generated tokens, run %zu of %zu", n, r + 1, b->repeats);
        double start = pl_seconds();
        for (size_t i = 0; i < n; i++) {
            int32_t best;
            PL_TRY(b->device
                       ? pl_session_feed_best(b->session, b->ids + OPENING + i, 1, &best, err)
                       : pleach_session_feed(b->session, b->ids + OPENING + i, 1, b->logits, err));
        }
        seconds[r] = pl_seconds() - start;
    }
    *out = rate_of(seconds, b->repeats, (double)n);
    return PLEACH_OK;
}

/* n steps of all sequences side by side, the first of them as above. */
static pleach_status time_batch(bench *b, size_t n, rate *out, pleach_error *err)
{
    double seconds[MOST_REPEATS];
    int32_t ids[MOST_SEQUENCES], best[MOST_SEQUENCES];
    for (size_t r = 0; r < b->repeats; r++) {
        for (size_t i = 0; i < b->sequences; i++) {
            PL_TRY(pleach_session_truncate(b->others[i], 0, err));
            PL_TRY(pleach_session_feed(b->others[i], b->ids, OPENING, NULL, err));
        }
        PL_FAIL_IF(interrupted(), err, PLEACH_ERR_CANCELLED, "interrupted");
        progress_line("%zu tokens of %zu sequences, run %zu of %zu", n, b->sequences, r + 1,
                      b->repeats);
        double start = pl_seconds();
        for (size_t i = 0; i < n; i++) {
            for (size_t s = 0; s < b->sequences; s++)
                ids[s] = b->ids[OPENING + (i + s) % (b->n_ids - OPENING)];
            PL_TRY(pl_sessions_step(b->others, ids, b->sequences, b->device ? NULL : b->logits,
                                    b->device ? best : NULL, err));
        }
        seconds[r] = pl_seconds() - start;
    }
    *out = rate_of(seconds, b->repeats, (double)(n * b->sequences));
    return PLEACH_OK;
}

/* Weight bytes that one token reads: all of them, but of a mixture's experts those it is routed to, and
 * of an embedding that is not the output head too a single row. */
static pleach_status bytes_per_token(const char *path, uint64_t *bytes, pleach_error *err)
{
    pleach_checkpoint *c = NULL;
    uint64_t embedding = 0;
    bool has_head = false;
    *bytes = 0;
    PL_TRY(pleach_checkpoint_open(path, &c, err));
    pleach_status status = PLEACH_OK;
    for (size_t i = 0; status == PLEACH_OK && i < pleach_checkpoint_count(c); i++) {
        pleach_tensor_info t;
        status = pleach_checkpoint_tensor(c, i, &t, err);
        if (status != PLEACH_OK) break;
        *bytes += t.bytes;
        if (strstr(t.name, "embed_tokens")) embedding = t.bytes;
        if (strncmp(t.name, "lm_head", 7) == 0) has_head = true;
    }
    pleach_checkpoint_totals totals = {0};
    if (status == PLEACH_OK) status = pleach_checkpoint_total(c, &totals, err);
    *bytes -= totals.bytes - totals.active_bytes;
    if (has_head) *bytes -= embedding;
    pleach_checkpoint_close(c);
    return status;
}

static const size_t prompt_sizes[] = {8, 64, 512};

enum { MOST_STREAMS = 64, MOST_DOUBLINGS = 7, PREFIX = 2000 };

typedef struct report {
    rate prompt[PL_COUNT(prompt_sizes)]; /* best 0: longer than the context */
    rate generation, batch, linear, roof; /* linear, roof: of this processor alone */
    rate greedy[MOST_DOUBLINGS], sampled[MOST_DOUBLINGS]; /* of 1, 2, 4, .. streams */
    rate first_whole, first_kept;
    size_t prefix; /* 0: not measured */
    uint64_t token_bytes;
} report;

/* Streams of the so-manieth measurement: 1, 2, 4, .. and what was asked for; 0: past that. */
static size_t streams_at(const bench_values *v, size_t i)
{
    size_t n = (size_t)1 << i, most = (size_t)v->streams;
    return n <= most ? n : n / 2 < most ? most : 0;
}

static pleach_status time_streams(const bench_values *v, const bench *b, size_t context,
                                  report *out, pleach_error *err)
{
    pleach_session_settings set;
    size_t tokens = (size_t)v->generated;
    session_settings(&v->session, &set);
    for (size_t i = 0, n; i < MOST_DOUBLINGS && (n = streams_at(v, i)); i++) {
        PL_TRY(measure_streams(b->model, &set, n, tokens, 0, b->repeats, &out->greedy[i], err));
        PL_TRY(measure_streams(b->model, &set, n, tokens, 1, b->repeats, &out->sampled[i], err));
    }
    if (context < PREFIX + 20) return PLEACH_OK;
    out->prefix = PREFIX;
    return measure_prefix(b->model, &set, PREFIX, b->repeats, &out->first_whole, &out->first_kept,
                          err);
}

static pleach_status measure(const bench_values *v, bench *b, size_t context, report *out,
                             pleach_error *err)
{
    uint64_t random = 1;
    size_t rows = v->sequences > 1 && !b->device ? b->sequences : 1;
    b->n_ids = PL_MAX((size_t)512, OPENING + (size_t)v->generated);
    b->ids = pl_alloc(b->n_ids, sizeof *b->ids);
    b->logits = pl_alloc(rows, b->info.vocab_size * sizeof *b->logits);
    if (!b->ids || !b->logits)
        return pl_fail_memory(err, "logits", rows * b->info.vocab_size * sizeof *b->logits);
    for (size_t i = 0; i < b->n_ids; i++)
        b->ids[i] = (int32_t)(pl_random_next(&random) % b->info.vocab_size);
    for (size_t i = 0; i < PL_COUNT(prompt_sizes); i++)
        if (prompt_sizes[i] <= context)
            PL_TRY(time_prompt(b, prompt_sizes[i], &out->prompt[i], err));
    PL_TRY(time_generation(b, (size_t)v->generated, &out->generation, err));
    if (b->sequences > 1) PL_TRY(time_batch(b, (size_t)v->generated, &out->batch, err));
    if (v->streams > 0) PL_TRY(time_streams(v, b, context, out, err));
    return bytes_per_token(v->path, &out->token_bytes, err);
}

/* Share of the memory's reading speed that generation makes use of. */
static double roof_share(const report *r)
{
    return r->generation.best * (double)r->token_bytes / r->roof.best;
}

/* Share of a generated token's time that its linear layers would take alone. */
static double linear_share(const report *r)
{
    return r->generation.best / r->linear.best;
}

static void print_streams(const bench_values *v, const report *r)
{
    for (size_t i = 0, n; i < MOST_DOUBLINGS && (n = streams_at(v, i)); i++)
        printf("%3zu streams   %9.2f %9.2f tokens/s together; drawn with top-p %.2f %.2f\n", n,
               r->greedy[i].best, r->greedy[i].median, r->sampled[i].best, r->sampled[i].median);
    if (r->prefix)
        printf("first token   %9.2f %9.2f ms after %zu kept ones; %.2f %.2f ms after none\n",
               1e3 / r->first_kept.best, 1e3 / r->first_kept.median, r->prefix,
               1e3 / r->first_whole.best, 1e3 / r->first_whole.median);
}

static void print_report(const bench_values *v, const bench *b, const report *r)
{
    if (b->device)
        printf("%s: %s, %s %s%s; best and median of %zu runs\n", v->path, b->info.architecture,
               b->info.device, b->info.device_name,
               v->model.batch_invariant ? ", batch-invariant" : "", b->repeats);
    else
        printf("%s: %s, %d threads, cpu %s, arith %s; best and median of %zu runs\n", v->path,
               b->info.architecture, b->info.threads, b->info.cpu,
               pleach_arith_name((pleach_arith)v->model.arith), b->repeats);
    for (size_t i = 0; i < PL_COUNT(prompt_sizes); i++)
        if (r->prompt[i].best > 0)
            printf("prompt %4zu   %9.2f %9.2f tokens/s\n", prompt_sizes[i], r->prompt[i].best,
                   r->prompt[i].median);
    printf("generation    %9.2f %9.2f tokens/s\n", r->generation.best, r->generation.median);
    if (b->sequences > 1)
        printf("%3zu sequences %9.2f %9.2f tokens/s together\n", b->sequences, r->batch.best,
               r->batch.median);
    print_streams(v, r);
    if (b->device) {
        printf("weights       %9.2f MB a token, %.2f GB/s of them\n", (double)r->token_bytes * 1e-6,
               (double)r->token_bytes * r->generation.best * 1e-9);
        print_session_cache(stdout, b->model, b->session);
        return;
    }
    printf("linear alone  %9.2f %9.2f tokens/s; generation reaches %.1f %% of it\n",
           r->linear.best, r->linear.median, 100 * linear_share(r));
    printf("memory read   %9.2f %9.2f GB/s\n", r->roof.best * 1e-9, r->roof.median * 1e-9);
    print_session_cache(stdout, b->model, b->session);
    printf("weights       %9.2f MB a token; generation reads %.1f %% of what the memory allows\n",
           (double)r->token_bytes * 1e-6, 100 * roof_share(r));
}

static json_t *rate_json(const rate *r)
{
    return json_pack("{s:o, s:o}", "best", json_number(r->best), "median", json_number(r->median));
}

static void add_streams_json(json_t *o, const bench_values *v, const report *r)
{
    json_t *streams = json_array();
    for (size_t i = 0, n; i < MOST_DOUBLINGS && (n = streams_at(v, i)); i++)
        json_array_append_new(streams,
                              json_pack("{s:I, s:o, s:o}", "streams", (json_int_t)n, "greedy",
                                        rate_json(&r->greedy[i]), "drawn",
                                        rate_json(&r->sampled[i])));
    json_object_set_new(o, "streams", streams);
    if (r->prefix)
        json_object_set_new(o, "first_tokens_per_second",
                            json_pack("{s:I, s:o, s:o}", "prefix", (json_int_t)r->prefix, "kept",
                                      rate_json(&r->first_kept), "whole",
                                      rate_json(&r->first_whole)));
}

static int print_report_json(const bench_values *v, const bench *b, const report *r)
{
    json_t *prompts = json_array();
    pleach_cache_info cache;
    pleach_session_cache_info(b->session, &cache);
    for (size_t i = 0; i < PL_COUNT(prompt_sizes); i++) {
        if (r->prompt[i].best == 0) continue;
        json_t *o = rate_json(&r->prompt[i]);
        json_object_set_new(o, "tokens", json_integer((json_int_t)prompt_sizes[i]));
        json_array_append_new(prompts, o);
    }
    json_t *o = json_pack(
        "{s:o, s:s, s:i, s:s, s:s, s:I, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:o}", "model",
        json_text(v->path), "architecture", b->info.architecture, "threads", b->info.threads, "cpu",
        b->info.cpu, "arith", pleach_arith_name((pleach_arith)v->model.arith), "repeats",
        (json_int_t)b->repeats, "prompt", prompts, "generation", rate_json(&r->generation),
        "linear_layers", rate_json(&r->linear), "linear_share", json_number(linear_share(r)),
        "memory_bytes_per_second", rate_json(&r->roof), "bytes_per_token",
        (json_int_t)r->token_bytes, "roof_share", json_number(roof_share(r)), "cache",
        cache_json(&cache));
    if (o && b->sequences > 1) {
        json_object_set_new(o, "sequences", json_integer((json_int_t)b->sequences));
        json_object_set_new(o, "together", rate_json(&r->batch));
    }
    if (o && v->streams > 0) add_streams_json(o, v, r);
    if (o && b->device) {
        static const char *const processor[] = {"threads", "cpu", "arith", "linear_layers",
                                                "linear_share", "memory_bytes_per_second",
                                                "roof_share"};
        for (size_t i = 0; i < PL_COUNT(processor); i++) json_object_del(o, processor[i]);
        json_object_set_new(o, "device", json_string(b->info.device));
        json_object_set_new(o, "device_name", json_string(b->info.device_name));
        json_object_set_new(o, "device_bytes", json_integer((json_int_t)b->info.device_bytes));
        json_object_set_new(o, "batch_invariant", json_boolean(v->model.batch_invariant));
    }
    return print_json(o);
}

static int open_sessions(const bench_values *v, const pleach_model *m, bench *b)
{
    int status = open_session(m, &v->session, &b->session);
    b->others[0] = b->session;
    for (size_t i = 1; status == EXIT_OK && i < b->sequences; i++) {
        pleach_error err;
        if (pleach_session_fork(b->session, &b->others[i], &err) != PLEACH_OK)
            status = fail_status(&err);
    }
    return status;
}

static int bench_model(const bench_values *v, const pleach_model *m)
{
    pleach_error err;
    report r = {0};
    bench b = {.model = m, .repeats = (size_t)v->repeats, .sequences = (size_t)v->sequences};
    pleach_model_get_info(m, &b.info);
    b.device = strcmp(b.info.device, "cpu") != 0;
    size_t context = v->session.context ? (size_t)v->session.context : b.info.context_length;
    if (context < OPENING + (size_t)v->generated)
        return fail_usage("bench: generation needs a context of %zu tokens (%d, and --tokens %zu "
                          "more), found %zu", OPENING + (size_t)v->generated, OPENING,
                          (size_t)v->generated, context);
    int result = open_sessions(v, m, &b);
    if (result == EXIT_OK) {
        catch_interrupts(false);
        pleach_status status = measure(v, &b, context, &r, &err);
        if (status == PLEACH_OK && !b.device)
            status = measure_linears(m, (size_t)v->generated, b.repeats, &r.linear, &err);
        if (status != PLEACH_OK) result = fail_status(&err);
    }
    if (result == EXIT_OK && !b.device) result = measure_reading(b.info.threads, b.repeats, &r.roof);
    progress_end();
    if (result == EXIT_OK && v->json)
        result = print_report_json(v, &b, &r);
    else if (result == EXIT_OK)
        print_report(v, &b, &r);
    pl_free(b.ids);
    pl_free(b.logits);
    for (size_t i = 0; i < b.sequences; i++) pleach_session_close(b.others[i]);
    return result;
}

/* Options that only a model's measurements heed. */
static int check_without_model(const bench_values *v)
{
    static const char *const unused[] = {"ctx",    "kv",    "kv-recent",      "tokens",
                                         "arith", "sequences", "streams", "batch-invariant"};
    for (size_t i = 0; i < PL_COUNT(unused); i++)
        if (options_given(&bench_command, v, unused[i]))
            return fail_usage("bench: --%s says how a model runs: %s has no use for it", unused[i],
                              v->tune ? "--tune" : "kernels");
    int status = check_device(v->model.device);
    return status == EXIT_OK ? check_cpu(v->model.cpu) : status;
}

static int bench_device(const bench_values *v)
{
    if (v->tune) return fail_usage("bench: --tune measures processors, not %s", v->model.device);
#ifdef PLEACH_CUDA
    return bench_kernels_cuda(v->model.device, v->json);
#else
    return fail("device %s: this build has no CUDA: it was made without -DPLEACH_CUDA=ON",
                v->model.device);
#endif
}

static int bench_without_model(const bench_values *v)
{
    bench_kernels_options o = {.repeats = (size_t)v->repeats,
                               .threads = (int)v->model.threads,
                               .cpu = v->model.cpu,
                               .json = v->json};
    int status = check_without_model(v);
    if (status != EXIT_OK) return status;
    if (strcmp(v->model.device, "cpu") != 0) return bench_device(v);
    return v->tune ? bench_tune(&o) : bench_kernels(&o);
}

static int run(const void *values)
{
    const bench_values *v = values;
    pleach_model *m = NULL;
    if (v->tune && v->path)
        return fail_usage("bench: --tune measures this machine, not %s: give no MODEL", v->path);
    if (!v->tune && !v->path)
        return fail_usage("bench: MODEL is missing; \"pleach bench --help\" shows what is "
                          "expected");
    if (v->tune || strcmp(v->path, "kernels") == 0) return bench_without_model(v);
    int status = check_session(&v->session);
    if (status == EXIT_OK) status = open_model(v->path, &v->model, &m);
    if (status == EXIT_OK) status = bench_model(v, m);
    pleach_model_close(m);
    return status;
}

static const option options[] = {
    {.argument = "MODEL",
     .type = OPTION_PATH,
     .help = "a packed folder, a Hugging Face folder or a GGUF file; or kernels",
     OPTION_AT(bench_values, path)},
    {.name = "tune",
     .type = OPTION_FLAG,
     .help = "measure where one way of computing overtakes another on this machine",
     OPTION_AT(bench_values, tune)},
    {.name = "repeats",
     .letter = 'r',
     .type = OPTION_INTEGER,
     .argument = "N",
     .min = 1,
     .max = MOST_REPEATS,
     .help = "runs of each measurement",
     OPTION_AT(bench_values, repeats)},
    {.name = "tokens",
     .letter = 'n',
     .type = OPTION_INTEGER,
     .argument = "N",
     .min = 1,
     .max = 100000,
     .help = "tokens that a generation run makes",
     OPTION_AT(bench_values, generated)},
    {.name = "sequences",
     .type = OPTION_INTEGER,
     .argument = "N",
     .min = 1,
     .max = MOST_SEQUENCES,
     .help = "measure so many sequences that generate side by side, too",
     OPTION_AT(bench_values, sequences)},
    {.name = "streams",
     .type = OPTION_INTEGER,
     .argument = "N",
     .min = 1,
     .max = MOST_STREAMS,
     .help = "measure 1, 2, 4, .. up to so many requests side by side, as a server has them, too",
     OPTION_AT(bench_values, streams)},
    SESSION_OPTIONS(bench_values),
    MODEL_OPTIONS(bench_values),
    {.name = "json",
     .type = OPTION_FLAG,
     .help = "print one JSON object",
     OPTION_AT(bench_values, json)},
};

const command bench_command = {
    .name = "bench",
    .summary = "measure tokens per second, or kernels",
    .description =
        "Measures prompts of 8, 64 and 512 tokens and the generation of single tokens, several "
        "times each, and in the same run how fast all threads together read memory. The weights "
        "that one token reads, times the tokens per second, over that speed is the share of the "
        "memory's limit in use. The model's linear layers are measured alone, too: generation over "
        "their speed says what all the rest costs. On a device prompts and generation are measured.\n\n"
        "In place of a MODEL the word kernels measures products with packed matrices of a 27B "
        "model's shapes, in every arithmetic, beside dense weights and the memory (write ./kernels "
        "for a folder of that name). It takes some minutes and 1 GB. With --device cuda it measures the "
        "kernels of a device. With --tune and no MODEL it "
        "measures from how many activation rows on a product had better decode a tile of the "
        "weights first, and how much work is worth a thread; it prints that beside what is built "
        "in, and as the lines of src/kernels/crossovers.c. Results never depend on these.",
    .options = options,
    .n_options = PL_COUNT(options),
    .examples = (const char *const[]){"pleach bench model-4bit",
                                      "pleach bench model.gguf -t 4 --json",
                                      "pleach bench kernels",
                                      "pleach bench kernels --device cuda --json",
                                      "pleach bench --tune", NULL},
    .values_size = sizeof(bench_values),
    .given = offsetof(bench_values, given),
    .defaults = defaults,
    .run = run,
};
