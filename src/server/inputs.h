/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts or token ids from a body: "...", ["...", ...], [1, 2, ...] or [[1, 2, ...], ...]. */
#ifndef PL_SERVER_INPUTS_H
#define PL_SERVER_INPUTS_H

#include "exchange.h"

enum { PL_MAX_INPUTS = 2048 };

/* Refuses so many bytes of text as no context's worth of tokens could stand for, before any work on
 * them. */
pleach_status pl_input_check(const pl_server *s, size_t bytes, const char *name, pl_refusal *r);

/* Appends each as ids, texts with what the tokenizer puts round one (BOS). *n counts those in *ids
 * also after a failure; release each ids[i].ids, then ids, with pl_free. */
pleach_status pl_inputs_read(const pl_server *s, const json_t *value, const char *name,
                             pl_ids **ids, size_t *n, pl_refusal *r);
/* One list of ids. */
pleach_status pl_input_ids(const pl_server *s, const json_t *list, const char *name, pl_ids *ids,
                           pl_refusal *r);
/* One text; flags as of pl_tokenizer_encode. */
pleach_status pl_input_text(const pl_server *s, const char *text, size_t size, unsigned flags,
                            const char *name, pl_ids *ids, pl_refusal *r);

#endif
