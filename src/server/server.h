/* SPDX-License-Identifier: Apache-2.0
 *
 * A model behind the HTTP API that OpenAI's clients speak. docs/server.md.
 *
 *   pl_server_settings s;
 *   pl_server_defaults(&s);
 *   pl_server_open(model, &s, &server, &err);      // answers from here on, on threads of its own
 *   while (...) pl_server_tick(server);            // five times a second or so
 *   pl_server_close(server);                       // running answers get stop_seconds
 */
#ifndef PL_SERVER_SERVER_H
#define PL_SERVER_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "pleach/batch.h"

typedef struct pl_server pl_server;

typedef struct pl_server_settings {
    const char *host;     /* address or name to listen on; default "127.0.0.1" */
    int port;             /* 0: any that is free; default 8080 */
    const char *alias;    /* the model's name in the API */
    const char *key_file; /* keys, one a line; NULL (default): none is asked for */
    const char *cors;     /* origin whose pages may call, or "*"; NULL (default): none */
    uint64_t max_body;    /* bytes; default 16 MiB */
    unsigned connections; /* at once; default 512 */
    double timeout;       /* seconds to send a request, to take a part of the answer, or between two
                             requests; default 60 */
    double stop_seconds;  /* that running answers get when closing; default 3 */
    bool log, log_json, log_content; /* a line a request on stderr */
    pleach_batch_settings batch;
} pl_server_settings;

void pl_server_defaults(pl_server_settings *s);

/* The model is borrowed until closing; texts of the settings are copied. PLEACH_ERR_MISSING for a
 * model without a tokenizer, PLEACH_ERR_IO when the address cannot be listened on. */
pleach_status pl_server_open(const pleach_model *m, const pl_server_settings *s, pl_server **out,
                             pleach_error *err);
int pl_server_port(const pl_server *s);
/* What its cache is made of. */
void pl_server_cache_info(const pl_server *s, pleach_cache_info *info);
/* Ends connections whose time is over. */
void pl_server_tick(pl_server *s);
/* Takes no more requests, lets running answers end, and cuts those that do not in time. NULL is
 * accepted. */
void pl_server_close(pl_server *s);

#endif
