/* SPDX-License-Identifier: Apache-2.0
 *
 * generate MODEL PROMPT [TOKENS]: continues a text, printing it as it is made. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pleach/pleach.h>

static int print(void *user, const char *text, size_t size)
{
    fwrite(text, 1, size, user);
    fflush(user);
    return 0; /* anything else would stop the generation */
}

int main(int argc, char **argv)
{
    pleach_error err = {0};
    pleach_model *model = NULL;
    pleach_session *session = NULL;
    pleach_generation settings;
    pleach_generation_stats stats;
    int32_t *ids = NULL;
    size_t n = 0;
    if (argc < 3) {
        fprintf(stderr, "usage: generate MODEL PROMPT [TOKENS]\n");
        return 2;
    }
    pleach_generation_defaults(&settings);
    settings.max_tokens = argc > 3 ? (size_t)atoi(argv[3]) : 64;

    int ok = pleach_model_open(argv[1], NULL, &model, &err) == PLEACH_OK &&
             pleach_tokenize(model, argv[2], strlen(argv[2]), PLEACH_TOKENIZE_BOS, &ids, &n,
                             &err) == PLEACH_OK &&
             pleach_session_open(model, NULL, &session, &err) == PLEACH_OK &&
             pleach_generate(session, ids, n, &settings, print, stdout, &stats, &err) == PLEACH_OK;
    if (ok)
        printf("\n%zu + %zu tokens, %.1f tokens/s\n", stats.prompt_tokens, stats.new_tokens,
               (double)stats.new_tokens / stats.generation_seconds);
    else
        fprintf(stderr, "generate: %s\n", err.message);
    pleach_session_close(session);
    pleach_ids_free(ids);
    pleach_model_close(model);
    return ok ? 0 : 1;
}
