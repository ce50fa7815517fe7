/* SPDX-License-Identifier: Apache-2.0
 *
 * What an evaluation takes, for those who promise it. */
#ifndef PL_RUNTIME_EVALUATION_H
#define PL_RUNTIME_EVALUATION_H

#include "format/config.h"
#include "pleach/eval.h"

/* Bytes that pleach_eval takes at most with a teacher of the same shape and a text of so many
 * bytes, beside both models and the scratch of their products and attention. */
uint64_t pl_eval_memory(const pl_config *config, const pleach_eval_settings *settings,
                        uint64_t text);

#endif
