/* SPDX-License-Identifier: Apache-2.0
 *
 * decode_module FOLDER MODULE OUT [expand] [coded]
 *
 * Writes a module's matrix to the file OUT as little-endian f32 [out][in], rotations undone; with
 * "coded" the numbers as coded, with "expand" under the expand contract. */
#include "decoder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    char error[512];
    ref_contract contract = REF_DECODE;
    int whole = 1;
    if (argc < 4) {
        fprintf(stderr, "usage: decode_module FOLDER MODULE OUT [expand] [coded]\n");
        return 2;
    }
    for (int i = 4; i < argc; i++) {
        if (strcmp(argv[i], "expand") == 0) contract = REF_EXPAND;
        if (strcmp(argv[i], "coded") == 0) whole = 0;
    }
    ref_matrix m;
    if (ref_read_module(argv[1], argv[2], contract, whole, &m, error, sizeof error)) {
        fprintf(stderr, "decode_module: %s\n", error);
        return 1;
    }
    FILE *f = fopen(argv[3], "wb");
    size_t n = (size_t)(m.out * m.in);
    int ok = f != NULL;
    for (size_t i = 0; ok && i < n; i++) {
        uint32_t u;
        memcpy(&u, m.w + i, 4);
        uint8_t bytes[4] = {(uint8_t)u, (uint8_t)(u >> 8), (uint8_t)(u >> 16), (uint8_t)(u >> 24)};
        ok = fwrite(bytes, 1, 4, f) == 4;
    }
    if (f && fclose(f) != 0) ok = 0;
    if (ok) printf("%llu x %llu\n", (unsigned long long)m.out, (unsigned long long)m.in);
    else perror(argv[3]);
    free(m.w);
    return ok ? 0 : 1;
}
