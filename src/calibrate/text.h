/* SPDX-License-Identifier: Apache-2.0
 *
 * The text that calibration runs on, as ids, from a file: plain UTF-8 text, or JSONL with one
 * {"text": ...} or {"messages": [{"role", "content"}, ...]} on each line. */
#ifndef PL_CALIBRATE_TEXT_H
#define PL_CALIBRATE_TEXT_H

#include "text/tokenizer.h"

enum {
    PL_CALIBRATION_LEAST = 32,   /* tokens; fewer are refused */
    PL_CALIBRATION_FEW = 2048    /* fewer deserve a warning */
};

/* Appends at most `limit` ids. A name that ends in .jsonl is JSONL: conversations go through the
 * model's chat template, and the model's end token separates documents. Where the tokenizer begins
 * texts with a BOS token, so does every chunk of `chunk` ids, as the model is used to. Lines that
 * cannot be used are refused with their number; PLEACH_ERR_DATA when there are too few tokens. */
pleach_status pl_calibration_text(const pl_tokenizer *t, const char *path, size_t limit,
                                  size_t chunk, pl_ids *out, pleach_error *err);

/* The token that the tokenizer begins texts with, or -1. */
pleach_status pl_calibration_bos(const pl_tokenizer *t, int32_t *bos, pleach_error *err);

#endif
