/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a fuzz target over given files and folders without a fuzzing engine: how the tests replay
 * the corpus and the bad files that were found. A target defines LLVMFuzzerTestOneInput and reads
 * nothing beyond data[0..size); each input is copied to a block of exactly its size, so that a
 * sanitizer sees the first byte past it. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run_file(const char *path)
{
    pleach_error err;
    char *text;
    size_t size;
    if (pl_read_file(path, (size_t)1 << 28, &text, &size, &err) != PLEACH_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    uint8_t *exact = malloc(size ? size : 1);
    if (!exact) return 1;
    memcpy(exact, text, size);
    pl_free(text);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
    return 0;
}

static int run_path(const char *path, unsigned *n)
{
    DIR *dir = opendir(path);
    if (!dir) {
        (*n)++;
        return run_file(path);
    }
    int failed = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.') continue;
        char *inner = pl_path_join(path, entry->d_name);
        failed |= inner ? run_path(inner, n) : 1;
        pl_free(inner);
    }
    closedir(dir);
    return failed;
}

int main(int argc, char **argv)
{
    unsigned n = 0;
    int failed = 0;
    for (int i = 1; i < argc; i++) failed |= run_path(argv[i], &n);
    printf("%u inputs\n", n);
    return failed || n == 0; /* an empty corpus tests nothing */
}
