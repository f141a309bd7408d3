"""What each group cost, and back-offs that began anew, against truth worked out by hand."""

import pytest

from drupelet_tools.telemetry.analysis import figures, group_costs
from drupelet_tools.telemetry.lake import commit, delta
from drupelet_tools.telemetry.page import report
from telemetry import fleet_rows
from telemetry.fleet_rows import START_MS, message
from telemetry.lake_figures import A, B, C, D, figures_of


def test_groups_by_their_tags_each_with_its_multiplier(tmp_path):
    """A and B share 1111, all three share 2222: what C never got was not for it in 1111."""
    rows = []
    for turn in range(4):
        own = {"group_tag": 0x1111}
        rows += [message(A, turn, "created", START_MS, **own),
                 message(A, turn, "sent", START_MS, peer=1, count=2, sends_max=2),
                 message(A, turn, "acked", START_MS, peer=1),
                 message(B, turn, "delivered", START_MS + 1, peer=1, **own)]  # fmt: skip
    own = {"group_tag": 0x2222}
    rows += [message(C, 99, "created", START_MS, **own),
             message(C, 99, "sent", START_MS, peer=1), message(C, 99, "sent", START_MS, peer=2),
             message(C, 99, "acked", START_MS, peer=2),
             message(A, 99, "received", START_MS + 1, peer=2),
             message(A, 99, "delivered", START_MS + 1, peer=2, **own),
             message(B, 98, "created", START_MS, **own)]  # fmt: skip
    traffic = fleet_rows.traffic(A, "mqtt", "sent", {1: 1_000, 2: 100, 3: 800})
    traffic += fleet_rows.traffic(C, "mqtt", "sent", {1: 300, 3: 200})
    found, devices = figures_of(tmp_path, messages=rows, traffic=traffic)
    first, second = found["fleet"]["groups"]
    assert (first["group"], first["devices"], first["messages"]) == ("1111", [A, B], 4)
    assert (first["deliveries"], first["sent"], first["acked"]) == (4, 8, 4)
    assert first["multiplier_records"] == 3
    assert (second["group"], second["devices"], second["messages"]) == ("2222", [A, B, C], 2)
    assert (second["deliveries"], second["multiplier_records"]) == (1, 3)
    # A's acknowledgements were for the second group; its framing goes by all that it did.
    assert first["bytes"] + second["bytes"] == 1_300
    assert first["bytes"] == 800 + round(100 * 16 / 18)
    assert first["multiplier_bytes"] == pytest.approx((800 + 100 * 16 / 18) / (100 * 4))
    assert (first["shared"], second["shared"]) == (2, 2)
    told = {
        d: (row["latency"]["timed"], row["latency"]["undelivered"]) for d, row in devices.items()
    }
    assert told == {A: (1, 1), B: (4, 1), C: (0, 1)}
    page = report.render(found)
    assert "<code>1111…</code>" in page and "≈" in page


def test_a_tag_that_two_groups_share_is_divided_in_a_fleet_of_many(monkeypatch, tmp_path):
    rows = []
    for one, other, name in ((A, B, 1), (C, D, 2)):
        rows += [message(one, name, "created", START_MS, group_tag=7),
                 message(other, name, "delivered", START_MS + 1, peer=1, group_tag=7)]  # fmt: skip
    all_figures, _ = figures_of(tmp_path, messages=rows)
    assert [row["devices"] for row in all_figures["fleet"]["groups"]] == [[A, B, C, D]]
    assert all_figures["fleet"]["latency"]["undelivered"] == 4
    monkeypatch.setattr(group_costs, "TAGS_SURE_MAX", 0)
    all_figures = figures.figures(delta.open_lake(tmp_path / "lake"))
    groups = [row["devices"] for row in all_figures["fleet"]["groups"]]
    assert sorted(groups) == [[A, B], [C, D]]
    assert all_figures["fleet"]["latency"]["undelivered"] == 0


def test_a_back_off_that_begins_anew_is_a_reset(tmp_path):
    """To peer 1 with counts 1 2 3 1 2, to peer 2 with 1 2; offers with 1 1 1."""
    rows = [message(A, 1, "created", START_MS),
            message(A, 1, "sent", START_MS, peer=1, count=5, sends_max=3, first_sends=2),
            message(A, 1, "sent", START_MS, peer=2, count=2, sends_max=2, first_sends=1),
            message(A, 2, "offered", START_MS, peer=1, count=3, first_sends=3),
            message(B, 1, "delivered", START_MS + 8)]  # fmt: skip
    found, devices = figures_of(tmp_path, messages=rows)
    assert (devices[A]["sync"]["resets"], devices[A]["sync"]["offer_resets"]) == (1, 2)
    assert found["fleet"]["sync"]["resets"] == 1
    assert devices[A]["sync"]["sends"] == [0, 1, 0, 0, 1, 0, 0, 0]
    # The device started anew in between: the count begins again, too.
    rows[1:2] = [message(A, 1, "sent", START_MS, peer=1, boot=boot, count=1, first_sends=1)
                 for boot in (1, 2)]  # fmt: skip
    commit.append(tmp_path / "other", {"messages": rows, "health": [fleet_rows.health(A)]}, "2")
    again = figures.figures(delta.open_lake(tmp_path / "other"))
    assert again["fleet"]["sync"]["resets"] == 1
