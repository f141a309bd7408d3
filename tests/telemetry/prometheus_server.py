"""Debian's Prometheus as a process of the test; it scrapes one address every two seconds."""

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

_CONFIG = """
global: {{scrape_interval: 2s, scrape_timeout: 2s}}
scrape_configs:
  - job_name: fleet
    static_configs: [{{targets: ['{target}']}}]
"""
START_S_MAX = 60


def complaints_of(text):
    """What promtool says of metrics; nothing when all is well."""
    program = shutil.which("promtool") or "/usr/bin/promtool"
    done = subprocess.run(
        [program, "check", "metrics"], input=text, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


class Prometheus:
    """A server with data of its own, gone with its folder."""

    def __init__(self, folder, target):
        folder.mkdir()
        (folder / "prometheus.yml").write_text(_CONFIG.format(target=target))
        self.log = folder / "log.txt"
        program = shutil.which("prometheus") or "/usr/bin/prometheus"
        for _ in range(5):  # somebody else may take the port before it does
            with socket.create_server(("127.0.0.1", 0)) as probe:
                self.port = probe.getsockname()[1]
            with self.log.open("wb") as log:
                self.process = subprocess.Popen(
                    [program, f"--config.file={folder}/prometheus.yml",
                     f"--storage.tsdb.path={folder}/data",
                     f"--web.listen-address=127.0.0.1:{self.port}"],
                    stdout=log, stderr=log,
                )  # fmt: skip
            if self._is_ready():
                return
        raise AssertionError(self.log.read_text())

    def _is_ready(self):
        end_s = time.monotonic() + START_S_MAX
        while time.monotonic() < end_s and self.process.poll() is None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready"):
                    return True
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.1)
        return False

    def answer(self, path, **words):
        """The data of an answer of its HTTP API."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(words)}"
        with urllib.request.urlopen(url) as answer:
            return json.load(answer)["data"]

    def query(self, expression):
        """What an expression gives now: a row per series, labels and value."""
        rows = self.answer("query", query=expression)["result"]
        return [(row["metric"], float(row["value"][1])) for row in rows]

    def wait_for(self, expression, least=1):
        """Rows of an expression, as soon as there are so many."""
        end_s = time.monotonic() + START_S_MAX
        while time.monotonic() < end_s:
            rows = self.query(expression)
            if len(rows) >= least:
                return rows
            time.sleep(0.2)
        raise AssertionError(f"nothing for {expression}")

    def stop(self):
        """End it."""
        self.process.terminate()
        self.process.wait(30)
