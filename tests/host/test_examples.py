"""The examples for a host, each as the process that its owner would start."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from drupelet_host.broker import Broker
from drupelet_host.home import config
from drupelet_host.home.config import Peer
from drupelet_host.keys import provision
from drupelet_host.member import family
from host import exported
from host.conftest import COMMAND, Home, wait_for
from host.influx_server import Influx
from naive import mvds, sds

EXAMPLES = Path(__file__).parents[2] / "examples"
A = 0xA0000001


@contextlib.contextmanager
def running(*words: str | Path, **options: Any) -> Iterator["subprocess.Popen[str]"]:
    """An example that goes on until Ctrl-C; it ends with 130 and no word on standard error."""
    with subprocess.Popen(
        [sys.executable, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, **options,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def test_publisher_and_subscriber(make_home: Callable[..., Home]) -> None:
    home = make_home("gate", A)
    home.start()
    program = EXAMPLES / "library" / "publisher.py"
    assert len(program.read_text().splitlines()) <= 12
    lines = '{"level_mm":1200}\n\n21.5\n'
    subprocess.run(
        [sys.executable, str(program), str(home.path)], input=lines, text=True, check=True,
        timeout=60,
    )  # fmt: skip
    wait_for(lambda: len(home.log()) == 2, "both in the log")
    subscriber = EXAMPLES / "library" / "subscriber.py"
    for expected in (['{"level_mm":1200}', "21.5"], ["the third"]):
        if expected == ["the third"]:
            home.put("the third")
        with running(subscriber, home.path) as process:
            assert process.stdout is not None
            for text in expected:
                line = process.stdout.readline().split()
                assert line[1:] == ["gate", *text.split()]
            # Its `done` follows the line.
            wait_for(lambda: _is_idle(process), "a subscriber that waits")


def _is_idle(process: "subprocess.Popen[str]") -> bool:
    threading.Event().wait(0.5)
    return process.poll() is None


def test_well_logger(tmp_path: Path) -> None:
    home, folder = tmp_path / "gate", tmp_path / "levels"
    folder.mkdir()
    readings = [
        b'{"board":"well","level_mm":1200}', b'{"board":"well","level_mm":90}',
        b'{"board":"well","level_mm":80}', b"not a level", b'{"level_mm":true}',
        b'{"board":"well","level_mm":900}',
    ]  # fmt: skip
    exported.fill(home, readings, 1_790_000_000_000)
    with running(EXAMPLES / "library" / "well_logger.py", home, folder, "100") as process:
        file = folder / "2026-09-21.txt"
        wait_for(lambda: file.exists() and file.read_text().count("\n") == 4, "four levels")
        wait_for(lambda: b"alarm: gate is at 90 mm" in _bodies(home), "an alarm")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130 and process.stderr is not None
        assert process.stderr.read() == ""
    levels = [line.split()[2] for line in file.read_text().splitlines()]
    assert levels == ["1200", "90", "80", "900"]
    assert sum(body.startswith(b"alarm") for body in _bodies(home)) == 1


def _bodies(home: Path) -> list[bytes]:
    from drupelet_host.view.log_view import LogView

    with contextlib.closing(LogView(home)) as view:
        return [entry.payload for entry in view.entries()]


class Foreign:
    """A node that knows the texts of MVDS alone, calling a bridge."""

    def __init__(self, port: int, group: bytes, node: mvds.Node) -> None:
        self.group = group
        self.node = node
        self.node.share(group, "bridge")
        self._socket = socket.create_connection(("127.0.0.1", port), 30)
        self._socket.settimeout(0.05)
        self._data = b""

    def publish(self, body: bytes) -> None:
        # A head of ours is not hashed and not sent: metadata has the parents.
        self.node.publish(mvds.Message(self.group, 1_790_000_000, body, ()), interactive=False)

    def turn(self) -> None:
        """One epoch: send what is due, take in what came."""
        self.node.epoch += 1
        for piece in self.node.payload("bridge").pieces(1000):
            self._socket.sendall(len(piece).to_bytes(4) + piece)
        with contextlib.suppress(TimeoutError):
            data = self._socket.recv(65536)
            assert data, "the bridge has hung up"
            self._data += data
        while len(self._data) >= 4:
            end = 4 + int.from_bytes(self._data[:4])
            if len(self._data) < end:
                break
            self.node.receive("bridge", self._data[4:end], interactive=False)
            self._data = self._data[end:]

    def bodies(self) -> set[bytes]:
        return {message.body for message in self.node.messages.values()}

    def close(self) -> None:
        self._socket.close()


def exchange(home: Path, node: mvds.Node, ours: bytes, theirs: bytes) -> int:
    """Bridge until both have each other's message and owe nothing; the malformed payloads."""
    with running(EXAMPLES / "library" / "mvds_bridge.py", home, "orchard") as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        foreign = Foreign(port, family.group_id(config.load(home)), node)
        foreign.publish(theirs)
        words = ["put", ours.decode(), "--home", str(home)]
        subprocess.run([*COMMAND, *words], check=True, timeout=60, capture_output=True)

        def is_over() -> bool:
            foreign.turn()
            have_both = ours in foreign.bodies() and theirs in _bodies(home)
            return have_both and node.is_idle("bridge")

        wait_for(is_over, "each other's messages")
        foreign.close()
    return node.malformed


def test_a_foreign_mvds_node_takes_part_over_tcp(tmp_path: Path) -> None:
    home, node = tmp_path / "bridge", mvds.Node(mvds.SILENT)
    for row in (b"0", b"1"):  # the bridge is killed and started again
        assert exchange(home, node, b"ours " + row, b"theirs " + row) == 0
    expected = [b"ours 0", b"ours 1", b"theirs 0", b"theirs 1"]
    assert sorted(message.body for message in node.messages.values()) == expected
    assert sorted(_bodies(home)) == expected


class ForeignSds:
    """A participant that knows the texts of SDS alone, calling a bridge."""

    def __init__(self, port: int, node: sds.Participant) -> None:
        self.node = node
        self._socket = socket.create_connection(("127.0.0.1", port), 30)
        self._socket.settimeout(0.05)
        self._data = b""

    def turn(self) -> None:
        """Send what is due, take in what came."""
        now = int(time.time())
        for frame in self.node.frames(now, now):
            self._socket.sendall(len(frame).to_bytes(4) + frame)
        with contextlib.suppress(TimeoutError):
            data = self._socket.recv(65536)
            assert data, "the bridge has hung up"
            self._data += data
        while len(self._data) >= 4:
            end = 4 + int.from_bytes(self._data[:4])
            if len(self._data) < end:
                break
            self.node.receive(self._data[4:end], now)
            self._data = self._data[end:]

    def contents(self) -> list[bytes]:
        return [message.content for message in self.node.log]

    def close(self) -> None:
        self._socket.close()


def test_a_foreign_sds_node_takes_part_through_the_bridge(
    tmp_path: Path, make_home: Callable[..., Home], broker: Broker
) -> None:
    url = broker.start() + "/t"
    folder = tmp_path / "bridge"
    program = (EXAMPLES / "library" / "sds_bridge.py", folder, "orchard", url)
    with running(*program) as process:
        assert process.stdout is not None and int(process.stdout.readline())
    bridge = config.load(folder)
    member = make_home("gate", A, Peer("bridge", bridge.id, url, "interactive", 50))
    with (member.path / "drupelet.toml").open("a") as file:
        file.write(f'\n[[channels]]\nname = "field"\nurl = "{url}"\nperiod_ms = 1000\n')
    config.add_peer(folder, Peer("gate", member.id, url, "interactive", 50))
    provision.provision(
        provision.HomeKeys(member.path / "keys", member.id, bridge.id),
        provision.HomeKeys(folder / "keys", bridge.id, member.id), 8, issuer=True,
    )  # fmt: skip
    member.start("--wait")
    node = sds.Participant("nina", "foreign", "sds-nim")
    expected: list[bytes] = []
    for row in range(2):  # the bridge is killed and started again
        with running(*program) as process:
            assert process.stdout is not None
            foreign = ForeignSds(int(process.stdout.readline()), node)
            expected += [b"ours %d" % row, b"theirs %d" % row]
            done = member.run("channel", "put", "field", expected[-2].decode())
            assert done.returncode == 0, done.stderr
            node.publish(expected[-1], int(time.time()))

            def is_over(foreign: ForeignSds = foreign, texts: list[bytes] = expected) -> bool:
                foreign.turn()
                told = [event["text"].encode() for event in member.events("channel")]
                return sorted(told) == sorted(foreign.contents()) == sorted(texts)

            wait_for(is_over, "each other's messages")
            foreign.close()
    assert node.unread == 0


def test_export_to_influxdb(tmp_path: Path) -> None:
    server = Influx(tmp_path / "influx")
    home = tmp_path / "gate"
    exported.fill(home, [b'{"level_mm":1200}', b"21.5"])
    (tmp_path / "drupelet").write_text(f'#!/bin/sh\nexec {sys.executable} -m drupelet_host "$@"\n')
    (tmp_path / "drupelet").chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    words = [EXAMPLES / "influxdb" / "export.sh", home, f"http://127.0.0.1:{server.port}", "farm"]
    try:
        for count in (2, 3):
            with subprocess.Popen([str(word) for word in words], env=environment) as process:
                wait_for(
                    lambda count=count: (
                        process.poll() is None
                        and b'"farm"' in server.request("/query?q=SHOW+DATABASES")
                        and len(server.ids()) == count
                    ),
                    "the points",
                )
                process.kill()
            exported.fill(home, [b"another"])
    finally:
        server.stop()


def test_every_example_for_a_host_runs_in_a_test() -> None:
    text = Path(__file__).read_text()
    programs = [*(EXAMPLES / "library").glob("*"), *(EXAMPLES / "influxdb").glob("*")]
    assert len([path for path in programs if path.is_file()]) == 6
    assert all(f'"{path.name}"' in text for path in programs if path.is_file())


@pytest.mark.parametrize("name", ["well_logger", "mvds_bridge", "sds_bridge"])
def test_an_example_is_a_module_without_effect(name: str) -> None:
    import importlib.util

    spec = importlib.util.spec_from_file_location(name, EXAMPLES / "library" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert asyncio.iscoroutinefunction(module.main)
