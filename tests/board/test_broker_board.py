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
    guarded = Guarded(tmp_path)
    yield guarded
    if guarded.broker is not None:
        guarded.broker.stop(True)


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
        report: dict[str, Any] = json.loads(ended.stdout)
        return report

    return start


UP = {"reasons": [], "echo": "21.5 C"}


def test_over_tls_with_user_and_password(run: Run, guarded: Guarded) -> None:
    port = guarded.start(*guarded.users, *guarded.tls)
    assert run("mqtts", port, ca_file="ca.pem", login_file="login") == UP
    assert run("mqtts", port, ca_file="ca.pem")["reasons"] == ["not authorised"]
    (reason,) = run("mqtts", port, ca_file="other.pem", login_file="login")["reasons"]
    assert reason.startswith("certificate not trusted")
    (reason,) = run("mqtt", port, login_file="login")["reasons"]
    assert "TLS expected" in reason
    assert run("mqtt", 1)["reasons"] == ["nobody listens there"]
    assert "ca_file" in run("mqtts", port, login_file="login")["refused"]
    login(guarded.folder / "login", password="wrong")
    assert run("mqtts", port, ca_file="ca.pem", login_file="login")["reasons"] == [
        "not authorised"
    ]
    (guarded.folder / "login").chmod(0o644)
    assert "run chmod 600" in run("mqtts", port, ca_file="ca.pem", login_file="login")["refused"]


def test_a_client_certificate(run: Run, guarded: Guarded) -> None:
    port = guarded.start("allow_anonymous true", *guarded.tls, "require_certificate true")
    both = {"certificate_file": "client.pem", "key_file": "client.key"}
    assert run("mqtts", port, ca_file="ca.pem", **both) == UP
    (reason,) = run("mqtts", port, ca_file="ca.pem")["reasons"]
    assert "client certificate" in reason


def test_plain_with_user_and_password(run: Run, guarded: Guarded) -> None:
    port = guarded.start(*guarded.users)
    assert run("mqtt", port, login_file="login") == UP
    (reason,) = run("mqtts", port, ca_file="ca.pem", login_file="login")["reasons"]
    assert reason.startswith("no TLS there")
