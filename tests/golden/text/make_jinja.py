#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes jinja_cases.json: templates and what Python's jinja2 renders of them, set up as transformers
sets it up for chat templates. The inputs are jinja_inputs.txt, a template a line (\\n in it is a line
break), rendered with the variables below, and the files of templates/ with conversations.

  make_jinja.py                  writes jinja_cases.json
  make_jinja.py RENDER FOLDER    renders every *.jinja of the folder with both, RENDER being the built
                                 test_jinja, and prints what differs: real templates in bulk
"""
import json
import pathlib
import subprocess
import sys
import time

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = pathlib.Path(__file__).parent
NOW = 1767225600  # 2026-01-01


class Generation(Extension):
    """{% generation %}: renders as what it holds."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )

    def refuse(message):
        raise jinja2.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = refuse
    env.globals["strftime_now"] = lambda form: time.strftime(form, time.gmtime(NOW))
    return env


ENV = environment()
OWN = {"bos_token": "<s>", "eos_token": "</s>"}
VARIABLES = {
    "messages": [{"role": "user", "content": 'Hi "x"'}, {"role": "assistant", "content": "Yo"}],
    "n": None, "s": "  aB c,d,,e é\n line2\n\n", "l": [3, 1, 2], "e": "", "z": 0, "f": 2.5,
    "d": {"b": 1, "a": {"x": [1, 2.5, None, True]}}, "big": 12345678901234,
    "u": "日本語テキスト", "ll": [[1, 2], [3]],
    "objs": [{"k": "b", "v": 2}, {"k": "A", "v": 1}, {"k": "c"}],
}


def say(role, content, **more):
    return {"role": role, "content": content, **more}


TOOL = {"type": "function", "function": {
    "name": "get_weather", "description": 'The weather "now" <in> a city\nsecond line',
    "parameters": {"type": "object", "required": ["city"], "properties": {
        "city": {"type": "string", "description": "The city & state"},
        "days": {"type": "integer", "enum": [1, 2, 3]}}}}}
CALL = {"id": "abcdefghi", "type": "function", "function": {
    "name": "get_weather", "arguments": {"city": "Paris é", "days": 3, "x": 1.5, "z": [True, None]}}}
CONVERSATIONS = [
    [say("user", "Hello there")],
    [say("system", "You are a cat. "), say("user", "  Hi <|im_end|> \n"),
     say("assistant", "Meow <think>x</think>\n\n y "), say("user", "And then?\n")],
    [say("user", "a"), say("user", "b")],
    [say("user", "q"), say("assistant", "<think>\nhm\n</think>\n\nanswer"), say("user", "q2")],
    [say("system", "sys"), say("user", "weather?"), say("assistant", "", tool_calls=[CALL]),
     say("tool", '{"t": 21}', name="get_weather", tool_call_id="abcdefghi"),
     say("assistant", "It is 21."), say("user", "naïve ☃ 日本語 'q' \"d\" \\ & <b>")],
    [say("user", [{"type": "text", "text": "Look "}, {"type": "text", "text": "here"}])],
    [],
]
EXTRAS = [{}, {"tools": [TOOL]}, {"add_generation_prompt": False}, {"enable_thinking": False}]


def render(template, said):
    try:
        return {"text": ENV.from_string(template).render(**said, **OWN)}
    except Exception as error:  # a template may raise anything: whatever it is, it is a refusal
        return {"error": f"{type(error).__name__}: {error}"}


def conversations():
    for messages in CONVERSATIONS:
        for extra in EXTRAS:
            yield {"messages": messages, "add_generation_prompt": True, **extra}


def make():
    lines = (HERE / "jinja_inputs.txt").read_text().splitlines()
    templates = [line.replace("\\n", "\n") for line in lines if line]
    variables = [VARIABLES, *conversations()]
    cases = [{"template": t, "said": 0, **render(t, VARIABLES)} for t in templates]
    for file in sorted((HERE / "templates").glob("*.jinja")):
        text = file.read_text()
        cases += [{"file": file.name, "said": i, **render(text, said)}
                  for i, said in enumerate(variables) if i]
    for case in cases:
        if "error" in case:
            case["error"] = True
    out = {"now": NOW, "own": OWN, "variables": variables, "cases": cases}
    (HERE / "jinja_cases.json").write_text(json.dumps(out, ensure_ascii=False, indent=0) + "\n")
    print(len(cases), "cases")


def compare(program, folder):
    ours = subprocess.Popen([program, "--render"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            text=True)
    differ = same = 0
    for file in sorted(pathlib.Path(folder).rglob("*.jinja")):
        text = file.read_text()
        for said in conversations():
            want = render(text, said)
            ours.stdin.write(json.dumps({"template": text, "said": said, "own": OWN, "now": NOW}))
            ours.stdin.write("\n")
            ours.stdin.flush()
            got = json.loads(ours.stdout.readline())
            good = want.get("text") == got.get("text")
            same += good
            differ += not good
            if not good:
                print(f"{file.name}\n  jinja2 {str(want)[:300]}\n  ours   {str(got)[:300]}")
    print(same, "renderings agree,", differ, "differ")


if len(sys.argv) == 3:
    compare(*sys.argv[1:])
else:
    make()
