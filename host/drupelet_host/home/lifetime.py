"""How long a message of a group with exploding messages stays, and the 5 bytes that say so.

payload: kind u8, lifetime u32 in seconds, big-endian; then the content (docs/SPEC.md 15.7)
"""

from typing import NamedTuple

from drupelet_host.base.duration import FORMS, duration_s, duration_text

STAYS = 0
# Bits of the kind.
AFTER_READING = 1
AFTER_TIME = 2
EPHEMERAL = 4
HEAD_SIZE = 5
_KIND_MAX = AFTER_READING + AFTER_TIME + EPHEMERAL
LIFETIME_S_MAX = 0xFFFFFFFF
# An ephemeral message is given up after this: who is there has it within a few epochs.
EPHEMERAL_S = 60


class Lifetime(NamedTuple):
    """What becomes of a message. seconds: from its timestamp on, for kinds with AFTER_TIME."""

    kind: int = STAYS
    seconds: int = 0

    @property
    def is_ephemeral(self) -> bool:
        """Whether the message is for those who are there now, and for no log."""
        return self.kind & EPHEMERAL != 0

    def end_ms(self, sent_ms: int) -> int:
        """When the time of a message of this timestamp is over, in ms since 1970; 0: never."""
        return sent_ms + self.seconds * 1000 if self.kind & AFTER_TIME else 0

    def end_s(self, sent_ms: int) -> int:
        """The same in whole seconds, none too early."""
        return -(-self.end_ms(sent_ms) // 1000)

    def is_over(self, sent_ms: int, now_ms: int) -> bool:
        """Whether the time of a message of this timestamp is over."""
        return 0 < self.end_ms(sent_ms) <= now_ms

    def head(self) -> bytes:
        """What precedes the content of a payload."""
        return bytes((self.kind,)) + self.seconds.to_bytes(HEAD_SIZE - 1)

    def text(self) -> str:
        """For a person: "explodes 7d after it was written"; "" for a message that stays."""
        if self.kind & EPHEMERAL:
            return "is ephemeral"
        after = f"{duration_text(self.seconds)} after it was written"
        return {
            STAYS: "",
            AFTER_READING: "explodes once it was read",
            AFTER_TIME: f"explodes {after}",
            AFTER_READING | AFTER_TIME: f"explodes once it was read, or {after}",
        }[self.kind]


EPHEMERAL_LIFETIME = Lifetime(EPHEMERAL | AFTER_TIME, EPHEMERAL_S)


def lifetime(seconds: int, is_read_once: bool) -> Lifetime:
    """Of a message that explodes after so many seconds (0: not for that), and once it was read."""
    return Lifetime(AFTER_READING * is_read_once | AFTER_TIME * (seconds > 0), seconds)


def lifetime_of(payload: bytes | bytearray) -> Lifetime | None:
    """What a payload begins with; None: with no head."""
    if len(payload) < HEAD_SIZE or payload[0] > _KIND_MAX:
        return None
    return Lifetime(payload[0], int.from_bytes(payload[1:HEAD_SIZE]))


def lifetime_s(text: str) -> int:
    """The seconds of a lifetime that a person wrote; raises ValueError with the remedy."""
    seconds = duration_s(text)
    if seconds is None or not 0 < seconds <= LIFETIME_S_MAX:
        raise ValueError(f"must be a duration as {FORMS}")
    return seconds
