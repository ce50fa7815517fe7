/* SPDX-License-Identifier: Apache-2.0
 *
 * What the program reads besides models: texts and lists of token ids, from files or stdin. Each
 * call prints one line when it fails and returns the exit status. */
#ifndef INPUT_H
#define INPUT_H

#include <stddef.h>
#include <stdint.h>

/* A whole file, or stdin for "-": NUL-terminated, fresh memory (pl_free). */
int read_input(const char *path, char **text, size_t *size);

/* A growing list of ids: zeroed first, pl_free(ids) last. */
typedef struct id_list {
    int32_t *ids;
    size_t n, capacity;
} id_list;

/* Appends the ids of a text: whole numbers separated by blanks, line ends or commas. `where` names
 * the text in the error line. */
int parse_ids(const char *where, const char *text, id_list *list);
/* Ids from a text as above, or from a safetensors file: its one I32 tensor, or the one called
 * "ids" or "input_ids" where there are more. */
int read_ids(const char *path, id_list *list);

#endif
