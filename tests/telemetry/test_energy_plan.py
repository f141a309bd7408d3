"""Life before a deployment: parts add up, options do what they say, mistakes are one line."""

import json
import math

import pytest

from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.energy import batteries, battery_life, board_table, figure
from drupelet_tools.telemetry.energy.carriers import carrier_names, load_carrier
from drupelet_tools.telemetry.energy.wake import find_step
from drupelet_tools.telemetry.forecast import deployment, published
from telemetry.command_line import run

PAIRS = [(b, c) for b in board_table.board_names() for c in board_table.load_board(b).carriers]
MINUTES_MS = 60_000


def question(board="esp32", carrier="mqtt", every_min=15.0, battery="18650", **more):
    pack = batteries.Pack(batteries.load_battery(battery), more.pop("series", 1),
                          more.pop("parallel", 1))  # fmt: skip
    return deployment.Question(board, carrier, every_min * MINUTES_MS, pack, **more)


def mah(told):
    return {part.name: part.mah_per_day.typical for part in told.parts}


def test_measured_wakes_stay_within_what_docs_energy_says():
    """Rows that our table took from the source exactly; what it predicts within 15 %."""
    wakes = {c.what.removeprefix("ESP32 wake: "): c for c in published.checks()
             if c.kind == "wake"}  # fmt: skip
    assert {name: check.published for name, check in wakes.items()} == {
        "boot, from table": 3.32,
        "mounting the file system, from table": 23.6,
        "ESP-NOW": 7.68,
        "ESP-NOW, not acknowledged": 15.4,
        "MQTT, static address": 108.6,
        "DHCP and HTTP POST": 341.3,
    }
    tolerance = {"MQTT, static address": 0.05, "DHCP and HTTP POST": 0.05}
    for name, check in wakes.items():
        most = 1e-9 if name.endswith("from table") else tolerance.get(name, 0.15)
        assert abs(check.deviation) <= most, check


def test_the_reports_boot_is_the_plans():
    for name in ("esp32", "esp32s3"):
        board = board_table.load_board(name)
        reported = board.operation("boot", ["mqtt"]).charge_uc
        assert reported.typical == find_step(board.wake, "boot", "mqtt", "stock").charge_uc.typical
        assert not reported.unknown


@pytest.mark.parametrize(("board", "carrier"), PAIRS)
def test_every_board_has_a_plan_with_each_of_its_carriers(board, carrier):
    # A Pi that boots for each wake is planned by the day.
    outlook = deployment.plan(question(board, carrier, 24 * 60.0), draws=300)
    table = board_table.load_board(board)
    for step in ("boot", "mount", "join"):
        needs = step != "join" or load_carrier(carrier).joins != "none"
        for variant in ("static", "dhcp") if step == "join" else ("stock",):
            assert (find_step(table.wake, step, carrier, variant) is not None) == needs
    assert 0 < outlook.life.days.low < outlook.life.days.median < outlook.life.days.high
    assert math.isclose(sum(part.share for part in outlook.parts), 1.0)
    drawn = math.fsum(value for name, value in mah(outlook).items() if name != "battery itself")
    assert drawn == pytest.approx(outlook.life.mah_per_day.typical, rel=1e-9)


def test_all_carriers_of_boards_have_tables_and_the_other_way_round():
    assert set(carrier_names()) == {carrier for _, carrier in PAIRS}


def test_a_day_is_what_one_works_out_by_hand():
    outlook = deployment.plan(question(address="static", boot="fast", sealed=False, body_bytes=0,
                                     messages=0), draws=10)  # fmt: skip
    awake_s = (70 + 350 + 664 + 40) / 1000
    joules = 96 * (3.32 + 23.6 + 96.88 + 110 * 0.040)  # mC
    asleep = 0.010 * (86_400 - 96 * awake_s)
    assert outlook.life.mah_per_day.typical == pytest.approx((joules + asleep) / 3600, rel=1e-12)
    assert outlook.wake_ms == pytest.approx(awake_s * 1000)
    assert outlook.wake_mc == pytest.approx(joules / 96)


def test_the_same_use_has_the_same_life_in_plan_and_report():
    """A plan whose wake has only state times is what the report makes of those times."""
    asked = question("rp2040", "serial", 60.0, sealed=False)
    outlook = deployment.plan(asked)
    boots = find_step(board_table.load_board("rp2040").wake, "boot", "serial").time_ms.typical
    sent = (100 + 12 + 6) * 10_000 / 115_200
    heard = (8 + 6) * 10_000 / 115_200 + 50
    ms = {2: 24 * boots, 4: 24 * sent, 3: 24 * heard}
    ms[0] = 86_400_000 - sum(ms.values())
    use = battery_life.Use("x", board_table.load_board("rp2040"), ("serial",), ms)
    reported = battery_life.life(use, asked.pack)
    assert outlook.life.days.typical == pytest.approx(reported.days.typical, rel=1e-9)
    assert outlook.life.capacity_mah == pytest.approx(reported.capacity_mah, rel=1e-9)


@pytest.mark.parametrize(
    ("fewer", "more", "part"),
    [
        ({"address": "static"}, {"address": "dhcp"}, "join"),
        ({"boot": "fast"}, {"boot": "stock"}, "boot"),
        ({"mount_every": 10}, {"mount_every": 1}, "storage"),
        ({"sealed": False}, {"sealed": True}, "transmit"),
        ({"body_bytes": 10}, {"body_bytes": 1000}, "transmit"),
        ({"retransmit_share": 0.0}, {"retransmit_share": 0.5}, "transmit"),
        ({"retransmit_share": 0.0}, {"retransmit_share": 0.5}, "receive"),
        ({"messages": 1}, {"messages": 4}, "transmit"),
        ({"every_min": 30}, {"every_min": 15}, "boot"),
        ({"work_ms": 0.0}, {"work_ms": 500.0}, "work"),
        ({}, {"leakage_ma": 0.5}, "board leakage"),
    ],
)
def test_an_option_costs_in_its_part_and_shortens_the_life(fewer, more, part):
    less, much = (deployment.plan(question(**given), draws=500) for given in (fewer, more))
    assert mah(less).get(part, 0.0) < mah(much)[part]
    assert less.life.days.typical > much.life.days.typical
    # The rest is the same, but for the sleep that the awake time takes away.
    same = {"every_min"} & set(more)
    for name in set(mah(less)) - {part, "sleep", "transmit", "receive", "battery itself"}:
        assert same or mah(less)[name] == pytest.approx(mah(much)[name])


def test_mounting_every_tenth_wake_costs_a_tenth():
    each, tenth = (mah(deployment.plan(question(mount_every=n), draws=10)) for n in (1, 10))
    assert tenth["storage"] == pytest.approx(each["storage"] / 10)


def test_spreading_costs_what_the_air_takes():
    plans = [mah(deployment.plan(question("nrf52840-sx1262", "lora", 60.0, spreading=s),
                                  draws=10)) for s in (7, 12)]  # fmt: skip
    assert 15 < plans[1]["transmit"] / plans[0]["transmit"] < 35


def test_the_papers_node_has_its_message():
    """Casals 2017: 68.4 mC a message of one byte at data rate 5."""
    asked = question("lorawan-mdot", "lora", 60.0, sealed=False, body_bytes=0)
    assert deployment.plan(asked, draws=10).wake_mc == pytest.approx(68.4, rel=0.1)


def test_a_panel_adds_its_day_and_at_last_carries_all():
    none, some, much = (deployment.plan(question(solar_mah_per_day=s)) for s in (0, 4, 100))
    assert none.life == none.without_sun == some.without_sun
    assert some.life.days.median > 1.2 * none.life.days.median
    assert not some.carried and much.carried
    assert much.life.days.typical == pytest.approx(battery_life.YEARS_MAX * 8766 / 24)
    assert mah(none) == mah(some)


def test_wifi_on_a_coin_cell_is_said_in_words():
    outlook = deployment.plan(question(battery="cr2032"), draws=10)
    assert "6.8 to 15 mA for 5 s, and this board draws 178 to 233 mA" in outlook.warnings[0]
    assert "resets" in outlook.warnings[0]
    # Sixteen in parallel give it for a while, though not by every sheet.
    many = deployment.plan(question(battery="cr2032", parallel=16), draws=10)
    assert "may break down" in many.warnings[0]
    assert not deployment.plan(question(battery="cr123a"), draws=10).warnings
    small = deployment.plan(question("nrf52840-sx1262", "ble", battery="cr2032"), draws=10)
    assert "may break down" in small.warnings[0]


def test_too_few_cells_in_series_are_said():
    outlook = deployment.plan(question(battery="aa-alkaline"), draws=10)
    assert "put 3 cells in series, like --battery aa-alkaline:3s" in outlook.warnings[0]
    assert not deployment.plan(question(battery="aa-alkaline", series=3), draws=10).warnings


def test_the_interval_hangs_on_the_seed_only():
    one, again, other = (deployment.plan(question(), seed=seed) for seed in (1, 1, 2))
    assert one == again
    assert one.life.days != other.life.days
    assert one.life.days.typical == other.life.days.typical


def test_the_command_tells_people_and_programs_the_same():
    words = ("energy", "plan", "--board", "esp32", "--carrier", "mqtt", "--every", "15m",
             "--body", "100", "--battery", "18650:2")  # fmt: skip
    done, shown = run(*words, "--json"), run(*words)
    assert done.exit_code == shown.exit_code == 0
    told = json.loads(done.stdout)
    assert told["modelled"] and told["parallel"] == 2 and told["series"] == 1
    days = told["life"]["days"]
    assert days["low"] < days["likely"] < days["high"]
    line = f"likely {days['likely']:,.0f} days, low {days['low']:,.0f}, high {days['high']:,.0f}"
    assert line in shown.stdout
    assert "Modelled, not measured." in shown.stdout
    assert "Left out: leakage of the board" in shown.stdout
    by_wakes = run(*words[:6], "--wakes", "96", *words[8:], "--json")
    assert json.loads(by_wakes.stdout) == told


def test_a_life_that_does_not_end_is_no_number_of_days():
    done = run("energy", "plan", "--board", "esp32", "--carrier", "mqtt", "--every", "15m",
               "--battery", "lifepo4", "--solar", "9mAh")  # fmt: skip
    assert "high over 36,500" in done.stdout and "36,525" not in done.stdout


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (("--board", "toaster"), "--board 'toaster': no such table; have esp32, esp32c3"),
        (("--carrier", "lora"), "--carrier lora: esp32 does not have it; it has mqtt, udp"),
        (("--carrier", "pigeon"), "--carrier 'pigeon': no such table; esp32 has mqtt"),
        (("--battery", "potato"), "--battery 'potato': no such table; have 18650, aa-alkaline"),
        (("--battery", "lipo:"), "--battery lipo:: want lipo, lipo:2 (parallel) or lipo:3s2p"),
        (("--battery", "lipo:0"), "want lipo, lipo:2"),
        (("--battery", "lipo:65"), "1 to 64"),
        (("--every", "15"), "--every '15': want a time like 500ms, 30s, 15m"),
        (("--every", "0s"), "more than 0"),
        (("--every", "1s"), "the board never sleeps; take a longer --every"),
        (("--wakes", "96"), "give one of --every"),
        (("--address", "fixed"), "--address 'fixed': want dhcp or static"),
        (("--boot", "warm"), "--boot 'warm': want stock or fast"),
        (("--solar", "0.5W"), "--solar '0.5W': want a charge like 200mAh"),
        (("--battery", "cr123a", "--solar", "9mAh"), "a cr123a cannot be charged; take lipo"),
        (("--retransmits", "0.1"), "--retransmits '0.1': want a share like 10%"),
        (("--leakage", "much"), "--leakage 'much': want a current like 0.1mA"),
        (("--body", "40000"), "--body 40000: a message has 0 to 32,768 bytes"),
        (("--carrier", "serial", "--address", "static"), "--address: serial has no addresses"),
        (("--board", "rp2040", "--carrier", "serial", "--boot", "fast"), "no figure for rp2040"),
        (("--board", "nrf52840-sx1262", "--carrier", "lora", "--body", "250"),
         "--body 250: a LoRa frame carries 203 at most"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_that_says_what_there_is(more, complaint):
    words = {"--board": "esp32", "--carrier": "mqtt", "--battery": "lipo", "--every": "15m"}
    words.update(zip(more[::2], more[1::2], strict=True))
    done = run("energy", "plan", *(word for pair in words.items() for word in pair))
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1), done.stderr
    assert complaint in done.stderr


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ((), "carrier"),
        (("--board", "esp32"), "steps of a wake"),
        (("--battery", "cr2032"), "cut-off (V)"),
        (("--carrier", "mqtt"), "connecting and waiting (ms)"),
    ],
)
def test_the_tables_show_every_figure_with_its_source(words, shown):
    done, rows = run("energy", *words), run("energy", *words, "--json")
    assert done.exit_code == rows.exit_code == 0 and shown in done.stdout
    if words:
        assert all(json.loads(line)["source"] for line in rows.stdout.splitlines())


def test_a_wake_row_that_is_none_is_one_clear_line():
    text = figure.table_text(figure.__package__, "boards", "esp32")
    for old, new, complaint in (
        ('step = "mount"', 'step = "mounting"', "wake step 'mounting': want one of boot"),
        ('variant = "fast"', 'variant = "quick"', "variant 'quick'"),
        ("time = { ms = 70,", "time = { s = 70,", "wake step boot fast time: ms is missing"),
    ):
        assert old in text
        with pytest.raises(TelemetryError, match=complaint):
            board_table.parse_board(text.replace(old, new), "boards/x.toml")
