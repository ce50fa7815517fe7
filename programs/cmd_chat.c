/* SPDX-License-Identifier: Apache-2.0
 *
 * pleach chat: a conversation. The session keeps what both sides said, so each turn computes only
 * what is new. */
#include <stdio.h>
#include <string.h>

#include "answer.h"
#include "base/memory.h"
#include "commands.h"
#include "console.h"
#include "line_input.h"
#include "model_options.h"

typedef struct chat_values {
    const char *path, *system;
    int64_t tokens;
    int verbose;
    model_values model;
    session_values session;
    sampling_values sampling;
} chat_values;

typedef struct chat {
    const pleach_model *model;
    pleach_session *session;
    size_t context;
    pleach_generation settings;
    bool verbose;
    pleach_message *messages; /* contents owned; a system message, if any, is the first */
    size_t n, capacity;
    line_input *input;
    int status; /* of the last turn: what a script sees at the end */
} chat;

static void defaults(void *values)
{
    chat_values *v = values;
    model_values_defaults(&v->model);
    session_values_defaults(&v->session);
    sampling_values_defaults(&v->sampling);
}

/* ---- the conversation ---------------------------------------------------------------------- */

static int add_message(chat *c, const char *role, const char *content)
{
    size_t size = strlen(content) + 1;
    char *copy = pl_alloc(size, 1);
    if (!copy || pl_grow((void **)&c->messages, &c->capacity, c->n + 1, sizeof *c->messages) != 0) {
        pl_free(copy);
        return fail("out of memory: the conversation");
    }
    memcpy(copy, content, size);
    c->messages[c->n++] = (pleach_message){.role = role, .content = copy};
    return EXIT_OK;
}

static void drop_messages(chat *c, size_t keep)
{
    while (c->n > keep) pl_free((char *)(uintptr_t)c->messages[--c->n].content);
}

static bool has_system(const chat *c)
{
    return c->n > 0 && strcmp(c->messages[0].role, "system") == 0;
}

/* The model's turn: streams it and keeps it as a message. */
static pleach_status answer_turn(chat *c, answer *a, pleach_error *err)
{
    int32_t *ids = NULL;
    size_t n = 0;
    pleach_status status = pleach_chat_tokenize(c->model, c->messages, c->n, &ids, &n, err);
    if (status == PLEACH_OK)
        status = answer_prompt(c->session, c->context, ids, n, &c->settings, a, err);
    pleach_ids_free(ids);
    return status;
}

static int take_turn(chat *c, const char *text)
{
    answer a = {0};
    pleach_error err;
    int status = add_message(c, "user", text);
    if (status != EXIT_OK) return status;
    forget_interrupt();
    pleach_status answered = answer_turn(c, &a, &err);
    if (a.size > 0 || answered == PLEACH_OK) putchar('\n');
    if (answered == PLEACH_OK) {
        status = add_message(c, "assistant", a.text ? a.text : "");
        if (c->verbose || line_input_edits(c->input)) answer_print_stats(&a);
        if (a.stats.finish == PLEACH_FINISH_LENGTH && c->settings.max_tokens == 0)
            fail("the context of %zu tokens is full; /reset starts a new conversation", c->context);
    } else {
        status = fail_status(&err);
        drop_messages(c, c->n - 1);
        if (answered == PLEACH_ERR_LIMIT) fail("/reset starts a new conversation");
    }
    pl_free(a.text);
    forget_interrupt();
    return finish_output(status);
}

/* ---- commands ------------------------------------------------------------------------------ */

static const char chat_help[] = "/help          this list\n"
                                "/reset         start a new conversation\n"
                                "/system TEXT   set the system text and start anew\n"
                                "/quit          leave (also Ctrl-D)\n"
                                "Ctrl-C stops an answer.\n";

static int set_system(chat *c, const char *text)
{
    drop_messages(c, 0);
    return *text ? add_message(c, "system", text) : EXIT_OK;
}

/* A line that begins with a slash. Returns false to leave. */
static bool take_command(chat *c, const char *line)
{
    static const char *const names[] = {"/help", "/reset", "/system", "/quit"};
    size_t size = strcspn(line, " \t");
    const char *argument = line + size + strspn(line + size, " \t");
    if (size == 5 && memcmp(line, "/quit", size) == 0) return false;
    if (size == 5 && memcmp(line, "/help", size) == 0) {
        fputs(chat_help, stdout);
    } else if (size == 6 && memcmp(line, "/reset", size) == 0) {
        drop_messages(c, has_system(c));
    } else if (size == 7 && memcmp(line, "/system", size) == 0) {
        c->status = set_system(c, argument);
    } else {
        const char *nearest = options_nearest(line, names, PL_COUNT(names));
        fail("unknown command %.*s; %s", (int)size, line, nearest ? nearest : "/help lists them");
        c->status = EXIT_FAILED;
    }
    return true;
}

static void converse(chat *c)
{
    for (bool on = true; on;) {
        const char *line;
        fflush(stdout);
        forget_interrupt();
        line_result got = line_input_read(c->input, &line);
        if (got == LINE_END) return;
        if (got == LINE_INTERRUPTED || !line[0]) continue;
        if (line[0] == '/')
            on = take_command(c, line);
        else
            c->status = take_turn(c, line);
        if (ferror(stdout)) return;
    }
}

static int start(const chat_values *v, chat *c)
{
    pleach_model_info info;
    pleach_model_get_info(c->model, &info);
    /* Asked once at the start, so that a model that cannot chat says so before anybody types. */
    pleach_message hello = {"user", "hello"};
    int32_t *ids = NULL;
    size_t n;
    pleach_error err;
    if (pleach_chat_tokenize(c->model, &hello, 1, &ids, &n, &err) != PLEACH_OK)
        return fail_status(&err);
    pleach_ids_free(ids);
    c->context = v->session.context ? (size_t)v->session.context : info.context_length;
    pleach_generation_defaults(&c->settings);
    sampling_from_values(&v->sampling, &c->settings.sampling);
    c->settings.max_tokens = (size_t)v->tokens;
    c->verbose = v->verbose;
    c->input = line_input_open();
    if (!c->input) return fail("out of memory: the line editor");
    return v->system ? set_system(c, v->system) : EXIT_OK;
}

static int run(const void *values)
{
    const chat_values *v = values;
    pleach_model *m = NULL;
    chat c = {0};
    int status = check_session(&v->session);
    if (status == EXIT_OK) status = open_model(v->path, &v->model, &m);
    c.model = m;
    if (status == EXIT_OK) status = open_session(m, &v->session, &c.session);
    if (status == EXIT_OK) status = start(v, &c);
    if (status == EXIT_OK) {
        catch_interrupts(true);
        if (line_input_edits(c.input)) printf("%s; /help lists commands\n", v->path);
        if (c.verbose || line_input_edits(c.input)) print_session_cache(stderr, m, c.session);
        converse(&c);
        status = line_input_edits(c.input) ? EXIT_OK : c.status;
    }
    drop_messages(&c, 0);
    pl_free(c.messages);
    line_input_close(c.input);
    pleach_session_close(c.session);
    pleach_model_close(m);
    return status;
}

static const option options[] = {
    MODEL_OPERAND(chat_values),
    {.name = "system",
     .type = OPTION_TEXT,
     .argument = "TEXT",
     .help = "system text",
     OPTION_AT(chat_values, system)},
    {.name = "tokens",
     .letter = 'n',
     .type = OPTION_INTEGER,
     .argument = "N",
     .min = 0,
     .max = 16777216,
     .help = "most tokens of an answer; 0: as many as the context holds",
     OPTION_AT(chat_values, tokens)},
    SAMPLING_OPTIONS(chat_values),
    SESSION_OPTIONS(chat_values),
    MODEL_OPTIONS(chat_values),
    {.name = "verbose",
     .letter = 'v',
     .type = OPTION_FLAG,
     .help = "print tokens/s to standard error, also when nobody types",
     OPTION_AT(chat_values, verbose)},
};

const command chat_command = {
    .name = "chat",
    .summary = "talk with a model",
    .description =
        "Holds a conversation by the model's own chat template; a model without one is refused. "
        "Lines are edited on a terminal, with history; otherwise each line of "
        "standard input is a turn. Inside: /help, /reset, /system TEXT, /quit. Ctrl-C stops an "
        "answer, Ctrl-D leaves.",
    .options = options,
    .n_options = PL_COUNT(options),
    .examples = (const char *const[]){"pleach chat model-4bit",
                                      "pleach chat model.gguf --system 'Answer in one sentence.' "
                                      "--temp 0.7",
                                      NULL},
    .values_size = sizeof(chat_values),
    .defaults = defaults,
    .run = run,
};
