"""The mobile paper's simulations: on the real core, on the same contacts for each protocol."""

import json
import math
import re
import statistics
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from drupelet_tools.sim import channels, paper, paper_naive, paper_sds, paper_world
from drupelet_tools.sim.command import app
from drupelet_tools.sim.hoststore import MemoryStore
from drupelet_tools.sim.paper import KNOWN, interval, run_seed, setting_of
from drupelet_tools.sim.paper_command import line_of
from drupelet_tools.sim.paper_page import page
from drupelet_tools.sim.paper_record import table
from drupelet_tools.sim.paper_world import Outcome, PaperWorld, Setting

SEEDS = range(40)


def p90(latencies: list[int]) -> int:
    return sorted(latencies)[int(len(latencies) * 0.9)]


@pytest.mark.parametrize("window_ticks", [10, 1])
def test_simulation_1_three_times_the_bytes_and_no_later_than_naive(window_ticks: int) -> None:
    """The target: at most 3 bytes sent per byte delivered, P90 no worse than naive's."""
    settings = [Setting(name, window_ticks=window_ticks) for name in ("naive", "compact-1")]
    naive = [paper_naive.run(settings[0], seed) for seed in SEEDS]
    ours = [PaperWorld(settings[1], seed).run() for seed in SEEDS]
    assert all(outcome.deliveries == len(outcome.latencies) == 10 for outcome in naive + ours)
    spent = statistics.mean(outcome.multiplier_bytes for outcome in ours)
    naive_spent = statistics.mean(outcome.multiplier_bytes for outcome in naive)
    print(f"\nsimulation 1: {spent:.2f} times the bytes, naive {naive_spent:.1f}")
    assert spent + interval([outcome.multiplier_bytes for outcome in ours]) <= 3
    assert naive_spent > (10 if window_ticks == 10 else 4) * spent
    # The same contacts: what is late is late for both.
    for one, other in zip(ours, naive, strict=True):
        assert p90(one.latencies) <= p90(other.latencies) + 1


@pytest.mark.parametrize("simulation", range(1, 8))
def test_each_simulation_delivers_everything(simulation: int) -> None:
    for protocol in KNOWN[simulation]:
        outcome = run_seed((setting_of(simulation, protocol, 5, 300), 1))
        lost = protocol == "sds" and outcome.delivered != 1
        assert lost or len(outcome.latencies) == outcome.deliveries, protocol
        assert outcome.records > outcome.deliveries, protocol
        assert outcome.bytes > outcome.deliveries * 100, protocol


@pytest.mark.parametrize("protocol", ["bsp-1", "mvds-1", "compact-1", "compact-1+offers", "bloom"])
def test_a_store_in_dicts_changes_no_byte(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = Setting(protocol, people=6)
    fast = PaperWorld(setting, 3).run()
    monkeypatch.setattr(paper_world, "GrowingStore", MemoryStore)
    assert PaperWorld(setting, 3).run() == fast


@pytest.mark.parametrize("protocol", ["bsp-1+offers", "mvds-1", "compact-1", "topic"])
def test_what_finds_no_row_waits_in_the_log(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With rows for half of the messages it takes little more than with rows for all."""
    setting = Setting(protocol, people=6)
    roomy = PaperWorld(setting, 3).run()
    monkeypatch.setattr(paper_world, "ROWS", setting.people * setting.messages_each // 2)
    narrow = PaperWorld(setting, 3).run()
    assert len(narrow.latencies) == len(roomy.latencies) == roomy.deliveries
    assert sum(narrow.latencies) <= 1.01 * sum(roomy.latencies)
    assert narrow.bytes <= 1.05 * roomy.bytes


def test_sds_has_the_same_contacts_as_naive() -> None:
    """Two people: all comes, never before both are there, and no resend is far away then."""
    for seed in range(12):
        naive = paper_naive.run(Setting("naive"), seed)
        for protocol in ("sds", "sds+repair"):
            ours = paper_sds.run(Setting(protocol), seed)
            assert ours.delivered == 1
            for one, other in zip(sorted(ours.latencies), sorted(naive.latencies), strict=True):
                assert one >= other, seed
            assert min(ours.latencies) <= min(naive.latencies) + 2 * 10


def test_only_repair_brings_what_was_missed_for_good() -> None:
    plain = [paper_sds.run(Setting("sds", people=8), seed) for seed in range(3)]
    repaired = [paper_sds.run(Setting("sds+repair", people=8), seed) for seed in range(3)]
    assert all(outcome.delivered < 1 for outcome in plain)
    assert all(outcome.delivered == 1 for outcome in repaired)
    assert all(outcome.copies <= outcome.records for outcome in plain + repaired)


def test_a_store_node_makes_it_earlier_and_more_complete() -> None:
    for protocol in ("sds", "sds+repair"):
        alone, helped = (
            [paper_sds.run(Setting(protocol, people=6, relay=relay), seed) for seed in range(4)]
            for relay in (False, True)
        )
        for one, other in zip(alone, helped, strict=True):
            assert other.delivered >= one.delivered
        late = [statistics.mean(p90(one.latencies) for one in runs) for runs in (alone, helped)]
        assert late[1] < late[0]


def test_a_cluster_gives_the_same_rows() -> None:
    arguments = ["paper", "1", "--protocol", "sds+repair", "--seeds", "6", "--seeds-max", "6"]
    arguments += ["--window", "300", "--jobs", "2", "--json"]
    rows = []
    for more in ([], ["--master", "local[1]"]):
        done = CliRunner().invoke(app, arguments + more)
        assert done.exit_code == 0, done.output
        rows.append([{**row, "cpu_s": 0} for row in json.loads(done.stdout)["rows"]])
    assert len(rows[0]) == 1
    assert rows[0] == rows[1]


def test_the_interval_is_students() -> None:
    assert interval([1.0]) == math.inf
    assert interval([9.0, 10.0, 11.0]) == pytest.approx(4.30 / math.sqrt(3))
    assert interval([1.0, 3.0] * 200) == pytest.approx(1.96 / 20, rel=0.01)


def test_a_relay_makes_it_earlier() -> None:
    alone = [PaperWorld(Setting("compact-1"), seed).run() for seed in range(12)]
    relayed = [PaperWorld(Setting("compact-1", relay=True), seed).run() for seed in range(12)]
    medians = [
        statistics.mean(statistics.median(outcome.latencies) for outcome in outcomes)
        for outcomes in (alone, relayed)
    ]
    assert medians[1] < 0.8 * medians[0]


def test_a_seed_is_repeated_to_the_byte() -> None:
    setting = Setting("bloom", people=5)
    first, second = (PaperWorld(setting, 9).run() for _ in range(2))
    assert first == second


def test_the_command_writes_json_and_a_page(tmp_path: Path) -> None:
    page = tmp_path / "paper.html"
    arguments = ["paper", "1", "--protocol", "naive", "--protocol", "compact-1"]
    arguments += ["--seeds", "4", "--window", "300", "--jobs", "1", "--json", "--html", str(page)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)["rows"]
    assert [row["protocol"] for row in rows] == ["naive", "compact-1"]
    assert rows[1]["multiplier_bytes"] < rows[0]["multiplier_bytes"]
    text = page.read_text("utf-8")
    assert text.count("<svg") == 4
    assert not re.search(r'(src|href)="http', text)


def test_tables_go_into_a_document(tmp_path: Path) -> None:
    page = tmp_path / "paper.md"
    page.write_text("a\n<!-- paper 1 -->\nold\n<!-- paper end -->\nz\n")
    arguments = ["paper", "1", "--protocol", "naive", "--seeds", "2", "--seeds-max", "2"]
    arguments += ["--window", "300", "--jobs", "1", "--record", str(page)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    text = page.read_text("utf-8")
    assert text.startswith("a\n<!-- paper 1 -->\n`drupelet ") and text.endswith("end -->\nz\n")
    assert "\n| naive | 300 | 2 | " in text and "\nold\n" not in text
    page.write_text("no room\n")
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 1
    assert "has no lines <!-- paper 1 -->" in done.output


def test_a_channel_tells_of_its_memory_at_each_tenth() -> None:
    arguments = ["channel", "--participants", "3", "--messages", "20", "--online", "1"]
    done = CliRunner().invoke(app, [*arguments, "--hours", "0.2"])
    assert done.exit_code == 0, done.output
    tenths = re.findall(r"^ *(\d+) % of deliveries: [\d.]+ MB at most$", done.stdout, re.M)
    assert tenths == [str(share) for share in range(10, 101, 10)]


@pytest.mark.parametrize(("kept", "used"), [("128", 128), ("513", 513), ("0", 512)])
def test_a_channel_keeps_as_much_as_it_is_told(
    monkeypatch: pytest.MonkeyPatch, kept: str, used: int
) -> None:
    plans: list[channels.Plan] = []

    def run(plan: channels.Plan, _told: object) -> channels.Result:
        plans.append(plan)
        return channels.Result(done_ms=1, latencies_ms=Counter({1: 1}), logs=[()])

    monkeypatch.setattr(channels, "run", run)
    done = CliRunner().invoke(app, ["channel", "--kept", kept])
    assert (done.exit_code, [plan.kept for plan in plans]) == (0, [used]), done.output


@pytest.mark.parametrize(
    "words", [["--kept", "127"], ["--kept", "-1"], ["--hours", "nan"], ["--loss", "nan"]]
)
def test_a_channel_with_what_no_channel_has(words: list[str]) -> None:
    done = CliRunner().invoke(app, ["channel", *words])
    assert done.exit_code == 2 and "Invalid value" in done.output


def test_what_delivers_nothing_has_no_cost_and_no_latency() -> None:
    setting = paper.setting_of(1, "bloom", 2, 300)
    none, one = Outcome(2, 2, records=9), Outcome(2, 2, 4, 6, 400, 9, [3, 5])
    row = paper.answer(1, setting, 2, 4, lambda work: [none for _ in work])
    assert (row.seeds, row.delivered) == (4, 0)  # as many as may be, in vain
    assert row.copies is row.multiplier_records is row.multiplier_bytes is None
    assert row.latency_median_h is row.latency_p90_h is row.latency_p90_interval_h is None
    assert line_of(row).split() == ["1", "bloom", "300", "4", "0.00", *7 * "-", "0.0"]
    assert "| 0.00 | - | - | - | - | - | - | - | 0 |" in table([row])
    assert "<td>-</td>" in page([row], "x")
    row = paper.answer(1, setting, 2, 2, lambda _: [none, one])
    assert (row.delivered, row.copies, row.multiplier_records) == (0.5, 2, 3)
    done = CliRunner().invoke(app, ["paper", "1", "--window", "2000000"])
    assert done.exit_code == 2 and "2000000 is not in the range" in done.output


def test_what_it_cannot_do_is_one_line() -> None:
    done = CliRunner().invoke(app, ["paper", "3", "--protocol", "carrier-pigeon"])
    assert done.exit_code == 1
    assert "carrier-pigeon" in done.output
    assert "Traceback" not in done.output
