"""A board on MicroPython at Debian's Mosquitto, over TLS with an own CA and a password file."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from host.guarded_broker import Guarded, login

DEVICE = Path(__file__).with_name("broker_device.py")
# TLS takes about 60 KB more than the client, most of it while it shakes hands.
HEAP = {"x86": "160K", "x64": "320K"}
Run = Callable[..., dict[str, Any]]


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    made = Guarded(tmp_path)
    yield made
    if made.broker is not None:
        made.broker.stop(True)


@pytest.fixture
def run(micropython: list[str], firmware: Path, arch: str, guarded: Guarded) -> Run:
    def start(scheme: str, port: int, **files: str) -> dict[str, Any]:
        url = f"{scheme}://localhost:{port}"
        table = {key: str(guarded.folder / name) for key, name in files.items()}
        config = {"brokers": [{"url": url, **table}] if files else []}
        path = guarded.folder / "board.json"
        path.write_text(json.dumps(config))
        ended = subprocess.run(
            [*micropython, "-X", f"heapsize={HEAP[arch]}", str(DEVICE), str(path), f"{url}/p"],
            capture_output=True, timeout=60, check=False,
            env=os.environ | {"MICROPYPATH": str(firmware)},
        )  # fmt: skip
        assert ended.returncode == 0, ended.stdout + ended.stderr
        said: dict[str, Any] = json.loads(ended.stdout)
        return said

    return start


UP = {"said": [], "echo": "21.5 C"}


def test_over_tls_with_user_and_password(run: Run, guarded: Guarded) -> None:
    port = guarded.start(*guarded.users, *guarded.tls)
    assert run("mqtts", port, ca_file="ca.pem", login_file="login") == UP
    assert run("mqtts", port, ca_file="ca.pem")["said"] == ["not authorised"]
    (said,) = run("mqtts", port, ca_file="other.pem", login_file="login")["said"]
    assert said.startswith("certificate not trusted")
    (said,) = run("mqtt", port, login_file="login")["said"]
    assert "TLS expected" in said
    assert run("mqtt", 1)["said"] == ["nobody listens there"]
    assert "ca_file" in run("mqtts", port, login_file="login")["refused"]
    login(guarded.folder / "login", password="wrong")
    assert run("mqtts", port, ca_file="ca.pem", login_file="login")["said"] == ["not authorised"]
    (guarded.folder / "login").chmod(0o644)
    assert "run chmod 600" in run("mqtts", port, ca_file="ca.pem", login_file="login")["refused"]


def test_a_client_certificate(run: Run, guarded: Guarded) -> None:
    port = guarded.start("allow_anonymous true", *guarded.tls, "require_certificate true")
    both = {"certificate_file": "client.pem", "key_file": "client.key"}
    assert run("mqtts", port, ca_file="ca.pem", **both) == UP
    (said,) = run("mqtts", port, ca_file="ca.pem")["said"]
    assert "client certificate" in said


def test_plain_with_user_and_password(run: Run, guarded: Guarded) -> None:
    port = guarded.start(*guarded.users)
    assert run("mqtt", port, login_file="login") == UP
    (said,) = run("mqtts", port, ca_file="ca.pem", login_file="login")["said"]
    assert said.startswith("no TLS there")
