/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages of a chat: checked, and in the form that templates expect. */
#ifndef PL_SERVER_MESSAGES_H
#define PL_SERVER_MESSAGES_H

#include "refusal.h"

/* A list of its own (json_decref) of the messages: contents as strings (lists of text parts joined,
 * null and nothing as ""), "developer" as "system", arguments of tool calls as objects where they
 * are JSON of one. Whatever else a message has stays. */
pleach_status pl_messages_read(const json_t *messages, json_t **out, pl_refusal *r);

#endif
