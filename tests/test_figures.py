"""Figures of benchmarks that pages quote are those of the files in docs/bench.

A quote is a part of a page's text, with each figure taken from a row of a file. In the results of
docs/bench.md no other number may stand but those of `STATED`, which are conditions, not results.
"""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from drupelet_tools.bench import page as bench_page

ROOT = Path(__file__).resolve().parents[1]
BENCH = ROOT / "docs" / "bench"
BY_HAND = ("aes-m3", "ram-once")  # files of figures that no command measures
BATCH = "scenario=transfer messages=100 carrier=mqtt mode=batch"
MQTT = "scenario=transfer profile='mqtt qos 1' carrier=mqtt"
# What the results of bench.md say beside figures: under which conditions they were taken.
STATED = [
    "26 November", "A message of 100 bytes among 100", "QoS 1 takes", "lost 10 of 1,000 messages",
    "If A holds 1,000 messages and B lacks 10",
    "A backlog of 5,000 messages", "it may be 1 % of the messages", "`budget` is 1.1 times",
    "Over a stick, B with small tables has 16 slots", "for 4 peers, 16 offers and 32 messages",
    "64 offers and 64 messages", "168 KiB (172,032 bytes)", "stack has 8,192 bytes",
    "On a Cortex-M3 a frame of 100 bytes", "on a Cortex-M3,", "with 8 of them", "On a 32-bit",
    "An agent that writes 10,000 messages", "in ten minutes", "for 32 million events",
    "talks with at most 32 peers", "100 a second",
    "8 to 256 million", "(-9)", "After 400 days of 20 devices",
]  # fmt: skip


@cache
def run(file: str) -> dict[str, Any]:
    """What a benchmark left in docs/bench."""
    return bench_page.read_run(BENCH, file)


def figure(file: str, conditions: str, column: str, table: str = "rows") -> float:
    """The value of the one row that meets the conditions (`profile=bsp-1 sealed=no`)."""
    rows = bench_page.chosen_rows(run(file)[table], conditions)
    values = {row[column] for row in rows}
    assert len(values) == 1, f"{file}: {conditions}: {values}"
    return float(values.pop())


def wire(conditions: str, column: str = "bytes_per_message") -> float:
    """A figure of `drupelet bench wire`."""
    return figure("wire", conditions, column)


def small_set(column: str, profile: str, config: str = "4/16/32") -> int:
    """A figure of `drupelet bench ram` for set small."""
    row = f"config={config} set=small profile={profile}"
    return int(figure("ram", row, column))


def deliver_us(interpreter: str, profile: str) -> float:
    """Microseconds of one message from node to node."""
    return figure("cpu", f"interpreter={interpreter} profile={profile} work=deliver", "us")


def aes_ratios(slow: str, fast: str) -> str:
    """Between which factors one AES is slower than another."""
    rows = run("cpu-aes")["rows"]
    us = {(row["interpreter"], row["bytes"], row["profile"]): row["us"] for row in rows}
    ratios = [us[(*at, slow)] / us[(*at, fast)] for *at, profile in us if profile == slow]
    return f"{min(ratios):.1f} to {max(ratios):.1f}"


# A quote: the page, and a part of its text.
Quote = tuple[str, str]
PAGE, README, COMPARISON, DESIGN, SERVICE = (
    "docs/bench.md", "README.md", "docs/comparison.md", "docs/DESIGN.md", "docs/service.md",
)  # fmt: skip


def quotes_of_bytes() -> list[Quote]:
    """Of `drupelet bench wire --scenario transfer`."""
    compact = wire(f"profile=compact-1 sealed=no {BATCH}")
    sealed = wire(f"profile=compact-1 sealed=yes {BATCH}")
    bsp = wire(f"profile=bsp-1 {BATCH}")
    mvds = [wire(f"profile={name} {BATCH}") for name in ("mvds-1", "mvds-nested", "mvds-5001")]
    leg = wire(f"{MQTT} mode='topic t' note='to the broker'")
    long_leg = wire(f"{MQTT} mode='topic sensors/field/device-0001/data' note='to the broker'")
    nncp = wire("profile='nncp 8.8.2'")
    alone = wire(f"profile=compact-1 sealed=no {BATCH.replace('messages=100', 'messages=1')}")
    return [
        (PAGE, f"takes {compact:.0f} bytes with `compact-1` on a link, {sealed:.0f} sealed, and"
               f" {bsp:.0f} with `bsp-1`; the three dialects of MVDS take {min(mvds):.0f} to"
               f" {max(mvds):.0f}. MQTT at QoS 1 takes {leg:.0f} on each leg"),
        (PAGE, f"One message alone costs {alone:.0f} bytes with `compact-1`."),
        (README, f"takes {compact:.0f} B for a message of 100 B that is acknowledged,"
                 f" {sealed:.0f} B sealed"),
        (README, f"`compact-1` takes {compact:.0f} B for a message of 100 B that is acknowledged,"
                 f" {sealed:.0f} sealed, `bsp-1` {bsp:.0f}, MQTT QoS 1 {leg:.0f} on each leg"),
        (README, f"live messages, {leg:.0f} B on each leg at QoS 1 for 100 B"),
        (README, f"{nncp:.0f} B per message of 100 B"),
        (COMPARISON, f"| Drupelet, `compact-1` | {compact:.0f} | no | yes |"),
        (COMPARISON, f"| Drupelet, `compact-1`, sealed | {sealed:.0f} | yes | yes |"),
        (COMPARISON, f"| Drupelet, `bsp-1` | {bsp:.0f} | no | yes |"),
        (COMPARISON, f"| MQTT 3.1.1 QoS 1, topic of 1 character | {leg:.0f} on each leg |"),
        (COMPARISON, f"| MQTT 3.1.1 QoS 1, topic of 31 characters | {long_leg:.0f} on each leg |"),
        (COMPARISON, f"| NNCP 8.8.2, a packet per message on a stick | {nncp:.0f} |"),
    ]  # fmt: skip


def quotes_of_contacts() -> list[Quote]:
    """Of the other scenarios of `drupelet bench wire`, and of offering first."""
    offered = BATCH.replace("batch", "interactive")
    compact, *others = (
        wire(f"profile={name} sealed=no {offered}") - wire(f"profile={name} sealed=no {BATCH}")
        for name in ("compact-1", "bsp-1", "mvds-1", "mvds-nested", "mvds-5001")
    )  # fmt: skip
    nothing_new = "scenario=in_sync profile=compact-1 held=2 mode=batch"
    plain, sealed = (
        wire(f"{nothing_new} sealed={is_sealed}", "total_bytes") for is_sealed in ("no", "yes")
    )  # fmt: skip
    compact_wake, bsp_wake = (
        figure("wire-wake", f"profile={name} note='key state from the snapshot'", "total_bytes")
        for name in ("compact-1", "bsp-1")
    )  # fmt: skip
    sketch, offers, everything = (
        figure("wire-cold", f"missing=10 profile={row}", "total_bytes")
        for row in ("compact-1", "bsp-1 mode=interactive", "bsp-1 mode=batch")
    )  # fmt: skip
    anew = bench_page.chosen_rows(run("anew")["rows"], "held=1000 missing=10")[0]
    assert all(row["sketch"] < row["filters"] for row in run("anew")["rows"])
    return [
        (PAGE, f"offers cost {anew['offers']:,} bytes beside the messages, Bloom filters"
               f" {anew['filters']:,}, and the sketch with which a host recovers a lost store"
               f" {anew['sketch']}."),
        (PAGE, f"Offering first adds {compact:.0f} bytes with `compact-1`, and"
               f" {min(others):.0f} to {max(others):.0f} with the others."),
        (PAGE, f"nothing is new costs `compact-1` {plain:.0f} bytes, {sealed:.0f} sealed"),
        (PAGE, f"exchanges {compact_wake:.0f} bytes with `compact-1` and {bsp_wake:.0f} with"
               " `bsp-1`, sealed"),
        (PAGE, f"finds out which with {sketch:.0f} bytes"),
        (PAGE, f"{offers:,.0f} bytes with `bsp-1` offered first, and {everything:,.0f} if"),
    ]  # fmt: skip


def quotes_of_boards() -> list[Quote]:
    """Of `drupelet bench board`, `ram` and `cpu`."""
    pico = {row["set"]: row for row in run("board")["rows"] if row["board"] == "rp2"}["small"]
    heap_min = figure("board", "board=m3 set=small", "heap_min")
    bsp, compact, mvds = (
        small_set("core_state", profile) for profile in ("bsp-1", "compact-1", "mvds-1")
    )  # fmt: skip
    planned = run("ram")["rows"][0]["limits"]["core_state"]
    deliver_ratio = figure(
        "cpu", "interpreter=micropython-i386 profile=bsp-1 work=deliver", "ratio"
    )
    once = sorted(row["bytes"] for row in run("ram-once")["rows"])
    viper, bytecode = (
        figure("aes-m3", f"aes={aes} ccm={aes}", "kinsn_seal") for aes in ("viper", "bytecode")
    )  # fmt: skip
    return [
        (PAGE, f"needs a heap of {heap_min / 1024:.0f} KiB on a Cortex-M3, and leaves"
               f" {pico['free_after_boot']:,} of the {pico['heap']:,} bytes of an emulated Pico"),
        (PAGE, f"A Pico takes {pico['kinsn_publish'] / 1000:.1f} million instructions to publish a"
               f" reading and {pico['kinsn_receive'] / 1000:.1f} to take one in, flash included,"
               f" and boots in {pico['boot_ms']} ms."),
        (PAGE, f"four peers take {bsp:,} bytes (`bsp-1`) to {mvds:,} (MVDS) where {planned:,}"
               " were planned"),
        (PAGE, f"{once[1]} B of garbage. Once per device there are two older epochs, {once[0]} B"),
        (PAGE, f"takes {deliver_us('micropython-i386', 'bsp-1'):.0f} µs from node to node with"),
        (PAGE, f"and {deliver_us('micropython-i386', 'compact-1'):.0f} with `compact-1`; on"
               f" CPython {deliver_us('cpython', 'bsp-1'):.0f} and"
               f" {deliver_us('cpython', 'compact-1'):.0f}."),
        (PAGE, f"that is {deliver_ratio:.0f} times a SHA-256 of the message's 100 bytes, where"
               " 200 are planned"),
        (PAGE, f"it takes {aes_ratios('aes viper', 'aes-ccm')} times as long as `cryptolib`; as"
               f" bytecode it is {aes_ratios('aes bytecode', 'aes viper')} times slower"),
        (PAGE, f"takes {viper:,.0f} thousand instructions to seal with `viper`, and"
               f" {bytecode:,.0f} without"),
        (README, f"with four peers: {bsp / 1024:.1f} to {mvds / 1024:.1f} KB where"
                 f" {planned / 1024:.0f} KB were planned"),
        (DESIGN, f"`bsp-1` {bsp:,} B, `compact-1` {compact:,} B, MVDS {mvds:,} B"),
    ]  # fmt: skip


def quotes_of_hosts() -> list[Quote]:
    """Of `drupelet bench agent` and `ingest`."""
    ratio = {row["work"]: row["ratio"] for row in run("agent")["rows"]}
    before = ", ".join(str(row["ratio"]) for row in run("agent")["runs_before"])
    [idle], [busy] = run("agent-idle")["rows"], run("agent-idle")["runs_before"]
    [load] = run("agent-load")["rows"]
    copies = load["messages"] * (load["devices"] / load["homes"] - 1)
    spark = figure("ingest", "work=tables engine=spark", "ratio_to_numpy")
    growth = figure("ingest", "claim='peak memory at 256 M / at 8 M'", "figure", "claims") - 1
    engines = {row["engine"]: row["ratio_to_numpy"] for row in run("ingest")["rows"]
               if row["work"] == "tables"}  # fmt: skip
    first, second, third = (row["figure"] for row in run("ingest")["runs_before"])
    killed, workers, cluster = run("ingest")["robust"]
    assert all(row["kept"] for row in run("ingest")["claims"])
    [apart] = [row["figure"] for row in run("ingest")["claims"] if row["limit"] == "≤ 0.15"]
    assert killed["rows"] == workers["rows"] == cluster["rows"]
    return [
        (PAGE, f"takes {ratio['stick-write']} of the CPU of a plain paho program"),
        (PAGE, f"takes {ratio['mqtt-live']} times as much as the plain pair, for a backlog"
               f" {ratio['mqtt-backlog']}, where at most 1.5 are planned."),
        (PAGE, f"had the ratios {' and '.join(before.rsplit(', ', 1))}, so they vary."),
        (PAGE, f"took {idle['cpu_s']} CPU seconds in ten minutes; each woke {idle['wakes_per_s']}"
               f" times a second, and the one that wrote more wrote {idle['write_kb']:.0f} KB"),
        (PAGE, f"woke {busy['wakes_per_s']:.0f} times a second and wrote {busy['write_kb_per_s']}"
               " KB a second."),
        (PAGE, f"so the {load['devices']:,} devices of a fleet are collected by {load['homes']}"
               " agents"),
        (PAGE, f"published {load['messages']:,} messages within ten minutes"),
        (PAGE, f"which makes {copies / 1e6:.1f} million copies. All agents together took"
               f" {load['cpu_s']:.0f} CPU seconds; none held more than {load['rss_mb']} MB,"
               f" nor grew by more than {load['rss_growth_mb']} MB after the first minute."),
        (PAGE, f"The last copy was acknowledged after {load['wall_s']:.0f} seconds"),
        (PAGE, f"Spark takes {spark} times the CPU of plain numpy for 32 million events, where 1.3"
               " are promised."),
        (PAGE, f"gave {first}, {second} and {third}. polars takes {engines['polars']} times as"
               f" much, duckdb {engines['duckdb']}."),
        (PAGE, f"Its memory grows by {100 * growth:.0f} % from"),
        (PAGE, f"its cost below 32 million events and above is {apart.rstrip('%')} % apart, where"
               " 15 are promised."),
        (PAGE, f"{killed['times']} kills (-9) of an ingest at random points,"
               f" {workers['times']} of workers"),
        (PAGE, f"all {killed['rows']:,} rows of all tables were identical"),
        (SERVICE, f"it still wrote {idle['write_kb']:.0f} KB"),
    ]  # fmt: skip


def quotes_of_lakes() -> list[Quote]:
    """Of `drupelet bench lake`."""
    late, compacted, grown, files = (row["figure"] for row in run("lake")["claims"])
    [before] = {row["files"] for row in run("lake")["rows"] if row["work"] == "query, grown"}
    assert all(row["kept"] is not False for row in run("lake")["claims"])
    return [
        (PAGE, f"an ingest takes {late} times the CPU of one in the second ten days"),
        (PAGE, f"takes {grown} times that of one made in one go, {compacted} times after"),
        (PAGE, f"which leaves {files} files of {before}."),
    ]


def quotes_of_fleets() -> list[Quote]:
    """Of `drupelet bench fleet`."""
    ingest, report = (row["figure"] for row in run("fleet")["claims"])
    assert all(row["kept"] for row in run("fleet")["claims"])
    rows = run("fleet")["rows"]
    small, large = ({row["work"]: row for row in rows if row["devices"] == size}
                    for size in sorted({row["devices"] for row in rows}))  # fmt: skip
    pages = large["report"]
    devices, days = pages["devices"], pages["device_days"] // pages["devices"]
    return [
        (PAGE, f"from {small['report']['devices']:,} devices to {devices:,}, {days} days"
               f" each, the ingest takes {ingest} times the CPU per device-day, and the report"
               f" {report} times"),
        (PAGE, f"The report of {devices:,} devices, an index and {devices // 100:,} pages,"
               f" took {pages['cpu_s']:,.0f} CPU seconds and"
               f" {pages['wall_s']:,.0f} seconds on two cores; its processes together held at most"
               f" {pages['peak_mb'] / 1000:.1f} GB. A query of one device took"
               f" {large['query']['wall_s']:.0f} seconds, of which Spark's start is most:"
               f" {small['query']['wall_s']:.0f} with the smaller fleet."),
    ]  # fmt: skip


QUOTES = (
    quotes_of_bytes, quotes_of_contacts, quotes_of_boards, quotes_of_hosts, quotes_of_lakes,
    quotes_of_fleets,
)  # fmt: skip


def words(text: str) -> str:
    """A text without its line breaks."""
    return " ".join(text.split())


@pytest.mark.parametrize("quotes", QUOTES)
def test_pages_quote_the_figures_of_the_files(quotes: Callable[[], list[Quote]]) -> None:
    for page, text in quotes():
        assert text in words((ROOT / page).read_text("utf-8")), f"{page} does not say: {text}"


def test_results_have_no_figure_without_a_file() -> None:
    page = (ROOT / PAGE).read_text("utf-8")
    results = page[page.index("\n## Results") : page.index("\n## How it is measured")]
    results = re.sub(r"^```(?s:.*?)^```$|^<!--.*-->$|^\|.*$", "", results, flags=re.M)
    results = words(results)
    for text in [text for quotes in QUOTES for page, text in quotes() if page == PAGE] + STATED:
        results = results.replace(text, "")
    results = re.sub(r"`[^`]*`|\[[^\]]*\]\([^)]*\)", "", results)
    assert not re.findall(r".{0,30}\d.{0,30}", results)


def test_no_record_allocated_in_the_measured_run() -> None:
    rows = run("ram")["rows"]
    assert {row["record"] for row in rows} >= {"ACK", "MESSAGE", "OFFER", "REQUEST", "piece"}
    for row in rows:
        assert row["locked"] is not False and not row["alloc_per_record"], row


def test_each_file_is_named_and_says_where_it_is_from() -> None:
    page = (ROOT / PAGE).read_text("utf-8")
    paths = sorted(BENCH.iterdir())
    assert len(paths) > 10
    for path in paths:
        values = run(path.stem)
        assert path.name in page, f"docs/bench.md does not name {path.name}"
        assert values["rows"] and re.fullmatch(r"[0-9a-f]{40}", values["commit"])
        assert re.fullmatch(r"2026-\d\d-\d\d", values["date"]) and values["machine"]["processor"]
        assert values["command"].startswith("drupelet bench ") or path.stem in BY_HAND


def test_a_figure_that_no_row_has_is_noticed() -> None:
    with pytest.raises(AssertionError):
        figure("wire", "profile=bsp-2", "total_bytes")
    with pytest.raises(AssertionError):
        figure("wire", "profile=bsp-1", "total_bytes")  # of several rows
    table = "<!-- wire.json: profile | profile=bsp-2 -->\n| |\n"
    with pytest.raises(ValueError, match="no row"):
        bench_page.filled(table, BENCH)
