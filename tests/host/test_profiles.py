"""What agents speak with each other: compact-1, bsp-1 with who has no more, and the modes."""

import shutil
from collections.abc import Callable
from typing import Any

import pytest

from drupelet_host.broker import Broker
from drupelet_host.home.config import Peer
from host.conftest import WAIT_S, Cable, Home, share_keys, wait_for

MakeHome = Callable[..., Home]
A, B, C = 0xA0000001, 0xB0000002, 0xC0000003


def peer_of(name: str, number: int, url: str, **settings: Any) -> Peer:
    return Peer(name, number.to_bytes(4), url, epoch_ms=50, **settings)


def wait_for_logs(homes: list[Home], count: int, wait_s: float = WAIT_S) -> None:
    for home in homes:
        wait_for(
            lambda home=home: any(one.check_alive() for one in homes) or len(home.log()) >= count,
            f"{count} messages at {home.name}",
            wait_s,
        )


def exchange(homes: list[Home], count: int) -> None:
    """Messages both ways, while both agents run; each is there once."""
    before = len(homes[0].log())
    for number in range(count):
        for home in homes:
            home.put(f"{home.name} {before} {number}")
    wait_for_logs(homes, before + len(homes) * count)
    texts = [sorted(entry["text"] for entry in home.log()) for home in homes]
    assert all(text == texts[0] and len(set(text)) == len(text) for text in texts)


def said(home: Home, key: str, row: int = 0) -> Any:
    return home.status()["peers"][row][key]


@pytest.mark.parametrize(
    ("profiles", "spoken", "mode"),
    [
        (("compact-1", "compact-1"), "compact-1", "auto"),
        (("", "bsp-1"), "bsp-1", "batch"),
        (("bsp-1", ""), "bsp-1", "interactive"),
    ],
    ids=["both", "old-peer", "old-self"],
)
def test_a_pair_finds_what_both_speak(
    make_home: MakeHome, cable: Cable, profiles: tuple[str, str], spoken: str, mode: str
) -> None:
    homes = [
        make_home("a", A, peer_of("b", B, cable.url(0), mode=mode, profile=profiles[0])),
        make_home("b", B, peer_of("a", A, cable.url(1), mode=mode, profile=profiles[1])),
    ]
    for home in homes:
        home.start()
    exchange(homes, 4)
    for home in homes:
        wait_for(lambda home=home: said(home, "profile") == spoken, f"{spoken} at {home.name}")
        assert said(home, "mode") == mode
        assert said(home, "mode_now") in ("batch", "interactive")
        assert said(home, "mode_now") == mode or mode == "auto"
        # An old peer drops the frame that asks for compact-1, and counts it.
        assert home.status()["counters"]["malformed"] <= (4 if spoken == "bsp-1" else 0)
    homes[0].kill()
    homes[1].put("while the other was away")
    homes[0].start()
    wait_for_logs(homes, 9)
    wait_for(lambda: spoken in homes[0].run("status").stdout, f"{spoken} in its status")


def test_compact_frames_behind_a_broker(make_home: MakeHome) -> None:
    broker = Broker()
    url = broker.start() + "/t"
    try:
        homes = [
            make_home("a", A, peer_of("b", B, url, mode="auto", budget_bytes_per_epoch=300)),
            make_home("b", B, peer_of("a", A, url)),
        ]
        share_keys(*homes)
        for home in homes:
            home.start()
        homes[0].put("x" * 3000)  # ten epochs of the budget at least
        wait_for_logs(homes, 1)
        exchange(homes, 3)
        broker.stop()
        wait_for(lambda: said(homes[0], "state") == "down", "loss noticed")
        homes[0].put("written while the broker was away")
        broker.start()
        wait_for_logs(homes, 8)
        wait_for(lambda: said(homes[0], "profile") == "compact-1", "compact-1")
    finally:
        broker.stop()


@pytest.mark.parametrize(
    ("mode", "peer_restarts", "own"),
    [
        ("batch", False, 5),
        ("interactive", True, 0),
        ("batch", True, 5),
    ],
    ids=["peer-up", "peer-restarts", "own-lost-and-peer-restarts"],
)
def test_a_store_that_was_put_back(
    make_home: MakeHome, cable: Cable, mode: str, peer_restarts: bool, own: int
) -> None:
    """The peer believes that we hold what is lost: nothing but the new store_gen tells."""
    homes = [
        make_home("a", A, peer_of("b", B, cable.url(0), mode=mode)),
        make_home("b", B, peer_of("a", A, cable.url(1), mode=mode)),
    ]
    a, b = homes
    for home in homes:
        home.start()
    for number in range(60):
        a.put(f"kept {number}")
    wait_for_logs(homes, 60)
    b.stop()
    backup = b.path / "backup.db"
    shutil.copy(b.path / "store.db", backup)
    before = b.status()["store_gen"]
    b.start()
    for number in range(10 - own):
        a.put(f"lost {number}")
    for number in range(own):
        b.put(f"own and lost {number}")
    wait_for_logs(homes, 70)
    a.settle()
    b.stop()
    if peer_restarts:
        a.kill()
    shutil.copyfile(backup, b.path / "store.db")  # the same file: only the agent's word tells
    assert len(b.log()) == 60
    b.start()
    assert len(b.events("restored")) == 1
    if peer_restarts:
        a.start()
    wait_for_logs(homes, 70)
    wait_for(lambda: not said(b, "recovering"), "recovery")
    assert b.status()["store_gen"] & 0xFFFF != before & 0xFFFF
    exchange(homes, 2)
    # Of the ten that are lost some may come again: what was on its way when the peer was killed,
    # what a slow machine acknowledged late. The sixty that were kept do not.
    assert said(a, "duplicates") + said(b, "duplicates") < 60
    b.stop()
    b.start()
    assert len(b.events("restored")) == 1, "noticed once"


def test_peers_come_and_go_while_the_agent_runs(make_home: MakeHome) -> None:
    broker = Broker()
    url = broker.start() + "/t"
    try:
        a = make_home("a", A, peer_of("b", B, url))
        b = make_home("b", B, peer_of("a", A, url))
        c = make_home("c", C, peer_of("a", A, url))
        share_keys(a, b)
        share_keys(a, c)
        for home in (a, b, c):
            home.start()
        exchange([a, b], 2)
        done = a.run("peer", "add", "c", "c0000003", url, "--mode", "auto", "--epoch-ms", "50")
        assert (done.returncode, done.stdout) == (0, "c added; the agent knows\n"), done.stderr
        wait_for_logs([a, b, c], 4)
        done = a.run("peer", "remove", "b")
        assert (done.returncode, done.stdout) == (0, "b removed; the agent knows\n"), done.stderr
        assert [peer["name"] for peer in a.status()["peers"]] == ["c"]
        b.put("nobody hears this")
        exchange([a, c], 2)
        wait_for_logs([b], 5)
        assert "nobody hears this" not in {entry["text"] for entry in a.log()}
        assert a.run("peer", "add", "b", "b0000002", url, "--epoch-ms", "50").returncode == 0
        wait_for_logs([a, b, c], 9)
        assert [len(home.log()) for home in (a, b, c)] == [9, 9, 9]
        again = a.run("peer", "add", "b", "b0000002", url)
        assert again.returncode == 2 and "used twice" in again.stderr
        wrong = a.run("peer", "add", "d", "d0000004", "gopher://x")
        assert wrong.returncode == 1 and len(wrong.stderr.splitlines()) == 1
        assert [peer["name"] for peer in a.status()["peers"]] == ["c", "b"]
        a.stop()
        a.start()
        exchange([a, b], 1)
    finally:
        broker.stop()
