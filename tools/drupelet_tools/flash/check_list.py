"""What is to be checked on a real board, which no emulator and no fake can show.

Every expected range says where it comes from. A check without one has no figure yet: the first
board that is measured gives it.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path

YES_NO, NUMBER, TEXT = "yes or no", "number", "text"
BOARDS = ("rp2", "esp32", "stm32", "nrf")

_TABLES = Path(__file__).parents[1] / "telemetry" / "energy" / "boards"
# The energy tables that say what a kind of board draws; there is none of an STM32.
_TABLE_OF = {"rp2": "rp2040", "esp32": "esp32", "nrf": "nrf52840-sx1262"}
_DEEP_SLEEP, _IDLE = 0, 2  # states of those tables
_SLEEPERS = ("rp2", "esp32", "stm32")  # they have a watchdog, too
_RADIOS = ("rp2", "esp32")


@dataclass(frozen=True)
class Check:
    """One question. `low` and `high` are None where nothing says what to expect."""

    id: str
    do: str
    measure: str
    kind: str
    unit: str = ""
    low: float | None = None
    high: float | None = None
    source: str = ""
    boards: tuple[str, ...] = BOARDS

    def fits(self, answer: object) -> bool | None:
        """Whether an answer is as expected; None where nothing is."""
        if self.kind == YES_NO:
            return answer is True
        if not isinstance(answer, float) or self.low is None or self.high is None:
            return None
        return self.low <= answer <= self.high


def _current(id: str, board: str, state: int, do: str, measure: str) -> Check:
    """A current, expected as the energy model has it."""
    if board not in _TABLE_OF:
        return Check(id, do, measure, NUMBER, "mA")
    name = _TABLE_OF[board]
    table = tomllib.loads((_TABLES / f"{name}.toml").read_text("utf-8"))
    row = next(row for row in table["state"] if row["state"] == state)
    source = f"energy table {name}, at {table['voltage_v']:g} V: {row['source']}"
    return Check(id, do, measure, NUMBER, "mA", row["low"], row["high"], source)


_CHECKS = (
    Check(
        "board", "Read what is printed on the board and its chip.", "Which board is it?", TEXT,
    ),
    Check(
        "flash", "Plug it in, join two pins of a UART by a wire, and run `drupelet flash"
        " auto --uart N,TX,RX` (only N where a board has fixed pins).",
        "Did it end with 'alive: first reading received'?", YES_NO,
    ),
    Check(
        "selftest", "Look at the table of the self-test, which the same command printed.",
        "Did every row pass, that of the UART as well?", YES_NO,
    ),
    Check(
        "firmware", "Look at the line about chip, MicroPython and memory, which it printed.",
        "What does it say?", TEXT,
    ),
    Check(
        "power-on", "Give the board `led`; unplug it; plug it in and stop the time until the"
        " LED lights.",
        "How long does it take to start?", NUMBER, "s", 0.3, 3,
        "docs/bench.md: 0.58 s on the emulated Pico, where flash takes no time; ends are ours",
        ("rp2",),
    ),
    Check(
        "uart", "Link it to the host by a UART instead of USB (`--link`, `--at`); have the"
        " host `drupelet put` 20 messages of 1,000 bytes.",
        "How many of the 20 are no longer outstanding in the host's `drupelet status`?",
        NUMBER, "messages", 20, 20,
        "tests/pico/test_walk.py: all of them on the emulated Pico",
    ),
    Check(
        "power-cuts", "Let it take 50 readings, and pull its power 10 times meanwhile.",
        "How many of the readings in `drupelet log` are missing or there twice?", NUMBER,
        "readings", 0, 0, "tests/pico/test_walk.py: none on the emulated Pico",
    ),
    Check(
        "failed-starts", 'With an image of ours, put {"name": "A"} in place of /drupelet.json'
        " (keep a copy) and reset the board.",
        "Is there a prompt after the third start that says why?", YES_NO, boards=("rp2",),
    ),
    Check(
        "wifi-join", "Configure `wifi`, reset, and stop the time until the console says"
        ' {"event":"network","up":true}.',
        "How long does it take to join? (A Pico without W: s)", NUMBER, "s", 0, 20,
        "boards/wifi.py: an attempt is given up after 20 s", _RADIOS,
    ),
    Check(
        "wifi-absent", "Switch the access point off for ten minutes, then reset the board.",
        "Does it go on taking readings? (A Pico without W: s)", YES_NO, boards=_RADIOS,
    ),
    Check(
        "wifi-again", "Switch the access point on again and stop the time.",
        "How long until the network is up? (A Pico without W: s)", NUMBER, "s", 0, 680,
        "boards/wifi.py: attempts are at most 640 s apart and take 20 s each; the rest is the"
        " start of an access point, ours", _RADIOS,
    ),
    Check(
        "sd", "Wire an SD card (FAT), configure a peer at stick:///sd, and carry the card"
        " to the host and back.",
        "Are the board's readings at the host, and the host's messages on the board?", YES_NO,
    ),
    Check(
        "sd-pulled", "Pull the card while the board writes, five times; put it in again.",
        "How many messages are missing or there twice in the end?", NUMBER, "messages", 0, 0,
        "tests/transports/test_stick.py: none with a folder as the stick",
    ),
    Check(
        "battery", "Configure `battery`, measure the voltage with a meter, and compare the"
        " battery's millivolts in the board's reading.",
        "By how many percent is the board's figure too high (negative: too low)?", NUMBER, "%",
        -5, 5, "ours: resistors of 1 %, and the supply as the reference",
    ),
    Check(
        "sleep-period", "Set `sample_ms` to 60000 and take 10 timestamps of"
        " `drupelet log`.",
        "How many seconds are there between two readings, in the mean?", NUMBER, "s",
        54, 66,
        "tests/pico/test_sleep.py: at least 54; the upper end is ours", _SLEEPERS,
    ),
    Check(
        "wakes", "Let it go through 100 deep sleeps, with its peer there.",
        "How many readings are missing or there twice?", NUMBER, "readings", 0, 0,
        "tests/pico/test_sleep.py: none on the emulated Pico", _SLEEPERS,
    ),
    Check(
        "watchdog", "Leave out `sleep`, set `watchdog_ms` to 8000, and let `sample` in"
        " app.py run `while True: pass`.",
        "How many seconds after that does the board reset?", NUMBER, "s", 4, 9,
        "boards/chip.py: fed at most 4 s before; the upper end is ours",
        _SLEEPERS,
    ),
    Check(
        "led", "Configure `led`.", "Is it on while the board works, and off while it waits?",
        YES_NO,
    ),
)  # fmt: skip


def checks_of(board: str) -> list[Check]:
    """The checks of one kind of board, in the order in which they are made."""
    checks = [check for check in _CHECKS if board in check.boards]
    checks.append(
        _current(
            "idle-current", board, _IDLE, "Power the board through a meter, with a line but no"
            " `sleep`, the USB cable unplugged.", "What does it draw while it waits?",
        )
    )  # fmt: skip
    if board in _SLEEPERS:
        checks.append(
            _current(
                "sleep-current", board, _DEEP_SLEEP, "Configure `sleep` with a reading every ten"
                " minutes; nothing but the board on the meter.",
                "What does the board draw in deep sleep?",
            )
        )  # fmt: skip
    return checks
