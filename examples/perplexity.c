/* SPDX-License-Identifier: Apache-2.0
 *
 * perplexity MODEL TEXT [TEACHER]: how well a model predicts a text, and how far it is from another. */
#include <stdio.h>
#include <stdlib.h>

#include <pleach/pleach.h>

/* The whole file, NUL-terminated, or NULL. */
static char *read_text(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    char *text = NULL;
    if (f && fseek(f, 0, SEEK_END) == 0 && ftell(f) >= 0) {
        *size = (size_t)ftell(f);
        rewind(f);
        text = calloc(*size + 1, 1);
        if (text && fread(text, 1, *size, f) != *size) {
            free(text);
            text = NULL;
        }
    }
    if (f) fclose(f);
    return text;
}

int main(int argc, char **argv)
{
    pleach_error err = {0};
    pleach_model *model = NULL, *teacher = NULL;
    pleach_eval_settings settings;
    pleach_eval_result result;
    size_t size = 0;
    char *text = argc > 2 ? read_text(argv[2], &size) : NULL;
    if (!text) {
        fprintf(stderr, "usage: perplexity MODEL TEXT [TEACHER]\n");
        return 2;
    }
    pleach_eval_settings_defaults(&settings);
    settings.chunks = 4; /* at most, of 512 tokens each */

    int ok = pleach_model_open(argv[1], NULL, &model, &err) == PLEACH_OK &&
             (argc < 4 || pleach_model_open(argv[3], NULL, &teacher, &err) == PLEACH_OK) &&
             pleach_eval(model, teacher, text, size, &settings, &result, &err) == PLEACH_OK;
    if (ok) {
        printf("perplexity %.3f +- %.3f over %zu tokens\n", result.perplexity,
               result.perplexity_error, result.tokens);
        if (teacher)
            printf("KL %.4f nats from the teacher, same likeliest token %.1f %%\n", result.kl,
                   100 * result.same_top);
    } else {
        fprintf(stderr, "perplexity: %s\n", err.message);
    }
    pleach_model_close(teacher);
    pleach_model_close(model);
    free(text);
    return ok ? 0 : 1;
}
