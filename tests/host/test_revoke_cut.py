"""A `revoke` that is cut, or whose disk is full, between two writes: nobody stays half trusted."""

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drupelet.base.errors import OK, StorageError
from drupelet.channel.sender_keys import SenderKeys
from drupelet.seal.record import RECORD_SIZE
from drupelet_host.agent.brokers import Brokers
from drupelet_host.agent.loop import Agent
from drupelet_host.agent.topics import SharedKeys, Topics
from drupelet_host.base.aead import Aead
from drupelet_host.base.output import Output
from drupelet_host.home import config, private_files
from drupelet_host.home.config import Config, Peer, Shared
from drupelet_host.keys import overview, rotate_revoke
from drupelet_host.keys.key_folder import HostKeys
from drupelet_host.keys.sealing import RevokedError, Sealing
from drupelet_host.keys.sender_keys_file import ROWS, SenderFile
from drupelet_host.view.doctor import examine
from helpers import Draw, Member
from host.conftest import Home, share_keys

MakeHome = Callable[..., Home]
A, C = 0xA0000001, 0xC0000003
C_ID = C.to_bytes(4)
# Nobody listens there: what is tested needs no carrier.
URL = "mqtt://127.0.0.1:9/t"


class Cut(BaseException):
    """The power goes."""


def allow(patch: pytest.MonkeyPatch, writes: int, failure: BaseException) -> None:
    """From now on so many files are written, and the next one fails."""
    real, numbers = private_files.replace, itertools.count()

    def replace(path: Path, content: bytes) -> None:
        if next(numbers) >= writes:
            raise failure
        real(path, content)

    patch.setattr(private_files, "replace", replace)


def random_byte() -> int:
    return os.urandom(1)[0]


def started(settings: Config) -> Topics:
    """The topics of an agent that has just been started, without their carriers."""
    member = Member("A", Draw(1))
    topics = Topics(
        cast(Any, SimpleNamespace(config=settings, node=member.node, readings=member.group)),
        Brokers(),
        lambda _line: None,
    )
    keys = SharedKeys(settings, Shared("field", URL), b"\1\2\3\4")
    topics.add(cast(Any, SimpleNamespace(keys=keys)))
    return topics


def meet(keys: SharedKeys, folder: Path, back: bool = True) -> SenderKeys:
    """The sender keys of c, after both have handed theirs to each other; or a only its own."""
    port = SenderFile(folder / "keys/01020304.senders")
    port.open()
    theirs = SenderKeys(Aead(), port, C_ID, random_byte, ROWS - 1)
    record = bytearray(RECORD_SIZE)
    assert theirs.create() == OK
    keys.keys.record_into(record, 0)
    assert theirs.admit(record, 0) == OK
    theirs.record_into(record, 0)
    if back:
        assert keys.keys.admit(record, 0) == OK
    return theirs


def reads(theirs: SenderKeys, topics: Topics) -> bool:
    """Whether c can read what we send now."""
    out = bytearray(64)
    size = topics.lines[0].keys.keys.seal_into(out, b"secret", 6)
    return size > 0 and theirs.open(out, size, 0) > 0


@pytest.fixture
def revoked(make_home: MakeHome) -> tuple[Config, Topics, SenderKeys]:
    """a, which has just revoked c's keys, its topics, and what c has."""
    a = make_home("a", A, Peer("c", C_ID, URL))
    c = make_home("c", C, Peer("a", a.id, URL))
    share_keys(a, c)
    settings = config.load(a.path)
    topics = started(settings)
    theirs = meet(topics.lines[0].keys, c.path)
    assert reads(theirs, topics)
    keys = HostKeys(settings.keys_path, a.id, C_ID)
    assert keys.mark_revoked(0) == OK
    keys.close()
    return settings, topics, theirs


@pytest.mark.parametrize("writes", [0, 1, 2])
def test_a_cut_between_the_writes_leaves_the_rest_to_the_next_start(
    revoked: tuple[Config, Topics, SenderKeys], monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """The first write drops c's chain. It must not say yet that c is shut out of ours."""
    settings, topics, theirs = revoked
    with monkeypatch.context() as patch:
        allow(patch, writes, Cut())
        if writes < 2:
            with pytest.raises(Cut):
                topics.revoked(C_ID)
        else:
            topics.revoked(C_ID)
    for _ in range(2):
        assert not reads(theirs, started(settings))


def test_what_a_full_disk_kept_from_being_done_is_done_when_it_is_repeated(
    revoked: tuple[Config, Topics, SenderKeys], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, topics, theirs = revoked
    with monkeypatch.context() as patch:
        allow(patch, 1, StorageError("no space"))
        with pytest.raises(StorageError, match="no space"):
            topics.revoked(C_ID)
    topics.revoked(C_ID)
    assert not reads(theirs, topics)
    assert not reads(theirs, started(settings))


@pytest.mark.parametrize("writes", [0, 1, 2])
def test_who_was_removed_while_no_agent_ran_reads_no_more(
    make_home: MakeHome, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    a = make_home("a", A, Peer("c", C_ID, URL), Peer("d", b"dddd", URL))
    c = make_home("c", C, Peer("a", a.id, URL))
    share_keys(a, c)
    theirs = meet(started(config.load(a.path)).lines[0].keys, c.path)
    config.remove_peer(a.path, "c")
    settings = config.load(a.path)
    with monkeypatch.context() as patch:
        allow(patch, writes, StorageError("no space"))
        if writes < 2:
            with pytest.raises(StorageError):
                started(settings)
    topics = started(settings)
    assert not reads(theirs, topics)
    out = bytearray(64)
    size = theirs.seal_into(out, b"hello", 5)
    assert topics.lines[0].keys.keys.open(out, size, 0) < 0


def test_who_has_our_chain_and_gave_none_reads_no_more_when_it_is_removed(
    make_home: MakeHome,
) -> None:
    """And whoever is still there keeps the chain: a start by itself begins none."""
    a = make_home("a", A, Peer("c", C_ID, URL), Peer("d", b"dddd", URL))
    c = make_home("c", C, Peer("a", a.id, URL))
    share_keys(a, c)
    settings = config.load(a.path)
    topics = started(settings)
    theirs = meet(topics.lines[0].keys, c.path, back=False)
    assert reads(theirs, topics)
    config.remove_peer(a.path, "d")
    topics = started(config.load(a.path))
    assert not reads(theirs, topics), "it was told that chain, too"
    record = bytearray(RECORD_SIZE)
    topics.lines[0].keys.keys.record_into(record, 0)
    assert theirs.admit(record, 0) == OK
    assert reads(theirs, started(config.load(a.path)))
    config.remove_peer(a.path, "c")
    for _ in range(2):
        assert not reads(theirs, started(config.load(a.path)))


def test_a_peer_that_is_removed_under_a_running_agent_costs_one_chain(
    revoked: tuple[Config, Topics, SenderKeys],
) -> None:
    settings, topics, _ = revoked
    topics.revoked(C_ID)
    record, later = bytearray(RECORD_SIZE), bytearray(RECORD_SIZE)
    topics.lines[0].keys.keys.record_into(record, 0)
    config.remove_peer(settings.home, "c")
    started(config.load(settings.home)).lines[0].keys.keys.record_into(later, 0)
    assert record == later


def test_a_file_of_an_earlier_version_is_taken_up(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "01020304.senders"
    port = SenderFile(path)
    port.open()
    port.out = [C_ID]
    assert port.keep() == OK
    private_files.replace(path, path.read_bytes()[:-1])
    again = SenderFile(path)
    again.open()
    assert (again.out, again.heard) == ([C_ID], [])
    again.heard = [b"dddd", b"eeee"]
    assert again.keep() == OK
    port.open()
    assert (port.out, port.heard) == ([C_ID], [b"dddd", b"eeee"])


def test_who_was_shut_out_and_let_in_again_is_shut_out_again(
    revoked: tuple[Config, Topics, SenderKeys],
) -> None:
    _, topics, theirs = revoked
    keys = topics.lines[0].keys
    topics.revoked(C_ID)
    keys.welcome(C_ID)
    keys.distribution.readmit(keys.distribution.row(C_ID))
    record = bytearray(RECORD_SIZE)
    keys.keys.record_into(record, 0)
    assert theirs.admit(record, 0) == OK and reads(theirs, topics)
    topics.revoked(C_ID)
    assert not reads(theirs, topics)


def test_a_cut_between_cables_and_sticks_leaves_neither(
    make_home: MakeHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each class has a file of its own: after the first, `revoke` is not done, and says so."""
    a = make_home("a", A, Peer("c", C_ID, "stick:"))
    share_keys(a, make_home("c", C, Peer("a", a.id, "stick:")))
    settings = config.load(a.path)
    with monkeypatch.context() as patch:
        allow(patch, 1, Cut())
        sealing = Sealing(settings, 1)
        with pytest.raises(Cut):
            rotate_revoke.revoke(settings, sealing, "c")
        sealing.close()
    (row,) = overview.peer_rows(settings)
    assert row["keys"] == "damaged" and "repeat `drupelet revoke`" in row["note"]
    (check,) = [check for check in examine(a.path) if check.name == "keys"]
    assert check.remedy == "`drupelet revoke c`"
    sealing = Sealing(settings, 1)
    for seal_of in (sealing.live, sealing.bundle):
        with pytest.raises(RevokedError, match="c: was revoked"):
            seal_of(settings.peers[0])
    rotate_revoke.revoke(settings, sealing, "c")
    sealing.close()
    (row,) = overview.peer_rows(settings)
    assert row["keys"] == "revoked" and row["note"] == ""


@pytest.mark.parametrize("is_revoked", [False, True])
def test_a_peer_that_is_removed_and_added_again_is_handed_the_keys_of_a_channel(
    make_home: MakeHome, is_revoked: bool
) -> None:
    """Under one agent; unless it was revoked: then it stays out until it has new keys."""
    peer = Peer("c", C_ID, URL, epoch_ms=50)
    a = make_home("a", A, peer)
    share_keys(a, make_home("c", C))
    with (a.path / "drupelet.toml").open("a") as file:
        file.write(f'\n[[channels]]\nname = "chat"\nurl = "{URL}"\n')
    agent = Agent(config.load(a.path), Output(True), True)
    agent.member.commit()
    keys = agent.channels.lines[0].keys
    if is_revoked:
        assert "error" not in agent.change_keys("revoke", "c")
    for change in (lambda: config.remove_peer(a.path, "c"), lambda: config.add_peer(a.path, peer)):
        change()
        assert "error" not in agent.reload()
    row = keys.distribution.row(C_ID)
    assert keys.distribution.is_excluded(row) == keys.was_shut_out(C_ID) == is_revoked
    assert keys.distribution.is_due(row, 0) is not is_revoked
    assert agent.lines[0].distributions == [(keys.distribution, row)]
    agent.channels.close()
    agent.member.close(0)
    agent.member.sealing.close()
