/* SPDX-License-Identifier: Apache-2.0
 *
 * A loaded model: its weights (mapped, shared by all sessions), its tokenizer and its chat
 * template. Immutable after opening; any number of threads may use it at once. */
#ifndef PLEACH_MODEL_H
#define PLEACH_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pleach_model pleach_model;

/* The arithmetic of products with packed weights. One is used for every batch size, so that a
 * token's result does not depend on who shares its batch. docs/kernels.md, "Arithmetic". */
typedef enum pleach_arith {
    PLEACH_ARITH_INT16 = 0,   /* activations in 16 bits a group, integer sums in it (default) */
    PLEACH_ARITH_INT16X2 = 1, /* activations in two such limbs, as exact as f32 sums */
    PLEACH_ARITH_F32 = 2,     /* the decode contract, f32 sums */
    PLEACH_ARITH_BF16 = 3,    /* the expand contract: weights rounded to bf16, f32 sums */
    PLEACH_ARITH_INT8 = 4     /* activations and weights in 8 bits, integer sums in a group */
} pleach_arith;

/* "int16", "f32", "bf16"; NULL for none of them. */
PLEACH_API const char *pleach_arith_name(pleach_arith arith);
PLEACH_API PLEACH_MUST_CHECK pleach_status pleach_arith_parse(const char *name, pleach_arith *arith,
                                                              pleach_error *err);

typedef struct pleach_model_settings {
    int threads;        /* 0: all cores this process may use (default). Results do not depend on it */
    pleach_arith arith; /* default PLEACH_ARITH_INT16 */
    const char *cpu;    /* NULL: best level of this machine (default); "c", "avx2", "avx512", ... */
    int weights_only;   /* 1: open without a tokenizer even if there is one. Default 0 */
    int batch_invariant; /* 1: on a device too a token's result has the same bits alone and in any
                            batch, as it always has on the processor. Slower. Default 0 */
    const char *device; /* who computes: NULL or "cpu" (default), "cuda", "cuda:1". docs/cuda.md */
    unsigned char reserved[24];
} pleach_model_settings;

PLEACH_API void pleach_model_settings_defaults(pleach_model_settings *s);

/* path: a Hugging Face folder, packed or plain, or a GGUF file. settings may be NULL. A folder
 * without a tokenizer opens too; then only calls with token ids work. *out is NULL on failure. */
PLEACH_API PLEACH_MUST_CHECK pleach_status pleach_model_open(const char *path,
                                                             const pleach_model_settings *settings,
                                                             pleach_model **out, pleach_error *err);
/* Accepts NULL. Close all sessions first. */
PLEACH_API void pleach_model_close(pleach_model *m);

typedef struct pleach_model_info {
    const char *architecture; /* "llama", "qwen3", ... ; strings live as long as the model */
    const char *cpu;          /* kernel level in use */
    const char *chat_format;  /* of the template: "chatml", "llama3", "mistral", "gemma" or "other"; NULL: none */
    uint32_t vocab_size, hidden_size, layers, heads, kv_heads, head_dim, context_length;
    int has_tokenizer, threads;
    int32_t bos; /* -1: none */
    size_t n_end_tokens;
    const int32_t *end_tokens; /* ids that end an answer: config, generation_config and tokenizer */
    uint64_t weight_bytes;
    const char *device, *device_name; /* "cpu" and ""; "cuda:0" and "NVIDIA H200" */
    uint64_t device_bytes;            /* of device memory that the weights take */
    uint64_t workspace_bytes;         /* and what its sessions share beside their caches */
} pleach_model_info;

PLEACH_API void pleach_model_get_info(const pleach_model *m, pleach_model_info *info);

/* ---- text ---------------------------------------------------------------------------------- */

enum {
    PLEACH_TOKENIZE_PLAIN = 0,   /* text is text: "<|im_end|>" in it becomes ordinary tokens */
    PLEACH_TOKENIZE_BOS = 1,     /* add what the tokenizer adds round a text (BOS, EOS) */
    PLEACH_TOKENIZE_SPECIAL = 2  /* match special tokens in the text: never for a user's text */
};

/* text[0..size) to ids. *ids is fresh memory, released with pleach_ids_free; *n its length. Invalid
 * UTF-8 is taken as U+FFFD. */
PLEACH_API PLEACH_MUST_CHECK pleach_status pleach_tokenize(const pleach_model *m, const char *text,
                                                           size_t size, unsigned flags,
                                                           int32_t **ids, size_t *n,
                                                           pleach_error *err);
PLEACH_API void pleach_ids_free(int32_t *ids);

/* ids to text, NUL-terminated, *text released with pleach_text_free. Special tokens are left out
 * unless `special`. Ids beyond the tokenizer give nothing; the bytes may be invalid UTF-8 when ids
 * end inside a character. */
PLEACH_API PLEACH_MUST_CHECK pleach_status pleach_detokenize(const pleach_model *m,
                                                             const int32_t *ids, size_t n,
                                                             int special, char **text,
                                                             size_t *size, pleach_error *err);
PLEACH_API void pleach_text_free(char *text);

typedef struct pleach_message {
    const char *role, *content; /* "system", "user" or "assistant"; UTF-8 */
} pleach_message;

/* The conversation as ids, by the model's own chat template, ending where the assistant speaks next.
 * Contents are never matched against special tokens. PLEACH_ERR_UNSUPPORTED for a model without a
 * template, PLEACH_ERR_FORMAT for a template that is no Jinja; PLEACH_ERR_ARGUMENT has the template's
 * own words where it refuses the conversation. */
PLEACH_API PLEACH_MUST_CHECK pleach_status pleach_chat_tokenize(const pleach_model *m,
                                                                const pleach_message *messages,
                                                                size_t n_messages, int32_t **ids,
                                                                size_t *n, pleach_error *err);

#ifdef __cplusplus
}
#endif
#endif
