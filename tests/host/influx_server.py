"""Debian's InfluxDB as a process of the test."""

import json
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from host.conftest import wait_for

_INFLUX = """
reporting-disabled = true
bind-address = "127.0.0.1:0"
[meta]
dir = "{folder}/meta"
[data]
dir = "{folder}/data"
wal-dir = "{folder}/wal"
query-log-enabled = false
[http]
bind-address = "127.0.0.1:{http}"
log-enabled = false
auth-enabled = {auth}
[monitor]
store-enabled = false
"""


class Influx:
    """Debian's influxd with a database `farm`."""

    def __init__(self, folder: Path, auth: bool = False) -> None:
        folder.mkdir()
        self.log = folder / "log.txt"
        program = shutil.which("influxd") or "/usr/bin/influxd"
        for _ in range(5):  # somebody else may take the port before it does
            with socket.create_server(("127.0.0.1", 0)) as probe:
                self.port = int(probe.getsockname()[1])
            text = _INFLUX.format(folder=folder, http=self.port, auth=str(auth).lower())
            (folder / "influx.conf").write_text(text)
            with self.log.open("wb") as log:
                self.process = subprocess.Popen(
                    [program, "-config", str(folder / "influx.conf")], stdout=log, stderr=log
                )
            wait_for(lambda: self.process.poll() is not None or self.answers(), "an InfluxDB")
            if self.process.poll() is None:
                break
        else:
            raise AssertionError(self.log.read_text())
        self.url = f"http://127.0.0.1:{self.port}/write?db=farm"

    def answers(self) -> bool:
        try:
            self.request("/ping")
        except OSError:
            return False
        return True

    def request(self, path: str, data: bytes | None = None) -> bytes:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return bytes(answer.read())

    def query(self, text: str) -> list[list[Any]]:
        path = "/query?" + urllib.parse.urlencode({"db": "farm", "q": text})
        answer = json.loads(self.request(path, b""))["results"][0]
        assert "error" not in answer, answer
        return [row for series in answer.get("series", []) for row in series["values"]]

    def ids(self) -> list[str]:
        return [row[1] for row in self.query("SELECT id FROM reading")]

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
