"""`share_with` of a public group: five agents as processes, each offers to one at a time."""

import itertools
import re
import time
from collections.abc import Callable

from drupelet_host.broker import Broker
from drupelet_host.home import config
from drupelet_host.home.config import Peer
from host.conftest import Home, share_keys, wait_for

MakeHome = Callable[..., Home]
NAMES = "abcde"
IDS = {name: 0xA0000001 + row for row, name in enumerate(NAMES)}
MESSAGES_EACH = 4


def mesh(make_home: MakeHome, url: str, share_with: int, period_ms: int) -> list[Home]:
    """Everybody has a link to everybody."""
    homes = []
    for own in NAMES:
        peers = [
            Peer(other, IDS[other].to_bytes(4), url, "batch", 50)
            for other in NAMES
            if other != own
        ]
        home = make_home(own, IDS[own], *peers)
        path = home.path / config.CONFIG_NAME
        lines = f'client = "public"\nshare_with = {share_with}\nshare_period_ms = {period_ms}\n'
        path.write_text(lines + path.read_text().replace('group = "orchard"', 'group = "#frost"'))
        homes.append(home)
    for one, other in itertools.combinations(homes, 2):
        share_keys(one, other)
    return homes


def test_every_message_reaches_all_though_each_agent_offers_to_one_at_a_time(
    make_home: MakeHome, broker: Broker
) -> None:
    homes = mesh(make_home, broker.start() + "/t", 1, 700)
    for home in homes:
        home.start()
    drawn: set[str] = set()

    def shares_with() -> list[str]:
        names = homes[0].status()["shares_with"]
        drawn.update(names)
        return list(names)

    wait_for(lambda: len(shares_with()) == 1, "a peer that was drawn")
    texts = set()
    for number in range(MESSAGES_EACH):
        for home in homes:
            home.put(f"{home.name} {number}")
            texts.add(f"{home.name} {number}")
    for home in homes:
        wait_for(lambda home=home: len(home.log()) == len(texts), f"all messages at {home.name}")
        assert {entry["text"] for entry in home.log()} == texts
        told = [event["id"] for event in home.events("delivered")]
        assert len(told) == len(set(told)) == len(texts)
    wait_for(lambda: shares_with() and drawn == {"b", "c", "d", "e"}, "everybody drawn once")
    said = homes[0].run("status").stdout
    assert re.search(r"^in this period the log is offered to [b-e]$", said, re.MULTILINE)
    # Who is not reached any more is drawn no more; and a restart begins anew.
    homes[0].stop()
    assert homes[0].status()["shares_with"] is None
    homes[0].start()
    homes[1].put("after a restart")
    for home in homes:
        wait_for(lambda home=home: len(home.log()) == len(texts) + 1, f"one more at {home.name}")


def test_only_who_was_drawn_is_offered_anything(make_home: MakeHome, broker: Broker) -> None:
    """The period is longer than the test: one copy leaves each agent that has the message."""
    homes = mesh(make_home, broker.start() + "/t", 1, 3_600_000)
    by_name = {home.name: home for home in homes}
    for home in homes:
        home.start()
    next_of = {
        home.name: wait_for(lambda home=home: home.status()["shares_with"], "a peer")[0]
        for home in homes
    }
    homes[0].put("for one")
    reached = [homes[0].name]
    while next_of[reached[-1]] not in reached:
        reached.append(next_of[reached[-1]])
        wait_for(by_name[reached[-1]].log, f"the message at {reached[-1]}")
    begun_ms = time.time_ns() // 1_000_000
    for home in homes:  # twenty epochs later it is nowhere else
        wait_for(lambda home=home: home.status()["said_ms"] > begun_ms + 1000, "later word")
    assert {home.name for home in homes if home.log()} == set(reached)
    assert all(home.status()["shares_with"] == [next_of[home.name]] for home in homes)


def test_share_with_is_of_public_groups(make_home: MakeHome) -> None:
    home = make_home("x", 0xD0000000)
    path = home.path / config.CONFIG_NAME
    path.write_text("share_with = 2\n" + path.read_text())
    refused = home.run("status")
    assert refused.returncode == 2
    assert 'share_with: needs client = "public"' in refused.stderr
