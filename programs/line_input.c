/* SPDX-License-Identifier: Apache-2.0
 *
 * Line input by libedit or getline. */
#include "line_input.h"

#include <histedit.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "console.h"

struct line_input {
    EditLine *editor; /* NULL: stdin is no terminal */
    History *history;
    char *line; /* getline's */
    size_t capacity;
};

static char *prompt(EditLine *editor)
{
    static char text[] = "> ";
    (void)editor;
    return text;
}

line_input *line_input_open(void)
{
    line_input *in = pl_calloc(1, sizeof *in);
    if (!in || !isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) return in;
    /* Typed characters are UTF-8, also where no locale is set. */
    setlocale(LC_CTYPE, "");
    if (MB_CUR_MAX == 1) setlocale(LC_CTYPE, "C.UTF-8");
    in->editor = el_init("pleach", stdin, stdout, stderr);
    in->history = history_init();
    if (!in->editor || !in->history) {
        line_input_close(in);
        return NULL;
    }
    HistEvent event;
    history(in->history, &event, H_SETSIZE, 1000);
    el_set(in->editor, EL_PROMPT, prompt);
    el_set(in->editor, EL_EDITOR, "emacs");
    el_set(in->editor, EL_HIST, history, in->history);
    el_source(in->editor, NULL); /* the user's .editrc */
    return in;
}

void line_input_close(line_input *in)
{
    if (!in) return;
    if (in->editor) el_end(in->editor);
    if (in->history) history_end(in->history);
    free(in->line);
    pl_free(in);
}

bool line_input_edits(const line_input *in)
{
    return in->editor != NULL;
}

static line_result read_edited(line_input *in, const char **line)
{
    int n = 0;
    const char *text = el_gets(in->editor, &n);
    if (!text || n <= 0) {
        if (interrupted()) el_reset(in->editor);
        putchar('\n');
        return interrupted() ? LINE_INTERRUPTED : LINE_END;
    }
    HistEvent event;
    if (text[0] != '\n') history(in->history, &event, H_ENTER, text);
    free(in->line);
    in->line = strdup(text);
    *line = in->line;
    return in->line ? LINE_READ : LINE_END;
}

static line_result read_plain(line_input *in, const char **line)
{
    if (getline(&in->line, &in->capacity, stdin) < 0) {
        clearerr(stdin);
        return interrupted() ? LINE_INTERRUPTED : LINE_END;
    }
    *line = in->line;
    return LINE_READ;
}

line_result line_input_read(line_input *in, const char **line)
{
    line_result result = in->editor ? read_edited(in, line) : read_plain(in, line);
    if (result == LINE_READ) in->line[strcspn(in->line, "\r\n")] = 0;
    return result;
}
