"""A headless Chromium, spoken to over the pipe of the DevTools protocol.

Only what the report's tests need: pages of a given size and colour scheme, their
scripts' values, pictures, and the addresses that they ask for.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

PROGRAM = shutil.which("chromium")


class Browser:
    def __init__(self):
        self._folder = tempfile.TemporaryDirectory()
        to_read, self._to = os.pipe()
        self._from, from_write = os.pipe()
        # Chromium reads commands from descriptor 3 and answers on 4.
        command = [
            "sh",
            "-c",
            f'exec 3<&{to_read} 4>&{from_write} && exec "$0" "$@"',
            PROGRAM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--remote-debugging-pipe",
            f"--user-data-dir={self._folder.name}",
            "about:blank",
        ]
        self._process = subprocess.Popen(
            command,
            pass_fds=(to_read, from_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(from_write)
        self._buffer = b""
        self._next = 0
        self.requests = []  # every address that a page asked for
        self.errors = []  # what its scripts, or the browser, complained of
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._tab = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.page(f"{domain}.enable")

    def close(self):
        self._process.terminate()
        self._process.wait(timeout=30)
        os.close(self._to)
        os.close(self._from)
        self._folder.cleanup()

    def _read(self, deadline):
        while b"\0" not in self._buffer:
            if not select.select([self._from], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError("Chromium does not answer")
            data = os.read(self._from, 1 << 20)
            if not data:
                raise ConnectionError("Chromium ended")
            self._buffer += data
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, tab=None, **parameters):
        self._next += 1
        message = {"id": self._next, "method": method, "params": parameters}
        if tab:
            message["sessionId"] = tab
        os.write(self._to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 60
        while True:
            answer = self._read(deadline)
            if answer.get("method") == "Network.requestWillBeSent":
                self.requests.append(answer["params"]["request"]["url"])
            if answer.get("method") == "Runtime.exceptionThrown":
                self.errors.append(answer["params"]["exceptionDetails"])
            if answer.get("method") == "Log.entryAdded":
                self.errors.append(answer["params"]["entry"])
            if answer.get("id") == self._next:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def page(self, method, **parameters):
        return self.call(method, self._tab, **parameters)

    def evaluate(self, script):
        """The script's value, awaited where it is a promise."""
        result = self.page(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"])
        return result["result"].get("value")

    def scheme(self, name):
        """ "light" or "dark": what prefers-color-scheme says."""
        self.page(
            "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}]
        )

    def open(self, path, width, height, phone):
        self.page(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=phone,
        )
        self.page("Emulation.setTouchEmulationEnabled", enabled=phone)
        self.page("Page.navigate", url=path.resolve().as_uri())
        self.wait("document.querySelector('html[data-drawn]') !== null")

    def wait(self, condition, seconds=60):
        deadline = time.monotonic() + seconds
        while not self.evaluate(condition):
            if time.monotonic() > deadline:
                raise TimeoutError(f"never true: {condition}")
            time.sleep(0.05)

    def picture(self):
        """A PNG of the whole page."""
        data = self.page("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        return base64.b64decode(data["data"])

    def measure(self, png):
        """Mean luminance (0 to 255) of the picture, and how many colours it has."""
        address = "data:image/png;base64," + base64.b64encode(png).decode()
        return self.evaluate(
            """(async () => {
              const image = new Image();
              image.src = ADDRESS;
              await image.decode();
              const canvas = new OffscreenCanvas(image.width, image.height);
              const context = canvas.getContext('2d');
              context.drawImage(image, 0, 0);
              const data = context.getImageData(0, 0, image.width, image.height).data;
              const colours = new Set();
              let sum = 0;
              for (let i = 0; i < data.length; i += 4) {
                sum += 0.2126 * data[i] + 0.7152 * data[i + 1] + 0.0722 * data[i + 2];
                colours.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);
              }
              return {luminance: sum / (data.length / 4), colours: colours.size,
                      width: image.width, height: image.height};
            })()""".replace("ADDRESS", json.dumps(address))
        )
