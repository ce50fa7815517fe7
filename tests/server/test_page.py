# SPDX-License-Identifier: Apache-2.0
"""The chat page in a real browser, on a server with a tiny model. Skipped where no chromium is."""
import json
import os
import random
import sys
import tempfile
import unittest

from chromium import Chromium, executable
from serving import SOURCE, Server, tiny_model, wait_for

MODEL = SERVER = BROWSER = None
CHAT = "v1/chat/completions"
HOSTILE = """<script>window.harmed = 1</script><img src=x onerror="window.harmed = 2">
[link](javascript:window.harmed=3) ![picture](https://example.org/x.png) <svg onload=harmed=4>
[other](data:text/html,<script>harmed=5</script>) `<b>code</b>` **<i>bold</i>**

| <u>a</u> | b |
|---|---|
| <iframe src=//example.org> | [x](vbscript:x) |

```html
<script>window.harmed = 6</script>
```
"""
MARKDOWN = """# Title

A *paragraph* with **bold**, ***both***, `a * b`, ~~gone~~ and snake_case_words, 2 * 3 * 4.
Its second line has a [link](https://example.org/a_(b)), https://example.org/c. and \\*stars\\*.

- one
- two
  1. inner
  2. more

     a paragraph inside
- [x] done

5. five
6. six

> quoted
> - list

| left | right | mid |
|:--|--:|:-:|
| a \\| b | `c` | d<br>e |
| short |

```c
int x;\t/* a tab,
   and *no* emphasis */
```

---
~~~
open fence
"""


def chunk(**delta):
    return "data: " + json.dumps({"choices": [{"index": 0, "delta": delta}]}) + "\n\n"


def stream(*texts, end="data: [DONE]\n\n"):
    """An answer for Tab.mock."""
    return 200, {"Content-Type": "text/event-stream"}, "".join(chunk(content=t) for t in texts) + end


def refusal(status, message, **headers):
    body = json.dumps({"error": {"message": message, "type": "error", "param": None, "code": None}})
    return status, {"Content-Type": "application/json", **headers}, body


class Files(unittest.TestCase):
    def test_files_are_those_of_the_source(self):
        folder = os.path.join(SOURCE, "src/server/page")
        for name in [""] + sorted(os.listdir(folder)):
            path = os.path.join(folder, name or "index.html")
            with self.subTest(file=name), open(path, "rb") as f:
                answer = SERVER.get("/" + name)
                self.assertEqual((answer.status, answer.body), (200, f.read()))
                headers = answer.headers
                self.assertEqual(headers["X-Content-Type-Options"], "nosniff")
                self.assertEqual(headers["Referrer-Policy"], "no-referrer")
                self.assertEqual(headers["Cache-Control"], "no-cache")
                self.assertIn("default-src 'none'", headers["Content-Security-Policy"])
                self.assertNotIn("unsafe", headers["Content-Security-Policy"])
                self.check_conditions("/" + name, headers["ETag"])

    def check_conditions(self, path, tag):
        self.assertRegex(tag, '^"[0-9a-f]{64}"$')
        for known, status in ((tag, 304), ("W/%s" % tag, 304), ('"x", ' + tag, 304), ("*", 304),
                              ('"x"', 200), (tag[:-2] + '"', 200)):
            answer = SERVER.get(path, headers={"If-None-Match": known})
            self.assertEqual((answer.status, answer.body == b""), (status, status == 304), known)
            self.assertEqual(answer.headers["ETag"], tag)

    def test_other_paths_and_methods(self):
        for path in ("/page.h", "/../page.h", "/style.css/", "/nothing.js", "/page/page.js", "//"):
            self.assertEqual(SERVER.get(path).status, 404, path)
        self.assertEqual(SERVER.post("/style.css", {}).status, 405)
        head = SERVER.request("HEAD", "/")
        self.assertEqual((head.status, head.body), (200, b""))
        self.assertGreater(int(head.headers["Content-Length"]), 1000)


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tab = BROWSER.tab()

    def setUp(self):
        self.url = "http://127.0.0.1:%d/" % SERVER.port
        self.complaints_are_meant = False
        self.tab.clear(self.url)
        self.visit()

    def tearDown(self):
        if not self.complaints_are_meant:
            self.assertEqual(self.tab.complaints, [])
        for request in self.tab.requests:
            self.assertTrue(request["url"].startswith((self.url, "about:")), request["url"])

    def visit(self):
        self.tab.open(self.url)
        self.tab.until("document.getElementById('model').textContent", "the model's name")
        with open(os.path.join(os.path.dirname(__file__), "page_checks.js")) as file:
            self.tab.js(file.read())

    def js(self, expression):
        return self.tab.js(expression)

    def ask(self, text):
        self.js("document.getElementById('field').focus()")
        self.tab.type(text)
        self.tab.key("Enter")

    def until_answer(self, text):
        """The first answer is this one."""
        self.tab.until("document.querySelector('.answer > .text').textContent === '%s'" % text, text)

    def wait_for_end(self):
        self.tab.until("document.getElementById('stop').hidden", "the answer's end")

    def bodies(self):
        """Of the chat requests so far."""
        return [json.loads(r["postData"]) for r in self.tab.requests if r["url"] == self.url + CHAT]

    def texts(self, selector):
        return self.js("[...document.querySelectorAll('%s')].map((n) => n.textContent)" % selector)

    def mock(self, *answers):
        self.tab.mock(self.url + CHAT, *answers)

    # ---- answers ---------------------------------------------------------------------------

    def ask_slowly(self, tokens, rate):
        """What the model says to this, greedily, is noise that does not end before `tokens`."""
        self.set_number("temperature", 0)
        self.set_number("max_tokens", tokens)
        self.tab.slow(rate)
        self.ask("Hello")

    def test_enter_sends_and_the_answer_streams_in(self):
        self.ask_slowly(150, 20000)
        lengths = "document.querySelector('.answer > .text')?.textContent.length"
        self.tab.until(lengths + " > 0", "the first words")
        first = self.js(lengths)
        self.assertFalse(self.js("document.getElementById('stop').hidden"))
        self.tab.until("%s > %d" % (lengths, first), "more words")
        self.tab.slow(0)
        self.wait_for_end()
        self.assertEqual(self.js("document.getElementById('field').value"), "")
        self.assertEqual(self.js("document.activeElement.id"), "field")
        self.assertRegex(self.texts(".stats")[0], r"\d+ tokens? · .*tokens/s · .*prompt \d+")
        self.assertRegex(self.texts("#context-text")[0], r"^[\d,]+ of [\d,]+ tokens$")
        self.assertEqual(self.bodies()[0]["messages"], [{"role": "user", "content": "Hello"}])

    def test_shift_enter_breaks_the_line(self):
        self.mock(stream("yes"))
        self.tab.type("one")
        self.tab.key("Enter", shift=True)
        self.ask("two")
        self.wait_for_end()
        self.assertEqual(self.bodies()[0]["messages"][0]["content"], "one\ntwo")

    def test_escape_stops(self):
        self.ask_slowly(8000, 4000)
        self.tab.until("document.querySelector('.answer > .text')?.textContent", "the first words")
        self.tab.key("Escape")
        self.wait_for_end()
        self.assertEqual(self.texts(".answer .note"), ["Stopped."])
        wait_for(lambda: SERVER.metric("running_answers") == 0, what="the end on the server")
        length = len(self.texts(".answer > .text")[0])
        self.tab.slow(0)
        self.mock(stream("Another answer."))
        self.ask("And now?")
        self.tab.until("document.querySelectorAll('.answer').length === 2", "the next answer")
        self.wait_for_end()
        self.assertEqual(len(self.texts(".answer > .text")[0]), length)
        self.assertEqual([m["role"] for m in self.bodies()[1]["messages"]],
                         ["user", "assistant", "user"])

    def test_regenerate_and_edit(self):
        self.mock(stream("First."), stream("Second."), stream("Third."))
        self.ask("Quesion")
        self.wait_for_end()
        self.js("document.querySelector('[aria-label=\"Regenerate this answer\"]').click()")
        self.until_answer("Second.")
        self.wait_for_end()
        self.tab.key("ArrowUp")
        self.js("document.activeElement.select()")
        self.tab.type("Question")
        self.tab.key("Enter")
        self.until_answer("Third.")
        self.assertEqual([b["messages"] for b in self.bodies()],
                         [[{"role": "user", "content": q}]
                          for q in ("Quesion", "Quesion", "Question")])
        self.assertEqual(len(self.texts("article")), 2)

    def test_messages_and_code_are_copied(self):
        self.mock(stream("Use **this**:\n\n```c\nint\tx;\n\n```\n"))
        self.ask("What do I use?")
        self.wait_for_end()
        for name, text in (("Copy this message", "What do I use?"), ("Copy this code", "int\tx;\n"),
                           ("Copy this answer", "Use **this**:\n\n```c\nint\tx;\n\n```\n")):
            self.js("document.querySelector('[aria-label=\"%s\"]').click()" % name)
            self.tab.until("document.activeElement.textContent === 'Copied'", "the copy")
            self.assertEqual(self.tab.clipboard(), text)

    def test_reasoning_is_folded_away(self):
        status, headers, body = stream("So be it.")
        self.mock((status, headers, chunk(reasoning_content="Let me <b>see</b>.") + body))
        self.ask("Well?")
        self.wait_for_end()
        self.assertFalse(self.js("document.querySelector('.answer details').open"))
        self.assertEqual(self.texts("details .text"), ["Let me <b>see</b>."])
        self.assertEqual(self.texts(".answer > .text"), ["So be it."])

    def test_an_answer_goes_on_while_another_chat_is_shown(self):
        self.ask_slowly(100, 8000)
        self.tab.until("document.querySelector('.answer > .text')?.textContent", "the first words")
        self.js("document.getElementById('new-chat').click()")
        self.assertEqual(self.texts("article"), [])
        self.js("document.querySelector('#chat-list .title').click()")
        self.tab.slow(0)
        self.wait_for_end()
        self.assertEqual(self.texts(".answer .note"), ["Cut off at the token limit."])

    # ---- what is remembered ----------------------------------------------------------------

    def test_conversations_survive_and_can_be_deleted(self):
        self.mock(stream("An answer."))
        self.ask("Remember me")
        self.wait_for_end()
        self.visit()
        self.assertEqual(self.texts("#chat-list .title"), ["Remember me"])
        self.js("document.querySelector('#chat-list .title').click()")
        self.assertEqual(self.texts("article > .text"), ["Remember me", "An answer."])
        self.js("document.querySelector('#chat-list .icon').click()")
        self.assertEqual(self.js("localStorage.length"), 0)
        self.js("document.getElementById('notice-action').click()")
        self.assertEqual(self.texts("#chat-list .title"), ["Remember me"])
        self.js("document.getElementById('delete-all').click()")
        self.visit()
        self.assertEqual(self.texts("#chat-list .title"), [])

    def test_storage_may_hold_anything(self):
        chat = '{"id":"x","title":"t","updated":1,"messages":[%s]}'
        for value in ("[", "null", "7", "{}", '{"id":1}', chat % "null",
                      chat % '{"role":"system","text":"a"}', chat % '{"role":"user","text":1}'):
            for key in ("chat.x", "settings", "theme"):
                self.js("localStorage.setItem('pleach.%s', %s)" % (key, json.dumps(value)))
            self.visit()
            self.assertEqual(self.texts("#chat-list .title"), [])

    def set_number(self, name, value):
        self.js("""(() => { const input = document.getElementById('s-%s'); input.value = '%s';
                   input.dispatchEvent(new Event('input', {bubbles: true})); })()""" % (name, value))

    def test_parameters_reach_the_request(self):
        numbers = {"temperature": 0.8, "top_p": 0.9, "top_k": 40, "min_p": 0.1, "max_tokens": 3,
                   "seed": 42, "presence_penalty": -0.5, "frequency_penalty": 0.25,
                   "repetition_penalty": 1.1}
        self.tab.key("Escape")
        self.tab.key(",")
        self.tab.until("document.activeElement.id === 's-system'", "the settings")
        self.tab.type("Be brief.")
        for _ in numbers:
            self.tab.key("Tab") # which selects what is there
            self.tab.type(str(numbers[self.js("document.activeElement.name")]))
        self.tab.key("Tab")
        self.tab.key(" ")
        self.tab.key("Escape")
        self.visit()
        self.ask("Hi")
        self.wait_for_end()
        body = self.bodies()[0]
        self.assertEqual({n: body.get(n) for n in numbers}, numbers)
        self.assertEqual(body["response_format"], {"type": "json_object"})
        self.assertEqual(body["messages"][0], {"role": "system", "content": "Be brief."})
        self.assertEqual((body["stream"], body["stream_options"]), (True, {"include_usage": True}))
        self.assertEqual(self.texts(".answer .failed"), [])
        self.js("document.getElementById('reset-settings').click()")
        self.mock(stream("."))
        self.ask("Again")
        self.wait_for_end()
        self.assertEqual(sorted(self.bodies()[1]),
                         ["messages", "min_p", "stream", "stream_options", "temperature"])

    def test_a_wrong_parameter_is_said_and_not_sent(self):
        self.set_number("top_p", 3)
        self.assertEqual(self.texts(".fault"), ["Expected a number from 0 to 1; not sent."])
        self.mock(stream("."))
        self.ask("Hi")
        self.wait_for_end()
        self.assertNotIn("top_p", self.bodies()[0])
        self.set_number("top_p", 0.5)
        self.assertEqual(self.texts(".fault"), [])

    # ---- what goes wrong -------------------------------------------------------------------

    def test_errors_are_said_in_words_and_tried_again(self):
        self.complaints_are_meant = True # the browser logs each status of 400 and above
        broken = "The connection broke off before the answer was whole."
        cases = [(refusal(400, "The prompt has 9 tokens."), "The prompt has 9 tokens."),
                 (refusal(429, "busy", **{"Retry-After": "7"}),
                  "The server is busy. It asks to try again in 7 s."),
                 ((500, {}, "<h1>"), "The server answered with status 500."),
                 (stream("Half", end=""), broken),
                 (stream("Half", end="data: {]\n\n"), broken),
                 (stream("Half", end='data: {"error":{"message":"Out of pages."}}\n\n'),
                  "Out of pages.")]
        self.mock(*[answer for answer, _ in cases], stream("At last."))
        self.ask("Hello")
        for _, words in cases:
            self.tab.until("document.querySelector('.answer .failed')", words)
            self.assertEqual(self.texts(".answer .failed"), [words])
            self.js("document.querySelector('.answer > .failed + button').click()")
        self.until_answer("At last.")
        self.assertEqual(len(self.texts("article")), 2)

    def test_a_key_is_asked_for(self):
        self.complaints_are_meant = True
        with tempfile.NamedTemporaryFile("w") as keys:
            keys.write("secret-key\n")
            keys.flush()
            with Server(MODEL, "--api-key-file", keys.name) as server:
                self.tab.requests.clear()
                self.url = "http://127.0.0.1:%d/" % server.port
                self.tab.open(self.url)
                self.give_key("wrong-key")
                self.tab.until("document.getElementById('key').open", "the question again")
                self.give_key("secret-key")
                self.tab.until("document.getElementById('model').textContent", "the model's name")
                self.ask_slowly(20, 0)
                self.tab.until("document.querySelector('.answer .stats')?.textContent", "an answer")
                self.assertEqual(self.texts(".answer .failed"), [])
                self.assertNotIn("secret-key", self.js("JSON.stringify(localStorage)"))
                self.tab.open("about:blank")

    def give_key(self, key):
        self.tab.until("document.getElementById('key').open", "the question for a key")
        self.assertEqual(self.js("document.activeElement.id"), "key-field")
        self.tab.type(key)
        self.tab.key("Enter")

    # ---- safety ----------------------------------------------------------------------------

    def test_no_text_becomes_part_of_the_page(self):
        self.mock(stream(*[HOSTILE[i:i + 3] for i in range(0, len(HOSTILE), 3)]))
        self.ask(HOSTILE)
        self.wait_for_end()
        self.assertEqual(self.texts(".question .text"), [HOSTILE.strip()])
        self.assertIn("<script>window.harmed = 1</script><img", self.texts(".answer > .text")[0])
        self.assertEqual(self.js("window.harmed ?? null"), None)
        self.assertEqual(self.texts("#messages :is(script, img, iframe, i, b, u)"), [])
        self.assertEqual(self.js("[...document.querySelectorAll('.answer a')].map((a) => a.href)"),
                         ["https://example.org/x.png"])
        self.assertEqual(self.js("document.querySelector('.answer a').rel"), "noopener noreferrer")

    # ---- Markdown --------------------------------------------------------------------------

    def test_markdown(self):
        html = self.render(MARKDOWN)
        for part in ("<h3>Title</h3>", "<em>paragraph</em>", "<strong>bold</strong>",
                     "<strong><em>both</em></strong>", "<code>a * b</code>", "<del>gone</del>",
                     "snake_case_words, 2 * 3 * 4.<br>Its", 'href="https://example.org/a_(b)"',
                     ">https://example.org/c</a>. and *stars*.</p>",
                     "<ul><li>one</li><li>two<ol><li><p>inner</p></li>"
                     "<li><p>more</p><p>a paragraph inside</p></li></ol></li>",
                     '<li class="task">☑ done</li>', '<ol start="5"><li>five</li><li>six</li></ol>',
                     "<blockquote><p>quoted</p><ul><li>list</li></ul></blockquote>",
                     '<th class="right" scope="col">right</th>', "<td>a | b</td>", "d<br>e",
                     "<span>c</span>", "int x;\t/* a tab,\n   and *no* emphasis */</code>", "<hr>",
                     ">open fence\n</code>"):
            self.assertIn(part, html)

    def render(self, text):
        return self.js("""import('./markdown.js').then(({MarkdownView}) => {
            const root = document.createElement('div');
            new MarkdownView(root).finish(%s);
            return root.innerHTML; })""" % json.dumps(text))

    def test_markdown_that_grows_is_markdown_at_once(self):
        seed = random.randrange(1 << 32)
        draw = random.Random(seed)
        parts = ["a", "b c", "\n", "\n\n", "* ", "*", "**", "`", "```", "\n```\n", "1. ", "\n- ",
                 "  ", "\t", "> ", "|", "\n|--|--|\n", "# ", "_", "~~", "[x](https://e.org)", "[",
                 "](", ")", "\\", "---", "<br>", "5"]
        texts = [MARKDOWN, HOSTILE] + ["".join(draw.choices(parts, k=60)) for _ in range(150)]
        wrong = self.js("""import('./markdown.js').then(({MarkdownView}) => %s.filter((text) => {
            const [grown, whole] = [0, 1].map(() => document.createElement('div'));
            const view = new MarkdownView(grown);
            for (let i = 0; i <= text.length; i++) view.update(text.slice(0, i));
            view.finish(text);
            new MarkdownView(whole).finish(text);
            return grown.innerHTML !== whole.innerHTML; }))""" % json.dumps(texts))
        self.assertEqual(wrong, [], "seed %d" % seed)

    def test_markdown_keeps_what_is_settled(self):
        kept = self.js("""import('./markdown.js').then(({MarkdownView}) => {
            const root = document.createElement('div'), view = new MarkdownView(root);
            view.update('one\\n\\ntwo\\n\\nthree');
            const first = root.firstChild;
            view.update('one\\n\\ntwo\\n\\nthree and *more*\\n\\nfour');
            return [first === root.firstChild, root.childElementCount]; })""")
        self.assertEqual(kept, [True, 4])

    def test_markdown_takes_no_time_to_speak_of(self):
        """What is quadratic or worse would not come back within the browser's patience."""
        for part in ("*a ", "**a", "_a", "`", "``a`", "[", "[a](", "![", "~~a", "> ", "- ", "  - ",
                     "1. ", "|", "\\", "<br", "http://", "# ", "***", "a|b\n", "|-|-|\n", " ",
                     "- a\n\n"):
            self.render(part * 20000)

    # ---- looks and access ------------------------------------------------------------------

    def fill_page(self):
        self.mock(stream(MARKDOWN), refusal(400, "Refused."))
        self.complaints_are_meant = True
        for question in ("First", "Second"):
            self.ask(question)
            self.tab.until("document.getElementById('stop').hidden", "the answer")
        self.tab.until("document.querySelector('.failed')", "the refusal")

    def check_looks(self, where):
        self.assertEqual(self.js("checks.faint()"), [], where)
        self.assertEqual(self.js("checks.misplaced()"), [], where)
        named = ("button", "link", "textbox", "checkbox", "spinbutton", "meter", "dialog", "region",
                 "navigation")
        for node in self.tab.call("Accessibility.getFullAXTree")["nodes"]:
            if not node["ignored"] and node["role"]["value"] in named:
                self.assertTrue(node.get("name", {}).get("value", "").strip(), (where, node))

    def test_contrast_names_and_layout(self):
        self.fill_page()
        for dark in (False, True):
            for width in (320, 800, 1280):
                self.tab.look(width, 700, dark, still=True)
                where = "%d wide, %s" % (width, "dark" if dark else "light")
                self.check_looks(where)
                for dialog in ("settings", "server", "help", "key"):
                    self.js("document.getElementById('%s').showModal()" % dialog)
                    self.check_looks(where + ", " + dialog)
                    self.js("document.getElementById('%s').close()" % dialog)

    def test_structure(self):
        count = "document.querySelectorAll('%s').length"
        for selector, times in (("main", 1), ("h1", 1), ("body > header", 1), ("nav[aria-label]", 1),
                                ("[aria-live=polite]", 1), ("html[lang]", 1), ("[style], [onclick]", 0)):
            self.assertEqual(self.js(count % selector), times, selector)
        self.assertEqual(self.js("""[...document.querySelectorAll('[id]')].map((n) => n.id)
            .filter((id, i, all) => all.indexOf(id) !== i)"""), [])

    def test_answers_are_spoken_by_the_block(self):
        self.js("""window.spoken = []; new MutationObserver((changes) => changes.forEach((c) =>
            c.addedNodes.forEach((n) => spoken.push(n.textContent)))).observe(
            document.getElementById('spoken'), {childList: true})""")
        self.mock(stream("One ", "two.\n\n", "```c\nint ", "x;\n```\n\n", "The ", "end."))
        self.ask("Speak")
        self.wait_for_end()
        self.assertEqual(self.js("spoken"),
                         ["One two.", "Code: int x;", "The end.", "End of the answer."])

    def test_colours(self):
        paper = "getComputedStyle(document.body).backgroundColor"
        light = self.js(paper)
        self.tab.look(1280, 800, dark=True)
        dark = self.js(paper)
        self.assertNotEqual(light, dark)
        self.tab.key("Escape")
        for theme, colour in (("light", light), ("dark", dark), ("system", dark), ("light", light)):
            self.tab.key("t")
            self.assertEqual(self.js("document.documentElement.dataset.theme"), theme)
            self.assertEqual(self.js(paper), colour)
        self.visit()
        self.assertEqual(self.js(paper), light)

    def test_keyboard_walk(self):
        self.mock(stream("Answer with [a link](https://example.org) and\n\n```c\ncode\n```"))
        self.ask("Question")
        self.wait_for_end()
        self.js("document.activeElement.blur()")
        self.js("document.querySelector('.skip').focus()")
        walked = []
        while len(walked) < 40:
            name, visible = self.js("checks.focus()")
            self.assertTrue(visible, name)
            walked.append(name)
            if name == "field":
                break
            self.tab.key("Tab")
        self.assertEqual(walked, [
            "Skip to the message field", "open-server", "open-settings", "theme", "open-help",
            "new-chat", "Question", "Delete Question", "Copy this message", "Edit this message",
            "a link", "Copy this code", "Code, c", "Copy this answer", "Regenerate this answer",
            "field"])

    def test_shortcuts(self):
        self.mock(stream("One."), stream("Two."))
        self.ask("Question")
        self.wait_for_end()
        self.tab.key("Escape")
        for keys, there in (("k", "answer"), ("k", "question"), ("j", "answer")):
            self.tab.key(keys)
            self.assertEqual(self.js("document.activeElement.className"), there)
        self.tab.key("r")
        self.until_answer("Two.")
        self.tab.key("?", shift=True)
        self.assertTrue(self.js("document.getElementById('help').open"))
        self.tab.key("Escape")
        self.assertFalse(self.js("document.getElementById('help').open"))
        self.tab.key("e")
        self.assertEqual(self.js("document.activeElement.value"), "Question")
        self.tab.key("Escape")
        self.tab.key("/")
        self.assertEqual(self.js("document.activeElement.id + document.activeElement.value"), "field")
        self.tab.key("Escape")
        self.tab.key("n")
        self.assertEqual(self.texts("article"), [])
        self.js("document.querySelector('[name=shortcuts]').click()")
        self.tab.key("Escape")
        self.tab.key("?", shift=True)
        self.assertFalse(self.js("document.getElementById('help').open"))

    def test_narrow_window(self):
        self.tab.look(320, 600, still=True)
        hidden = "getComputedStyle(document.getElementById('chats')).visibility"
        self.assertEqual(self.js(hidden), "hidden")
        self.js("document.getElementById('open-chats').click()")
        self.assertEqual(self.js("document.activeElement.id"), "new-chat")
        self.check_looks("conversations over the messages")
        self.tab.key("Escape")
        self.assertEqual(self.js("document.activeElement.id"), "open-chats")
        self.assertFalse(self.js("document.getElementById('main').inert"))


if __name__ == "__main__":
    if not executable():
        print("skipped: no chromium here")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder, Chromium() as BROWSER:
        MODEL = tiny_model(folder + "/tiny")
        with Server(MODEL) as SERVER:
            unittest.main(verbosity=2)
