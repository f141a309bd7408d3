"""A corpus of the simulator's logs: what an ingest finds is what happened in its worlds."""

import json
from collections import defaultdict
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from drupelet_tools.bench import corpus_files, corpus_sim
from drupelet_tools.bench.command import app
from drupelet_tools.telemetry.analysis import figures
from drupelet_tools.telemetry.blackbox import codes
from drupelet_tools.telemetry.intake import job
from drupelet_tools.telemetry.lake import delta

DEVICES = 9  # a whole group, and half of another world's
EVENTS = 120_000
PARTS = [kind for kind in range(16) if kind in range(2, 8) or kind in (13, 15)]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The corpus as the command makes it, its truth, and the lake of it."""
    folder = tmp_path_factory.mktemp("corpus-sim")
    words = f"corpus --out {folder / 'in'} --events {EVENTS} --devices {DEVICES} --files 3 --json"
    done = CliRunner().invoke(app, words.split())
    assert done.exit_code == 0, done.output
    job.ingest([folder / "in"], folder / "lake", {}, None)
    truth = json.loads((folder / "in" / "truth.json").read_text("utf-8"))
    return SimpleNamespace(
        said=json.loads(done.stdout), state=delta.open_lake(folder / "lake"),
        boots={(row["device"], row["boot"]): row for row in truth["boots"]},
    )  # fmt: skip


def test_it_says_where_the_logs_are_from(made):
    assert made.said["source"].startswith("simulator, seeds 1, 2: 2 groups of 6 devices, ")
    assert 0.7 * EVENTS < made.said["events"] < 1.3 * EVENTS
    assert len({device for device, _ in made.boots}) == DEVICES
    assert len({boot for _, boot in made.boots}) > 1


def test_messages_are_those_of_the_simulated_world(made):
    rows = {(row["device"], row["boot"]): row for row in made.state.read("health").to_pylist()}
    assert rows.keys() == made.boots.keys()
    created = defaultdict(set)
    delivered = defaultdict(set)
    for row in made.state.read("messages").to_pylist():
        named = {"created": created, "delivered": delivered}.get(row["event"])
        if named is not None:
            named[row["device"], row["boot"]].add(row["message"])
    for key, truth in made.boots.items():
        true = truth["simulated"]
        assert rows[key]["messages_created"] == true["created"] == len(created[key])
        assert rows[key]["messages_delivered"] == true["delivered"] == len(delivered[key]) > 0
    assert sum(truth["simulated"]["created"] for truth in made.boots.values()) > 500


def test_each_world_is_a_group_with_a_tag_of_its_own(made):
    """What a report says of groups is what the worlds were."""
    found = figures.figures(made.state)
    groups = found["fleet"]["groups"]
    devices = sorted({device for device, _ in made.boots})
    assert sorted(row["devices"] for row in groups) == [devices[:6], devices[6:]]
    assert len({row["group"] for row in groups} - {None}) == 2
    for row in groups:
        own = [truth for (device, _), truth in made.boots.items() if device in row["devices"]]
        entered = [truth["simulated"] for truth in own]
        away = sum(true["delivered"] for true in entered) - sum(
            true["created"] for true in entered
        )
        assert row["deliveries"] == away > 0
        assert row["multiplier_records"] > 1 and row["shared"] == 0


def test_messages_of_one_repetition_are_not_those_of_another(made):
    seen = defaultdict(set)
    for row in made.state.read("messages").to_pylist():
        if row["event"] == "created":
            seen[row["message"]].add((row["device"], row["boot"]))
    assert all(len(places) == 1 for places in seen.values())


def test_bytes_and_frames_are_those_of_the_simulated_carriers(made):
    frames, size = defaultdict(int), defaultdict(int)
    parts = {codes.TRAFFIC_KINDS[kind] for kind in PARTS}
    for row in made.state.read("traffic").to_pylist():
        if row["direction"] == "sent":
            key = row["device"], row["boot"]
            frames[key] += (
                row["value"] if (row["kind"], row["unit"]) == ("frames", "frames") else 0
            )
            size[key] += row["value"] if (row["kind"], row["unit"]) in parts else 0
    for key, truth in made.boots.items():
        assert frames[key] == truth["simulated"]["frames_sent"] > 0
        assert size[key] == truth["simulated"]["bytes_sent"] > 0


def test_power_states_are_those_of_the_simulated_devices(made):
    spent = defaultdict(dict)
    for row in made.state.read("state_time").to_pylist():
        spent[row["device"], row["boot"]][row["state"]] = row["ms"]
    sleepers = 0
    for key, truth in made.boots.items():
        true = truth["simulated"]
        if not true["light_ms"]:
            continue  # a host: it has no power states here
        sleepers += 1
        assert spent[key][2] == true["idle_ms"]
        assert spent[key][1] == true["light_ms"]
    assert sleepers > 0.7 * len(made.boots)


def test_damage_to_simulated_logs_costs_blocks_and_no_more(made, tmp_path):
    wanted = corpus_files.Corpus(EVENTS, DEVICES, 3, True, 1, "simulator")
    corpus_files.write(tmp_path / "in", wanted)
    counts = job.ingest([tmp_path / "in"], tmp_path / "lake", {}, None)
    truth = json.loads((tmp_path / "in" / "truth.json").read_text("utf-8"))
    damaged = delta.open_lake(tmp_path / "lake")
    bad = {
        (copy["file"], copy["offset"] + 32 + 512 * block)
        for copy in truth["copies"]
        for block in [*copy["flipped"], *([] if copy["cut"] is None else [copy["cut"]])]
    }
    found = {(row["file"], row["offset"]) for row in damaged.read("quarantine").to_pylist()}
    assert found <= bad and len(found) == counts["quarantined"] > 10
    exact = 0
    for row in damaged.read("health").to_pylist():
        true = made.boots[row["device"], row["boot"]]["simulated"]
        assert row["messages_delivered"] <= true["delivered"]
        exact += row["messages_delivered"] == true["delivered"]
    assert exact > 0.8 * len(made.boots)


def test_more_than_the_simulator_is_for_comes_from_the_generator(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_sim, "EVENTS_MAX", 1000)
    wanted = corpus_files.Corpus(4000, 4, 1, False, 1, "auto")
    assert corpus_files.write_with_source(tmp_path / "a", wanted)[0] == "generator"
    done = CliRunner().invoke(app, ["corpus", "--out", str(tmp_path / "b"), "--source", "x"])
    assert done.exit_code == 1
