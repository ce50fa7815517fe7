/* SPDX-License-Identifier: Apache-2.0
 *
 * What a Hugging Face folder holds beside its weights: config.json, tokenizer, licence. */
#ifndef PL_QUANT_MODEL_FOLDER_H
#define PL_QUANT_MODEL_FOLDER_H

#include <jansson.h>

#include "format/checkpoint.h"
#include "text/tokenizer.h"

/* The source's configuration, without what says how its weights were packed. Fresh object. */
pleach_status pl_source_config(const pleach_checkpoint *source, json_t **out, pleach_error *err);
pleach_status pl_write_json(const char *dir, const char *name, const json_t *json,
                            pleach_error *err);

/* The source's tokenizer; an error when it has none. */
pleach_status pl_source_tokenizer(const pleach_checkpoint *source, pl_tokenizer **out,
                                  pleach_error *err);
/* Tokenizer, chat template, generation_config and licence: copied from a folder, made from a GGUF
 * file. */
pleach_status pl_write_side_files(const pleach_checkpoint *source, const char *dir,
                                  pleach_error *err);
/* Finds out, before the work starts, whether the tokenizer of a GGUF source can be written. */
pleach_status pl_check_side_files(const pleach_checkpoint *source, pleach_error *err);

#endif
