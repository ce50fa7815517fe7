/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a chat template: refused, or rendered with a conversation, tools and odd values in
 * bounded steps and memory; every byte of the result is somebody's. */
#include <stdint.h>
#include <stdlib.h>

#include "jinja/jinja.h"

static json_t *variables(void)
{
    static const char text[] =
        "{\"messages\":[{\"role\":\"system\",\"content\":\"Be \\u00e9 kind. \"},{\"role\":\"user\","
        "\"content\":[{\"type\":\"text\",\"text\":\"q\"}]},{\"role\":\"assistant\",\"content\":"
        "null,"
        "\"tool_calls\":[{\"id\":\"abcdefghi\",\"type\":\"function\",\"function\":{\"name\":\"f\","
        "\"arguments\":{\"a\":[1,2.5,true,null]}}}]},{\"role\":\"tool\",\"content\":\"<\\\"x\\\">"
        "\"}],"
        "\"add_generation_prompt\":true,\"tools\":[{\"type\":\"function\",\"function\":{\"name\":"
        "\"f\"}}],"
        "\"e\":\"\",\"i\":-7,\"big\":9223372036854775807,\"deep\":[[[[\"x\"]]]]}";
    return json_loads(text, 0, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static json_t *said, *own;
    const time_t now = 0;
    pl_jinja *t;
    pl_jinja_text out;
    if (!said) {
        said = variables();
        own = json_pack("{s:s, s:s}", "bos_token", "<s>", "eos_token", "</s>");
    }
    if (pl_jinja_parse((const char *)data, size, &t, NULL) != PLEACH_OK) return 0;
    if (pl_jinja_render(t, said, own, &now, &out, NULL) == PLEACH_OK)
        for (size_t i = 0; i < out.size; i++)
            if (out.said[i] > 1) abort();
    pl_jinja_text_free(&out);
    pl_jinja_close(t);
    return 0;
}
