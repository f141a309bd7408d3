"""The self-test of a board: what the host draws, the board computes."""

import hashlib
import os
from dataclasses import dataclass

from drupelet_host.base.aead import Aead
from drupelet_host.base.output import printable
from drupelet_tools.flash.errors import BoardError, FlashError
from drupelet_tools.flash.repl import BoardRepl

_BODY = 100  # bytes that are hashed and sealed: a usual message
_KEY, _NONCE, _TAG = 16, 13, 8
# What a test's row shows of the board's words.
_SHOWN_CHARACTERS_MAX = 100


@dataclass(frozen=True)
class Check:
    """One row of the table; `passed` is None for what was not tried."""

    name: str
    passed: bool | None
    seen: str


def selftest(repl: BoardRepl, root: str, uart: tuple[int, dict[str, int]] | None) -> list[Check]:
    """Run every check. root: where the board's drive is mounted, "" for /.

    uart: number and settings of one whose pins are joined by a wire.
    """
    text = os.urandom(_BODY)
    blake2s, sha256 = hashlib.blake2s(text).hexdigest(), hashlib.sha256(text).hexdigest()
    key, nonce, sealed = os.urandom(_KEY), os.urandom(_NONCE), bytearray(text + bytes(_TAG))
    aead = Aead()
    aead.seal(aead.cipher(key, 0), nonce, sealed, 0, 0, len(text), _TAG)
    calls = [
        f"flash({root!r})", "clock()", "chance()",
        f"hashes({text.hex()!r}, {blake2s!r}, {sha256!r})",
        f"aead({key.hex()!r}, {nonce.hex()!r}, {text.hex()!r}, {sealed.hex()!r})",
        "heap()",  # last: the code that the others loaded counts
    ]  # fmt: skip
    checks = [_check(repl, call) for call in calls]
    if uart is None:
        checks.append(Check("uart", None, "not wired: --uart tries it"))
    else:
        checks.append(_check(repl, f"uart({uart[0]}, {uart[1]!r})"))
    return checks


def _check(repl: BoardRepl, call: str) -> Check:
    try:
        name, passed, seen = repl.call("selftest", call)
    except BoardError as error:
        return Check(call.partition("(")[0], False, str(error))
    except (TypeError, ValueError):
        raise FlashError(f"{repl.device}: its self-test gave no answer; repeat") from None
    return Check(str(name), passed is True, printable(str(seen)[:_SHOWN_CHARACTERS_MAX]))


def uart_of(text: str) -> tuple[int, dict[str, int]] | None:
    """`1,4,5`: UART 1 with TX at pin 4 and RX at pin 5; "" for none. Raises FlashError."""
    if not text:
        return None
    words = text.split(",")
    if len(words) not in (1, 3) or not all(word.isdecimal() for word in words):
        raise FlashError(f"--uart {text}: give number, TX pin and RX pin, as in 1,4,5")
    pins = dict(zip(("tx", "rx"), (int(word) for word in words[1:]), strict=False))
    return int(words[0]), pins
