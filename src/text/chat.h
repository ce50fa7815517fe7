/* SPDX-License-Identifier: Apache-2.0
 *
 * Chat formats, recognised from the model's own template text: ChatML, Llama 3, Mistral, Gemma.
 * Anything else is refused by name, never guessed. */
#ifndef PL_TEXT_CHAT_H
#define PL_TEXT_CHAT_H

#include "tokenizer.h"
#include "pleach/model.h" /* pleach_message */

typedef enum pl_chat_format {
    PL_CHAT_NONE, PL_CHAT_CHATML, PL_CHAT_LLAMA3, PL_CHAT_MISTRAL, PL_CHAT_GEMMA
} pl_chat_format;

pl_chat_format pl_chat_recognise(const char *chat_template); /* NULL gives NONE */
const char *pl_chat_format_name(pl_chat_format f);           /* "chatml", ...; NULL for NONE */

/* Control tokens by id, contents by PL_ENCODE_PLAIN. Appends to *out; ends with the opening of the
 * assistant's turn. A default system text that the template itself carries is honoured. */
pleach_status pl_chat_encode(const pl_tokenizer *t, const pleach_message *messages, size_t n,
                             pl_ids *out, pleach_error *err);

#endif
