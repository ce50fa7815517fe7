/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a request: the first line names method, path and key as in HTTP, the rest is the
 * body. Whatever it says, there is an answer with a status; what is JSON parses, what is a stream
 * ends. */
#include <stdint.h>

#include "base/memory.h"
#include "server/byte_model.h"
#include "server/exchange.h"

enum { CONTEXT = 256 };

static pl_server *open_server(void)
{
    pl_server_settings s;
    pl_server *server;
    pl_server_defaults(&s);
    s.batch.session.context = CONTEXT;
    s.batch.parallel = 4;
    s.max_body = 1 << 20;
    if (pl_server_prepare(open_byte_model(PLEACH_TEST_DATA "/golden/checkpoints/llama-tied"), &s,
                          &server, NULL) != PLEACH_OK)
        abort();
    return server;
}

/* A client of little patience: it is asked for ten times a second. */
static bool soon_gone(void *user)
{
    int *asked = user;
    return ++*asked > 2;
}

/* The next word of a line, cut off in place. */
static const char *word(char **line)
{
    char *begin = *line, *end = begin + strcspn(begin, " ");
    *line = *end ? end + 1 : end;
    *end = 0;
    return begin;
}

static void check_answer(pl_exchange *x)
{
    char bytes[4096];
    size_t total = 0;
    if (x->status < 200 || x->status > 599) abort();
    if (x->stream) {
        for (long n; (n = pl_stream_read(x, bytes, sizeof bytes)) > 0;) total += (size_t)n;
        if (total == 0) abort();
    } else if (strcmp(x->content_type, "application/json") == 0) {
        json_t *answer = json_loadb(x->out.data, x->out.size, JSON_ALLOW_NUL, NULL);
        if (!answer || (x->status != 200) != (json_object_get(answer, "error") != NULL)) abort();
        json_decref(answer);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static pl_server *server;
    if (!server) server = open_server();
    const uint8_t *end = size ? memchr(data, '\n', size) : NULL;
    size_t head = end ? (size_t)(end - data) : size, body = end ? size - head - 1 : 0;
    char line[512], *rest = line;
    snprintf(line, sizeof line, "%.*s", (int)PL_MIN(head, sizeof line - 1), (const char *)data);
    const char *method = word(&rest), *path = word(&rest);
    int asked = 0;
    pl_exchange x = {
        .server = server, .method = method, .path = path, .gone = soon_gone, .user = &asked};
    if (body && pl_buffer_append(&x.body, end + 1, body, NULL)) abort();
    if (pl_admit(&x, rest, body) == PLEACH_OK) pl_dispatch(&x);
    check_answer(&x);
    pl_exchange_free(&x);
    return 0;
}
