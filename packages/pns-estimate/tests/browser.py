"""Chromium driven over a pipe by its DevTools protocol: no driver, no library."""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time

CHROMIUM = (
    shutil.which("chromium")
    or shutil.which("chromium-browser")
    or shutil.which("google-chrome")
)
_OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--disable-dev-shm-usage", "--remote-debugging-pipe"),
)
# Moves the two pipes to where the browser looks for them, then becomes the browser.
_CONNECT = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """One page of one browser."""

    def __init__(self, profile):
        """Starts the browser, which reads file descriptor 3 and writes 4."""
        read, self._write = os.pipe()
        self._read, write = os.pipe()
        command = [CHROMIUM, *_OPTIONS, f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CONNECT, str(read), str(write), *command],
            pass_fds=(read, write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read)
        os.close(write)
        self._buffer, self._count, self._session = b"", 0, None
        self.complaints = []
        target = self._send("Target.createTarget", url="about:blank")["targetId"]
        attached = self._send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network"):
            self._send(f"{domain}.enable")

    def _receive(self, seconds=120):
        ends = time.monotonic() + seconds
        while b"\0" not in self._buffer:
            if not select.select([self._read], [], [], ends - time.monotonic())[0]:
                raise TimeoutError("the browser does not answer")
            self._buffer += os.read(self._read, 1 << 16)
        message, self._buffer = self._buffer.split(b"\0", 1)
        message = json.loads(message)
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(params["exceptionDetails"])
        if method == "Network.requestWillBeSent":
            address = params["request"]["url"]
            if not address.startswith(("file:", "data:", "blob:", "about:")):
                self.complaints.append(address)
        return message

    def _send(self, method, **params):
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != self._count:
            pass
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["result"]

    def open(self, path, width=1280, *, dark=False, media="", script=True):
        """Shows a file in a window of this width."""
        self._send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self._send("Emulation.setScriptExecutionDisabled", value=not script)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._send("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self._send("Page.navigate", url=path.as_uri())
        while self._receive().get("method") != "Page.loadEventFired":
            pass

    def run(self, expression):
        """Evaluates JavaScript; waits for promises; returns plain values."""
        answer = self._send(
            "Runtime.evaluate",
            expression=expression,
            awaitPromise=True,
            returnByValue=True,
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def type(self, selector, text):
        """Writes into a field as a person does, key by key."""
        self.run(f"document.querySelector({json.dumps(selector)}).focus()")
        self._send("Input.insertText", text=text)

    def press(self, selector, key, code):
        """Presses a key while an element has the focus."""
        self.run(f"document.querySelector({json.dumps(selector)}).focus()")
        for kind in ("keyDown", "keyUp"):
            self._send(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
            )

    def shoot(self, path):
        """Writes a picture of the whole page."""
        size = self._send("Page.getLayoutMetrics")["cssContentSize"]
        shot = self._send(
            "Page.captureScreenshot",
            captureBeyondViewport=True,
            clip={**size, "scale": 1},
        )
        path.write_bytes(base64.b64decode(shot["data"]))

    def print(self, path, height=11.0):
        """Writes the page as PDF, on paper of this height in inches."""
        printed = self._send(
            "Page.printToPDF", printBackground=True, paperHeight=height
        )
        path.write_bytes(base64.b64decode(printed["data"]))

    def close(self):
        """Ends the browser."""
        self._process.terminate()
        self._process.wait(30)
        os.close(self._read)
        os.close(self._write)
