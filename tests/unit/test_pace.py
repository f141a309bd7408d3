"""How much goes to a peer, and when it goes again: the rules of `engine/pace.py`."""

import re
from collections import deque
from itertools import pairwise

import pytest

from drupelet.base.errors import OK
from drupelet.base.limits import BACKOFF_EPOCHS_MAX
from drupelet.clients.default import READINGS_CLIENT_ID
from drupelet.engine.inbox import OWED
from drupelet.engine.members import SHARED
from drupelet.engine.pace import (
    ACKS,
    REPLIES,
    TRIP_EPOCHS,
    age_answers,
    note_answer,
    shows_lost,
    wait_epochs,
)
from drupelet.link.link import BATCH, CARRIER_MQTT, Link
from drupelet.node import Node
from drupelet.wire.profiles import PROFILE_BSP_1
from helpers import EPOCH_MS, kinds_of, stamp
from ram_store import RamStore

ROWS = 256
# Bodies of which eight fit into a frame.
BODY_SIZE = 60
ACK = 0
REQUEST = 3
RECORDS = 0x40


class End:
    """A node with many messages for one peer, which is told by hand."""

    def __init__(self, count: int = ROWS, mode: int = BATCH) -> None:
        self.node = Node(RamStore(), lambda: 0, 1, 1, ROWS)
        self.group = self.node.join(READINGS_CLIENT_ID, b"g")
        peer = self.node.add_peer(b"PEER")
        self.node.share(self.group, peer, SHARED)
        self.node.boot(0)
        self.count = 0
        link = self.node.link(peer, PROFILE_BSP_1, CARRIER_MQTT, EPOCH_MS, mode)
        assert isinstance(link, Link)
        self.link = link
        self.epoch = 0
        for _ in range(count):
            self.publish()

    def publish(self, size: int = BODY_SIZE) -> None:
        body = b"\0<%d>" % self.count + bytes(size)
        assert self.node.publish(self.group, body, len(body), stamp(self.count), 0) > 0
        self.count += 1

    def frames(self, epochs: int = 1) -> list[bytes]:
        """What leaves in the epochs that follow."""
        frames = []
        frame = bytearray(1024)
        for _ in range(epochs):
            self.epoch += 1
            while size := self.link.poll_into(frame, self.epoch * EPOCH_MS):
                frames.append(bytes(frame[:size]))
        return frames

    def hear(self, kind: int, ids: list[bytes]) -> None:
        frame = bytearray(b"\x40\x01%c" % kind + (32 * len(ids)).to_bytes(2) + b"".join(ids))
        assert self.link.receive(frame, len(frame), self.epoch * EPOCH_MS) == OK

    def sent_ids(self) -> list[bytes]:
        """What is under way or due again, in the order of the log."""
        outbox = self.node.core.outboxes[0]
        id = bytearray(32)
        ids = []
        for row in range(outbox.count):
            if outbox.sends(row) and outbox.is_open(row):
                assert self.node.core.store.id_into(outbox.handles[row], id, 0)
                ids.append(bytes(id))
        return ids


def numbers(frames: list[bytes]) -> list[int]:
    """The messages in frames, as `publish` counted them."""
    return [int(number) for number in re.findall(rb"\0<(\d+)>\0", b"".join(frames))]


def test_a_peer_that_is_away_gets_one_frame_for_each_step_of_the_back_off() -> None:
    end = End()
    counts = [len(end.frames()) for _ in range(200)]
    assert set(counts) == {0, 1}
    steps = [epoch for epoch, count in enumerate(counts) if count]
    assert [after - before for before, after in pairwise(steps)][:6] == [2, 4, 8, 16, 32, 64]
    end.publish()
    assert not end.frames(20), "a new message is no reason for another frame"


def test_small_messages_beside_a_long_one_are_one_frame_for_each_step() -> None:
    end = End(0)
    end.publish(1500)
    for _ in range(60):
        end.publish()
    for _ in range(16):
        small = [frame for frame in end.frames() if frame[0] == RECORDS]
        assert len(small) <= 1


def test_all_that_is_owed_to_a_peer_that_is_away_goes_to_it() -> None:
    end = End(0)
    inbox = end.node.core.inboxes[0]
    for number in range(inbox.offers_max):
        inbox.add(bytes((1 + number,)) * 32, 0, OWED, end.link.exchange.epoch)
    end.link.exchange.attention = True
    assert len(end.frames()) == 3, "of 31 ids at most"
    assert OWED not in kinds_of(inbox)


@pytest.mark.parametrize("absence", [20_000, 40_000, 60_000])
def test_a_peer_that_comes_back_after_half_the_epoch_numbers_is_there(absence: int) -> None:
    end = End()
    for _ in range(2):
        end.frames()
        end.hear(ACK, end.sent_ids())
    end.frames()
    assert len(end.sent_ids()) == 64, "more than a frame is under way when it goes"
    for _ in range(absence // 100):
        end.epoch += 99
        end.frames()
    end.hear(ACK, end.sent_ids()[:8])
    end.frames()
    assert not end.link.exchange.pace.is_away


def test_what_a_peer_that_was_away_is_given_doubles_with_each_answer() -> None:
    end = End()
    end.frames()
    end.hear(ACK, end.sent_ids())
    amounts = []
    for _ in range(3):
        end.frames()
        amounts.append(len(end.sent_ids()))
        end.hear(ACK, end.sent_ids())
    assert amounts == [32, 64, 128]


def test_what_is_under_way_to_a_slow_peer_is_not_sent_again() -> None:
    end = End()
    end.frames()
    end.hear(ACK, end.sent_ids())
    burst = numbers(end.frames())
    first = end.sent_ids()
    assert len(burst) == 32
    silence = end.frames(3)
    assert len(silence) == 1, (
        "an answer is due after two epochs: one frame asks whether it is there"
    )
    end.hear(ACK, first[:16])
    assert end.link.exchange.pace.answers[ACKS + TRIP_EPOCHS] == 3
    again = [number for number in numbers(end.frames(3)) if number in burst[16:]]
    assert not again, "it works through what it has"
    end.hear(REQUEST, first[16:17])
    assert numbers(end.frames()).count(burst[16]) == 1, "what it asks for goes at once"


def test_what_was_sent_before_something_that_was_answered_is_lost() -> None:
    answers = [0, -1, -1, 0, 0, -1, -1, 0]
    assert wait_epochs(answers, ACKS, 12, 10, 2, 1) == 0, (
        "nothing was answered: the back-off alone"
    )
    note_answer(answers, ACKS, 20, 12, True)
    assert answers[TRIP_EPOCHS] == 8
    assert shows_lost(answers, ACKS, 11) and wait_epochs(answers, ACKS, 20, 11, 2, 1) < 0
    assert not shows_lost(answers, ACKS, 12), "the same epoch says nothing of the order"
    assert wait_epochs(answers, ACKS, 20, 13, 2, 1) == 16, (
        "twice the trip, from the last answer on"
    )
    note_answer(answers, ACKS, 60, 12, True)
    assert wait_epochs(answers, ACKS, 60, 13, 2, 1) == BACKOFF_EPOCHS_MAX
    for _ in range(100):
        age_answers(answers, ACKS, 60, 1)
    assert answers[TRIP_EPOCHS] == 47, "silence does not say that trips are shorter"
    for epoch in range(61, 161):
        note_answer(answers, ACKS, epoch, epoch, True)
        age_answers(answers, ACKS, epoch, 1)
    assert answers[TRIP_EPOCHS] == 0 and wait_epochs(answers, ACKS, 162, 160, 2, 1) == 0


def test_an_answer_to_what_went_twice_measures_but_shows_no_loss() -> None:
    answers = [0, -1, -1, 0, 0, -1, -1, 0]
    note_answer(answers, ACKS, 20, 14, False)
    assert answers[TRIP_EPOCHS] == 6 and not shows_lost(answers, ACKS, 13)
    note_answer(answers, ACKS, 21, 11, True)
    note_answer(answers, ACKS, 25, 24, False)
    assert answers[TRIP_EPOCHS] == 10
    assert wait_epochs(answers, ACKS, 25, 13, 2, 1) == 16, (
        "from the answer that is one for certain"
    )


def test_times_of_a_link_with_long_epochs_are_as_long() -> None:
    answers = [0, -1, -1, 0, 0, -1, -1, 0]
    note_answer(answers, ACKS, 600, 0, True)
    assert wait_epochs(answers, ACKS, 600, 600, 120, 60) == 1200
    age_answers(answers, ACKS, 660, 60)
    assert answers[TRIP_EPOCHS] == 540


def test_trips_of_requests_grow_shorter_at_a_node_that_only_receives() -> None:
    end = End(0)
    end.frames()
    exchange = end.link.exchange
    answers = exchange.pace.answers
    note_answer(answers, REPLIES, exchange.epoch, exchange.epoch - 30, True)
    for _ in range(10):
        note_answer(answers, REPLIES, exchange.epoch, exchange.epoch, True)
        end.frames()
    assert answers[REPLIES + TRIP_EPOCHS] == 20


@pytest.mark.parametrize("way_epochs", [2, 5, 20])
def test_a_way_longer_than_the_back_off_costs_no_second_copy_of_all(way_epochs: int) -> None:
    ends = (End(), End(0))
    ways: tuple[deque[tuple[int, bytes]], ...] = (deque(), deque())
    for epoch in range(1, 40 * way_epochs):
        for end, way, back in zip(ends, ways, ways[::-1], strict=True):
            while back and back[0][0] <= epoch:
                frame = bytearray(back.popleft()[1])
                end.link.receive(frame, len(frame), epoch * EPOCH_MS)
                while end.node.next_event():
                    end.node.done(end.node.event_handle)
            way.extend((epoch + way_epochs, frame) for frame in end.frames())
    assert ends[1].node.delivered == ROWS
    assert ends[1].node.core.duplicates <= ROWS // 2


@pytest.mark.parametrize("last", [0, 0x7FFF, 0x8000, 0xFFFF])
def test_old_answers_are_forgotten_before_their_epochs_look_new(last: int) -> None:
    answers = [0, -1, -1, 0, 0, -1, -1, 0]
    note_answer(answers, ACKS, last, last, True)
    for epoch in range(1, 1 << 16, 1000):
        age_answers(answers, ACKS, (last + epoch) & 0xFFFF, 1)
        then = (last + epoch - 1) & 0xFFFF
        assert not shows_lost(answers, ACKS, then) or epoch == 1
