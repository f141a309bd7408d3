"""What commands ask of the agent over its socket: bounded, and nobody blocks another."""

import json
import os
import socket
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from drupelet.base.errors import CapacityError, PeerError
from drupelet_host.agent import request_server
from drupelet_host.agent.loop import Agent
from drupelet_host.agent.request_server import CLIENT_MS_MAX, CLIENTS_MAX, RequestServer
from drupelet_host.base import clock
from drupelet_host.base.output import Output
from drupelet_host.cli import app, publishing
from drupelet_host.home import config
from drupelet_host.home.config import Config, Peer
from drupelet_host.member.report_shapes import MemberReport
from drupelet_host.requests import client, shapes
from drupelet_host.requests.socket_path import SOCKET_NAME, socket_address
from drupelet_host.store import database, outbox
from drupelet_host.view.status_shapes import PeerStatus
from host.conftest import Home, wait_for

MakeHome = Callable[..., Home]


@pytest.fixture
def settings(tmp_path: Path) -> Config:
    made = Config(tmp_path / "home", "a", b"aaaa", "orchard", 50)
    config.create(made)
    return made


@pytest.fixture
def connection(settings: Config) -> Iterator[sqlite3.Connection]:
    with closing(database.connect(settings.store_path)) as made:
        yield made


@pytest.fixture
def server(settings: Config) -> Iterator[RequestServer]:
    with closing(RequestServer(settings.home)) as made:
        yield made


def connect(home: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    with socket_address(home) as address:
        made.connect(address)  # waits for room in the queue; with a timeout it would not
    made.settimeout(10)
    return made


def serve(server: RequestServer, now_ms: int = 0) -> list[Any]:
    """One turn; the requests that it had, each answered by its number in the list."""
    server.take_in(now_ms)
    requests = []
    for one, request in server.requests(now_ms):
        requests.append(request)
        server.answer(one, {"number": len(requests)}, now_ms)
    return requests


# --- the shapes ---


@pytest.mark.parametrize(
    "request_",
    [
        shapes.AskStatus(), shapes.VisitStick("/media/ä"), shapes.Reload(),
        shapes.ChangeKeys("rotate", "b"), shapes.TellBoard("soil", "epoch", 500),
        shapes.SayOnChannel("chat", b"\xff\x80 valve"), shapes.Push("/x"), shapes.Pull("/x"),
    ],
)  # fmt: skip
def test_a_request_is_one_line_and_reads_back(request_: shapes.Request) -> None:
    line = shapes.encode(request_)
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    assert shapes.decode(line) == request_


@pytest.mark.parametrize(
    "line",
    [
        b"", b"{}", b"[]", b"null", b"\xff\xfe", b'{"do": "format"}', b'{"do": "stick"}',
        b'{"do": "stick", "path": 7}', b'{"do": "reload", "and": 1}', b'{"do": "command"}',
        b'{"do": "stick", "path": ""}', b'{"do": "stick", "path": "/a\\u0000"}',
        b'{"do": "push", "folder": "\\u0000"}', b'{"do": "pull", "folder": ""}',
        b'{"do": "channel", "channel": "c", "content": "not base64!"}', b"[" * 60000,
    ],
)  # fmt: skip
def test_what_is_no_request_is_refused(line: bytes) -> None:
    with pytest.raises(PeerError, match="not a request"):
        shapes.decode(line)


# --- the server ---


def test_the_socket_is_for_its_owner_and_goes_with_the_agent(settings: Config) -> None:
    path = settings.home / SOCKET_NAME
    server = RequestServer(settings.home)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    server.close()
    assert not path.exists()
    # One that was killed leaves its socket; the next one takes its place.
    with socket.socket(socket.AF_UNIX) as killed, socket_address(settings.home) as address:
        killed.bind(address)
    assert path.exists()
    again = RequestServer(settings.home)
    with connect(settings.home) as one:
        one.sendall(shapes.encode(shapes.Reload()))
        assert serve(again) == [shapes.Reload()]
    again.close()
    assert not path.exists()


def test_many_lines_of_one_client_are_answered_in_order(
    settings: Config, server: RequestServer
) -> None:
    with connect(settings.home) as one:
        one.sendall(b"".join(shapes.encode(shapes.VisitStick(str(n))) for n in range(3)))
        paths = [request.path for _ in range(3) for request in serve(server)]
        assert paths == ["0", "1", "2"]
        assert one.recv(1000) == b'{"number":1}\n' * 3


def test_who_hung_up_before_its_request_was_begun_gets_nothing_done(
    settings: Config, server: RequestServer
) -> None:
    """Its user pressed Ctrl-C behind a long request, was told nothing, and asks again."""
    with connect(settings.home) as other, connect(settings.home) as gone:
        other.sendall(shapes.encode(shapes.Push("/slow")))
        server.take_in(0)
        gone.sendall(shapes.encode(shapes.SayOnChannel("chat", b"pump off")))
        server.take_in(0)
        done = []
        for one, request in server.requests(0):
            done.append(request)
            gone.close()  # while the first one is done
            server.answer(one, {}, 0)
        assert done == [shapes.Push("/slow")]
        assert other.recv(1000) == b"{}\n"


def test_garbage_gets_one_line_and_harms_nobody(settings: Config, server: RequestServer) -> None:
    with connect(settings.home) as bad, connect(settings.home) as good:
        bad.sendall(b"GET / HTTP/1.1\r\n\x1b[2J\n")
        good.sendall(shapes.encode(shapes.AskStatus()))
        assert serve(server) == [shapes.AskStatus()]
        assert b"not a request" in bad.recv(1000)
        assert good.recv(1000) == b'{"number":1}\n'


def test_a_line_without_an_end_is_cut_off(settings: Config, server: RequestServer) -> None:
    with connect(settings.home) as endless:
        endless.setblocking(False)
        sent = 0
        is_cut = False
        while not is_cut and sent < 8 * shapes.REQUEST_SIZE_MAX:
            try:
                sent += endless.send(b"x" * 8192)
            except BlockingIOError:
                serve(server)
            except OSError:
                is_cut = True
        assert is_cut
    assert len(server.descriptors()) == 1


def test_who_hangs_loses_its_place_in_time(settings: Config, server: RequestServer) -> None:
    """Also who sends a byte now and then, and who does not take its answer."""
    with connect(settings.home) as slow, connect(settings.home) as deaf:
        deaf.sendall(shapes.encode(shapes.AskStatus()))
        server.take_in(0)
        for one, _ in server.requests(0):
            server.answer(one, {"much": "x" * 4_000_000}, 0)
        for now_ms in range(0, CLIENT_MS_MAX, 1000):
            slow.sendall(b" ")
            server.take_in(now_ms)
        assert len(server.descriptors()) == 3
        server.take_in(CLIENT_MS_MAX + 1)
        assert len(server.descriptors()) == 1


def test_one_client_too_many_takes_the_place_of_a_silent_one(
    settings: Config, server: RequestServer
) -> None:
    crowd = [connect(settings.home) for _ in range(CLIENTS_MAX)]
    server.take_in(0)
    assert len(server.descriptors()) == 1 + CLIENTS_MAX
    with connect(settings.home) as late:
        late.sendall(shapes.encode(shapes.Reload()))
        requests = serve(server) + serve(server)
        assert requests == [shapes.Reload()]
        assert late.recv(100) == b'{"number":1}\n'
    assert crowd[0].recv(1) == b""
    for one in crowd:
        one.close()


def test_a_home_without_sockets_says_so(settings: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(request_server.os, "chmod", refuse)
    with pytest.raises(Exception, match=r"agent\.sock: commands cannot be listened to.*Operation"):
        RequestServer(settings.home)


# --- asking ---


def test_an_agent_that_starts_just_now_is_waited_for(settings: Config) -> None:
    """It has the home before it has a socket."""

    def start() -> None:
        time.sleep(0.2)
        with closing(RequestServer(settings.home)) as server:
            while not serve(server):
                time.sleep(0.01)

    with config.lock(settings.home):
        thread = threading.Thread(target=start)
        thread.start()
        assert client.ask(settings, shapes.Reload(), "peers") == {"number": 1}
        thread.join()


def test_without_an_answer_there_is_one_line(settings: Config) -> None:
    with pytest.raises(client.NoAnswerError, match="/usb: the agent gave no answer; look at"):
        client.ask(settings, shapes.VisitStick("/usb"), "/usb")
    with (
        config.lock(settings.home), closing(RequestServer(settings.home)),
        pytest.raises(client.NoAnswerError),
    ):  # fmt: skip
        client.ask(settings, shapes.VisitStick("/usb"), "/usb", wait_s=0.1)


@pytest.mark.parametrize("answer", [b"[]\n", b"no\n", b'{"peers": 7}\n'])
def test_an_answer_that_is_none_is_not_believed(settings: Config, answer: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        with socket_address(settings.home) as address:
            listener.bind(address)
        listener.listen()

        def reply() -> None:
            one, _ = listener.accept()
            with one:
                one.recv(1000)
                one.sendall(answer)

        thread = threading.Thread(target=reply)
        thread.start()
        assert client.live_status(settings) == MemberReport()
        thread.join()


# --- agents as processes ---


@pytest.mark.usefixtures("make_home")
def test_an_agent_is_asked_over_a_path_of_any_length(tmp_path: Path) -> None:
    """The kernel takes 107 bytes of a socket's path; a home may be deeper than that."""
    (tmp_path / ("d" * 200)).mkdir()
    home = Home(tmp_path / ("d" * 200) / "home", "a", b"aaaa")
    Home.made.append(home)
    home.start()
    assert home.run("status", "--json").stdout.count('"running": true') == 1
    assert home.status()["said_ms"] > 0
    assert home.run("peer", "add", "b", "b0000002", "stick:").stdout.endswith("the agent knows\n")
    home.stop()
    assert not (home.path / SOCKET_NAME).exists()


def test_a_killed_agent_is_noticed_and_its_socket_replaced(make_home: MakeHome) -> None:
    home = make_home("a", 1)
    home.start()
    home.kill()
    assert (home.path / SOCKET_NAME).exists()
    assert not home.status()["running"]
    assert home.run("put", "after it").returncode == 0
    home.start()
    wait_for(home.log, "what was left for the next agent")
    home.stop()


def test_put_is_published_at_once_although_the_agent_sleeps(make_home: MakeHome) -> None:
    """An epoch takes a minute here, and letters are looked for once a second."""
    home = make_home("a", 1)
    path = home.path / config.CONFIG_NAME
    path.write_text(path.read_text().replace("epoch_ms = 50", "epoch_ms = 60000"))
    home.start("--wait", **{"drupelet_host.agent.loop.LOOK_MS": 60_000})
    begun = time.monotonic()
    assert home.run("put", "now").returncode == 0
    wait_for(home.log, "the message in the log")
    assert time.monotonic() - begun < 20
    # Nor is SIGTERM waited with.
    assert home.stop() < 20


def test_clients_that_hang_do_not_keep_others_from_the_agent(make_home: MakeHome) -> None:
    home = make_home("a", 1)
    home.start()
    hanging = [connect(home.path) for _ in range(3 * CLIENTS_MAX)]
    for one in hanging[::2]:
        try:
            one.sendall(os.urandom(5000).replace(b"\n", b""))
        except OSError:
            continue  # it has given way already
    assert '"running": true' in home.run("status", "--json").stdout
    assert home.run("put", "beside them").returncode == 0
    wait_for(home.log, "the message")
    for one in hanging:
        one.close()
    home.stop()


def test_the_status_file_is_written_when_the_log_grows_and_not_before(
    make_home: MakeHome,
) -> None:
    home = make_home("a", 1, Peer("b", b"\xb0\0\0\2", "stick:"))
    home.start()
    path = home.path / "status.json"
    wait_for(lambda: home.status()["said_ms"], "word of the agent")
    before = path.read_bytes()
    first_ms = home.status()["said_ms"]
    wait_for(lambda: home.status()["said_ms"] > first_ms + 500, "ten epochs")
    assert path.read_bytes() == before
    home.put("it grows")
    wait_for(lambda: path.read_bytes() != before, "a new status file")
    assert json.loads(path.read_text())["store"]["handle"] > 0
    home.stop()


@pytest.mark.parametrize("runs", [False, True])
def test_a_full_outbox_says_what_is_true(
    settings: Config, connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, runs: bool
) -> None:
    monkeypatch.setattr(outbox, "OUTBOX_MAX", 2)
    monkeypatch.setattr(config, "locked", lambda _: runs)
    for _ in range(2):
        publishing.post(connection, b"x", settings.home, wait=False)
    expected = "the agent is behind.* --wait" if runs else "start the agent first"
    with pytest.raises(CapacityError, match=expected):
        publishing.post(connection, b"x", settings.home, wait=False)
    if runs:

        def make_room(_: float) -> None:
            connection.execute("DELETE FROM outbox")

        # Not the module's own `time`, which other threads of this process have, too.
        monkeypatch.setattr(publishing, "time", SimpleNamespace(sleep=make_room))
        assert publishing.post(connection, b"x", settings.home, wait=True) > 0


def test_the_carrier_is_connected_and_the_peer_is_heard_or_not() -> None:
    def carrier(state: str) -> str:
        peer = PeerStatus(
            "b0000002", {}, state=state, name="b", url="stick:", profile="bsp-1", mode="batch"
        )
        return app.carrier_state(peer)

    assert (carrier("up"), carrier("down")) == ("connected", "down")
    assert clock.age_text(0) == "never"


def test_an_unknown_change_of_keys_is_refused(settings: Config) -> None:
    agent = Agent(settings, Output(True), True)
    assert "does not know" in agent.change_keys("sell", "b")["error"]
    agent.channels.close()
    agent.member.close(clock.now_ms())
    agent.member.sealing.close()
