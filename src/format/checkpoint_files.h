/* SPDX-License-Identifier: Apache-2.0
 *
 * What is inside a pleach_checkpoint, for the files of this folder that build and read it. */
#ifndef PL_FORMAT_CHECKPOINT_FILES_H
#define PL_FORMAT_CHECKPOINT_FILES_H

#include "checkpoint.h"
#include "gguf.h"
#include "json.h"
#include "quant_map.h"
#include "safetensors.h"

struct pleach_checkpoint {
    char *path;
    /* Where the tensors are: one or more safetensors files, or a GGUF file. */
    pl_safetensors **shards;
    size_t n_shards;
    pl_gguf *gguf;
    char *names;     /* of the tensors */
    float *numbers;  /* of tensors that are not as the file has them (GGUF) */
    size_t n_foreign; /* tensors of parts that are not run, left out */
    uint64_t file_bytes;

    pl_tensor *tensors;       /* in the order of the files */
    const pl_tensor **sorted; /* by name */
    size_t n_tensors;

    char *config_file, *config_text; /* NULL without a config.json */
    json_t *config_json;
    pl_quant_map quant;
    pl_config config;
    pleach_error config_error; /* why there is no config; its code is PLEACH_OK when there is */

    struct pl_entry *entries; /* what pleach_checkpoint_tensor lists (inspect.c) */
    size_t n_entries;
};

/* Fill in tensors, config and quantisation map; what they leave on failure is closed by
 * pleach_checkpoint_close. */
pleach_status pl_checkpoint_open_folder(pleach_checkpoint *c, pleach_error *err);
pleach_status pl_checkpoint_open_gguf(pleach_checkpoint *c, pleach_error *err);
/* Brings the tensors to one form of name, and stacked experts to one tensor each; the config is
 * read. */
pleach_status pl_checkpoint_name(pleach_checkpoint *c, pleach_error *err);
/* Lists modules with all their parts; after the others. */
pleach_status pl_checkpoint_list(pleach_checkpoint *c, pleach_error *err);

#endif
