/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a GGUF file: opened or refused; all metadata and tensors readable; and what opens is
 * looked at as a model. */
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/memory.h"
#include "format/gguf.h"
#include "format/gguf_config.h"

static volatile uint8_t sink; /* keeps the reads alive */

static void read_arrays(const pl_gguf *g)
{
    static const char *const keys[] = {"tokenizer.ggml.tokens", "tokenizer.ggml.scores",
                                       "tokenizer.ggml.token_type", "tokenizer.ggml.merges"};
    for (size_t k = 0; k < PL_COUNT(keys); k++) {
        pl_gguf_type type;
        uint64_t n;
        if (!pl_gguf_array(g, keys[k], &type, &n)) continue;
        for (uint64_t i = 0; i <= n; i++) {
            pl_text text = {0};
            double number;
            int64_t whole;
            if (pl_gguf_array_text(g, keys[k], i, &text))
                for (size_t j = 0; j < text.size; j++) sink += (uint8_t)text.data[j];
            sink += pl_gguf_array_f64(g, keys[k], i, &number);
            sink += pl_gguf_array_i64(g, keys[k], i, &whole);
        }
    }
}

static void read_tensors(const pl_gguf *g)
{
    for (size_t i = 0; i < pl_gguf_tensor_count(g); i++) {
        const pl_tensor *t = pl_gguf_tensor(g, i);
        const uint8_t *bytes = t->data;
        for (uint64_t j = 0; j < t->n_bytes; j++) sink += bytes[j];
        float *row = pl_alloc(pl_tensor_width(t), sizeof *row);
        for (uint64_t r = 0; row && pl_dtype_get(t->type)->numeric && r < pl_tensor_rows(t); r++)
            pl_tensor_row_f32(t, r, row);
        pl_free(row);
    }
}

/* The same bytes as a file, opened as a model. */
static void open_model(const uint8_t *data, size_t size)
{
    char path[] = "/tmp/pleach-fuzz-XXXXXX";
    pleach_checkpoint *c;
    pleach_error err;
    int fd = mkstemp(path);
    if (fd < 0) return;
    ssize_t written = write(fd, data, size);
    close(fd);
    if (written == (ssize_t)size && pl_checkpoint_open(path, &c, &err) == PLEACH_OK) {
        char *text = pl_checkpoint_make_config_text(c, &err);
        pl_free(text);
        for (size_t i = 0; i < pl_checkpoint_tensor_count(c); i++) {
            const pl_tensor *t = pl_checkpoint_tensor_at(c, i);
            float *row = pl_alloc(pl_tensor_width(t), sizeof *row);
            uint64_t rows = pl_dtype_get(t->type)->numeric ? pl_tensor_rows(t) : 0;
            for (uint64_t r = 0; row && r < rows; r++) pl_tensor_row_f32(t, r, row);
            pl_free(row);
        }
        pleach_checkpoint_close(c);
    }
    unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pl_gguf *g;
    pl_config config;
    pleach_error err;
    bool interleaved;
    if (pl_gguf_open_memory("input", data, size, &g, &err) != PLEACH_OK) return 0;
    read_arrays(g);
    read_tensors(g);
    if (pl_config_from_gguf("input", g, &config, &interleaved, &err) == PLEACH_OK)
        open_model(data, size);
    pl_gguf_close(g);
    return 0;
}
