/* SPDX-License-Identifier: Apache-2.0
 *
 * A grammar that an answer keeps to: logits of tokens that may not come next are lowered to -inf.
 */
#ifndef PL_RUNTIME_CONSTRAINT_H
#define PL_RUNTIME_CONSTRAINT_H

#include "engine.h"

typedef struct pl_constraint pl_constraint;

/* What the answer has to be, as GBNF or as a JSON schema; without either text *out is NULL. */
pleach_status pl_constraint_grammar(const char *grammar, const char *json_schema, pl_grammar **out,
                                    pleach_error *err);
/* Of one answer, at its beginning. The model and the grammar are borrowed. */
pleach_status pl_constraint_open(const pleach_model *m, const pl_grammar *g, pl_constraint **out,
                                 pleach_error *err);
void pl_constraint_close(pl_constraint *c); /* accepts NULL */

/* Leaves the logits of what may come next; the model's end tokens may where the text is whole.
 * *ended: it is whole and nothing may follow. PLEACH_ERR_DATA when no token at all fits. */
pleach_status pl_constraint_apply(pl_constraint *c, float *logits, bool *ended, pleach_error *err);
/* The token that came, one that was left. */
void pl_constraint_take(pl_constraint *c, int32_t id);

#endif
