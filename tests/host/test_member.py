"""The member without carriers: what is given again after a crash, and the outbox's one way out."""

import contextlib
import json
import os
import shutil
from pathlib import Path

import pytest

from drupelet import host_api
from drupelet.base.errors import CapacityError, StorageError
from drupelet.base.events import CODE_BATTERY
from drupelet.base.limits import EVENTS_PER_BLOCK
from drupelet_host.base import clock
from drupelet_host.clients.default_body import split_body
from drupelet_host.home import config
from drupelet_host.home.config import Config, Peer
from drupelet_host.member.member import Member
from drupelet_host.store import outbox
from drupelet_host.view.log_view import LogView
from drupelet_tools.telemetry.blackbox.decode import Header, read_header
from opened import opened


@pytest.fixture
def settings(tmp_path: Path) -> Config:
    made = Config(
        tmp_path / "home", "a", b"aaaa", "orchard", 50, None, (Peer("b", b"bbbb", "stick:"),)
    )
    config.create(made)
    return made


def started(settings: Config) -> Member:
    """A member whose store the end of the test closes."""
    member = Member(settings)
    opened(member.store)
    return member


def crash(member: Member) -> None:
    """End without saving, as a killed process does."""
    member.store.close()


def post(member: Member, text: bytes) -> None:
    member.commit()
    outbox.post(member.store.connection, text)


def test_an_event_that_was_not_confirmed_is_given_again(settings: Config) -> None:
    member = Member(settings)
    post(member, b"one")
    assert member.publish_letters(clock.now_ms()) == 1
    assert [(split_body(e.body)[1], e.again) for e in member.events()] == [(b"one", False)]
    crash(member)
    member = Member(settings)
    events = member.events()
    assert [(split_body(e.body)[1], e.again) for e in events] == [(b"one", True)]
    member.take_delivered(events[0])
    member.save(clock.now_ms())
    crash(member)
    assert started(settings).events() == []


def test_what_somebody_waits_for_is_not_confirmed(settings: Config) -> None:
    """A full log lets go of what was confirmed only: a handler may be far behind."""
    member = started(settings)
    for text in (b"one", b"two", b"three"):
        post(member, text)
    member.publish_letters(clock.now_ms())
    events = member.events()
    first, second, third = [event.handle for event in events]
    member.hold_from(second)
    for event in events:
        member.take_delivered(event)
    assert host_api.done_through(member.node) == first
    member.hold_from(third + 1)
    assert host_api.done_through(member.node) == third


def test_own_messages_form_a_chain_across_restarts(settings: Config) -> None:
    ids: list[bytes] = []
    for number in range(3):
        member = Member(settings)
        post(member, b"%d" % number)
        member.publish_letters(clock.now_ms())
        for event in member.events():
            member.take_delivered(event)
            if event.group == member.telemetry:
                continue  # the black box that the stop before left
            dependencies, payload = split_body(event.body)
            assert payload == b"%d" % number
            assert dependencies == ids[-1:]
            ids.append(event.id)
        member.close(clock.now_ms())
    assert len(ids) == 3


def test_a_letter_leaves_the_outbox_with_its_message_or_not_at_all(settings: Config) -> None:
    member = Member(settings)
    post(member, b"kept")
    member.store.connection.execute(
        "CREATE TEMP TRIGGER cut BEFORE INSERT ON main.log BEGIN SELECT RAISE(ABORT, 'cut'); END"
    )
    with pytest.raises(StorageError):
        member.publish_letters(clock.now_ms())
    crash(member)
    member = started(settings)
    assert outbox.waiting(member.store.connection) == 1
    assert member.publish_letters(clock.now_ms()) == 1
    assert outbox.waiting(member.store.connection) == 0
    assert len(member.events()) == 1


def test_letters_of_a_turn_are_one_transaction_and_stay_where_the_log_is_full(
    settings: Config,
) -> None:
    member = started(settings)
    for number in range(4):
        post(member, b"%d" % number)
    commits = member.store.programs
    assert member.publish_letters(clock.now_ms()) == 4
    assert member.store.programs == commits + 1
    texts = [split_body(event.body)[1] for event in member.events()]
    assert texts == [b"0", b"1", b"2", b"3"]
    for number in range(4, 8):
        post(member, b"%d" % number)
    (held,) = member.store.connection.execute("SELECT count(*) FROM log").fetchone()
    member.store.messages_max = held + 2
    assert member.publish_letters(clock.now_ms()) == 2
    assert [letter.payload for letter in outbox.letters(member.store.connection, 9)] == [
        b"6", b"7",
    ]  # fmt: skip
    assert member.publish_letters(clock.now_ms()) == 0
    member.store.messages_max += 2
    assert member.publish_letters(clock.now_ms()) == 2
    assert outbox.waiting(member.store.connection) == 0
    texts = [split_body(event.body)[1] for event in member.events()]
    assert texts[-4:] == [b"4", b"5", b"6", b"7"]


def test_the_outbox_is_bounded(settings: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "OUTBOX_MAX", 2)
    member = started(settings)
    post(member, b"1")
    post(member, b"2")
    with pytest.raises(CapacityError, match="the agent takes them when it runs"):
        post(member, b"3")
    with pytest.raises(CapacityError, match="split it"):
        post(member, bytes(outbox.PAYLOAD_SIZE_MAX + 1))


def start_and_stop(settings: Config, was_restored: bool = False) -> tuple[bool, int]:
    """One run, as the agent does it; whether it noticed a restored store, and its store_gen."""
    member = Member(settings, was_restored)
    found = member.restored, member.store.store_gen
    post(member, b"one more")
    assert member.publish_letters(clock.now_ms()) == 1
    member.close(clock.now_ms())
    settings.status_path.write_text(json.dumps({"store": member.mark}))
    return found


def test_a_store_that_was_put_back_is_noticed_once(settings: Config, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    noticed, first = start_and_stop(settings)
    assert not noticed
    shutil.copy(settings.store_path, backup)
    assert start_and_stop(settings) == (False, first)
    shutil.copyfile(backup, settings.store_path)
    noticed, second = start_and_stop(settings)
    assert noticed and second & 0xFFFF not in (0, first & 0xFFFF)
    assert start_and_stop(settings) == (False, second)
    noticed, third = start_and_stop(settings, was_restored=True)
    assert noticed and third != second
    # With the whole home the agent's last word comes back, too: only the file is another one.
    settings.status_path.unlink()
    os.replace(settings.store_path, backup)
    shutil.copy(backup, settings.store_path)
    noticed, fourth = start_and_stop(settings)
    assert noticed and fourth != third
    settings.store_path.unlink()
    assert start_and_stop(settings)[0], "made anew: its peers believe that it holds the old one's"


@pytest.mark.parametrize("text", ["", "[]", "{", '{"store": 5}', '{"store": {"gen": "x"}}'])
def test_a_bad_status_file_says_nothing(settings: Config, text: str) -> None:
    _, first = start_and_stop(settings)
    settings.status_path.write_text(text)
    assert start_and_stop(settings) == (False, first)


def test_what_is_owed_to_a_peer_outlives_a_restart(tmp_path: Path) -> None:
    peer = Peer("b", b"bbbb", "serial:///dev/null")
    made = Config(tmp_path / "home", "a", b"aaaa", "orchard", 50, None, (peer,))
    config.create(made)
    for was_restored, lost in ((False, False), (True, True), (False, True)):
        member = Member(made, was_restored)
        assert member.live_link(peer, 0, 0).lost == lost
        member.close(clock.now_ms())
    member = Member(made)
    member.remove_peer(peer.id)
    member.add_peer(peer)
    assert not member.live_link(peer, 0, 0).lost
    member.close(clock.now_ms())


def test_a_budget_leaves_room_for_the_carrier(settings: Config) -> None:
    member = Member(settings)
    for url in (f"mqtt://localhost/{'p' * 32}", "serial:///dev/null"):
        for budget in (0, config.BUDGET_BYTES_MIN, 5000):
            peer = Peer("b", b"bbbb", url, budget_bytes_per_epoch=budget)
            live = member.live_link(peer, 1, 0)
            assert (live.link.budget is None) == (budget == 0)
            assert 64 <= live.frame_size_max <= (budget or 1024)
    member.close(clock.now_ms())


def test_a_clock_that_is_set_while_the_agent_runs_is_told_to_the_black_box(
    settings: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Raspberry Pi has no clock of its own: it starts with that of its last run."""
    member = Member(settings)
    wall_ms = clock.wall_ms() + 30 * 86_400_000
    monkeypatch.setattr(clock, "wall_ms", lambda: wall_ms)
    while member.box.segment_number < 3:
        now_ms = clock.now_ms()
        for _ in range(EVENTS_PER_BLOCK):
            member.box.log(now_ms, CODE_BATTERY, 0, 3700, 0, 0)
        member.epoch(now_ms)
    member.close(clock.now_ms())
    with contextlib.closing(LogView(settings.home)) as view:
        view.export_telemetry(tmp_path / "boxes")
    first, *others = [
        read_header(path.read_bytes()) for path in sorted((tmp_path / "boxes").glob("*.dbx"))
    ]
    assert isinstance(first, Header) and first.wall_ms < wall_ms - 86_400_000
    for header in others:
        assert isinstance(header, Header) and abs(header.wall_ms - wall_ms) < 60_000
    assert len(others) >= 2
