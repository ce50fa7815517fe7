/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_model SOURCE OUT [BITS]: packs a Hugging Face folder or a GGUF file. */
#include <stdio.h>
#include <stdlib.h>

#include <pleach/pleach.h>

static int show(void *user, const pleach_quantize_progress *p)
{
    (void)user;
    fprintf(stderr, "\r%3.0f %%  %-60.60s", 100.0 * (double)p->done / (double)p->total, p->tensor);
    return 0; /* anything else would stop; the next run would resume */
}

int main(int argc, char **argv)
{
    pleach_error err;
    pleach_quantize_settings settings;
    pleach_quantize_summary summary;
    if (argc < 3) {
        fprintf(stderr, "usage: quantize_model SOURCE OUT [BITS]\n");
        return 2;
    }
    pleach_quantize_settings_defaults(&settings);
    if (argc > 3) settings.bits = (uint32_t)atoi(argv[3]);
    settings.progress = show;

    if (pleach_quantize(argv[1], argv[2], &settings, &summary, &err) != PLEACH_OK) {
        fprintf(stderr, "\nquantize_model: %s\n", err.message);
        return 1;
    }
    printf("\n%.1f MB, %.3f bits a weight in all, %.3f in the block matrices\n",
           (double)summary.bytes / 1e6, summary.bits, summary.block_bits);
    pleach_quantize_summary_free(&summary);
    return 0;
}
