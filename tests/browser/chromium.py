"""Headless Chromium over its DevTools protocol: what a page asks for, says and draws."""

import base64
import contextlib
import json
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager

from websockets.sync.client import connect

NAMES = ("chromium", "chromium-browser", "google-chrome")
START_S = 60
ANSWER_S = 60
QUALITY = 80  # percent, of pictures that lose something


def find():
    """Path of a Chromium, which `tools/setup --for-tests` installs."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    assert found, "no Chromium on this machine: run tools/setup --for-tests"
    return found


@contextmanager
def browser():
    """A running browser's DevTools address; it and its profile are gone afterwards."""
    with tempfile.TemporaryDirectory() as profile:
        running = subprocess.Popen(
            [find(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--no-first-run", "--disable-background-networking", "--disable-component-update",
             "--disable-sync", "--disable-extensions", "--remote-debugging-port=0",
             f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            yield _address(running)
        finally:
            running.terminate()
            try:
                running.wait(10)
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait(10)
            running.stderr.close()
            time.sleep(0.2)  # its helpers let go of the profile a moment later


def _address(running):
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        line = running.stderr.readline()
        if "DevTools listening on " in line:
            return line.partition("DevTools listening on ")[2].strip()
        if not line and running.poll() is not None:
            break
    raise AssertionError("the browser did not start")


# What Chromium answers if another page takes the place of the one that was asked.
_NAVIGATED = "Inspected target navigated or closed"


class NavigatedError(Exception):
    """The page that was asked is not there any more."""


class Page:
    """One tab: its requests, what its console said, its exceptions."""

    def __init__(self, address):
        self.socket = connect(address, max_size=None, open_timeout=ANSWER_S)
        self.number = 0
        self.requests, self.said, self.thrown = [], [], []
        self.loaded = False
        target = self._call("Target.createTarget", {"url": "about:blank"})["targetId"]
        told = self._call("Target.attachToTarget", {"targetId": target, "flatten": True})
        self.session = told["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.requests.clear()

    session = None

    def close(self):
        self.socket.close()

    def call(self, method, **params):
        return self._call(method, params)

    def _call(self, method, params):
        self.number += 1
        told = {"id": self.number, "method": method, "params": params}
        if self.session:
            told["sessionId"] = self.session
        self.socket.send(json.dumps(told))
        while True:
            message = json.loads(self.socket.recv(timeout=ANSWER_S))
            if message.get("id") == self.number:
                if message.get("error", {}).get("message") == _NAVIGATED:
                    raise NavigatedError
                assert "error" not in message, message
                return message["result"]
            self._event(message)

    def _event(self, message):
        method, told = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning"):
            self.said.append([str(a.get("value", a.get("description"))) for a in told["args"]])
        elif method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.said.append(told["entry"]["text"])
        elif method == "Runtime.exceptionThrown":
            self.thrown.append(json.dumps(told["exceptionDetails"])[:500])
        elif method == "Page.loadEventFired":
            self.loaded = True

    def open(self, url, width=1280, height=900, *, mobile=False, dark=False, scripts=True):
        """Load a page in a window of this size and wait for its load event."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=mobile)  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.loaded = False
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'" if scripts else None)

    def until(self, expression, seconds=ANSWER_S):
        """Wait until an expression is true; without one, for the load event."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with contextlib.suppress(NavigatedError):
                if self.evaluate(expression) if expression else self.loaded:
                    return
            if not expression:
                self.call("Page.getLayoutMetrics")
            time.sleep(0.05)
        raise AssertionError(f"never came true: {expression}")

    def evaluate(self, expression):
        told = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def screenshot(self, path):
        """Write a picture of the window; its suffix says in which format."""
        form = {"format": path.suffix.removeprefix(".")}
        if form["format"] != "png":
            form["quality"] = QUALITY
        picture = self.call("Page.captureScreenshot", **form)
        path.write_bytes(base64.b64decode(picture["data"]))

    def pdf(self, path):
        """Print the page."""
        told = self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)
        path.write_bytes(base64.b64decode(told["data"]))
