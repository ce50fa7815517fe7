/* SPDX-License-Identifier: Apache-2.0
 *
 * What pleach quantize prints: the memory before the work, all else at the end. */
#ifndef QUANTIZE_SUMMARY_H
#define QUANTIZE_SUMMARY_H

#include <jansson.h>
#include <stdbool.h>

#include "pleach/pleach.h"

/* What a run takes at most. */
void print_memory(uint64_t bytes);
/* A dry run lists every module of the plan. */
void print_summary(const pleach_quantize_summary *s, const char *out, bool dry_run);
/* The same as an object, NULL when out of memory. */
json_t *summary_json(const pleach_quantize_summary *s, const char *out, bool dry_run);

#endif
