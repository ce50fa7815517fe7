/* SPDX-License-Identifier: Apache-2.0
 *
 * API keys from a file, one a line; compared in a time that does not depend on where they differ.
 */
#ifndef PL_SERVER_KEYS_H
#define PL_SERVER_KEYS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

/* Zeroed: every request may come. */
typedef struct pl_keys {
    char **keys;
    size_t n, capacity;
} pl_keys;

/* Blank lines, and lines that begin with #, are left out; a file without a key is
 * PLEACH_ERR_FORMAT. */
pleach_status pl_keys_read(const char *path, pl_keys *keys, pleach_error *err);
void pl_keys_free(pl_keys *keys);

/* The header "Authorization: Bearer KEY" (NULL: there is none) names one of the keys, or none is
 * asked for. */
bool pl_keys_admit(const pl_keys *keys, const char *authorization);

#endif
