/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines from the user: edited, with history, on a terminal (libedit); plain otherwise. */
#ifndef LINE_INPUT_H
#define LINE_INPUT_H

#include <stdbool.h>

typedef enum line_result { LINE_READ, LINE_END, LINE_INTERRUPTED } line_result;

typedef struct line_input line_input;

line_input *line_input_open(void);           /* NULL: out of memory */
void line_input_close(line_input *in);       /* accepts NULL */
bool line_input_edits(const line_input *in); /* a person types at a terminal */

/* The next line without its end, borrowed until the next call. */
line_result line_input_read(line_input *in, const char **line);

#endif
