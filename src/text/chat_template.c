/* SPDX-License-Identifier: Apache-2.0
 *
 * The known chat templates, in canonical spelling. Each is compared as a whole: the only parts left
 * open are texts (a default system text, a date) and branches that serve tools, which conversations
 * here do not have. So a template that was changed in any other way is refused, not guessed. */
#include "chat_template.h"

#define ANY "\1"  /* whatever is there, up to what follows */
#define TEXT "\2" /* the inside of a string */

/* ---- ChatML -------------------------------------------------------------------------------- */

#define EACH "{%for message in messages%}"
#define IM_TURN "{{'<|im_start|>'+message.role+'\\n'+message.content+'<|im_end|>\\n'}}"
#define IM_DEFAULT "{{'<|im_start|>system\\n" TEXT "<|im_end|>\\n'}}"
#define IM_SYSTEM "{{'<|im_start|>system\\n'+messages[0].content+'<|im_end|>\\n'}}"
#define IM_ASK "{%if add_generation_prompt%}{{'<|im_start|>assistant\\n'}}{%endif%}"
#define IM_TOOLS "{%if tools%}" ANY "{%else%}{%if messages[0].role=='system'%}" IM_SYSTEM
#define IM_ANSWER "{{'<|im_start|>'+message.role+'\\n'+content}}"

static const char chatml[] = EACH IM_TURN "{%endfor%}" IM_ASK;
static const char chatml_bos[] = "{{bos_token}}" EACH IM_TURN "{%endfor%}" IM_ASK;
static const char chatml_default[] =
    EACH "{%if loop.first and messages[0].role!='system'%}" IM_DEFAULT "{%endif%}" IM_TURN
         "{%endfor%}" IM_ASK;
static const char qwen2_5[] =
    IM_TOOLS "{%else%}" IM_DEFAULT "{%endif%}{%endif%}" EACH
             "{%if(message.role=='user')or(message.role=='system'and not loop.first)"
             "or(message.role=='assistant'and not message.tool_calls)%}" IM_TURN
             "{%elif message.role=='assistant'%}" ANY "{%endfor%}" IM_ASK;
static const char qwen3[] =
    IM_TOOLS "{%endif%}{%endif%}"
    "{%set ns=namespace(multi_step_tool=true,last_query_index=messages|length-1)%}"
    "{%for message in messages[::-1]%}{%set index=(messages|length-1)-loop.index0%}"
    "{%if ns.multi_step_tool and message.role=='user'and "
    "not(message.content.startswith('<tool_response>')"
    "and message.content.endswith('</tool_response>'))%}{%set ns.multi_step_tool=false%}"
    "{%set ns.last_query_index=index%}{%endif%}{%endfor%}" EACH
    "{%if(message.role=='user')or(message.role=='system'and not loop.first)%}" IM_TURN
    "{%elif message.role=='assistant'%}{%set content=message.content%}{%set reasoning_content=''%}"
    "{%if message.reasoning_content is defined and message.reasoning_content is not none%}"
    "{%set reasoning_content=message.reasoning_content%}{%else%}{%if'</think>'in message.content%}"
    "{%set content=message.content.split('</think>')[-1].lstrip('\\n')%}"
    "{%set reasoning_content=message.content.split('</think>')[0].rstrip('\\n')"
    ".split('<think>')[-1].lstrip('\\n')%}{%endif%}{%endif%}"
    "{%if loop.index0>ns.last_query_index%}{%if loop.last or(not loop.last and reasoning_content)%}"
    "{{'<|im_start|>'+message.role+'\\n<think>\\n'+reasoning_content.strip('\\n')"
    "+'\\n</think>\\n\\n'+content.lstrip('\\n')}}{%else%}" IM_ANSWER "{%endif%}{%else%}" IM_ANSWER
    "{%endif%}{%if message.tool_calls%}" ANY "{%endif%}{{'<|im_end|>\\n'}}"
    "{%elif message.role=='tool'%}" ANY "{%endfor%}{%if add_generation_prompt%}"
    "{{'<|im_start|>assistant\\n'}}{%if enable_thinking is defined and enable_thinking is false%}"
    "{{'<think>\\n\\n</think>\\n\\n'}}{%endif%}{%endif%}";

/* ---- Llama 3 ------------------------------------------------------------------------------- */

#define HEADER_ROLE "'<|start_header_id|>'+message.role+'<|end_header_id|>\\n\\n'"
#define LLAMA_ASK "{{'<|start_header_id|>assistant<|end_header_id|>\\n\\n'}}"
#define LLAMA3                                                                                     \
    "{%set loop_messages=messages%}{%for message in loop_messages%}{%set content=" HEADER_ROLE     \
    "+message.content|trim+'<|eot_id|>'%}{%if loop.index0==0%}{%set content=bos_token+content%}"   \
    "{%endif%}{{content}}{%endfor%}"
#define LLAMA3_DATED(date)                                                                         \
    "{{bos_token}}{%if custom_tools is defined%}{%set tools=custom_tools%}{%endif%}"               \
    "{%if not tools_in_user_message is defined%}{%set tools_in_user_message=true%}{%endif%}"       \
    "{%if not date_string is defined%}" date "{%endif%}"                                           \
    "{%if not tools is defined%}{%set tools=none%}{%endif%}{%if messages[0].role=='system'%}"      \
    "{%set system_message=messages[0].content|trim%}{%set messages=messages[1:]%}{%else%}"         \
    "{%set system_message=''%}{%endif%}{{'<|start_header_id|>system<|end_header_id|>\\n\\n'}}" ANY \
    "{{'Cutting Knowledge Date: December 2023\\nToday Date: '+date_string+'\\n\\n'}}"              \
    "{%if tools is not none and not tools_in_user_message%}" ANY                                   \
    "{{system_message+'<|eot_id|>'}}{%if tools_in_user_message and not tools is none%}" ANY        \
    "{%for message in messages%}{%if not(message.role=='ipython'or message.role=='tool'"           \
    "or'tool_calls'in message)%}{{" HEADER_ROLE "+message.content|trim+'<|eot_id|>'}}"             \
    "{%elif'tool_calls'in message%}" ANY                                                           \
    "{%endfor%}{%if add_generation_prompt%}" LLAMA_ASK "{%endif%}"

static const char llama3[] = LLAMA3 "{%if add_generation_prompt%}" LLAMA_ASK "{%endif%}";
static const char llama3_always[] = LLAMA3 LLAMA_ASK;
static const char llama3_1[] = LLAMA3_DATED("{%set date_string='" TEXT "'%}");
static const char llama3_2[] =
    LLAMA3_DATED("{%if strftime_now is defined%}{%set date_string=strftime_now('%d %b %Y')%}"
                 "{%else%}{%set date_string='" TEXT "'%}{%endif%}");

/* ---- Mistral ------------------------------------------------------------------------------- */

#define ALTERNATE "Conversation roles must alternate user/assistant/user/assistant/..."
#define ALTERNATE_AFTER                                                                            \
    "After the optional system message, conversation roles must alternate "                        \
    "user/assistant/user/assistant/..."
#define IF_NOT_ALTERNATE "{%if(message.role=='user')!=(loop.index0%2==0)%}"
#define SYSTEM_APART                                                                               \
    "{%if messages[0].role=='system'%}{%set system_message=messages[0].content%}"                  \
    "{%set loop_messages=messages[1:]%}{%else%}{%set loop_messages=messages%}{%endif%}"

#define MISTRAL_V0(after)                                                                          \
    "{{bos_token}}" EACH IF_NOT_ALTERNATE "{{raise_exception('" ALTERNATE "')}}{%endif%}"          \
    "{%if message.role=='user'%}{{'[INST] '+message.content+' [/INST]'}}"                          \
    "{%elif message.role=='assistant'%}{{message.content+eos_token" after "}}"                     \
    "{%else%}{{raise_exception('Only user and assistant roles are supported!')}}{%endif%}"         \
    "{%endfor%}"
static const char mistral_v0_1[] = MISTRAL_V0("+' '");
static const char mistral_v0_2[] = MISTRAL_V0("");
static const char mistral_v1[] =
    SYSTEM_APART "{{bos_token}}{%for message in loop_messages%}" IF_NOT_ALTERNATE
    "{{raise_exception('" ALTERNATE_AFTER "')}}{%endif%}{%if message.role=='user'%}"
    "{%if loop.first and system_message is defined%}"
    "{{' [INST] '+system_message+'\\n\\n'+message.content+' [/INST]'}}{%else%}"
    "{{' [INST] '+message.content+' [/INST]'}}{%endif%}{%elif message.role=='assistant'%}"
    "{{' '+message.content+eos_token}}{%else%}{{raise_exception('" TEXT "')}}{%endif%}{%endfor%}";
#define MISTRAL_V3(open, answer)                                                                   \
    SYSTEM_APART                                                                                   \
    "{%if not tools is defined%}{%set tools=none%}{%endif%}"                                       \
    "{%set user_messages=loop_messages|selectattr('role','equalto','user')|list%}"                 \
    "{%set ns=namespace()%}{%set ns.index=0%}{%for message in loop_messages%}"                     \
    "{%if not(message.role=='tool'or message.role=='tool_results'or(message.tool_calls is "        \
    "defined and message.tool_calls is not none))%}"                                               \
    "{%if(message.role=='user')!=(ns.index%2==0)%}"                                                \
    "{{raise_exception('" ALTERNATE_AFTER "')}}{%endif%}{%set ns.index=ns.index+1%}{%endif%}"      \
    "{%endfor%}{{bos_token}}{%for message in loop_messages%}{%if message.role=='user'%}"           \
    "{%if tools is not none and(message==user_messages[-1])%}" ANY                                 \
    "{%if loop.last and system_message is defined%}"                                               \
    "{{'" open "'+system_message+'\\n\\n'+message.content+'[/INST]'}}{%else%}"                     \
    "{{'" open "'+message.content+'[/INST]'}}{%endif%}{%elif" ANY                                  \
    "{%elif message.role=='assistant'%}{{" answer "+eos_token}}{%elif message.role==" ANY          \
    "{%else%}{{raise_exception('" TEXT "')}}{%endif%}{%endfor%}"
static const char mistral_v3[] = MISTRAL_V3("[INST] ", "' '+message.content|trim");
static const char mistral_nemo[] = MISTRAL_V3("[INST]", "message.content");

/* ---- Gemma --------------------------------------------------------------------------------- */

#define GEMMA_ROLE                                                                                 \
    IF_NOT_ALTERNATE "{{raise_exception('" ALTERNATE "')}}{%endif%}"                               \
    "{%if(message.role=='assistant')%}{%set role='model'%}{%else%}{%set role=message.role%}"       \
    "{%endif%}"
#define GEMMA_ASK "{%if add_generation_prompt%}{{'<start_of_turn>model\\n'}}{%endif%}"
#define GEMMA2                                                                                     \
    "{%if messages[0].role=='system'%}{{raise_exception('System role not supported')}}{%endif%}"   \
    EACH GEMMA_ROLE "{{'<start_of_turn>'+role+'\\n'+message.content|trim+'<end_of_turn>\\n'}}"     \
    "{%endfor%}" GEMMA_ASK

static const char gemma[] = GEMMA2;
static const char gemma_bos[] = "{{bos_token}}" GEMMA2;
static const char gemma3[] =
    "{{bos_token}}{%if messages[0].role=='system'%}{%if messages[0].content is string%}"
    "{%set first_user_prefix=messages[0].content+'\\n\\n'%}{%else%}"
    "{%set first_user_prefix=messages[0].content[0].text+'\\n\\n'%}{%endif%}"
    "{%set loop_messages=messages[1:]%}{%else%}{%set first_user_prefix=''%}"
    "{%set loop_messages=messages%}{%endif%}{%for message in loop_messages%}" GEMMA_ROLE
    "{{'<start_of_turn>'+role+'\\n'+(first_user_prefix if loop.first else'')}}"
    "{%if message.content is string%}{{message.content|trim}}"
    "{%elif message.content is iterable%}" ANY "{%else%}{{raise_exception('" TEXT "')}}{%endif%}"
    "{{'<end_of_turn>\\n'}}{%endfor%}" GEMMA_ASK;

/* ---- matching ------------------------------------------------------------------------------ */

static const struct known {
    const char *pattern;
    pl_chat_style style;
} known[] = {
    {chatml, {.format = PL_CHAT_CHATML}},
    {chatml_bos, {.format = PL_CHAT_CHATML, .bos = true}},
    {chatml_default, {.format = PL_CHAT_CHATML, .extra = PL_EXTRA_DEFAULT}},
    {qwen2_5, {.format = PL_CHAT_CHATML, .extra = PL_EXTRA_DEFAULT}},
    {qwen3, {.format = PL_CHAT_CHATML, .extra = PL_EXTRA_THINK}},
    {llama3, {.format = PL_CHAT_LLAMA3, .bos = true}},
    {llama3_always, {.format = PL_CHAT_LLAMA3, .bos = true}},
    {llama3_1, {.format = PL_CHAT_LLAMA3, .bos = true, .extra = PL_EXTRA_DATE}},
    {llama3_2, {.format = PL_CHAT_LLAMA3, .bos = true, .extra = PL_EXTRA_TODAY}},
    {mistral_v0_1,
     {.format = PL_CHAT_MISTRAL, .bos = true, .system = PL_SYSTEM_REFUSED, .alternate = ALTERNATE,
      .open = "[INST] ", .close = " [/INST]", .answer = "", .after = " "}},
    {mistral_v0_2,
     {.format = PL_CHAT_MISTRAL, .bos = true, .system = PL_SYSTEM_REFUSED, .alternate = ALTERNATE,
      .open = "[INST] ", .close = " [/INST]", .answer = "", .after = ""}},
    {mistral_v1,
     {.format = PL_CHAT_MISTRAL, .bos = true, .system = PL_SYSTEM_FIRST,
      .alternate = ALTERNATE_AFTER, .open = " [INST] ", .close = " [/INST]", .answer = " ",
      .after = ""}},
    {mistral_v3,
     {.format = PL_CHAT_MISTRAL, .bos = true, .system = PL_SYSTEM_LAST,
      .alternate = ALTERNATE_AFTER, .open = "[INST] ", .close = "[/INST]", .answer = " ",
      .after = "", .trim_answer = true}},
    {mistral_nemo,
     {.format = PL_CHAT_MISTRAL, .bos = true, .system = PL_SYSTEM_LAST,
      .alternate = ALTERNATE_AFTER, .open = "[INST]", .close = "[/INST]", .answer = "",
      .after = ""}},
    {gemma, {.format = PL_CHAT_GEMMA, .system = PL_SYSTEM_REFUSED, .alternate = ALTERNATE}},
    {gemma_bos,
     {.format = PL_CHAT_GEMMA, .bos = true, .system = PL_SYSTEM_REFUSED, .alternate = ALTERNATE}},
    {gemma3,
     {.format = PL_CHAT_GEMMA, .bos = true, .system = PL_SYSTEM_FIRST, .alternate = ALTERNATE}},
};

typedef struct range {
    const char *start, *end;
} range;

static const char *find(const char *s, const char *end, const char *what, size_t size)
{
    for (; (size_t)(end - s) >= size; s++)
        if (!memcmp(s, what, size)) return s;
    return NULL;
}

/* s[0..end) against a pattern. What stands for the first TEXT goes to *text. Taking the first place
 * that fits for every piece finds a match if there is one, since a wildcard takes anything. */
static bool matches(const char *pattern, const char *s, const char *end, range *text)
{
    char wildcard = 0;
    bool seen = false;
    for (;;) {
        size_t size = strcspn(pattern, ANY TEXT);
        bool last = !pattern[size];
        const char *at = !wildcard ? s
                         : !last   ? find(s, end, pattern, size)
                                   : (size_t)(end - s) >= size ? end - size : NULL;
        if (!at || (size_t)(end - at) < size || memcmp(at, pattern, size)) return false;
        if (wildcard == *TEXT) {
            for (const char *c = s; c < at; c++) {
                if (*c == '\'') return false; /* the string ended earlier */
                c += *c == '\\';
            }
            if (!seen) *text = (range){s, at};
            seen = true;
        }
        s = at + size;
        if (last) return s == end;
        wildcard = pattern[size];
        pattern += size + 1;
    }
}

static pleach_status unescape(range text, pl_buffer *out, pleach_error *err)
{
    for (const char *c = text.start; c < text.end; c++) {
        bool escaped = *c == '\\' && c + 1 < text.end;
        char plain = escaped && c[1] == 'n' ? '\n' : c[escaped];
        PL_TRY(pl_buffer_append(out, &plain, 1, err));
        c += escaped;
    }
    return PLEACH_OK;
}

pleach_status pl_chat_template_match(const char *chat_template, const pl_chat_style **style,
                                     pl_buffer *text, pleach_error *err)
{
    /* Says what the caller always does: asks for an answer. */
    static const char prelude[] =
        "{%if not add_generation_prompt is defined%}{%set add_generation_prompt=false%}{%endif%}";
    pl_buffer canonical = {0};
    *style = NULL;
    pleach_status status = pl_chat_template_canonical(chat_template, &canonical, err);
    const char *s = canonical.size ? canonical.data : "", *end = s + canonical.size;
    if (!status && canonical.size >= sizeof prelude - 1 && !memcmp(s, prelude, sizeof prelude - 1))
        s += sizeof prelude - 1;
    for (size_t i = 0; !status && i < PL_COUNT(known) && !*style; i++) {
        range found = {s, s};
        if (!matches(known[i].pattern, s, end, &found)) continue;
        *style = &known[i].style;
        status = unescape(found, text, err);
    }
    pl_free(canonical.data);
    return status;
}
