/* SPDX-License-Identifier: Apache-2.0
 *
 * pleach logits: token ids in, a safetensors file with the logits after each of them out. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "commands.h"
#include "console.h"
#include "input.h"
#include "model_options.h"

enum { PIECE = 32 }; /* rows held at once */

typedef struct logits_values {
    const char *path, *ids, *out;
    model_values model;
    session_values session;
} logits_values;

static void defaults(void *values)
{
    logits_values *v = values;
    model_values_defaults(&v->model);
    session_values_defaults(&v->session);
}

/* The header of a file with one F32 tensor "logits" [n][vocab]. */
static pleach_status write_header(pl_output *out, size_t n, size_t vocab, pleach_error *err)
{
    char header[264];
    uint64_t bytes = (uint64_t)n * vocab * sizeof(float);
    size_t size = (size_t)snprintf(
        header + 8, sizeof header - 8,
        "{\"logits\":{\"dtype\":\"F32\",\"shape\":[%zu,%zu],\"data_offsets\":[0,%llu]}}", n, vocab,
        (unsigned long long)bytes);
    while (size % 8) header[8 + size++] = ' ';
    for (int i = 0; i < 8; i++) header[i] = (char)(size >> 8 * i & 255);
    return pl_output_write(out, header, 8 + size, err);
}

static pleach_status write_logits(pleach_session *s, const id_list *ids, size_t vocab, float *rows,
                                  pl_output *out, pleach_error *err)
{
    PL_TRY(write_header(out, ids->n, vocab, err));
    for (size_t i = 0; i < ids->n; i += PIECE) {
        size_t n = PL_MIN(ids->n - i, PIECE);
        PL_FAIL_IF(interrupted(), err, PLEACH_ERR_CANCELLED, "interrupted");
        progress_line("token %zu of %zu", i, ids->n);
        PL_TRY(pleach_session_feed_all(s, ids->ids + i, n, 0, rows, err));
        PL_TRY(pl_output_write(out, rows, n * vocab * sizeof(float), err));
    }
    return pl_output_commit(out, err);
}

/* The file OUT's folder, in fresh memory, or NULL. */
static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) + 1 : 0;
    char *folder = pl_alloc(n + 2, 1);
    if (!folder) return NULL;
    memcpy(folder, path, n);
    memcpy(folder + n, ".", 2);
    return folder;
}

/* The output may replace neither the ids nor anything of the model. */
static int check_output(const logits_values *v)
{
    struct stat st;
    if (stat(v->out, &st) == 0 && !S_ISREG(st.st_mode))
        return fail("%s: expected a regular file or a new name", v->out);
    if (pl_same_file(v->out, v->ids) || pl_same_file(v->out, v->path))
        return fail("%s: the output may not replace its own input", v->out);
    char *folder = folder_of(v->out);
    if (!folder) return fail("out of memory: a path");
    bool inside = pl_is_directory(v->path) && pl_same_file(folder, v->path);
    pl_free(folder);
    return inside ? fail("%s: the output may not lie in the model's folder", v->out) : EXIT_OK;
}

static int run(const void *values)
{
    const logits_values *v = values;
    pleach_model *m = NULL;
    pleach_session *s = NULL;
    id_list ids = {0};
    pleach_model_info info = {0};
    pleach_error err;
    float *rows = NULL;
    int status = check_output(v);
    if (status == EXIT_OK) status = read_ids(v->ids, &ids);
    if (status == EXIT_OK) status = open_model(v->path, &v->model, &m);
    if (status == EXIT_OK) status = open_session(m, &v->session, &s);
    if (status == EXIT_OK) {
        pleach_model_get_info(m, &info);
        rows = pl_alloc(PIECE, info.vocab_size * sizeof(float));
        if (!rows) status = fail("out of memory: %d rows of logits", PIECE);
    }
    if (status == EXIT_OK) {
        pl_output out;
        catch_interrupts(false);
        pleach_status written = pl_output_open(&out, v->out, &err);
        if (written == PLEACH_OK)
            written = write_logits(s, &ids, info.vocab_size, rows, &out, &err);
        pl_output_discard(&out);
        progress_end();
        if (written != PLEACH_OK) status = fail_status(&err);
    }
    pl_free(rows);
    pl_free(ids.ids);
    pleach_session_close(s);
    pleach_model_close(m);
    return status;
}

static const option options[] = {
    MODEL_OPERAND(logits_values),
    {.name = "ids",
     .type = OPTION_PATH,
     .required = true,
     .argument = "FILE",
     .help = "token ids, from a text (separated by blanks or commas) or an I32 safetensors file",
     OPTION_AT(logits_values, ids)},
    {.name = "output",
     .letter = 'o',
     .type = OPTION_PATH,
     .required = true,
     .argument = "OUT",
     .help = "safetensors file to write; replaced if it is there",
     OPTION_AT(logits_values, out)},
    SESSION_OPTIONS(logits_values),
    MODEL_OPTIONS(logits_values),
};

const command logits_command = {
    .name = "logits",
    .summary = "write the logits after each of a list of token ids",
    .description = "Runs a model over token ids and writes a safetensors file with one F32 tensor "
                   "\"logits\" of shape [ids][vocabulary].",
    .options = options,
    .n_options = PL_COUNT(options),
    .examples =
        (const char *const[]){"pleach tokenize model-4bit 'Hello there' > ids.txt",
                              "pleach logits model-4bit --ids ids.txt -o logits.safetensors", NULL},
    .values_size = sizeof(logits_values),
    .defaults = defaults,
    .run = run,
};
