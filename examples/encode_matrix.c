/* SPDX-License-Identifier: Apache-2.0
 *
 * encode_matrix [BITS]: codes a matrix of Gaussian numbers and shows what the code costs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <pleach/pleach.h>

/* A number from N(0, 1): twelve uniform ones, less their mean. */
static float gaussian(void)
{
    double sum = 0;
    for (int i = 0; i < 12; i++) sum += rand() / (double)RAND_MAX;
    return (float)(sum - 6);
}

int main(int argc, char **argv)
{
    pleach_error err;
    pleach_trellis t = {.bits = argc > 1 ? (uint32_t)atoi(argv[1]) : 3, .state_bits = 12, .axis = 1};
    uint64_t width = 1000; /* the code needs whole blocks: choose their length, pad the rows */
    t.rows = 16;
    if (pleach_trellis_choose_block(width, &t.block, &t.cols, &err) != PLEACH_OK ||
        pleach_trellis_check(&t, &err) != PLEACH_OK) {
        fprintf(stderr, "encode_matrix: %s\n", err.message);
        return 1;
    }

    size_t n = (size_t)(t.rows * t.cols);
    float *weights = calloc(n, sizeof *weights), *decoded = calloc(n, sizeof *decoded);
    uint32_t *codes = calloc(pleach_trellis_words(&t), sizeof *codes);
    uint16_t scales[16];
    if (!weights || !decoded || !codes) return 1;
    for (uint64_t r = 0; r < t.rows; r++)
        for (uint64_t c = 0; c < width; c++) weights[r * t.cols + c] = gaussian();

    if (pleach_trellis_encode(&t, codes, scales, weights, NULL, &err) != PLEACH_OK ||
        pleach_trellis_decode(&t, decoded, codes, scales) != PLEACH_OK) {
        fprintf(stderr, "encode_matrix: %s\n", err.message);
        return 1;
    }

    double error = 0, power = 0;
    for (size_t i = 0; i < n; i++) {
        error += pow(weights[i] - decoded[i], 2);
        power += pow(weights[i], 2);
    }
    double bits = (32.0 * (double)pleach_trellis_words(&t) + 16.0 * (double)t.rows) /
                  (double)(t.rows * width);
    printf("%u bits, T = %u: %.3f bits a weight with scales and padding, relative error %.4f "
           "(no code does better than %.4f)\n",
           t.bits, t.block, bits, error / power, pow(4, -(double)t.bits));
    free(weights);
    free(decoded);
    free(codes);
    return 0;
}
