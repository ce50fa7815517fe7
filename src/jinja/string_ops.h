/* SPDX-License-Identifier: Apache-2.0
 *
 * What methods and filters share. */
#ifndef PL_JINJA_STRING_OPS_H
#define PL_JINJA_STRING_OPS_H

#include "rendering.h"

/* Without the characters of `set` (NULL: white space) on the sides named. */
text jinja_strip_text(text t, const text *set, bool left, bool right);
/* Up to `most` (negative: all) occurrences of old replaced. */
text jinja_replace_text(rendering *r, text t, text old, text by, int64_t most);

/* With & < > " ' as HTML spells them. */
text jinja_escape_text(rendering *r, text t);

typedef enum letter_case { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_CAPITALIZE } letter_case;
text jinja_change_case(rendering *r, text t, letter_case how);

/* [(key, value), ...] */
value jinja_dict_items(rendering *r, const dict *d);

#endif
