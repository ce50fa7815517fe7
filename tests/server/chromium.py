# SPDX-License-Identifier: Apache-2.0
"""Chromium without a window, driven by the DevTools protocol over its pipe: standard library alone.

    with Chromium() as browser:
        tab = browser.tab()
        tab.open("http://127.0.0.1:8080/")
        tab.js("document.title")

Messages are JSON, each ended by a zero byte: the browser reads descriptor 3 and writes 4
(--remote-debugging-pipe). Protocol: https://chromedevtools.github.io/devtools-protocol/
"""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

PATIENCE = 60  # seconds until a page that does not do what it should is given up

KEYS = {  # name: (code, Windows' virtual key, text)
    "Enter": ("Enter", 13, "\r"), "Escape": ("Escape", 27, ""), "Tab": ("Tab", 9, ""),
    "ArrowUp": ("ArrowUp", 38, ""), " ": ("Space", 32, " "),
}


def executable():
    """The browser's path, or None."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class BrowserError(Exception):
    pass


class Chromium:
    def __init__(self):
        self.profile = tempfile.TemporaryDirectory(prefix="pleach-chromium.",
                                                   ignore_cleanup_errors=True)
        to_read, self.output = os.pipe()
        self.input, to_write = os.pipe()
        arguments = [executable(), "--headless=new", "--remote-debugging-pipe", "--no-first-run",
                     "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
                     "--disable-component-update", "--disable-extensions", "--no-pings",
                     "--no-sandbox",  # root and many containers have none, and pages are our own
                     "--user-data-dir=" + self.profile.name]
        # The shell gives the pipes the numbers that the browser expects.
        shell = 'exec "$@" 3<&%d 4>&%d' % (to_read, to_write)
        self.process = subprocess.Popen(["bash", "-c", shell, "bash"] + arguments,
                                        pass_fds=(to_read, to_write), start_new_session=True,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.buffer = b""
        self.number = 0
        self.answers = {}
        self.on_event = {}  # session: function(method, parameters)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.call("Browser.close", {})
        except (BrowserError, OSError):
            pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, 9)
            self.process.wait()
        os.close(self.input)
        os.close(self.output)
        self.profile.cleanup()

    def pump(self, seconds):
        """Takes in what arrives within so many seconds; returns after the first that does."""
        if not select.select([self.input], [], [], seconds)[0]:
            return
        read = os.read(self.input, 1 << 20)
        if not read:
            raise BrowserError("the browser has ended")
        *whole, self.buffer = (self.buffer + read).split(b"\0")
        for message in map(json.loads, whole):
            if "id" in message:
                self.answers[message["id"]] = message
            elif message.get("sessionId") in self.on_event:
                self.on_event[message["sessionId"]](message["method"], message["params"])

    def send(self, method, parameters, session=None):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.output, data):]
        return self.number

    def call(self, method, parameters, session=None):
        number = self.send(method, parameters, session)
        end = time.monotonic() + PATIENCE
        while number not in self.answers:
            if time.monotonic() > end:
                raise BrowserError(method + ": no answer")
            self.pump(1)
        answer = self.answers.pop(number)
        if "error" in answer:
            raise BrowserError("%s: %s" % (method, answer["error"]["message"]))
        return answer["result"]

    def tab(self, **size):
        return Tab(self, **size)


class Tab:
    """A page with storage of its own; what it logged and asked for: `complaints`, `requests`."""

    def __init__(self, browser, width=1280, height=800, dark=False):
        self.browser = browser
        context = browser.call("Target.createBrowserContext", {})
        target = browser.call("Target.createTarget", {"url": "about:blank", **context})["targetId"]
        browser.call("Browser.grantPermissions", {
            "permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"], **context})
        self.session = browser.call("Target.attachToTarget",
                                    {"targetId": target, "flatten": True})["sessionId"]
        self.complaints, self.requests, self.mocks = [], [], []
        self.loaded = False
        browser.on_event[self.session] = self.event
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")
        self.look(width, height, dark)

    def call(self, method, **parameters):
        return self.browser.call(method, parameters, self.session)

    def event(self, method, p):
        if method == "Page.loadEventFired":
            self.loaded = True
        elif method == "Runtime.exceptionThrown":
            details = p["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and p["type"] in ("error", "warning", "assert"):
            self.complaints.append(" ".join(str(a.get("value")) for a in p["args"]))
        elif method == "Log.entryAdded" and p["entry"]["level"] in ("error", "warning"):
            self.complaints.append("%(text)s %(url)s" % {"url": "", **p["entry"]})
        elif method == "Network.requestWillBeSent":
            self.requests.append(p["request"])
        elif method == "Fetch.requestPaused":
            self.fulfil(p)

    def fulfil(self, p):
        status, headers, body = self.mocks.pop(0)
        self.browser.send("Fetch.fulfillRequest", {
            "requestId": p["requestId"], "responseCode": status,
            "responseHeaders": [{"name": n, "value": v} for n, v in headers.items()],
            "body": base64.b64encode(body.encode()).decode()}, self.session)
        if not self.mocks:
            self.browser.send("Fetch.disable", {}, self.session)

    def mock(self, pattern, *answers):
        """The next requests to URLs like `pattern` get these answers: (status, headers, body)."""
        self.mocks = list(answers)
        self.call("Fetch.enable", patterns=[{"urlPattern": pattern}])

    def slow(self, rate):
        """At most so many bytes a second come in; 0: as they come."""
        self.call("Network.emulateNetworkConditions", offline=False, latency=0,
                  downloadThroughput=rate or -1, uploadThroughput=-1)

    def look(self, width, height, dark=False, still=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce" if still else ""}])

    def clear(self, origin):
        """As a new tab would be that never saw this origin."""
        self.open("about:blank")
        self.call("Fetch.disable")
        self.call("Storage.clearDataForOrigin", origin=origin, storageTypes="all")
        self.slow(0)
        self.look(1280, 800)
        self.complaints, self.requests, self.mocks = [], [], []

    def open(self, url):
        self.loaded = False
        self.call("Page.navigate", url=url)
        self.until(lambda: self.loaded, "the page to load")

    def js(self, expression):
        """The value of an expression, awaited."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True,
                           returnByValue=True, userGesture=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise BrowserError(details.get("exception", {}).get("description", details["text"]))
        return result["result"].get("value")

    def until(self, condition, what):
        """Waits until a JavaScript expression or a Python function is true."""
        end = time.monotonic() + PATIENCE
        while not (self.js("!!(%s)" % condition) if isinstance(condition, str) else condition()):
            if time.monotonic() > end:
                raise BrowserError("waited in vain for " + what)
            self.browser.pump(0.02)

    def key(self, name, shift=False):
        code, number, text = KEYS.get(name, ("", ord(name[0].upper()), name))
        event = {"key": name, "code": code, "windowsVirtualKeyCode": number,
                 "modifiers": 8 if shift else 0}
        down = "keyDown" if text else "rawKeyDown"
        self.call("Input.dispatchKeyEvent", type=down, text=text, **event)
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def clipboard(self):
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)
        return self.js("navigator.clipboard.readText()")

    def type(self, text):
        self.call("Input.insertText", text=text)

    def picture(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
