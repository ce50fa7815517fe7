/* SPDX-License-Identifier: Apache-2.0
 *
 * What models write round reasoning and calls, as their chat templates have it. */
#ifndef PL_ANSWER_MARKERS_H
#define PL_ANSWER_MARKERS_H

#define PL_THINK         "<think>"
#define PL_THINK_END     "</think>"
#define PL_CALL          "<tool_call>"
#define PL_CALL_END      "</tool_call>"
#define PL_FUNCTION      "<function="
#define PL_FUNCTION_END  "</function>"
#define PL_PARAMETER     "<parameter="
#define PL_PARAMETER_END "</parameter>"
#define PL_CALL_LLAMA    "<|python_tag|>"
#define PL_CALLS_MISTRAL "[TOOL_CALLS]"

#endif
