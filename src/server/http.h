/* SPDX-License-Identifier: Apache-2.0
 *
 * The network: libmicrohttpd with a thread for each connection, so that whoever waits, for a client
 * or for an answer, holds up nobody else. */
#ifndef PL_SERVER_HTTP_H
#define PL_SERVER_HTTP_H

#include "state.h"

/* Listens; requests are answered from here on. */
pleach_status pl_http_start(pl_server *s, pleach_error *err);
/* No more connections are taken. */
void pl_http_stop_listening(pl_server *s);
/* Ends connections and their threads. */
void pl_http_stop(pl_server *s);

#endif
