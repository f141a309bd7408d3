"""A mailbox and the history of channels at an agent that serves: calls that may get lost."""

import random
import sqlite3
from pathlib import Path

import pytest

from drupelet.base.errors import CapacityError, PeerError, StorageError
from drupelet_host.base import clock
from drupelet_host.channel.store_node import StoreNode, catch_up
from drupelet_host.remote.content_store import CONTENT_SIZE_MAX
from drupelet_host.remote.helpers import MAIL_KEPT_S, Helpers, RemoteHistory, RemoteMail
from drupelet_host.remote.log_bytes import put_field
from drupelet_host.remote.mailbox import MailReader, MailServer, MailWriter, open_mail
from drupelet_host.remote.store_service import (
    ASK,
    KEEP,
    MESSAGE,
    SINCE,
    StoreClient,
    StoreService,
    frames_of,
)
from drupelet_host.store.channel_database import ChannelDatabase
from helpers_channel import CHANNEL, START_MS, Talker, wire
from helpers_remote import KEYS, Device
from host.remote_store_wire import CLIENT, KEY, Wire, memory
from opened import opened


def mailbox() -> MailServer:
    return MailServer(opened(sqlite3.connect(":memory:", isolation_level=None)))


def client_of(
    mail: MailServer | None = None, history: StoreNode | None = None, loss: float = 0.0
) -> StoreClient:
    helpers = Helpers(mail or mailbox(), history)
    return StoreClient(Wire(StoreService(memory(), KEY, helper=helpers), loss), KEY, CLIENT)


def test_mail_goes_through_calls_that_are_lost() -> None:
    ann, ben = Device(), Device()
    for number in range(40):
        ann.put(b"%d" % number * (900 if number % 9 == 0 else 1))
    ann.put(b"x" * 30_000)
    box = RemoteMail(client_of(loss=0.05))
    assert MailWriter(ann.node, ann.group, KEYS).turn(box, 0) == 41
    reader = MailReader(ben.node, ben.group, {KEYS.name: (KEYS, ben.link())})
    while reader.turn(box, 0):
        pass
    assert ben.log() == ann.log() and reader.unread == 0
    # A call that is repeated is done once.
    assert box.keep(KEYS.name + b"sealed", 0) and not box.keep(KEYS.name + b"sealed", 0)


def test_an_answer_holds_what_fits_and_the_rest_comes_next() -> None:
    mail = mailbox()
    box = RemoteMail(client_of(mail))
    rng = random.Random(1)
    kept = [KEYS.name + rng.randbytes(CONTENT_SIZE_MAX // 3) for _ in range(7)]
    for envelope in kept:
        box.keep(envelope, 0)
    found, after = [], 0
    while some := box.ask([KEYS.name], after=after):
        assert 1 <= len(some) <= 3
        found += [one.envelope for one in some]
        after = some[-1].entry
    assert found == kept
    now_s = clock.wall_ms() // 1000
    assert box.ask([KEYS.name], now_s + 100) == [] == box.ask([KEYS.name], 0, now_s - 100)
    assert len(box.ask([KEYS.name], now_s - 100, now_s + 100)) >= 1
    assert box.ask([]) == []


def test_old_mail_goes_and_a_new_file_goes_on_behind_an_old_one(tmp_path: Path) -> None:
    mail = mailbox()
    old_s = clock.wall_ms() // 1000 - MAIL_KEPT_S - 10
    mail.keep(KEYS.name + b"old", old_s)
    box = RemoteMail(client_of(mail))
    assert len(box.ask([KEYS.name])) == 1
    box.keep(KEYS.name + b"new", 0)
    assert [one.envelope for one in box.ask([KEYS.name])] == [KEYS.name + b"new"]
    first, second = open_mail(tmp_path / "mail.db"), open_mail(tmp_path / "other.db")
    for one in (first, second):
        one.keep(KEYS.name + b"a", 1)
    assert min(one.ask([KEYS.name])[0].entry for one in (first, second)) > 1_700_000_000_000
    first.close()
    again = open_mail(tmp_path / "mail.db")
    again.keep(KEYS.name + b"b", 1)
    entries = [kept.entry for kept in again.ask([KEYS.name])]
    assert entries[1] == entries[0] + 1
    again.close()
    second.close()
    (tmp_path / "mail.db").write_bytes(b"no database" * 100)
    with pytest.raises(StorageError, match=r"mail\.db: it is not a database"):
        open_mail(tmp_path / "mail.db")


@pytest.mark.parametrize(
    "behind_s", [40 * 86_400, clock.wall_ms() // 1000 - 60], ids=["forty days", "since 1970"]
)
def test_mail_survives_a_clock_that_is_set(monkeypatch: pytest.MonkeyPatch, behind_s: int) -> None:
    """A board without a battery boots with the time of its last stop, or in 1970."""
    mail, wall_ms = mailbox(), clock.wall_ms
    true_s = wall_ms() // 1000
    mail.keep(KEYS.name + b"of last week", true_s - 7 * 86_400)
    monkeypatch.setattr(clock, "wall_ms", lambda: wall_ms() - behind_s * 1000)
    helpers = Helpers(mail, None)
    assert helpers.do(KEEP, [(1, KEYS.name + b"before")]) == b""
    monkeypatch.setattr(clock, "wall_ms", wall_ms)
    for word in (b"after", b"later"):
        assert helpers.do(KEEP, [(1, KEYS.name + word)]) == b""
    found = {one.envelope[len(KEYS.name) :]: one.came_s for one in mail.ask([KEYS.name])}
    assert {b"before", b"of last week", b"after", b"later"} <= set(found)
    assert abs(found[b"before"] - true_s) < 3600 > abs(found[b"after"] - true_s)


def test_mail_of_a_clock_that_was_never_set_is_bounded_by_its_number() -> None:
    """Its time says nothing: the board was started again before it knew the right one."""
    mail = mailbox()
    mail.keep(KEYS.name + b"of 1970", 60)
    assert Helpers(mail, None).do(KEEP, [(1, KEYS.name + b"now")]) == b""
    assert len(mail.ask([KEYS.name])) == 2


def test_history_is_asked_by_id_hint_and_time(tmp_path: Path) -> None:
    node = StoreNode(opened(ChannelDatabase(tmp_path / "node.db")))
    for number in range(30):
        causal = (b"m%02d" % (number - 1),) if number else ()
        frame = wire(
            b"m%02d" % number, lamport=START_MS + number, causal=causal, hint=b"h%d" % number
        )
        node.hear(bytes(frame))
    there = RemoteHistory(client_of(history=node, loss=0.05))
    for id in (b"m00", b"m29", b"none"):
        assert there.by_id(CHANNEL, id) == node.by_id(CHANNEL, id)
    assert there.by_hint(CHANNEL, b"h5") == node.by_id(CHANNEL, b"m04")
    assert there.by_hint(CHANNEL, b"none") is there.by_id(b"other", b"m00") is None
    assert there.since(CHANNEL, 0) == node.since(CHANNEL, 0)
    assert there.since(CHANNEL, START_MS + 20, b"m20") == node.since(
        CHANNEL, START_MS + 20, b"m20"
    )
    nobody = RemoteHistory(client_of())
    assert nobody.by_id(CHANNEL, b"m00") is None and nobody.since(CHANNEL, 0) == []


def test_a_participant_catches_up_over_calls(tmp_path: Path) -> None:
    node = StoreNode(opened(ChannelDatabase(tmp_path / "node.db")))
    ann, ben = Talker(), Talker(b"ben", incoming_max=64)
    for number in range(12):
        ann.publish(b"x", b"m%02d" % number)
        [said] = ann.say()
        node.hear(said.wire)
    ben.hear(said.wire)
    there = RemoteHistory(client_of(history=node, loss=0.05))
    assert catch_up(ben.channel, there, ben.now_ms) == 11
    ben.drain()
    assert ben.log == ann.log


def test_hints_are_noted_of_what_others_keep(tmp_path: Path) -> None:
    node = StoreNode(opened(ChannelDatabase(tmp_path / "node.db")))
    node.hear(bytes(wire(b"a")))
    node.note(bytes(wire(b"b", causal=(b"a",), hint=b"where a is")))
    node.note(b"\xff" * 30)
    assert node.by_hint(CHANNEL, b"where a is") == node.by_id(CHANNEL, b"a")
    assert node.by_id(CHANNEL, b"b") is None


@pytest.mark.parametrize(
    ("verb", "content"),
    [(11, b""), (0, b""), (255, b""), (ASK, b"\x0a\xff"), (SINCE, b"\x0a\x01c\x12\x01x")],
)
def test_calls_that_are_none_are_not_answered(verb: int, content: bytes) -> None:
    service = StoreService(memory(), KEY, helper=Helpers(mailbox(), None))
    if verb == SINCE:
        node = StoreNode(opened(ChannelDatabase(":memory:")))
        service = StoreService(memory(), KEY, helper=Helpers(mailbox(), node))
    for frame in frames_of(KEY, CLIENT, 1, bytes((verb,)) + content):
        assert service.answer(frame) == []
    assert service.assembler.refused == 1
    with pytest.raises(PeerError):
        Helpers(mailbox(), None).do(99, [])


def test_numbers_without_bounds_and_broken_files() -> None:
    helpers = Helpers(mailbox(), StoreNode(opened(ChannelDatabase(":memory:"))))
    huge = (1 << 64) - 1
    assert helpers.do(ASK, [(1, KEYS.name), (2, huge), (3, huge), (4, huge)]) == b""
    assert helpers.do(ASK, [(1, 5), (2, b"x"), (9, b"?")]) == b""
    assert helpers.do(MESSAGE, []) is None
    with pytest.raises(CapacityError):
        helpers.do(KEEP, [(1, b"short")])
    connection = opened(sqlite3.connect(":memory:", isolation_level=None))
    box = RemoteMail(client_of(MailServer(connection)))
    connection.execute("DROP TABLE envelopes")
    with pytest.raises(StorageError, match="disk"):
        box.ask([KEYS.name])
    with pytest.raises(StorageError, match="disk"):
        box.keep(KEYS.name + b"x", 0)


def test_a_mailbox_that_answers_something_else() -> None:
    class Liar:
        def do(self, verb: int, said: object) -> bytes:  # noqa: ARG002
            out = bytearray()
            put_field(out, 1, b"\xff\xff")
            return bytes(out)

    client = StoreClient(Wire(StoreService(memory(), KEY, helper=Liar())), KEY, CLIENT)
    with pytest.raises(StorageError, match="something else"):
        RemoteMail(client).ask([KEYS.name])
