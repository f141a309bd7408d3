"""Visits of sticks: all letters go with them, an ill medium ends nothing, names may change."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from drupelet.base.errors import E_CAPACITY, OK, StorageError
from drupelet.seal.record import FLAG_PACKS, install
from drupelet_host.agent import stick_visit
from drupelet_host.agent.loop import Agent, visit_alone
from drupelet_host.base import clock
from drupelet_host.base.output import Output
from drupelet_host.feeds.home_log import open_folder
from drupelet_host.feeds.root import FeedRoot
from drupelet_host.home import config, private_files
from drupelet_host.home.config import Peer
from drupelet_host.keys import key_folder, provision
from drupelet_host.member import member
from drupelet_host.remote.content_store import FolderStore
from drupelet_host.store import database, outbox
from drupelet_host.view.log_view import LogView
from drupelet_transports.stick import stick
from host.conftest import Home, share_keys

MakeHome = Callable[..., Home]
A, B = 0xA0000001, 0xB0000002


@pytest.fixture
def usb(tmp_path: Path) -> Path:
    folder = tmp_path / "usb"
    folder.mkdir()
    return folder


@pytest.fixture
def homes(make_home: MakeHome, usb: Path) -> list[Home]:
    """a and b, which meet by stick."""
    made = [
        make_home("a", A, Peer("b", B.to_bytes(4), f"stick://{usb}")),
        make_home("b", B, Peer("a", A.to_bytes(4), f"stick://{usb}")),
    ]
    share_keys(*made)
    return made


@pytest.fixture
def agent(homes: list[Home]) -> Iterator[Agent]:
    """The agent of a, in this process."""
    made = Agent(config.load(homes[0].path), Output(True), True)
    made.member.commit()
    yield made
    made.channels.close()
    made.member.close(clock.now_ms())
    made.member.sealing.close()


def unsent(home: Home) -> int:
    """Messages that are in no log yet."""
    connection = database.connect(home.path / "store.db")
    try:
        return outbox.waiting(connection)
    finally:
        connection.close()


def test_all_letters_leave_with_a_stick(
    homes: list[Home], usb: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who reads "safe to unplug" carries what was put before, however much it is."""
    monkeypatch.setattr(member, "LETTERS_PER_TURN_MAX", 4)
    texts = [f"reading {number:02}" for number in range(11)]
    for text in texts:
        homes[0].put(text)
    report = visit_alone(config.load(homes[0].path), usb)
    assert report["safe_to_unplug"] and unsent(homes[0]) == 0
    visit_alone(config.load(homes[1].path), usb)
    assert [entry["text"] for entry in homes[1].log()] == texts


def test_all_letters_leave_with_a_stick_that_the_agent_visits(
    homes: list[Home], agent: Agent, usb: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member, "LETTERS_PER_TURN_MAX", 4)
    for number in range(11):
        homes[0].put(f"reading {number:02}")
    assert agent.visit(usb)["safe_to_unplug"] and unsent(homes[0]) == 0
    visit_alone(config.load(homes[1].path), usb)
    assert len(homes[1].log()) == 11


def test_a_log_that_takes_no_more_keeps_no_visit_waiting(
    homes: list[Home], agent: Agent, usb: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent.member.node, "publish", lambda *_: E_CAPACITY)
    homes[0].put("no room")
    assert agent.visit(usb)["safe_to_unplug"] and unsent(homes[0]) == 1


def test_a_peer_with_another_name_is_told_of_by_that(
    homes: list[Home], agent: Agent, usb: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    homes[1].put("frost")
    visit_alone(config.load(homes[1].path), usb)
    path = homes[0].path / "drupelet.toml"
    path.write_text(path.read_text().replace('name = "b"', 'name = "barn"'))
    assert "error" not in agent.reload()
    report = agent.visit(usb)
    assert report["peers"] == report["heard"] == ["barn"]
    assert '"via": "barn"' in capsys.readouterr().out.replace('":"', '": "')
    heard_ms = agent.status().peers[0].heard_ms
    assert heard_ms > 0
    path.write_text(path.read_text().replace('name = "barn"', 'name = "well"'))
    assert "error" not in agent.reload()
    assert agent.status().peers[0].heard_ms == heard_ms, "it is the same device"


def peer_of(home: Home) -> dict[str, Any]:
    """What `drupelet status` says of a home's only peer."""
    view = LogView(home.path)
    try:
        (peer,) = msgspec.to_builtins(view.status())["peers"]
    finally:
        view.close()
    return dict(peer)


def test_a_visit_without_an_agent_says_how_it_stands(homes: list[Home], usb: Path) -> None:
    a, b = homes
    settings = config.load(a.path)
    a.put("frost")
    visit_alone(settings, usb)
    assert (peer_of(a)["outstanding"], peer_of(a)["heard_ms"]) == (1, 0)
    visit_alone(config.load(b.path), usb)
    visit_alone(settings, usb)
    told = peer_of(a)
    assert told["outstanding"] == 0 and told["heard_ms"] > 0 and told["mode_now"] == "batch"
    visit_alone(settings, usb)
    assert peer_of(a)["heard_ms"] == told["heard_ms"], "nothing new was there"
    agent = Agent(settings, Output(True), True)
    assert agent.status().peers[0].heard_ms == told["heard_ms"]
    agent.channels.close()
    agent.member.close(clock.now_ms())
    agent.member.sealing.close()


def test_who_only_visits_notices_a_store_that_was_put_back(homes: list[Home], usb: Path) -> None:
    a, b = homes
    a.put("before")
    visit_alone(config.load(a.path), usb)
    store = a.path / "store.db"
    old = store.read_bytes()
    a.put("after")
    for home in (a, b):
        visit_alone(config.load(home.path), usb)
    store.write_bytes(old)  # the file itself stays
    for home in (a, b, a):
        visit_alone(config.load(home.path), usb)
    assert [entry["text"] for entry in a.log()] == ["before", "after"], "b gives it back"


def test_a_word_that_is_damaged_keeps_no_visit_waiting(homes: list[Home], usb: Path) -> None:
    settings = config.load(homes[0].path)
    settings.status_path.write_text('{"store":' + "[" * 200_000)
    assert visit_alone(settings, usb)["safe_to_unplug"]


def test_a_visit_whose_word_cannot_be_written_says_so(homes: list[Home], usb: Path) -> None:
    path = config.load(homes[0].path).status_path
    path.with_name(path.name + ".tmp").mkdir()
    report = visit_alone(config.load(homes[0].path), usb)
    assert report["safe_to_unplug"] and f"{path}: not written" in report["problems"][-1]


def make_ill(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """From now on the kernel can read nothing at this place, as with a damaged stick."""
    stat, lstat = os.stat, os.lstat

    def looked(real: Callable[..., os.stat_result]) -> Callable[..., os.stat_result]:
        def look(path: Any, *words: Any, **options: Any) -> os.stat_result:
            if str(path).startswith(str(folder)):
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
            return real(path, *words, **options)

        return look

    patch.setattr(os, "stat", looked(stat))
    patch.setattr(os, "lstat", looked(lstat))


def test_a_place_that_cannot_be_looked_at_is_not_there(
    agent: Agent, usb: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`Path.is_dir` and `Path.is_symlink` raise for it; nothing that a carrier does may."""
    store = FolderStore(usb)
    agent.watch_sticks()
    (usb / stick_visit.FOLDER).mkdir(exist_ok=True)
    with monkeypatch.context() as patch:
        make_ill(patch, usb / stick_visit.FOLDER)
        report = agent.visit(usb)
        assert report["peers"] == ["b"] and not report["heard"]
    with monkeypatch.context() as patch:
        make_ill(patch, usb)
        agent.watch_sticks()
        assert open_folder(f"folder:{usb}") is None
        for use in (lambda: store.fetch(b"n"), lambda: store.add(b"c")):
            with pytest.raises(StorageError, match="no such folder; plug the stick in"):
                use()
        for kind in ("push", "pull"):
            assert "plug the stick in" in agent.remote_log(kind, str(usb))["error"]
        assert "no stick there" in agent.visit(usb)["error"]
    (usb / "DRUPELET").mkdir(exist_ok=True)
    said = agent.visit(usb / "DRUPELET")["error"]
    assert "DRUPELET: name the stick, which is the folder that DRUPELET is in" in said
    ours = usb / "DRUPELET" / agent.config.id.hex().upper()
    ours.mkdir(exist_ok=True)
    assert "name the stick" in agent.visit(ours)["error"] and not list(ours.glob("DRUPELET"))


def test_the_key_of_a_feed_that_cannot_be_made_is_one_line(
    agent: Agent, usb: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, _: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(private_files, "create", full)
        with pytest.raises(StorageError, match=r"feed\.key: cannot be written \(No space left"):
            FeedRoot(agent.config).current(b"")
        assert "No space left" in agent.remote_log("push", str(usb))["error"]
    root = FeedRoot(agent.config).current(b"")
    assert len(root) == 32 and FeedRoot(agent.config).current(b"") == root


@pytest.mark.parametrize("size", [0, 31])
def test_the_key_of_a_feed_that_was_cut_short_is_none(agent: Agent, size: int) -> None:
    """Of zero bytes everybody could make the keys of our pages."""
    path = agent.config.keys_path / "feed.key"
    private_files.replace(path, bytes(size))
    with pytest.raises(StorageError, match=r"feed\.key: cut short; .* remove it"):
        FeedRoot(agent.config).current(b"")


def test_more_bundles_than_are_looked_at_do_not_make_each_the_whole_log(
    homes: list[Home], agent: Agent, usb: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The peer does not come for months; all of it is read when it does."""
    monkeypatch.setattr(stick, "NAMES_MAX", 4)
    sizes = []
    for number in range(20):
        homes[0].put(f"reading {number:02}")
        assert agent.visit(usb)["safe_to_unplug"]
        sizes.append(max((usb / "DRUPELET").rglob("*.DRP")).stat().st_size)
    assert max(sizes) < 2 * min(sizes)
    monkeypatch.undo()
    visit_alone(config.load(homes[1].path), usb)
    assert len(homes[1].log()) == 20


def space(patch: pytest.MonkeyPatch, usb: Path, size: int, says: bool) -> None:
    """From now on the stick has room for `size` bytes, in clusters of 4 KiB, as it `says`."""
    put = stick.put_bytes

    def used() -> int:
        files = [path.stat().st_size for path in usb.rglob("*") if path.is_file()]
        return sum(-(-size // 4096) * 4096 for size in files)

    def limited(file: Any, buf: bytes, count: int) -> None:
        file.flush()
        if used() + count > size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        put(file, buf, count)

    patch.setattr(stick, "put_bytes", limited)
    free = [4096, 4096, 1 << 20, 0, 0, 0, 0, 0, 0, 0]

    def statvfs(_: str) -> list[int]:
        free[4] = (size - used()) // 4096 if says else 1 << 20
        return free

    patch.setattr(os, "statvfs", statvfs)


@pytest.mark.parametrize("says", [True, False])
def test_a_stick_with_less_room_than_the_backlog_carries_what_it_can(
    homes: list[Home], usb: Path, monkeypatch: pytest.MonkeyPatch, says: bool
) -> None:
    """128 KiB and 1,000 messages; where it has less room than it says, too."""
    a, b = homes
    alice = Agent(config.load(a.path), Output(True), True)
    for number in range(1000):
        body = b"\x00%04d" % number + bytes(100)
        stamp8 = clock.timestamp8(1_700_000_000_000 + number)
        assert alice.member.node.publish(alice.member.readings, body, len(body), stamp8, 0) > 0
    alice.member.commit()
    space(monkeypatch, usb, 128 << 10, says)
    came = 0
    for _ in range(3):
        report = alice.visit(usb)
        assert report["safe_to_unplug"]
        again = alice.visit(usb)
        assert again["waiting"] == report["waiting"], "nothing is written twice"
        theirs = visit_alone(config.load(b.path), usb)
        assert theirs["messages"] > (300 if came < 700 else 0), theirs
        came += theirs["messages"]
        assert came + report["waiting"] == 1000
        if report["waiting"]:
            assert f"{report['waiting']} messages for b wait" in report["problems"][0]
        if came == 1000:
            break
    assert came == 1000
    report = alice.visit(usb)
    assert report["frames_written"] == report["waiting"] == 0 and not report["problems"]
    assert alice.member.node.outstanding(alice.member.numbers[B.to_bytes(4)]) == 0
    alice.channels.close()
    alice.member.close(clock.now_ms())
    alice.member.sealing.close()


def test_black_boxes_are_no_new_messages(homes: list[Home], usb: Path) -> None:
    a, b = homes
    alice = Agent(config.load(a.path), Output(True), True)
    alice.member.node.share(alice.member.telemetry, alice.member.numbers[B.to_bytes(4)], 2)
    alice.member.box.log(clock.now_ms(), 1, 0, 0, 0, 0)
    alice.member.node.telemetry_flush(
        alice.member.telemetry, clock.now_ms(), clock.timestamp8(clock.wall_ms())
    )
    alice.visit(usb)
    alice.channels.close()
    alice.member.close(clock.now_ms())
    alice.member.sealing.close()
    report = visit_alone(config.load(b.path), usb)
    assert report["frames_read"] > 2 and report["messages"] == 0, "nobody wrote one"


def test_the_first_contact_by_stick_is_packed_and_a_new_root_keeps_that(
    homes: list[Home], usb: Path
) -> None:
    """Both are hosts of ours, and their keys say so: at most 112 bytes a message, sealed."""
    a, b = homes
    alice = Agent(config.load(a.path), Output(True), True)
    for number in range(100):
        body = b"\x00" + number.to_bytes(2) + os.urandom(97)
        stamp8 = clock.timestamp8(1_700_000_000_000 + number * 900_000)
        assert alice.member.node.publish(alice.member.readings, body, 100, stamp8, 0) > 0
    alice.visit(usb)
    visit_alone(config.load(b.path), usb)
    files = sum(path.stat().st_size for path in usb.rglob("*.DRP"))
    assert files <= 112 * 100, files
    alice.visit(usb)
    assert alice.member.node.outstanding(alice.member.numbers[B.to_bytes(4)]) == 0
    alice.channels.close()
    alice.member.close(clock.now_ms())
    alice.member.sealing.close()


def test_a_board_whose_program_nobody_knows_gets_records(tmp_path: Path) -> None:
    """A folder does not say what its firmware reads."""
    flash = tmp_path / "flash"
    flash.mkdir()
    (tmp_path / "keys").mkdir(mode=0o700)
    ids = (A.to_bytes(4), B.to_bytes(4))
    for theirs, packs in (
        (provision.FlashKeys(flash, ids[1], ids[0]), False),
        (provision.HomeKeys(tmp_path / "other", ids[1], ids[0]), True),
    ):
        ours = provision.HomeKeys(tmp_path / "keys", *ids)
        provision.provision(ours, theirs, 8, issuer=True)
        states = key_folder.look(tmp_path / "keys", ids[1])
        assert states and all(state.packs is packs for state in states)


def test_a_new_root_keeps_what_is_known_of_the_peer() -> None:
    ours = provision.RamKeys(A.to_bytes(4), B.to_bytes(4))
    assert install(ours, bytes(32), 4, 0, FLAG_PACKS) == OK
    assert install(ours, bytes(31) + b"1", 4, 1, 0) == OK
    chains = [record for row, record in ours.records.items() if row < key_folder.CHAIN_ROWS]
    assert len(chains) == 8, "both directions of both carrier classes, in two generations"
    assert all(record[1] & FLAG_PACKS for record in chains)
