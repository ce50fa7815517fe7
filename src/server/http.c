/* SPDX-License-Identifier: Apache-2.0 */
#include "http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "access_log.h"
#include "base/clock.h"
#include "base/memory.h"
#include "exchange.h"
#include "page.h"

enum {
    HEADER_BYTES = 32 << 10,
    STACK_BYTES = 4 << 20, /* templates and schemas nest */
    STREAM_BLOCK = 16 << 10
};

/* One request on a connection. */
typedef struct request {
    pl_exchange exchange;
    pl_connection *connection;
    bool too_large, answered;
} request;

/* ---- answering ------------------------------------------------------------------------------- */

static bool client_gone(void *user)
{
    char byte;
    request *q = user;
    ssize_t n = recv(q->connection->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

static void add_page_headers(const pl_page_file *page, struct MHD_Response *response)
{
    MHD_add_response_header(response, MHD_HTTP_HEADER_ETAG, page->etag);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    MHD_add_response_header(response, "Content-Security-Policy", PL_PAGE_POLICY);
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
}

static void add_headers(const request *q, struct MHD_Response *response)
{
    const pl_exchange *x = &q->exchange;
    const char *cors = x->server->settings.cors;
    if (x->content_type)
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, x->content_type);
    if (x->id[0]) MHD_add_response_header(response, "X-Request-Id", x->id);
    if (x->stream) {
        MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
        MHD_add_response_header(response, "X-Accel-Buffering", "no");
    }
    if (x->page) add_page_headers(x->page, response);
    if (x->status == MHD_HTTP_TOO_MANY_REQUESTS)
        MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, "1");
    if (x->status == MHD_HTTP_UNAUTHORIZED)
        MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    if (atomic_load(&x->server->stopping) || q->too_large)
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    if (cors) {
        MHD_add_response_header(response, "Access-Control-Allow-Origin", cors);
        MHD_add_response_header(response, "Access-Control-Allow-Methods", "GET, POST, OPTIONS");
        MHD_add_response_header(response, "Access-Control-Allow-Headers",
                                "Authorization, Content-Type");
        MHD_add_response_header(response, MHD_HTTP_HEADER_VARY, "Origin");
    }
}

/* While the stream waits for the model it is not the client who is late. */
static ssize_t read_stream(void *user, uint64_t position, char *bytes, size_t size)
{
    request *q = user;
    pl_server *s = q->exchange.server;
    (void)position;
    pl_connection_allow(&s->connections, q->connection, 0);
    long n = pl_stream_read(&q->exchange, bytes, size);
    pl_connection_allow(&s->connections, q->connection, s->settings.timeout);
    return n > 0    ? (ssize_t)n
           : n == 0 ? MHD_CONTENT_READER_END_OF_STREAM
                    : MHD_CONTENT_READER_END_WITH_ERROR;
}

static enum MHD_Result reply(struct MHD_Connection *connection, request *q)
{
    pl_exchange *x = &q->exchange;
    struct MHD_Response *response =
        x->stream
            ? MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, read_stream, q,
                                                NULL)
            : MHD_create_response_from_buffer(x->out.size, x->out.data, MHD_RESPMEM_PERSISTENT);
    if (!response) return MHD_NO;
    add_headers(q, response);
    enum MHD_Result result = MHD_queue_response(connection, (unsigned)x->status, response);
    MHD_destroy_response(response);
    q->answered = true;
    return result;
}

static enum MHD_Result answer(struct MHD_Connection *connection, request *q)
{
    pl_exchange *x = &q->exchange;
    pl_server *s = x->server;
    pl_refusal too_large;
    pl_connection_allow(&s->connections, q->connection, 0);
    if (q->too_large) {
        pl_refuse(&too_large, 413, NULL, "the body has more than %" PRIu64 " bytes",
                  s->settings.max_body);
        pl_reply_refusal(x, &too_large);
    } else {
        pl_dispatch(x);
    }
    pl_connection_allow(&s->connections, q->connection, s->settings.timeout);
    return reply(connection, q);
}

/* ---- receiving ------------------------------------------------------------------------------- */

static request *open_request(pl_server *s, struct MHD_Connection *connection, const char *method,
                             const char *path)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    request *q = pl_calloc(1, sizeof *q);
    if (!q || !info || !info->socket_context) {
        pl_free(q);
        return NULL;
    }
    q->connection = info->socket_context;
    q->exchange = (pl_exchange){.server = s,
                                .method = method,
                                .path = path,
                                .gone = client_gone,
                                .user = q,
                                .began = pl_seconds()};
    atomic_fetch_add(&s->active, 1);
    return q;
}

static uint64_t announced_size(struct MHD_Connection *connection)
{
    const char *length =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    return length ? strtoull(length, NULL, 10) : 0; /* well-formed: checked by the HTTP library */
}

/* The headers are there: what can be refused without the body is. */
static enum MHD_Result begin(struct MHD_Connection *connection, request *q)
{
    pl_exchange *x = &q->exchange;
    const char *key =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
    x->if_none_match =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_IF_NONE_MATCH);
    if (x->server->settings.cors && strcmp(x->method, MHD_HTTP_METHOD_OPTIONS) == 0) {
        x->status = MHD_HTTP_NO_CONTENT;
        return reply(connection, q);
    }
    uint64_t size = announced_size(connection);
    if (pl_admit(x, key, size) == PLEACH_OK) return MHD_YES;
    q->too_large = size > 0; /* a body that nobody reads: the connection ends with the answer */
    return reply(connection, q);
}

static void take_body(request *q, const char *bytes, size_t size)
{
    pl_exchange *x = &q->exchange;
    if (q->too_large) return;
    if (x->body.size + size <= x->server->settings.max_body &&
        pl_buffer_append(&x->body, bytes, size, NULL) == PLEACH_OK)
        return;
    q->too_large = true;
    pl_free(x->body.data);
    x->body = (pl_buffer){0};
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *connection, const char *path,
                                  const char *method, const char *version, const char *bytes,
                                  size_t *size, void **state)
{
    request *q = *state;
    (void)version;
    if (!q) {
        q = *state = open_request(user, connection, method, path);
        return q ? begin(connection, q) : MHD_NO;
    }
    if (*size) {
        take_body(q, bytes, *size);
        *size = 0;
        return MHD_YES;
    }
    return q->answered ? MHD_YES : answer(connection, q);
}

static void on_end(void *user, struct MHD_Connection *connection, void **state,
                   enum MHD_RequestTerminationCode code)
{
    pl_server *s = user;
    request *q = *state;
    (void)connection;
    (void)code;
    if (!q) return;
    pl_log_exchange(&q->exchange);
    pl_connection_allow(&s->connections, q->connection, s->settings.timeout);
    pl_exchange_free(&q->exchange);
    pl_free(q);
    *state = NULL;
    atomic_fetch_sub(&s->active, 1);
}

static void on_connection(void *user, struct MHD_Connection *connection, void **state,
                          enum MHD_ConnectionNotificationCode code)
{
    pl_server *s = user;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (code == MHD_CONNECTION_NOTIFY_CLOSED)
        pl_connection_close(&s->connections, *state);
    else
        *state = pl_connection_open(&s->connections, info->connect_fd, s->settings.timeout);
}

/* ---- listening ------------------------------------------------------------------------------- */

static int listen_at(const struct addrinfo *a)
{
    int on = 1, fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 128) == 0) return fd;
    int failed = errno;
    close(fd);
    errno = failed;
    return -1;
}

/* The first of the host's addresses that can be listened on. */
static pleach_status open_socket(const pl_server_settings *s, int *fd, pleach_error *err)
{
    char port[16];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list;
    snprintf(port, sizeof port, "%d", s->port);
    int failed = getaddrinfo(s->host, port, &hints, &list);
    PL_FAIL_IF(failed, err, PLEACH_ERR_IO, "cannot listen on %s: %s", s->host,
               gai_strerror(failed));
    *fd = -1;
    for (const struct addrinfo *a = list; a && *fd < 0; a = a->ai_next) *fd = listen_at(a);
    freeaddrinfo(list);
    PL_FAIL_IF(*fd < 0, err, PLEACH_ERR_IO, "cannot listen on %s, port %d: %s", s->host, s->port,
               strerror(errno));
    return PLEACH_OK;
}

static int port_of(int fd)
{
    struct sockaddr_storage a;
    socklen_t size = sizeof a;
    if (getsockname(fd, (struct sockaddr *)&a, &size) != 0) return 0;
    return ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port
                                         : ((struct sockaddr_in *)&a)->sin_port);
}

pleach_status pl_http_start(pl_server *s, pleach_error *err)
{
    int fd;
    PL_TRY(open_socket(&s->settings, &fd, err));
    s->settings.port = port_of(fd);
    s->daemon = MHD_start_daemon(
        MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL |
            MHD_USE_ITC,
        0, NULL, NULL, on_request, s, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_NOTIFY_COMPLETED,
        on_end, s, MHD_OPTION_NOTIFY_CONNECTION, on_connection, s, MHD_OPTION_CONNECTION_LIMIT,
        s->settings.connections, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADER_BYTES,
        MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK_BYTES, MHD_OPTION_END);
    if (s->daemon) return PLEACH_OK;
    close(fd);
    return pl_fail(err, PLEACH_ERR_IO, "cannot start the HTTP server on %s, port %d",
                   s->settings.host, s->settings.port);
}

void pl_http_stop_listening(pl_server *s)
{
    MHD_socket fd = s->daemon ? MHD_quiesce_daemon(s->daemon) : MHD_INVALID_SOCKET;
    if (fd != MHD_INVALID_SOCKET) close(fd);
}

void pl_http_stop(pl_server *s)
{
    if (s->daemon) MHD_stop_daemon(s->daemon);
    s->daemon = NULL;
}
