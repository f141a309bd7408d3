"""The demo's judge: a log that is wrong in any way is caught, and it reads what members hold."""

from pathlib import Path

import pytest

from drupelet.base.hashes import group_id_into
from drupelet.base.limits import ID_SIZE
from drupelet.clients.default import READINGS_CLIENT_ID, TELEMETRY_CLIENT_ID
from drupelet.store.flash_store import FlashStore
from drupelet_host.store.folder_files import HostFiles
from drupelet_tools.demo.check import Held, Logged, board_log, judge
from drupelet_tools.demo.plan import GROUP, DemoError

A, B, C, D, X = (bytes([n]) * ID_SIZE for n in range(1, 6))


def log(*messages: Logged) -> list[Logged]:
    return list(messages)


def other(id: bytes, *after: bytes) -> Logged:
    return Logged(id, False, after)


def own(id: bytes, *after: bytes) -> Logged:
    return Logged(id, True, after)


# Two members: one wrote A, C after B; the other B after A, D after B and C.
LEFT = log(own(A), other(B, A), own(C, B), other(D, B, C))
RIGHT = log(other(A), own(B, A), other(C, B), own(D, B, C))


def verdict(left: list[Logged]) -> Held:
    return judge({"left": left, "right": RIGHT})["left"]


def test_right() -> None:
    held = judge({"left": LEFT, "right": RIGHT})
    assert held == {"left": Held(4, 4, 2, 0, 0), "right": Held(4, 4, 2, 0, 0)}
    assert all(one.right for one in held.values())
    assert judge({"left": [], "right": []})["left"].right


@pytest.mark.parametrize("gone", [1, 3])
def test_a_missing_message(gone: int) -> None:
    held = verdict(LEFT[:gone] + LEFT[gone + 1 :])
    assert (held.expected, held.delivered) == (4, 3)
    assert not held.right


def test_an_empty_log() -> None:
    held = judge({"left": [], "right": RIGHT})["left"]
    assert held == Held(2, 0, 0, 0, 0)
    assert not held.right


@pytest.mark.parametrize("at", range(4))
def test_a_message_twice(at: int) -> None:
    held = verdict([*LEFT, LEFT[at]])
    assert (held.delivered, held.duplicates) == (4, 1)
    assert not held.right


def test_a_missing_one_is_not_made_up_for_by_a_double() -> None:
    held = verdict([LEFT[0], LEFT[1], LEFT[2], LEFT[2]])
    assert (held.expected, held.delivered, held.duplicates) == (4, 3, 1)
    assert not held.right


@pytest.mark.parametrize(
    ("order", "early"),
    [((1, 0, 2, 3), 1), ((0, 2, 1, 3), 1), ((0, 1, 3, 2), 1), ((3, 2, 1, 0), 3)],
)
def test_before_its_dependencies(order: tuple[int, ...], early: int) -> None:
    held = verdict([LEFT[at] for at in order])
    assert (held.delivered, held.duplicates, held.out_of_order) == (4, 0, early)
    assert not held.right


def test_after_something_that_nobody_has() -> None:
    held = verdict([*LEFT[:3], other(D, B, X)])
    assert not held.right


def test_a_message_that_nobody_wrote() -> None:
    """Not among the expected, so it does not stand in for a missing one."""
    held = verdict([*LEFT[:3], other(X, C)])
    assert (held.expected, held.delivered, held.strangers) == (4, 3, 1)
    assert not verdict([*LEFT, other(X, C)]).right


def test_a_body_that_was_let_go_is_judged_by_the_copies_of_others() -> None:
    short = [*LEFT[:1], Logged(B, False, None), *LEFT[2:]]
    assert verdict(short).right
    assert verdict([short[1], short[0], *short[2:]]).out_of_order == 1
    nowhere = {
        name: [Logged(one.id, one.own, None if one.id == D else one.dependencies) for one in held]
        for name, held in (("left", LEFT), ("right", RIGHT))
    }
    assert judge(nowhere)["left"].out_of_order == 1


def flash(tmp_path: Path) -> tuple[FlashStore, int, int]:
    """A board's store with the groups of the demo."""
    store = FlashStore(HostFiles(tmp_path))
    store.open()
    groups = []
    for client in (READINGS_CLIENT_ID, TELEMETRY_CLIENT_ID):
        id = bytearray(ID_SIZE)
        group_id_into(id, client, GROUP.encode(), len(GROUP.encode()))
        groups.append(store.member(1, id, 0, ID_SIZE))
    return store, groups[0], groups[1]


def put(
    store: FlashStore, group: int, source: int, id: bytes, *after: bytes, pending: bool = False
) -> int:
    body = bytes([len(after)]) + b"".join(after) + b"{}"
    stamp = bytes(8)
    return store.put(group, source, id, 0, stamp, 0, body, 0, len(body), 1 + pending)


def test_reads_a_boards_flash(tmp_path: Path) -> None:
    store, readings, telemetry = flash(tmp_path)
    assert put(store, readings, 0, A) > 0
    assert put(store, telemetry, 0, X) > 0
    assert put(store, readings, 3, B, A) > 0
    waits = put(store, readings, 3, D, C, pending=True)
    assert waits > 0
    store.barrier()
    assert board_log(tmp_path) == [own(A), other(B, A)]
    assert put(store, readings, 3, C, B, A) > 0
    assert store.promote(waits, 1) > 0
    store.barrier()
    assert board_log(tmp_path) == [own(A), other(B, A), other(C, B, A), other(D, C)]


def test_says_when_a_body_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, readings, _ = flash(tmp_path)
    put(store, readings, 0, A)
    store.barrier()
    monkeypatch.setattr(FlashStore, "read_into", lambda *_: -1)
    with pytest.raises(DemoError, match="message 01010101 has lost its body"):
        board_log(tmp_path)
