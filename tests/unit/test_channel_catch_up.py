"""One member with the tables it has by default, in a channel whose members name ten ids in each
message: whatever it missed is requested, deepest first, and all is delivered."""

import random

import pytest

from drupelet.base.limits import CHANNEL_IN_MAX, CHANNEL_REFUSED_MAX, CHANNEL_WANTED_MAX
from drupelet.channel.relay import wanted_ids
from helpers_channel import START_MS, Talker, wire
from helpers_room import Ours
from naive import sds
from repeats import few

MESSAGES = 200
ENTRIES = 10
SENDERS = 4
LOSS = 0.25
EVERY_S = 5
# Twice what most runs take: a small table may be slow.
UNTIL_S = 150_000


def generated(draw: random.Random, dialect: str, ours: Ours) -> list[sds.Message]:
    """Messages of several senders. Each names the ten newest that its sender has, who does not
    have the last two of the others yet; the last message of all has everything."""
    unit = 1 if dialect == "sds-nim" else 1000
    first = ours.wall
    messages: list[sds.Message] = []
    for number in range(MESSAGES):
        sender = f"sender{draw.randrange(SENDERS)}"
        late = 0 if number == MESSAGES - 1 else 2
        fresh = len(messages) - late
        known = [one for at, one in enumerate(messages) if at < fresh or one.sender == sender]
        causal = tuple((one.id, one.sender) for one in known[-ENTRIES:])
        lamport = first + number * EVERY_S * unit
        messages.append(
            sds.Message(
                sender, f"{number:064x}", "room", lamport, causal, b"%d" % number
            )
        )  # fmt: skip
    return messages


def catch_up(dialect: str, seed: int, heard_from: int) -> tuple[Ours, int]:
    """Run until the member has all; the member, and how many requests it took."""
    draw = random.Random(seed)
    ours = Ours("member", dialect, seed)
    messages = generated(draw, dialect, ours)
    by_id = {message.id: message for message in messages}
    # Something to carry requests where there are no sync messages.
    assert ours.publish(b"here I am")
    answers: list[str] = []
    requests = 0
    while ours.now < UNTIL_S and len(ours.delivered) < MESSAGES:
        number = ours.now // EVERY_S
        if number < MESSAGES:
            last = number == MESSAGES - 1  # what nothing names again is heard
            if number >= heard_from and (last or draw.random() >= LOSS):
                ours.receive(sds.encode(messages[number], dialect))
        for id in answers:
            if draw.random() >= LOSS:
                ours.receive(sds.encode(by_id[id], dialect))
        answers = []
        for frame in ours.frames():
            if draw.random() < LOSS:
                continue
            read = sds.decode(frame, dialect)
            requests += len(read.repair)
            answers += [id for id, _ in read.repair if id in by_id]
        channel = ours.channel
        assert channel.log.incoming.count <= CHANNEL_IN_MAX
        assert channel.repair.wanted.count <= CHANNEL_WANTED_MAX
        ours.now += EVERY_S
    assert len(ours.delivered) == MESSAGES, f"{len(ours.delivered)} of {MESSAGES}"
    assert len(set(ours.delivered)) == MESSAGES
    return ours, requests


@pytest.mark.parametrize("dialect", ["sds", "sds-nim"])
@pytest.mark.parametrize("seed", few(1, range(4)))
def test_a_quarter_lost_with_ten_entries_in_each_message(dialect: str, seed: int) -> None:
    ours, requests = catch_up(dialect, seed, 0)
    print(f"\n{dialect} seed {seed}: {ours.now} s, {requests} requests")
    assert requests < 4 * MESSAGES, "nothing is asked for that there is no room for"


@pytest.mark.parametrize("dialect", ["sds", "sds-nim"])
def test_only_the_last_message_was_heard(dialect: str) -> None:
    """Down to the root and up again: each answer that waits makes room for what is deeper."""
    ours, requests = catch_up(dialect, 9, MESSAGES - 1)
    print(f"\n{dialect}: {ours.now} s, {requests} requests")


def test_what_would_be_delivered_next_has_the_rows() -> None:
    """Messages that wait come highest first; requests are for what the lowest one misses."""
    ann = Talker()
    for number in range(40, 0, -1):
        missing = tuple(b"gap%d-%d" % (number, one) for one in range(ENTRIES))
        ann.hear(wire(b"m%d" % number, causal=missing, lamport=START_MS + number))
    lowest = {b"gap1-%d" % one for one in range(ENTRIES)}
    wanted = set(wanted_ids(ann.channel))
    assert wanted - lowest == {b"m39", b"m40"}, "beside them the highest that were refused"
    assert len(wanted & lowest) == CHANNEL_WANTED_MAX - CHANNEL_REFUSED_MAX
    asked = {id for said in ann.later(400_000) for id in said.requests}
    assert asked == wanted & lowest


def test_what_was_refused_for_want_of_room_is_asked_for_when_there_is_room() -> None:
    """Nothing names the last message of a channel that went quiet."""
    ann = Talker()
    for number in range(1, 40):
        causal = (b"m%d" % (number - 1),)
        ann.hear(wire(b"m%d" % number, causal=causal, lamport=START_MS + number))
    assert ann.channel.log.incoming.count == CHANNEL_IN_MAX and ann.log == []
    ann.hear(wire(b"m0", lamport=START_MS))
    assert len(ann.log) >= CHANNEL_IN_MAX
    asked = {id for said in ann.later(700_000) for id in said.requests}
    assert b"m39" in asked
