"""The groups of a home, and the commands on them: without an agent, with errors in one line."""

import errno
import json
import os
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from drupelet.base.errors import DrupeletError, StorageError
from drupelet_host.base import clock
from drupelet_host.cli import app
from drupelet_host.clients.carriers import Carriers
from drupelet_host.clients.home_groups import checked, command_root, write_key
from drupelet_host.home import config
from drupelet_host.home.config import Config, Peer
from drupelet_host.member.member import Member


@pytest.fixture
def settings(tmp_path: Path) -> Config:
    peer = Peer("soil", b"soil", "serial:///dev/null")
    made = Config(tmp_path / "home", "a", b"aaaa", "orchard", 50, None, (peer,))
    config.create(made)
    return made


def run(*words: str) -> str:
    result = CliRunner().invoke(app.app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_command_is_in_the_log_for_the_board(settings: Config) -> None:
    home = str(settings.home)
    said = json.loads(run("command", "--home", home, "--json", "soil", "epoch", "60000"))
    assert said["counter"] > 0 and said["operation"] == "epoch"
    assert "is on its way" in run("command", "--home", home, "soil", "report")
    member = Member(settings)
    told = json.loads(run("command", "--home", home, "--json"))
    assert [(one["board"], one["operation"], one["value"]) for one in told] == [
        ("soil", "epoch", 60_000),
        ("soil", "report", 0),
    ]
    assert run("command", "--home", home, "soil").count("none yet") == 2
    assert run("command", "--home", home).splitlines()[1].split()[1:3] == ["soil", "epoch"]
    # It leaves over the peer's link like any message.
    live, frame, sent = member.live_link(settings.peers[0], 1, 0), bytearray(1024), 0
    for now_ms in range(0, 1000, 50):
        while live.link.poll_into(frame, now_ms):
            sent += 1
    assert sent > 0
    member.close(clock.now_ms())


def test_a_command_key_that_cannot_be_made_is_refused(
    settings: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent answers who asked; it must not end for a full disk below its keys."""

    write = os.write

    def full(fd: int, data: bytes) -> int:
        if os.readlink(f"/proc/self/fd/{fd}").startswith(str(settings.home / "keys")):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, data)

    member = Member(settings)
    monkeypatch.setattr(os, "write", full)
    said = ("soil", "report", 0)
    with pytest.raises(StorageError, match=r"commands\.key: cannot be written \(No space left"):
        member.clients.command(*said, clock.now_ms())
    monkeypatch.undo()
    assert list((settings.home / "keys").iterdir()) == []
    assert member.clients.command(*said, clock.now_ms())["counter"] > 0
    member.close(clock.now_ms())


@pytest.mark.parametrize("size", [0, 31])
def test_a_command_key_that_was_cut_short_is_no_key(settings: Config, size: int) -> None:
    """Anybody could guess the keys that follow from an empty one."""
    command_root(settings)
    os.truncate(settings.home / "keys" / "commands.key", size)
    with pytest.raises(StorageError, match=r"commands\.key: cut short"):
        command_root(settings)


def test_mistakes_are_one_line(settings: Config, tmp_path: Path) -> None:
    for words, line in (
        (("nobody", "report"), "no such peer"),
        (("soil", "dance"), "no such command"),
        (("soil", "epoch"), "takes 1 to"),
        (("soil", "report", "5"), "takes no value"),
        (("soil", "--key-to", str(tmp_path / "none")), "no such folder"),
    ):
        with pytest.raises(DrupeletError, match=line) as caught:
            run("command", "--home", str(settings.home), *words)
        assert "\n" not in str(caught.value)
    assert checked("sleep", 5) == 5


def test_the_command_key_is_the_owners_alone(settings: Config, tmp_path: Path) -> None:
    folder = tmp_path / "flash"
    folder.mkdir()
    path = write_key(settings, "soil", folder)
    assert path.read_bytes() == write_key(settings, "soil", folder).read_bytes()
    assert len(path.read_bytes()) == 32 and path.read_bytes() != command_root(settings)
    kept = settings.home / "keys" / "commands.key"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


def test_hosts_learn_each_others_carriers(settings: Config) -> None:
    member = Member(settings)
    groups = member.clients
    groups.announce(("mqtt://broker:1883/x",), 0)
    groups.announce(("mqtt://broker:1883/x",), 0)
    assert groups.carriers.known() == {b"aaaa": Carriers("a", ("mqtt://broker:1883/x",))}
    assert groups.feeds.known() == {}
    member.close(clock.now_ms())


def test_a_topic_names_the_same_group_everywhere() -> None:
    one, two = run("group", "topic", "#orchard"), run("group", "topic", "#orchard")
    assert one == two and len(one.strip()) == 64
    assert json.loads(run("group", "topic", "--json", "#other"))["group"] != one.strip()
