"""Our channel against naive participants that know the text alone: lossy broadcasts, reboots of
ours, both dialects. Every message is delivered on every side, once."""

import random

import pytest

from helpers_room import Ours
from naive import sds
from repeats import few

TICK_S = 5
MESSAGES = 60  # of each participant


class Room:
    """Everybody hears everybody, but for what is lost; some frames come twice, some late."""

    def __init__(
        self, dialect: str, ours: int, naive: int, loss: float, seed: int, messages: int = MESSAGES
    ) -> None:
        self.messages = messages
        self.draw = random.Random(seed)
        self.loss = loss
        self.now = 0
        self.ours = [Ours(f"ours{number}", dialect, seed + number) for number in range(ours)]
        self.naive = [
            sds.Participant(f"naive{number}", "room", dialect) for number in range(naive)
        ]
        self.late: list[tuple[object, bytes]] = []
        self.published: set[str] = set()
        self.wire_bytes = 0
        self.written = dict.fromkeys((one.name for one in (*self.ours, *self.naive)), 0)

    def tick(self) -> None:
        self.now += TICK_S
        for one in self.ours:
            one.now = self.now
        late, self.late = self.late, []
        for hearer, frame in late:
            self._hear(hearer, frame)
        for one in (*self.ours, *self.naive):
            frames = one.frames() if isinstance(one, Ours) else one.frames(self.now, self._wall())
            for frame in frames:
                self._broadcast(one, frame)

    def _wall(self) -> int:
        return self.ours[0].wall

    def _broadcast(self, sender: object, frame: bytes) -> None:
        if isinstance(sender, Ours):
            self.wire_bytes += len(frame)
        for hearer in (*self.ours, *self.naive):
            if hearer is sender or self.draw.random() < self.loss:
                continue
            for _ in range(1 + (self.draw.random() < 0.15)):
                if self.draw.random() < 0.2:
                    self.late.append((hearer, frame))
                else:
                    self._hear(hearer, frame)

    def _hear(self, hearer: object, frame: bytes) -> None:
        if isinstance(hearer, Ours):
            hearer.receive(frame)
        else:
            hearer.receive(frame, self.now)

    def publish(self, one: Ours | sds.Participant) -> None:
        """One more message of a participant, unless it has written all of its own."""
        number = self.written[one.name]
        if number == self.messages:
            return
        text = f"{one.name} {number}"
        if isinstance(one, Ours):
            if not one.publish(text.encode()):
                return
        else:
            one.publish(text.encode(), self._wall())
        self.written[one.name] += 1
        self.published.add(text)

    def lacking(self) -> dict[str, set[str]]:
        """What each side has not delivered."""
        missing = {}
        for one in self.ours:
            own = {text for text in self.published if text.startswith(one.name + " ")}
            missing[one.name] = self.published - own - set(one.delivered)
        for one in self.naive:
            missing[one.name] = self.published - {message.content.decode() for message in one.log}
        return {name: texts for name, texts in missing.items() if texts}

    def run(self, seconds_max: int, reboot_s: int = 0) -> None:
        total = self.messages * len(self.written)
        while self.now < seconds_max:
            for one in (*self.ours, *self.naive):
                if self.draw.random() < 0.7:
                    self.publish(one)
            self.tick()
            if reboot_s and self.now % reboot_s == 0:
                self.draw.choice(self.ours).reboot()
            if len(self.published) == total and not self.lacking():
                break
        assert len(self.published) == total, f"{total - len(self.published)} not even published"
        assert not self.lacking(), {name: len(texts) for name, texts in self.lacking().items()}
        for one in self.ours:
            assert len(one.delivered) == len(set(one.delivered)), "delivered twice"
        for one in self.naive:
            assert not one.unread and len(one.log) == total


dialects = pytest.mark.parametrize("dialect", ["sds", "sds-nim"])


@dialects
@pytest.mark.parametrize("seed", range(4))
def test_a_naive_participant_that_acknowledges_early(dialect: str, seed: int) -> None:
    room = Room(dialect, 1, 1, 0.3, seed)
    room.run(40_000)


@dialects
@pytest.mark.parametrize(("seed", "messages"), few(1, [(0, 30), (0, MESSAGES), (1, MESSAGES)]))
def test_two_of_each(dialect: str, seed: int, messages: int) -> None:
    Room(dialect, 2, 2, 0.25, seed + 10, messages).run(40_000)


@dialects
@pytest.mark.parametrize("seed", range(2))
def test_reboots_of_ours(dialect: str, seed: int) -> None:
    Room(dialect, 1, 1, 0.3, seed + 20).run(40_000, reboot_s=300)


def test_naive_participants_alone() -> None:
    """What the others lean on: where nothing is lost, the naive ones agree with each other."""
    room = Room("sds", 1, 2, 0.0, 30)
    room.run(40_000)
