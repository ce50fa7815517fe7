/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PL_GRAMMAR_SCHEMA_NUMBER_H
#define PL_GRAMMAR_SCHEMA_NUMBER_H

#include "rules.h"

/* An integer from least to most, without leading zeros; INT64_MIN and INT64_MAX: unbounded there.
 * Fails the rules where there is none. */
const expression *grammar_integer_between(rules *r, int64_t least, int64_t most);

#endif
