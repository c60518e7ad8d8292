"""Headless Chromium over its debugging pipe (CDP; standard library only): what the browser tests drive a page with."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--disable-extensions", "--remote-debugging-pipe",
)  # fmt: skip


def chromium() -> str | None:
    """The path of a Chromium on this machine, or None."""
    return next(
        (
            p
            for name in ("chromium", "chromium-browser", "google-chrome")
            if (p := shutil.which(name))
        ),
        None,
    )


class Browser:
    """One page of one Chromium.  Messages are JSON ended by a zero byte: file descriptor 3 in, 4 out."""

    def __init__(self, program: str) -> None:
        self._home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_read, to_write = os.pipe()
        from_read, from_write = os.pipe()
        shell = f'exec "$0" "$@" 3<&{to_read} 4>&{from_write}'
        self._process = subprocess.Popen(
            [
                "bash",
                "-c",
                shell,
                program,
                *FLAGS,
                f"--user-data-dir={self._home.name}",
                "about:blank",
            ],
            pass_fds=(to_read, from_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(from_write)
        self._in, self._out = os.fdopen(to_write, "wb"), os.fdopen(from_read, "rb")
        self._next, self._buffer, self._session = 0, b"", ""
        self.events: list[dict[str, Any]] = []
        targets = self.send("Target.getTargets")["targetInfos"]
        page = next(t["targetId"] for t in targets if t["type"] == "page")
        self._session = self.send("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._in.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._out.close()
        self._home.cleanup()

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            chunk = os.read(self._out.fileno(), 1 << 20)
            if not chunk:
                raise RuntimeError("Chromium closed its pipe")
            self._buffer += chunk
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """One command and its answer; events that arrive meanwhile are kept."""
        self._next += 1
        message: dict[str, Any] = {"id": self._next, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._in.write(json.dumps(message).encode() + b"\0")
        self._in.flush()
        while True:
            answer = self._read()
            if answer.get("id") != self._next:
                self.events.append(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']['message']}")
            else:
                return answer["result"]

    def open(
        self,
        path: Path,
        *,
        width: int = 1200,
        height: int = 900,
        dark: bool = False,
        hash: str = "",
    ) -> None:
        """Load a local file at this width (CSS pixels) and wait until it has loaded."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        scheme = "dark" if dark else "light"
        self.send(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        for url in (
            "about:blank",
            path.resolve().as_uri() + hash,
        ):  # a fresh document even where only the hash differs
            self.events.clear()
            self.send("Page.navigate", url=url)
            while not any(e["method"] == "Page.loadEventFired" for e in self.events):
                self.events.append(self._read())

    def evaluate(self, expression: str) -> Any:
        """The JSON value of a JavaScript expression; promises are awaited."""
        answer = self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(
                answer["exceptionDetails"].get("exception", {}).get("description", "exception")
            )
        return answer["result"].get("value")

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        shot = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self, path: Path) -> None:
        path.write_bytes(
            base64.b64decode(
                self.send("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"]
            )
        )

    def complaints(self) -> list[str]:
        """Console errors and warnings, uncaught exceptions, and requests other than the page itself, since open()."""
        found = []
        for event in self.events:
            method, params = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                found.append(f"exception: {params['exceptionDetails'].get('text')}")
            elif method == "Runtime.consoleAPICalled" and params["type"] in (
                "error",
                "warning",
                "assert",
            ):
                found.append(f"console {params['type']}: {params['args']}")
            elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(f"log: {params['entry']['text']}")
            elif method == "Network.requestWillBeSent" and params.get("type") != "Document":
                found.append(f"request: {params['request']['url']}")
        return found
