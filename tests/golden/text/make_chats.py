# SPDX-License-Identifier: Apache-2.0
"""Writes chat_cases.json: what Jinja renders for templates/*.jinja and a set of conversations, in
the environment that transformers sets up. A template's exception is recorded in place of a text.
jinja2 3.1; today's date is fixed."""
import glob, json, os
from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

S, U, A = "system", "user", "assistant"
CHATS = [
    [(U, "Hello")],
    [(U, "  Hi there \n"), (A, " I am  \t"), (U, "\nWho?\n\n")],
    [(S, "Be brief."), (U, "One"), (A, "1"), (U, "Two"), (A, "2"), (U, "Three")],
    [(S, "  spaces \n"), (U, "Café 漢字 🦙"), (A, "x"), (U, "'quotes' \"double\" \\n {{ x }}")],
    [(U, ""), (A, ""), (U, "")],
    [(S, ""), (U, "x")],
    [(U, "a"), (U, "b")], [(A, "first")], [(S, "only")], [(U, "a"), (A, "b")],
    [(S, "s"), (U, "a"), (A, "b")], [(U, "a"), (S, "late"), (U, "b")],
    [(S, "s"), (A, "b")], [(S, "a"), (S, "b"), (U, "c")], [(U, "a"), (A, "b"), (A, "c")],
    [(U, "q"), (A, "<think>\nlong\n thought \n</think>\n\nanswer"), (U, "next")],
    [(U, "q"), (A, "<think>\n\n</think>\n\nanswer"), (A, "again"), (A, "<think>t</think>\nlast")],
    [(U, "q"), (A, "x</think>y</think>\n\nz"), (U, "<tool_response>r</tool_response>")],
    [(U, "q"), (A, "<think>a<think>\n\nb\n</think>c")],
]


def refuse(message):
    raise TemplateError(message)


def main():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    env.globals.update(raise_exception=refuse, strftime_now=lambda f: "@TODAY@")
    out = []
    for path in sorted(glob.glob("templates/*.jinja")):
        template = env.from_string(open(path, encoding="utf-8", newline="").read())
        for chat in CHATS:
            messages = [{"role": r, "content": c} for r, c in chat]
            case = {"template": os.path.basename(path), "messages": messages}
            bos, eos = {"gem": ("<bos>", "<eos>"), "lla": ("<|begin_of_text|>", "<|eot_id|>")}.get(
                case["template"][:3], ("<s>", "</s>"))
            case.update(bos=bos, eos=eos)
            try:
                case["text"] = template.render(messages=messages, add_generation_prompt=True,
                                               bos_token=bos, eos_token=eos)
            except TemplateError as e:
                case["error"] = str(e)
            out.append(case)
    with open("chat_cases.json", "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(c, ensure_ascii=False) for c in out) + "\n]\n")


main()
