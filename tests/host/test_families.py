"""Agents whose readings are of the family of MVDS, or of Briar's: over a cable and a broker."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from drupelet.node import CARRIER_SERIAL, INVISIBLE, SHARED
from drupelet_host.broker import Broker
from drupelet_host.home import config
from drupelet_host.home.config import PROFILES_OF, Config, Peer
from drupelet_host.member.member import Member
from host.conftest import Cable, Home, share_keys, wait_for

A, B = 0xA0000001, 0xB0000002


def be(home: Home, family: str) -> None:
    path = home.path / "drupelet.toml"
    path.write_text(f'family = "{family}"\n' + path.read_text())


@pytest.mark.parametrize(
    ("family", "profile"),
    [("mvds", "mvds-1"), ("bsp-0", "bsp-0")],
)
def test_two_agents_on_a_cable(
    make_home: Callable[..., Home], cable: Cable, family: str, profile: str, tmp_path: Path
) -> None:
    homes = []
    for row, (name, id, other) in enumerate((("a", A, B), ("b", B, A))):
        peer = Peer("ba"[row], other.to_bytes(4), cable.url(row), "interactive", 50)
        homes.append(make_home(name, id))
        be(homes[-1], family)
        config.add_peer(homes[-1].path, replace(peer, profile=profile))
        homes[-1].start()
    a, b = homes
    for row in range(4):
        a.put(f"a {row}")
        b.put("the same")  # told apart, whatever the family makes of it
    text = "x" * 3000
    (tmp_path / "long.txt").write_text(text)
    assert a.run("put", "--file", str(tmp_path / "long.txt")).returncode == 0
    for home in homes:
        wait_for(lambda home=home: len(home.log()) == 9, f"all at {home.name}")
        wait_for(lambda home=home: len(home.events("delivered")) == 9, "word of each")
    for home in homes:
        home.settle()
        log = home.log()
        assert sorted(entry["text"] for entry in log)[:4] == [f"a {row}" for row in range(4)]
        assert sum(entry["text"] == "the same" for entry in log) == 4
        assert text in [bytes.fromhex(entry["payload"]).decode() for entry in log]
        # Times are shown as times, and who comes after whom where the family says it.
        assert all(entry["time"].startswith("20") for entry in log)
        assert any(entry["dependencies"] for entry in log) == (family == "mvds")
        assert home.status()["peers"][0]["profile"] == profile
        told = home.events("delivered")
        assert len(told) == 9 and all(event["timestamp_ms"] > 1_700_000_000_000 for event in told)


def test_what_fits_no_frame_is_told_until_the_peer_reads_segments(
    make_home: Callable[..., Home], cable: Cable, tmp_path: Path
) -> None:
    homes = []
    for row, (name, id, other) in enumerate((("a", A, B), ("b", B, A))):
        homes.append(make_home(name, id))
        be(homes[-1], "mvds")
        peer = Peer("ba"[row], other.to_bytes(4), cable.url(row), "batch", 50, profile="mvds-1")
        config.add_peer(homes[-1].path, peer)
    a, b = homes
    a.start()  # nobody is at the other end of the cable
    a.put("small")
    for number in range(2):
        (tmp_path / "long.txt").write_text(f"{number}" * 3000)
        assert a.run("put", "--file", str(tmp_path / "long.txt")).returncode == 0
    wait_for(lambda: a.status()["peers"][0]["undeliverable"] == 2, "two are passed over")
    wait_for(lambda: a.status()["peers"][0]["outstanding"] == 1, "the small one is owed alone")
    assert "b: 2 messages not deliverable: too long for a frame" in a.run("status").stdout
    b.start()
    wait_for(lambda: len(b.log()) == 3, "all of them after all")
    wait_for(lambda: a.status()["peers"][0]["undeliverable"] == 0, "that is told, too")
    a.settle()
    assert "not deliverable" not in a.run("status").stdout


def test_briars_profile_sealed_behind_a_broker_and_after_a_restart(
    make_home: Callable[..., Home], broker: Broker
) -> None:
    url = broker.start() + "/t"
    homes = [make_home("a", A), make_home("b", B)]
    for home, other in zip(homes, homes[::-1], strict=True):
        be(home, "bsp-0")
        config.add_peer(home.path, Peer(other.name, other.id, url, "batch", 50))
        assert config.load(home.path).peers[0].profile == "bsp-0"
    share_keys(*homes)
    for home in homes:
        home.start()
    homes[0].put("one")
    wait_for(lambda: len(homes[1].log()) == 1, "the first")
    homes[1].kill()
    homes[0].put("two")
    homes[1].start()
    homes[1].put("three")
    for home in homes:
        wait_for(lambda home=home: len(home.log()) == 3, f"all at {home.name}")


def test_a_family_is_written_as_it_is_read(make_home: Callable[..., Home], tmp_path: Path) -> None:
    home = make_home("a", A)
    for family, profiles in PROFILES_OF.items():
        peer = Peer("b", b"bbbb", "mqtt://h/p", profile=profiles[-1])
        made = replace(
            config.load(home.path), home=tmp_path / family, family=family, peers=(peer,)
        )
        config.create(made)
        assert config.load(made.home) == made


@pytest.mark.parametrize(("first", "other"), [("bsp", "mvds"), ("mvds", "bsp")])
def test_a_store_refuses_a_family_that_was_changed(
    make_home: Callable[..., Home], first: str, other: str
) -> None:
    """The id of the group is the same; that of each of its messages would be another."""
    home = make_home("a", A)
    path = home.path / "drupelet.toml"
    be(home, first)
    home.start()
    home.put("one")
    wait_for(lambda: len(home.log()) == 1, "the first")
    home.kill()
    path.write_text(path.read_text().replace(f'family = "{first}"', f'family = "{other}"'))
    done = home.run("agent")
    assert done.returncode == 1 and "one id family for life" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("family", PROFILES_OF)
def test_what_no_link_carries_does_not_wait_for_a_peer(family: str, tmp_path: Path) -> None:
    """Commands and notices are of the bsp family; queued for another's peer they stay for ever."""
    peer = Peer("b", B.to_bytes(4), "serial:///dev/null", "batch", profile=PROFILES_OF[family][0])
    settings = Config(tmp_path / "a", "a", A.to_bytes(4), "well", 50, None, (peer,), family=family)
    config.create(settings)
    member = Member(settings)
    member.live_link(peer, CARRIER_SERIAL, 0)
    members = member.node.core.members
    row = members.peer_row(member.numbers[peer.id])
    seen = {
        group: members.visibility(members.group_row(group), row)
        for group in (member.readings, *member.clients.groups)
    }
    assert seen.pop(member.readings) == SHARED
    assert set(seen.values()) == {SHARED if family == "bsp" else INVISIBLE}
    member.close(0)
