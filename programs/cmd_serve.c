/* SPDX-License-Identifier: Apache-2.0
 *
 * pleach serve: the model behind OpenAI's HTTP API. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "commands.h"
#include "console.h"
#include "model_options.h"
#include "server/server.h"

typedef struct serve_values {
    const char *path, *host, *alias, *key_file, *cors;
    int64_t port, parallel, queue, chunk, keep, max_body, connections;
    double timeout;
    int log_json, log_content, quiet;
    model_values model;
    session_values session;
} serve_values;

static void defaults(void *values)
{
    serve_values *v = values;
    pl_server_settings s;
    pl_server_defaults(&s);
    v->host = s.host;
    v->port = s.port;
    v->parallel = (int64_t)s.batch.parallel;
    v->queue = (int64_t)s.batch.queue;
    v->chunk = (int64_t)s.batch.chunk;
    v->keep = (int64_t)s.batch.kept_bytes;
    v->max_body = (int64_t)s.max_body;
    v->connections = s.connections;
    v->timeout = s.timeout;
    model_values_defaults(&v->model);
    session_values_defaults(&v->session);
}

/* ---- signals --------------------------------------------------------------------------------- */

static volatile sig_atomic_t stops;

/* The first asks for an end, the second is one: also for process 1 of a container, which the system
 * does not end by a signal's default. */
static void note_stop(int signal_number)
{
    (void)signal_number;
    if (stops) _exit(EXIT_INTERRUPTED);
    stops = 1;
}

static void catch_stops(void)
{
    struct sigaction action = {.sa_handler = note_stop};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static void run_until_stopped(pl_server *server)
{
    static const struct timespec tick = {.tv_nsec = 100000000};
    while (!stops) {
        nanosleep(&tick, NULL);
        pl_server_tick(server);
    }
}

/* ---- running --------------------------------------------------------------------------------- */

/* The last part of the model's path. */
static void model_name(const char *path, char *name, size_t size)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    size_t begin = n;
    while (begin > 0 && path[begin - 1] != '/') begin--;
    snprintf(name, size, "%.*s", (int)(n - begin), path + begin);
}

static void server_settings(const serve_values *v, const char *name, pl_server_settings *s)
{
    pl_server_defaults(s);
    s->host = v->host;
    s->port = (int)v->port;
    s->alias = v->alias ? v->alias : name;
    s->key_file = v->key_file;
    s->cors = v->cors;
    s->max_body = (uint64_t)v->max_body;
    s->connections = (unsigned)v->connections;
    s->timeout = v->timeout;
    s->log = !v->quiet;
    s->log_json = v->log_json;
    s->log_content = v->log_content;
    s->batch.parallel = (size_t)v->parallel;
    s->batch.queue = (size_t)v->queue;
    s->batch.chunk = (size_t)v->chunk;
    s->batch.kept_bytes = (uint64_t)v->keep;
    session_settings(&v->session, &s->batch.session);
}

static int announce(const serve_values *v, const pl_server *server)
{
    pleach_cache_info cache;
    pl_server_cache_info(server, &cache);
    warn_of_cache(&cache);
    print_cache(stderr, &cache);
    bool v6 = strchr(v->host, ':') != NULL;
    printf("listening on http://%s%s%s:%d\n", v6 ? "[" : "", v->host, v6 ? "]" : "",
           pl_server_port(server));
    return finish_output(EXIT_OK);
}

static int serve(const serve_values *v, const pleach_model *m)
{
    char name[256];
    pl_server *server;
    pl_server_settings s;
    pleach_error err;
    model_name(v->path, name, sizeof name);
    server_settings(v, name, &s);
    if (pl_server_open(m, &s, &server, &err) != PLEACH_OK) return fail_status(&err);
    catch_stops();
    int status = announce(v, server);
    if (status == EXIT_OK) run_until_stopped(server);
    pl_server_close(server);
    return status;
}

static int run(const void *values)
{
    const serve_values *v = values;
    pleach_model *m = NULL;
    int status = check_session(&v->session);
    if (status == EXIT_OK) status = open_model(v->path, &v->model, &m);
    if (status == EXIT_OK) status = serve(v, m);
    pleach_model_close(m);
    return status;
}

static const option options[] = {
    MODEL_OPERAND(serve_values),
    {.name = "host",
     .type = OPTION_TEXT,
     .argument = "ADDRESS",
     .automatic = "127.0.0.1",
     .help = "address to listen on; 0.0.0.0 takes requests from other machines too",
     OPTION_AT(serve_values, host)},
    {.name = "port",
     .letter = 'p',
     .type = OPTION_INTEGER,
     .argument = "N",
     .min = 0,
     .max = 65535,
     .help = "port; 0: any that is free. The first line on standard output names it",
     OPTION_AT(serve_values, port)},
    {.name = "alias",
     .type = OPTION_TEXT,
     .argument = "NAME",
     .automatic = "the last part of MODEL",
     .help = "the model's name in the API",
     OPTION_AT(serve_values, alias)},
    {.name = "api-key-file",
     .type = OPTION_PATH,
     .argument = "FILE",
     .help = "keys, one a line, of which a request has to bring one",
     OPTION_AT(serve_values, key_file)},
    {.name = "cors",
     .type = OPTION_TEXT,
     .argument = "ORIGIN",
     .automatic = "none",
     .help = "web pages of this origin may call the server; * for all",
     OPTION_AT(serve_values, cors)},
    {.name = "parallel",
     .type = OPTION_INTEGER,
     .argument = "N",
     .min = 1,
     .max = 64,
     .help = "answers computed side by side",
     OPTION_AT(serve_values, parallel)},
    {.name = "queue",
     .type = OPTION_INTEGER,
     .argument = "N",
     .min = 0,
     .max = 65536,
     .help = "requests that wait at most; more are refused with status 429",
     OPTION_AT(serve_values, queue)},
    {.name = "chunk",
     .type = OPTION_INTEGER,
     .argument = "N",
     .min = 1,
     .max = 65536,
     .help = "tokens of a prompt between two steps of the others; results do not depend on it",
     OPTION_AT(serve_values, chunk)},
    {.name = "keep",
     .type = OPTION_INTEGER,
     .argument = "BYTES",
     .min = 0,
     .max = 9007199254740991,
     .help = "cache kept for requests that begin as earlier ones did; 0: none",
     OPTION_AT(serve_values, keep)},
    SESSION_OPTIONS(serve_values),
    MODEL_OPTIONS(serve_values),
    {.name = "max-body",
     .type = OPTION_INTEGER,
     .argument = "BYTES",
     .min = 1,
     .max = 4294967295,
     .help = "largest body of a request; more is refused with status 413",
     OPTION_AT(serve_values, max_body)},
    {.name = "connections",
     .type = OPTION_INTEGER,
     .argument = "N",
     .min = 1,
     .max = 65536,
     .help = "connections at once; more are closed at once",
     OPTION_AT(serve_values, connections)},
    {.name = "timeout",
     .type = OPTION_REAL,
     .argument = "S",
     .min = 0.1,
     .max = 86400,
     .help = "seconds in which a client sends a request, takes a part of its answer, or comes with "
             "the next request",
     OPTION_AT(serve_values, timeout)},
    {.name = "log-json",
     .type = OPTION_FLAG,
     .help = "log as JSON, one object a request",
     OPTION_AT(serve_values, log_json)},
    {.name = "log-content",
     .type = OPTION_FLAG,
     .help = "log what requests say too: never unless everybody agrees",
     OPTION_AT(serve_values, log_content)},
    {.name = "quiet",
     .letter = 'q',
     .type = OPTION_FLAG,
     .help = "no log of requests",
     OPTION_AT(serve_values, quiet)},
};

const command serve_command = {
    .name = "serve",
    .summary = "answer over HTTP, as OpenAI's API",
    .description =
        "Serves the model to many clients at once by the HTTP API that OpenAI's clients speak: "
        "/v1/chat/completions, /v1/completions, /v1/embeddings and others. Logs a line a request "
        "on standard error.\n\n"
        "Only this machine is listened to unless --host says otherwise. Ctrl-C or SIGTERM lets "
        "running answers end for three seconds, then cuts them; a second one ends at once.",
    .options = options,
    .n_options = PL_COUNT(options),
    .examples = (const char *const[]){"pleach serve model-4bit",
                                      "pleach serve model-4bit --port 8000 --parallel 16 --kv k8v3",
                                      "pleach serve model.gguf --host 0.0.0.0 --api-key-file keys "
                                      "--log-json",
                                      NULL},
    .values_size = sizeof(serve_values),
    .defaults = defaults,
    .run = run,
};
