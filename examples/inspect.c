/* SPDX-License-Identifier: Apache-2.0
 *
 * inspect MODEL: the tensors of a checkpoint, how each is coded, and what they take. */
#include <inttypes.h>
#include <stdio.h>

#include <pleach/pleach.h>

int main(int argc, char **argv)
{
    pleach_error err;
    pleach_checkpoint *checkpoint;
    pleach_checkpoint_totals totals;
    if (argc < 2) {
        fprintf(stderr, "usage: inspect MODEL\n");
        return 2;
    }
    if (pleach_checkpoint_open(argv[1], &checkpoint, &err) != PLEACH_OK) {
        fprintf(stderr, "inspect: %s\n", err.message);
        return 1;
    }
    pleach_status status = PLEACH_OK;
    for (size_t i = 0; i < pleach_checkpoint_count(checkpoint) && status == PLEACH_OK; i++) {
        pleach_tensor_info t;
        status = pleach_checkpoint_tensor(checkpoint, i, &t, &err);
        if (status != PLEACH_OK) break;
        printf("%-50s %-8s %6.3f bits ", t.name, t.coding, t.bits);
        for (uint32_t d = 0; d < t.n_dims; d++) printf(" %" PRIu64, t.shape[d]);
        if (t.k) printf("  k=%u T=%u axis=%u", t.k, t.block, t.axis);
        printf("\n");
    }
    if (status == PLEACH_OK) status = pleach_checkpoint_total(checkpoint, &totals, &err);
    if (status == PLEACH_OK)
        printf("%" PRIu64 " weights in %" PRIu64 " bytes, %.3f bits a weight\n", totals.weights,
               totals.bytes, 8.0 * (double)totals.bytes / (double)totals.weights);
    else
        fprintf(stderr, "inspect: %s\n", err.message);
    pleach_checkpoint_close(checkpoint);
    return status == PLEACH_OK ? 0 : 1;
}
