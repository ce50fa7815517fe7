/* SPDX-License-Identifier: Apache-2.0
 *
 * pleach run: one prompt, one answer. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "answer.h"
#include "base/file.h"
#include "base/memory.h"
#include "commands.h"
#include "console.h"
#include "input.h"
#include "model_options.h"

typedef struct run_values {
    const char *path, *prompt, *file, *system, *ids_file, *session_file;
    const char *grammar, *schema;
    int64_t tokens;
    int chat, special, ignore_end, print_ids, json, verbose;
    model_values model;
    session_values session;
    sampling_values sampling;
} run_values;

static void defaults(void *values)
{
    run_values *v = values;
    v->tokens = 256;
    model_values_defaults(&v->model);
    session_values_defaults(&v->session);
    sampling_values_defaults(&v->sampling);
}

static int check_values(const run_values *v)
{
    if (!!v->prompt + !!v->file + !!v->ids_file != 1)
        return fail_usage("run: expected one prompt: --prompt TEXT, --file FILE or --ids FILE");
    if (v->system && !v->chat) return fail_usage("--system: expected --chat with it");
    if (v->ids_file && (v->chat || v->special))
        return fail_usage("--ids: expected neither --chat nor --special with it");
    if (v->chat && v->special) return fail_usage("--special: expected no --chat with it");
    if (v->grammar && v->schema) return fail_usage("--grammar: expected no --json-schema with it");
    return check_session(&v->session);
}

/* The prompt's text as ids, in memory of the library. */
static pleach_status tokenize(const run_values *v, const pleach_model *m, const char *text,
                              size_t size, int32_t **ids, size_t *n, pleach_error *err)
{
    pleach_message messages[] = {{"system", v->system}, {"user", text}};
    unsigned flags = PLEACH_TOKENIZE_BOS | (v->special ? PLEACH_TOKENIZE_SPECIAL : 0);
    if (!v->chat) return pleach_tokenize(m, text, size, flags, ids, n, err);
    return pleach_chat_tokenize(m, messages + !v->system, v->system ? 2 : 1, ids, n, err);
}

static int prompt_ids(const run_values *v, const pleach_model *m, id_list *list)
{
    char *read = NULL;
    const char *text = v->prompt;
    if (v->ids_file) return read_ids(v->ids_file, list);
    size_t size = text ? strlen(text) : 0, n = 0;
    if (v->file || strcmp(text, "-") == 0) {
        int status = read_input(v->file ? v->file : "-", &read, &size);
        if (status != EXIT_OK) return status;
        text = read;
    }
    int32_t *ids = NULL;
    pleach_error err;
    int status = EXIT_OK;
    if (tokenize(v, m, text, size, &ids, &n, &err) != PLEACH_OK)
        status = fail_status(&err);
    else if (pl_grow((void **)&list->ids, &list->capacity, n, sizeof ids[0]) != 0)
        status = fail("out of memory: the prompt");
    else if (n > 0)
        memcpy(list->ids, ids, n * sizeof ids[0]);
    list->n = n;
    pleach_ids_free(ids);
    pl_free(read);
    return status;
}

static int print_answer_json(const pleach_session *session, const answer *a, const int32_t *ids)
{
    pleach_cache_info cache;
    static const char *const finish[] = {"end", "length", "cancelled"};
    const pleach_generation_stats *s = &a->stats;
    json_t *list = json_array();
    pleach_session_cache_info(session, &cache);
    for (size_t i = 0; i < s->new_tokens; i++) json_array_append_new(list, json_integer(ids[i]));
    return print_json(json_pack(
        "{s:o, s:o, s:I, s:I, s:I, s:o, s:o, s:s, s:o}", "text", json_text(a->text), "ids", list,
        "prompt_tokens", (json_int_t)s->prompt_tokens, "cached_tokens",
        (json_int_t)s->cached_tokens, "new_tokens", (json_int_t)s->new_tokens, "prompt_seconds",
        json_number(s->prompt_seconds), "generation_seconds", json_number(s->generation_seconds),
        "finish", finish[s->finish], "cache", cache_json(&cache)));
}

static int print_answer(const run_values *v, const pleach_session *s, const answer *a, size_t n)
{
    const int32_t *ids;
    size_t have = pleach_session_ids(s, &ids);
    if (v->json) return print_answer_json(s, a, ids + n);
    if (v->print_ids) {
        for (size_t i = n; i < have; i++) printf("%s%d", i > n ? " " : "", ids[i]);
        putchar('\n');
    } else if (a->size > 0 && a->text[a->size - 1] != '\n') {
        putchar('\n');
    }
    return finish_output(EXIT_OK);
}

static int generate(const run_values *v, const pleach_model *m, pleach_session *s,
                    const id_list *prompt, const char *form)
{
    pleach_error err;
    pleach_model_info info;
    pleach_generation settings;
    pleach_model_get_info(m, &info);
    pleach_generation_defaults(&settings);
    sampling_from_values(&v->sampling, &settings.sampling);
    settings.max_tokens = (size_t)v->tokens;
    settings.ignore_end = v->ignore_end;
    settings.grammar = v->grammar ? form : NULL;
    settings.json_schema = v->schema ? form : NULL;
    size_t context = v->session.context ? (size_t)v->session.context : info.context_length;
    answer a = {.silent = v->print_ids || v->json};
    if (!info.has_tokenizer && !a.silent)
        return fail("%s: no tokenizer; --print-ids prints token ids", v->path);
    pleach_status status = answer_prompt(s, context, prompt->ids, prompt->n, &settings, &a, &err);
    int result = status == PLEACH_OK ? print_answer(v, s, &a, prompt->n) : fail_status(&err);
    if (status == PLEACH_OK && (v->verbose || isatty(STDERR_FILENO))) answer_print_stats(&a);
    if (status == PLEACH_OK && v->verbose) print_session_cache(stderr, m, s);
    pl_free(a.text);
    return result == EXIT_OK && a.stopped ? EXIT_INTERRUPTED : result;
}

/* What the answer has to keep to, in *form (pl_free); NULL: nothing. */
static int read_form(const run_values *v, char **form)
{
    const char *path = v->grammar ? v->grammar : v->schema;
    size_t size;
    if (!path) return EXIT_OK;
    int status = read_input(path, form, &size);
    if (status == EXIT_OK && strlen(*form) != size)
        status = fail("%s: expected a text, found a NUL byte in it", path);
    return status;
}

/* A file that cannot be written is refused before the work that would be lost. */
static int check_session_file(const run_values *v)
{
    pleach_error err;
    if (!v->session_file) return EXIT_OK;
    return pl_output_check(v->session_file, &err) == PLEACH_OK ? EXIT_OK : fail_status(&err);
}

/* What a session file holds already of the prompt is not computed again. */
static int load_session(const run_values *v, pleach_session *s)
{
    pleach_error err;
    if (!v->session_file || !pl_exists(v->session_file)) return EXIT_OK;
    return pleach_session_load(s, v->session_file, &err) == PLEACH_OK ? EXIT_OK : fail_status(&err);
}

static int save_session(const run_values *v, const pleach_session *s, int status)
{
    pleach_error err;
    if (!v->session_file) return status;
    return pleach_session_save(s, v->session_file, &err) == PLEACH_OK ? status : fail_status(&err);
}

static int run(const void *values)
{
    const run_values *v = values;
    pleach_model *m = NULL;
    pleach_session *s = NULL;
    id_list prompt = {0};
    char *form = NULL;
    int status = check_values(v);
    if (status == EXIT_OK) status = check_session_file(v);
    if (status == EXIT_OK) status = read_form(v, &form);
    if (status == EXIT_OK) status = open_model(v->path, &v->model, &m);
    if (status == EXIT_OK) status = prompt_ids(v, m, &prompt);
    if (status == EXIT_OK) status = open_session(m, &v->session, &s);
    if (status == EXIT_OK) status = load_session(v, s);
    if (status == EXIT_OK) {
        catch_interrupts(false);
        status = generate(v, m, s, &prompt, form);
        if (status == EXIT_OK || status == EXIT_INTERRUPTED) status = save_session(v, s, status);
    }
    pleach_session_close(s);
    pleach_model_close(m);
    pl_free(prompt.ids);
    pl_free(form);
    return status;
}

static const option options[] = {
    MODEL_OPERAND(run_values),
    {.name = "prompt",
     .letter = 'p',
     .type = OPTION_TEXT,
     .argument = "TEXT",
     .help = "the prompt, taken as it stands; \"-\" reads it from standard input",
     OPTION_AT(run_values, prompt)},
    {.name = "file",
     .letter = 'f',
     .type = OPTION_PATH,
     .argument = "FILE",
     .help = "read the prompt from a file",
     OPTION_AT(run_values, file)},
    {.name = "ids",
     .type = OPTION_PATH,
     .argument = "FILE",
     .help = "a prompt of token ids, from a text or an I32 safetensors file",
     OPTION_AT(run_values, ids_file)},
    {.name = "tokens",
     .letter = 'n',
     .type = OPTION_INTEGER,
     .argument = "N",
     .min = 0,
     .max = 16777216,
     .help = "most tokens to generate; 0: as many as the context holds",
     OPTION_AT(run_values, tokens)},
    {.name = "chat",
     .type = OPTION_FLAG,
     .help = "the prompt is a user's turn, in the model's own chat format",
     OPTION_AT(run_values, chat)},
    {.name = "system",
     .type = OPTION_TEXT,
     .argument = "TEXT",
     .help = "system text for --chat",
     OPTION_AT(run_values, system)},
    {.name = "special",
     .type = OPTION_FLAG,
     .help = "special tokens written in the prompt become what they name: never for a prompt "
             "that somebody else wrote",
     OPTION_AT(run_values, special)},
    SAMPLING_OPTIONS(run_values),
    {.name = "grammar",
     .type = OPTION_PATH,
     .argument = "FILE",
     .help = "the answer keeps to this grammar in GBNF",
     OPTION_AT(run_values, grammar)},
    {.name = "json-schema",
     .type = OPTION_PATH,
     .argument = "FILE",
     .help = "the answer is JSON of this schema",
     OPTION_AT(run_values, schema)},
    {.name = "ignore-end",
     .type = OPTION_FLAG,
     .help = "go on past the end of the answer",
     OPTION_AT(run_values, ignore_end)},
    SESSION_OPTIONS(run_values),
    {.name = "session",
     .type = OPTION_PATH,
     .argument = "FILE",
     .help = "keep prompt and answer in this file; where it is there already, what it holds of the "
             "prompt is not computed again",
     OPTION_AT(run_values, session_file)},
    MODEL_OPTIONS(run_values),
    {.name = "print-ids",
     .type = OPTION_FLAG,
     .help = "print the new token ids, not their text",
     OPTION_AT(run_values, print_ids)},
    {.name = "json",
     .type = OPTION_FLAG,
     .help = "print one JSON object: text, ids, counts, times",
     OPTION_AT(run_values, json)},
    {.name = "verbose",
     .letter = 'v',
     .type = OPTION_FLAG,
     .help = "print tokens/s to standard error, also when it is no terminal",
     OPTION_AT(run_values, verbose)},
};

const command run_command = {
    .name = "run",
    .summary = "answer one prompt",
    .description =
        "Generates text after a prompt and prints it as it is made. Greedy unless --temp says "
        "otherwise. Ctrl-C stops it (exit status 130).",
    .options = options,
    .n_options = PL_COUNT(options),
    .examples = (const char *const[]){"pleach run model-4bit -p 'The capital of France is' -n 16",
                                      "pleach run model.gguf --chat -p 'What is a trellis?'",
                                      "pleach run model-4bit -f story.txt --temp 0.8 --top-p 0.95 "
                                      "--seed 7",
                                      "pleach run model-4bit --chat -p 'Name a city.' "
                                      "--json-schema city.json",
                                      "pleach run model-4bit -f book.txt --kv k8v3 --session "
                                      "book.session",
                                      NULL},
    .values_size = sizeof(run_values),
    .defaults = defaults,
    .run = run,
};
