/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of one answer as a chat's client sees it: tokens in; content, reasoning and calls of
 * tools out, each as soon as nothing that may come can change it.
 *
 *   pl_answer_settings s = {.stop = stop, .n_stop = 2};
 *   pl_answer_style(tokenizer, prompt, n, &s);      // style.h: how this model reasons and calls
 *   s.tool_list = tools;
 *   pl_answer_open(tokenizer, &s, &a, &err);
 *   for each token:
 *       pl_answer_take(a, id, &stopped, &err);
 *       while (pl_answer_next(a, &piece)) send(piece);
 *   pl_answer_finish(a, &err);
 *   while (pl_answer_next(a, &piece)) send(piece);
 *   pl_answer_close(a);
 *
 * How the text is cut into tokens has no influence on the pieces joined. The text is UTF-8: bytes
 * that form no character become U+FFFD, and a character waits until it is whole. It ends before the
 * first stop string that is complete (of several that end together the longest); what may be the
 * beginning of one waits. Stop strings are looked for in all that the model writes, reasoning and
 * calls among it, as llama.cpp and vLLM do.
 *
 * The pieces of a call's arguments joined are always a prefix of a JSON object, also when the
 * answer is cut. What looks like a call and is none is content; nothing is lost but markers and the
 * blanks about them. */
#ifndef PL_ANSWER_H
#define PL_ANSWER_H

#include <jansson.h>

#include "text/tokenizer.h"

/* How a model writes calls. */
typedef enum pl_tool_style {
    PL_TOOLS_NONE,   /* none are looked for */
    PL_TOOLS_HERMES, /* <tool_call>{"name": .., "arguments": {..}}</tool_call>; Qwen 2.5 and 3 */
    PL_TOOLS_XML,    /* <tool_call><function=f><parameter=x>..; Qwen3-Coder, Qwen3.5 */
    PL_TOOLS_LLAMA,  /* {"name": .., "parameters": {..}} as the whole answer; Llama 3 */
    PL_TOOLS_MISTRAL /* [TOOL_CALLS] [{"name": .., "arguments": {..}}] */
} pl_tool_style;

typedef struct pl_answer_settings {
    const char *const *stop; /* borrowed until closing; empty ones never stop */
    size_t n_stop;
    pl_tool_style tools;
    bool reasoning;          /* <think>..</think> at the answer's beginning is split off; */
    bool in_reasoning;       /* the prompt ends inside of one already */
    bool one_call;           /* the answer ends behind its first call, as behind a stop string */
    const json_t *tool_list; /* the request's "tools": a call of another name is content. NULL: any
                                name. Borrowed until closing */
} pl_answer_settings;

typedef enum pl_answer_part {
    PL_ANSWER_CONTENT,
    PL_ANSWER_REASONING,
    PL_ANSWER_CALL,     /* text: the name of the function; comes once, before its arguments */
    PL_ANSWER_ARGUMENTS /* text: a part of their JSON */
} pl_answer_part;

typedef struct pl_answer_piece {
    pl_answer_part part;
    size_t call;      /* of CALL and ARGUMENTS: 0, 1, .. */
    const char *text; /* whole UTF-8 characters; borrowed until the next take or finish */
    size_t size;
} pl_answer_piece;

typedef struct pl_answer pl_answer;

/* The tokenizer is borrowed until closing. */
pleach_status pl_answer_open(const pl_tokenizer *t, const pl_answer_settings *s, pl_answer **out,
                             pleach_error *err);
void pl_answer_close(pl_answer *a); /* accepts NULL */

/* A token came. Special tokens show nothing, unless they are markers of reasoning or calls, or stop
 * strings. *stopped: a stop string or `one_call` ended it; tokens after it change nothing. Drops
 * pieces that were not read. */
pleach_status pl_answer_take(pl_answer *a, int32_t id, bool *stopped, pleach_error *err);
/* The same of bytes. */
pleach_status pl_answer_take_text(pl_answer *a, const char *bytes, size_t size, bool *stopped,
                                  pleach_error *err);
/* No more comes: what waited does so no longer. */
pleach_status pl_answer_finish(pl_answer *a, pleach_error *err);

/* The next piece, false: none for now. */
bool pl_answer_next(pl_answer *a, pl_answer_piece *piece);
/* Calls that began. */
size_t pl_answer_calls(const pl_answer *a);

#endif
