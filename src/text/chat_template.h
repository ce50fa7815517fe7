/* SPDX-License-Identifier: Apache-2.0
 *
 * Which of the known chat templates a template text is, and the text it carries of its own. */
#ifndef PL_TEXT_CHAT_TEMPLATE_H
#define PL_TEXT_CHAT_TEMPLATE_H

#include "buffer.h"
#include "chat.h"

typedef enum pl_chat_system {
    PL_SYSTEM_TURN,    /* a turn like the others */
    PL_SYSTEM_REFUSED,
    PL_SYSTEM_FIRST,   /* put before the first question */
    PL_SYSTEM_LAST     /* put before the last message, if that is a question */
} pl_chat_system;

typedef enum pl_chat_extra {
    PL_EXTRA_NONE,
    PL_EXTRA_DEFAULT, /* ChatML: a default system text */
    PL_EXTRA_THINK,   /* ChatML of Qwen 3: thoughts of answers before the last question go */
    PL_EXTRA_DATE,    /* Llama 3.1: the system turn begins with the template's own date, always */
    PL_EXTRA_TODAY    /* Llama 3.2: with today's */
} pl_chat_extra;

/* How a template renders. Strings are literals. */
typedef struct pl_chat_style {
    pl_chat_format format;
    pl_chat_extra extra;
    pl_chat_system system;
    bool bos;              /* begins with the BOS token */
    const char *alternate; /* what the template says if questions and answers do not alternate */
    /* Mistral: round a question, before and after an answer (and its EOS token). */
    const char *open, *close, *answer, *after;
    bool trim_answer;
} pl_chat_style;

/* Compares the whole template, spelling apart, with the known ones; *style is NULL if it is none
 * of them. *text (zeroed; pl_free(text->data)) gets the default system text or the date that the
 * template carries. */
pleach_status pl_chat_template_match(const char *chat_template, const pl_chat_style **style,
                                     pl_buffer *text, pleach_error *err);

/* Appends the template with its freedom of spelling removed. */
pleach_status pl_chat_template_canonical(const char *chat_template, pl_buffer *out,
                                         pleach_error *err);

#endif
