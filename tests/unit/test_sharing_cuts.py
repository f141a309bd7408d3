"""What a client shares late reaches every peer whatever the power does; what it kept stays.

A cut is made at each step of the flash, and before each statement of the host's database.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import ClassVar

import pytest

from drupelet.base.errors import OK
from drupelet.engine.members import GROUP_UNORDERED
from drupelet.node import BATCH, CARRIER_STICK, INTERACTIVE, INVISIBLE, PROFILE_BSP_1, SHARED
from drupelet.store.flash_store import FlashStore
from drupelet.store.states import STATE_DELETED, STATE_DELIVERED
from drupelet_host.store.sqlite_store import SqliteStore
from opened import opened
from repeats import strides
from unit.cut_files import AFTER, BEFORE, TORN, CutFiles, PowerCut
from unit.verdict_client import OTHER_CLIENT, Client, Devices, body_of

modes = pytest.mark.parametrize("mode", [BATCH, INTERACTIVE], ids=["batch", "interactive"])
EPOCHS = 12


class FlashHome:
    """A flash whose power goes at a step; unflushed bytes survive in part."""

    cuts = tuple(product((BEFORE, TORN, AFTER), (0, 60, 4096)))
    small: ClassVar[dict[str, int]] = {}

    def __init__(self) -> None:
        self.files = CutFiles()

    def open(self) -> FlashStore:
        store = FlashStore(self.files, **self.small)
        assert store.open() >= 0  # a torn record is damage
        return store

    def arm(self, _store: FlashStore, step: int, moment: int) -> None:
        self.files.cut_at = self.files.steps + step
        self.files.moment = moment

    def cut(self, store: FlashStore) -> None:
        assert store.barrier() == OK
        self.crash(store)

    def crash(self, _store: FlashStore, kept: int = 0) -> None:
        self.files.power_on(kept)


class SqliteHome:
    """A database that loses what was not committed."""

    cuts = ((BEFORE, 0),)
    small: ClassVar[dict[str, int]] = {}
    path = Path()

    def open(self) -> SqliteStore:
        store = opened(SqliteStore(self.path, **self.small))
        assert store.open() == OK
        return store

    def arm(self, store: SqliteStore, step: int, _moment: int) -> None:
        left = [step]
        plain = store.write

        def write(statement: str, *values: object) -> int:
            left[0] -= 1
            if left[0] < 0:
                raise PowerCut
            return plain(statement, *values)

        store.write = write  # type: ignore[method-assign]

    def cut(self, store: SqliteStore) -> None:
        assert store.barrier() == OK
        self.crash(store)

    def crash(self, store: SqliteStore, _kept: int = 0) -> None:
        store.close()


@pytest.fixture(params=["flash", "sqlite"], autouse=True)
def home(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[type]:
    """Where the devices of a test keep their store, each its own."""
    if request.param == "flash":
        monkeypatch.setattr(FlashHome, "small", {})
        monkeypatch.setattr(Unsteady, "home", FlashHome)
        yield FlashHome
        return
    made: list[SqliteHome] = []

    def make() -> SqliteHome:
        made.append(SqliteHome())
        made[-1].path = tmp_path / f"{len(made)}.db"
        return made[-1]

    monkeypatch.setattr(SqliteHome, "small", {})
    monkeypatch.setattr(Unsteady, "home", staticmethod(make))
    yield SqliteHome


class Unsteady(Devices):
    """A device with a client that keeps what begins with K, and peers B and C."""

    def __init__(self, mode: int = BATCH, **node: object) -> None:
        super().__init__("BC", mode, **node)

    def crash(self, kept: int = 0) -> None:
        """A power cut now; only `kept` bytes of what is not durable survive."""
        self._home.crash(self.store, kept)
        self._start()

    def cut_in(self, step: int, moment: int, kept: int, call: Callable[[], object]) -> bool:
        """Do something during which the power goes; False when it did not."""
        self._home.arm(self.store, step, moment)
        try:
            call()
        except PowerCut:
            self.crash(kept)
            return True
        self.crash(kept)
        return False

    def settle(self) -> None:
        """All that was sent is acknowledged, all is saved, and a boot comes after."""
        self.events()
        for _ in range(3):
            for name in "BC":
                sent = self.next(name)
                self.hear(name, acks=[self.id_of(body) for body in sent.bodies] + sent.offers)
        self.again()

    def has_entered(self, id: bytes) -> bool:
        """True when a message is in the log."""
        known = self.store.find(id, 0)
        return self.store.load(known) == OK and self.store.state == STATE_DELIVERED

    def is_private(self, id: bytes) -> bool:
        assert self.store.load(self.handle(id)) == OK
        return self.store.private

    def given_again(self, name: str, *bodies: bytes) -> list[bytes]:
        """Which of these bodies a peer is given, asked for what it is offered."""
        given = self.given_to(name, EPOCHS)
        return [body for body in bodies if body in given]


def chain(device: Devices, verdicts: str) -> list[bytes]:
    """Bodies, each of which depends on the one before."""
    bodies: list[bytes] = []
    for number, verdict in enumerate(verdicts):
        parents = [device.id_of(bodies[-1])] if bodies else []
        bodies.append(body_of(verdict, *parents, text=b"number %d" % number))
    return bodies


# --- sharing late ---


@modes
@pytest.mark.parametrize("own", [False, True], ids=["theirs", "own"])
@pytest.mark.parametrize("boot", ["none", "clean", "cut"])
def test_what_is_shared_late_reaches_all_over_a_reboot(mode: int, own: bool, boot: str) -> None:
    device = Unsteady(mode)
    kept, other = body_of("K", text=b"kept"), body_of("S", text=b"other")
    if own:
        device.publish(kept)
    else:
        device.give(kept)
    device.publish(other)
    device.settle()
    assert not device.given_again("C", kept)
    device.settle()
    assert device.node.share_message(device.handle(device.id_of(kept))) == OK
    if boot == "clean":
        device.again()
    elif boot == "cut":
        device.crash()
    assert device.given_again("C", kept) == [kept]
    assert device.given_again("B", kept) == ([kept] if own else [])


@modes
def test_a_peer_that_did_not_see_the_group_is_given_it_later(mode: int) -> None:
    device = Unsteady(mode)
    bodies = chain(device, "KK")
    device.give(*bodies)
    device.settle()
    device.node.share(device.group, device.peers["C"], INVISIBLE)
    assert device.node.share_message(device.handle(device.id_of(bodies[1]))) == OK
    assert not device.given_again("C", *bodies)
    device.again()  # it is shared with all from the start
    assert device.given_again("C", *bodies) == bodies


def test_a_stick_that_went_without_it_takes_it_the_next_time() -> None:
    device = Unsteady()
    kept = body_of("K", text=b"kept")
    device.give(kept)
    link = device.node.link(device.peers["C"], PROFILE_BSP_1, CARRIER_STICK, 0, BATCH)
    buffer = bytearray(1024)

    def written() -> bytes:
        link.visit(device.now_ms, False)
        found = b""
        while size := link.poll_into(buffer, device.now_ms):
            found += buffer[:size]
        link.commit(device.now_ms)
        return found

    device.publish(body_of("S", text=b"other"))
    assert kept not in written()
    assert device.node.share_message(device.handle(device.id_of(kept))) == OK
    assert kept in written()
    assert kept not in written(), "it is on the stick"


def test_sharing_survives_a_cut_at_each_step(home: type) -> None:
    """Each cut leaves nothing shared without its dependencies, and nothing else shared."""
    for moment, kept in home.cuts:
        step = 0
        cut = True
        while cut:
            device = Unsteady()
            bodies = chain(device, "KKDK")
            apart = body_of("K", device.id_of(bodies[0]), text=b"apart")
            ids = device.give(*bodies, apart)
            device.settle()
            share = partial(device.node.share_message, device.handle(ids[3]))
            cut = device.cut_in(step, moment, kept, share)
            private = [device.is_private(id) for id in ids[:4]]
            assert private == sorted(private), "first things first"
            assert cut or not any(private), "it returned OK"
            shared = [body for body, no in zip(bodies, private, strict=True) if not no]
            shared = [body for body in shared if body[:1] == b"K"]
            given = device.given_to("C", EPOCHS)
            assert given == shared, "all that is shared, and nothing else"
            assert device.node.share_message(device.handle(ids[3])) == OK
            device.crash()
            given += device.given_to("C", EPOCHS)
            assert set(given) == {bodies[0], bodies[1], bodies[3]}
            step += 1
        assert step > 3


def test_a_full_log_drops_nothing_that_was_shared_just_now(
    home: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = (
        {"segments_max": 8, "segment_size": 1024} if home is FlashHome else {"messages_max": 40}
    )
    monkeypatch.setattr(home, "small", small)
    device = Unsteady()
    kept = body_of("K", text=b"kept")
    device.give(kept, *[body_of("K", text=b"settled %d" % number) for number in range(30)])
    device.settle()
    assert device.node.share_message(device.handle(device.id_of(kept))) == OK
    for number in range(100):  # and no turn comes in which it could be saved
        device.give(body_of("K", text=b"%d" % number))
    assert device.node.refused
    assert device.given_again("C", kept) == [kept]


def test_nothing_of_another_group_is_shared_with_it() -> None:
    device = Unsteady(groups_max=2)
    client = Client()
    open_group = device.node.join(OTHER_CLIENT, b"open", GROUP_UNORDERED, client)
    device.node.share(open_group, device.peers["C"], SHARED)
    secret = body_of("K", text=b"secret")
    (id,) = device.give(secret)
    handles = []
    for verdict in "KS":
        body = body_of(verdict, id, text=b"names it")
        handles.append(device.node.publish(open_group, body, len(body), bytes(8), 0))
    assert device.node.share_message(handles[0]) == OK
    assert device.is_private(id)
    assert not device.given_again("C", secret)


# --- by the verdict of a client ---


@modes
@pytest.mark.parametrize("verdicts", ["KDS", "KDDS", "KKDDKS", "DDS", "SDKDS"])
@pytest.mark.parametrize("order", [1, -1], ids=["in order", "last first"])
def test_sharing_reaches_through_what_is_deleted_by_verdict(
    mode: int, verdicts: str, order: int
) -> None:
    device = Unsteady(mode)
    bodies = chain(device, verdicts)
    ids = device.give(*bodies[::order])[::order]
    wanted = [body for body in bodies if body[:1] != b"D"]
    assert sorted(device.given_to("C", EPOCHS)) == sorted(wanted)
    for id, body in zip(ids, bodies, strict=True):
        assert device.store.load(device.handle(id)) == OK and not device.store.private
        assert device.store.state == (STATE_DELETED if body[:1] == b"D" else STATE_DELIVERED)


@pytest.mark.parametrize("verdicts", ["KKS", "KDS", "D", "KDK"])
@pytest.mark.parametrize("late", [False, True], ids=["at once", "last first"])
@pytest.mark.parametrize("stride", strides(2))
def test_a_verdict_survives_a_cut_at_each_step(
    home: type, verdicts: str, late: bool, stride: int
) -> None:
    """No cut shares what was kept or deleted, nor a message without its dependencies.

    One whose deletion was cut off is there, and kept: what depends on it may share it.
    """
    for moment, kept in home.cuts:
        step = late % stride  # what one order leaves out the other tries
        cut = True
        while cut:
            device = Unsteady()
            bodies = chain(device, verdicts)
            last = bodies[-1]
            if late:
                last = bodies[0]
            device.give(*[body for body in bodies[::-1] if body != last][:: 1 if late else -1])
            device.settle()
            cut = device.cut_in(step, moment, kept, partial(device.give, last))
            ids = [device.id_of(body) for body in bodies]
            if verdicts[-1] == "S" and device.has_entered(ids[-1]):
                assert not any(device.is_private(id) for id in ids)
            given = device.given_to("C", EPOCHS)
            for _ in range(2):
                device.give(*bodies)
                given += device.given_to("C", EPOCHS)
            shared = set(bodies if verdicts[-1] == "S" else [])
            gone = {body for body in shared if body[:1] == b"D"}
            assert shared - gone <= set(given) <= shared
            assert cut or not gone & set(given)
            step += stride
        assert step > 1 or home is SqliteHome
