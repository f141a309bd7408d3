"""The member without carriers: what is given again after a crash, and the outbox's one way out."""

from pathlib import Path

import pytest

from drupelet.errors import CapacityError, StorageError
from drupelet_host import clock, config, mailbox
from drupelet_host.config import Config, Peer
from drupelet_host.member import Member
from drupelet_host.parse import split_body


@pytest.fixture
def settings(tmp_path: Path) -> Config:
    made = Config(
        tmp_path / "home", "a", b"aaaa", "orchard", 50, None, (Peer("b", b"bbbb", "stick:"),)
    )
    config.create(made)
    return made


def crash(member: Member) -> None:
    """End without saving, as a killed process does."""
    member.store.close()


def post(member: Member, text: bytes) -> None:
    member.commit()
    mailbox.post(member.store.connection, text)


def test_an_event_that_was_not_confirmed_is_given_again(settings: Config) -> None:
    member = Member(settings)
    post(member, b"one")
    assert member.publish_letters(clock.now_ms()) == 1
    assert [(split_body(e.body)[1], e.again) for e in member.events()] == [(b"one", False)]
    crash(member)
    member = Member(settings)
    events = member.events()
    assert [(split_body(e.body)[1], e.again) for e in events] == [(b"one", True)]
    member.took(events[0])
    member.save(clock.now_ms())
    crash(member)
    assert Member(settings).events() == []


def test_own_messages_form_a_chain_across_restarts(settings: Config) -> None:
    ids: list[bytes] = []
    for number in range(3):
        member = Member(settings)
        post(member, b"%d" % number)
        member.publish_letters(clock.now_ms())
        for event in member.events():
            member.took(event)
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
    member = Member(settings)
    assert mailbox.waiting(member.store.connection) == 1
    assert member.publish_letters(clock.now_ms()) == 1
    assert mailbox.waiting(member.store.connection) == 0
    assert len(member.events()) == 1


def test_the_outbox_is_bounded(settings: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox, "OUTBOX_MAX", 2)
    member = Member(settings)
    post(member, b"1")
    post(member, b"2")
    with pytest.raises(CapacityError, match="start the agent first"):
        post(member, b"3")
    with pytest.raises(CapacityError, match="split it"):
        post(member, bytes(mailbox.PAYLOAD_SIZE_MAX + 1))
