/* SPDX-License-Identifier: Apache-2.0
 *
 * A folder of two files: the input up to its first zero byte is config.json, up to the second the
 * header of model.safetensors, and the rest its data. What opens has its modules bound and its
 * weights computed. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "format/checkpoint.h"

enum { LARGEST = 1 << 16 }; /* weights of a matrix that is computed */

static char dir[] = "/tmp/pleach-fuzz-XXXXXX";

static const char *path_of(const char *name)
{
    static char path[100];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void remove_folder(void)
{
    unlink(path_of("config.json"));
    unlink(path_of("model.safetensors"));
    rmdir(dir);
}

/* Bytes of data up to the first zero byte; *rest is what comes after that. */
static size_t cut(const uint8_t *data, size_t size, const uint8_t **rest)
{
    const uint8_t *zero = memchr(data, 0, size);
    *rest = zero ? zero + 1 : data + size;
    return zero ? (size_t)(zero - data) : size;
}

static void write_folder(const uint8_t *data, size_t size)
{
    const uint8_t *end = data + size, *second, *third;
    size_t config = cut(data, size, &second);
    uint64_t header = cut(second, (size_t)(end - second), &third);
    FILE *f = fopen(path_of("config.json"), "wb");
    if (!f || fwrite(data, 1, config, f) != config || fclose(f) != 0) abort();
    f = fopen(path_of("model.safetensors"), "wb");
    size_t rest = (size_t)(end - third);
    if (!f || fwrite(&header, 8, 1, f) != 1 || fwrite(second, 1, header, f) != header ||
        fwrite(third, 1, rest, f) != rest || fclose(f) != 0)
        abort();
}

static void compute(const pl_weight *w)
{
    pleach_error err;
    if (w->out * w->in > LARGEST) return;
    float *dst = pl_alloc(w->out * w->in, sizeof *dst);
    if (dst && pl_weight_dense_f32(w, dst, &err) != PLEACH_OK) __builtin_trap();
    pl_free(dst);
}

static void read_model(const pleach_checkpoint *c)
{
    const pl_config *config;
    pleach_error err;
    pl_weight w;
    for (size_t i = 0; i < pleach_checkpoint_count(c); i++) {
        pleach_tensor_info info;
        if (pleach_checkpoint_tensor(c, i, &info, &err) != PLEACH_OK) __builtin_trap();
        char module[300];
        size_t n = strlen(info.name);
        if (n < 7 || n >= sizeof module) continue;
        memcpy(module, info.name, n - 7); /* "<module>.weight" */
        module[n - 7] = 0;
        if (pl_checkpoint_weight(c, module, 0, 0, &w, &err) == PLEACH_OK) compute(&w);
    }
    if (pl_checkpoint_config(c, &config, &err) != PLEACH_OK) return;
    for (size_t i = 0; i < pl_config_module_count(config); i++) {
        pl_module m;
        pl_config_module(config, i, &m);
        if (pl_checkpoint_weight(c, m.name, m.out, m.in, &w, &err) != PLEACH_OK) break;
    }
    char *text = pl_checkpoint_make_config_text(c, &err);
    if (!text) __builtin_trap();
    pl_free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool made;
    if (!made && (!mkdtemp(dir) || atexit(remove_folder) != 0)) abort();
    made = true;
    write_folder(data, size);
    pleach_checkpoint *c;
    pleach_error err;
    if (pl_checkpoint_open(dir, &c, &err) != PLEACH_OK) return 0;
    read_model(c);
    pleach_checkpoint_close(c);
    return 0;
}
