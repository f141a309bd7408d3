"""What a port promises (boards/ports.py), tried on the board; it prints a line of JSON a check.

The same file runs on MicroPython's unix port with `fake/` in its path, and on a chip, emulated or
real, whose firmware holds `boards`: `mpremote run contract.py`. It takes no other file. On a chip
it neither resets nor starts a watchdog, which nobody can stop; what only a wire or a radio can
show it leaves out, and says so with "ok": null.
"""

import gc
import json
import sys
import time

import machine

try:
    import fake_port
except ImportError:
    fake_port = None  # a chip

from drupelet.base.errors import OK, DrupeletError
from drupelet.base.events import RESET_DEEP_SLEEP, RESET_POWER_ON

NAMES = {"rp2": "rp2", "esp32": "esp32", "pyboard": "stm32", "nrf52": "nrf"}
NAME = fake_port.NAME if fake_port else NAMES[sys.platform]
FOLDER = fake_port.FOLDER if fake_port else "/hal-contract"
BOARDS = {"esp32": 1, "rp2": 4, "stm32": 5, "nrf": 6}
# A UART that each kind of board has, and one that none has.
LINE = {
    "rp2": ("1", {"tx": "4", "rx": "5"}),
    "esp32": ("1", {"tx": "4", "rx": "5"}),
    "stm32": ("2", {}),
    "nrf": ("0", {}),
}[NAME]
NO_UART = "9"
ANALOGUE = {"rp2": 26, "esp32": 34, "stm32": "X19", "nrf": 1}[NAME]
LED = {"rp2": 25, "esp32": 2, "stm32": "A13", "nrf": 17}[NAME]
# Names of `machine` that boards use there, and that they must not count on.
USED = {
    "rp2": "ADC Pin SPI UART WDT lightsleep mem32 reset reset_cause PWRON_RESET WDT_RESET",
    "esp32": "ADC Pin RTC SPI UART WDT deepsleep reset reset_cause DEEPSLEEP_RESET",
    "stm32": "ADC Pin UART WDT deepsleep reset reset_cause DEEPSLEEP_RESET",
    "nrf": "ADC Pin SPI UART reset reset_cause PWRON_RESET",
}[NAME].split()
ABSENT = {
    "rp2": "DEEPSLEEP_RESET HARD_RESET",
    "esp32": "",
    "stm32": "",
    "nrf": "WDT DEEPSLEEP_RESET RTC",
}[NAME].split()
CONFIG = {"flash": FOLDER, "name": "hal", "readings_max": 3, "peers": []}


# What a check that fails may raise.
FAULTS = (
    AssertionError, AttributeError, DrupeletError, ImportError, IndexError, KeyError, MemoryError,
    NotImplementedError, OSError, RuntimeError, TypeError, ValueError,
)  # fmt: skip


def new_port(**more):
    port = __import__("boards.%s.port" % NAME, None, None, ("Port",)).Port
    return port(dict(CONFIG, **more))


def refusal(call, *arguments):
    """The name of what a call raises; "" for nothing."""
    try:
        call(*arguments)
    except (AttributeError, OSError, TypeError, ValueError) as error:
        return type(error).__name__
    return ""


# --- checks: each returns what it saw, or raises ---


def names():
    """The module `machine` has what boards use of it, and not what they do without."""
    for name in USED:
        assert hasattr(machine, name), name
    for name in ABSENT:
        assert not hasattr(machine, name), name
    there = getattr(machine, "__dict__", None) or dir(machine)
    return sorted([name for name in there if name[0] != "_"])


def refusals():
    """What the chip's own calls refuse: a fake that takes more would hide a mistake of ours."""
    seen = {
        "uart": refusal(machine.UART, int(NO_UART), 115200),
        "option": refusal(lambda: machine.UART(int(LINE[0]), 115200, colour=1)),
    }
    expected = {"uart": "ValueError", "option": "TypeError"}
    if NAME == "rp2":
        import rp2

        seen["tx"] = refusal(lambda: machine.UART(1, 115200, tx=machine.Pin(3)))
        seen["rx"] = refusal(lambda: machine.UART(1, 115200, rx=machine.Pin(4)))
        seen["buffer"] = refusal(lambda: machine.UART(1, 115200, rxbuf=40000))
        seen["pin"] = refusal(machine.Pin, 99)
        seen["adc"] = refusal(machine.ADC, 25)
        seen["watchdog"] = refusal(lambda: machine.WDT(timeout=8389))
        seen["sleep"] = refusal(machine.lightsleep, 4294968)
        seen["block"] = refusal(lambda: rp2.Flash(start=1, len=4096))
        seen["memory"] = refusal(lambda: machine.RTC().memory())
        expected.update(
            tx="ValueError", rx="ValueError", buffer="ValueError", pin="ValueError",
            adc="ValueError", watchdog="ValueError", sleep="ValueError", block="ValueError",
            memory="AttributeError",
        )  # fmt: skip
    elif NAME in ("stm32", "nrf"):
        seen["tx"] = refusal(lambda: machine.UART(int(LINE[0]), 115200, tx=1))
        seen["baud"] = refusal(machine.UART, int(LINE[0]))
        expected.update(tx="TypeError", baud="TypeError")
    assert seen == expected, (seen, expected)
    return seen


def identity():
    """It says which kind of board it is, and why it runs."""
    port = new_port()
    assert port.board == BOARDS[NAME]
    cause = port.reset_cause()
    assert cause in range(6)
    if fake_port:
        assert cause == RESET_POWER_ON
    return [port.board, cause]


def clock():
    """Milliseconds that go on, wall time in both forms, and a wait of the right length."""
    port = new_port()
    began_ms = port.now_ms()
    port.wait(60)
    took_ms = (port.now_ms() - began_ms) & 0x3FFFFFFF
    assert 50 <= took_ms < 1000, took_ms
    stamp, anchor = bytearray(8), bytearray(6)
    port.timestamp_into(stamp)
    known = port.anchor_into(anchor)
    assert abs(int.from_bytes(stamp, "big") - int.from_bytes(anchor, "little")) < 1000
    assert known == (int.from_bytes(anchor, "little") >= 1704067200000)
    return [took_ms, known]


def chance():
    """Bytes of all kinds."""
    port = new_port()
    bytes_seen = {port.random_byte() for _ in range(256)}
    assert len(bytes_seen) > 64 and min(bytes_seen) >= 0 and max(bytes_seen) < 256
    return len(bytes_seen)


def line():
    """Frames leave over a UART, and come back where it is wired to itself."""
    port = new_port()
    options = dict(LINE[1], baud="115200", frame="251")
    text = "&".join([name + "=" + value for name, value in options.items()])
    carrier = port.open_line("uart:" + LINE[0] + "?" + text)
    assert carrier.frame_size_max == 251 and carrier.up
    assert not carrier.wait_ms(port.now_ms()) < 1000
    carrier.maintain(port.now_ms())
    port.watch(None, carrier.poll_object)
    frame, heard = bytearray(range(251)), bytearray(251)
    size = 0
    for _ in range(4):
        assert carrier.send(frame, 200) == OK
        began_ms = port.now_ms()
        while (port.now_ms() - began_ms) & 0x3FFFFFFF < 300 and not size:
            size = max(carrier.receive_into(heard), 0)
            port.wait(5)
        assert not carrier.pending_size
        if not size:
            break
        assert size == 200 and heard[:200] == frame[:200]
        size = 0
    else:
        size = 200
    port.watch(carrier.poll_object, None)
    carrier.close()
    assert carrier.send(frame, 10) < 0
    assert size or not fake_port
    return size == 200 or None


def wrong_lines():
    """One line that names the thing, for what this board has not got."""
    port = new_port()
    reason = []
    wrong = ["uart:" + NO_UART, "serial:///dev/ttyS0"]
    if NAME == "rp2":
        wrong.append("uart:1?tx=3&rx=5")
    if NAME in ("stm32", "nrf"):
        wrong.append("uart:" + LINE[0] + "?tx=4&rx=5")
    for url in wrong:
        try:
            port.open_line(url)
            raise AssertionError("taken: " + url)
        except DrupeletError as error:
            reason.append(str(error))
            assert url.split(":")[0] in reason[-1] and "\n" not in reason[-1]
    return reason


def console():
    """The console becomes a silent line; closed, it speaks, and its bytes are blanks."""
    port = new_port()
    stream = port.console.stream
    carrier = port.open_line("console:")
    assert port.console.stream is None and carrier.poll_object is stream
    port.console.say('{"check":"console","ok":false}')
    reason = ""
    try:
        port.open_line("console:")
    except DrupeletError as error:
        reason = str(error)
    assert "console:" in reason, "two carriers on one console"
    carrier.close()
    assert port.console.stream and port.console.command() == b""
    port.release()  # Ctrl-C interrupts again
    return True


def sleep():
    """A snapshot comes back once after a deep sleep, and not after a power cut."""
    port = new_port()
    if NAME == "nrf":
        reason = ""
        try:
            port.rtc(CONFIG)
        except DrupeletError as error:
            reason = str(error)
        assert "sleep" in reason
        return None
    if not fake_port:
        rtc = port.rtc(CONFIG)
        assert rtc.size >= 492 and rtc.load_into(bytearray(rtc.size)) == 0
        return rtc.size
    buf, back = bytearray(bytes(range(256)) * 8), bytearray(2048)
    programs = erases = 0
    sizes = [492, 1170, 0, 28, 700] * 20
    for number in range(len(sizes)):
        size = sizes[number]
        buf[0] = number
        port = new_port()
        rtc = port.rtc(CONFIG)
        assert size <= rtc.size
        rtc.forget()
        # The sleeper's buffer is as long as the port says.
        slept_ms = rest(rtc, buf[: rtc.size], size, 12, 70000 + number)
        assert 12 <= slept_ms < 200, slept_ms
        port = new_port()
        assert port.reset_cause() == RESET_DEEP_SLEEP
        rtc = port.rtc(CONFIG)
        assert 12 <= rtc.slept_ms and rtc.due_ms == 70000 + number
        assert rtc.load_into(back) == size and back[:size] == buf[:size]
    rtc.forget()
    assert new_port().rtc(CONFIG).load_into(back) == 0, "good once"
    rest(new_port().rtc(CONFIG), buf, 492, 12, 1)
    fake_port.power_cut()
    port = new_port()
    assert port.reset_cause() == RESET_POWER_ON
    assert port.rtc(CONFIG).load_into(back) == 0
    if NAME == "rp2":
        import rp2

        programs, erases = rp2.counts["programs"], rp2.counts["erases"]
        # What the file system itself wrote comes before: `counted` is set by `main`.
        programs -= counted["programs"]
        erases -= counted["erases"]
        slept = sum([1 for size in sizes if size]) + 1
        assert programs == slept and erases * 3 <= programs, (programs, erases)
        rp2.erased.clear()
        for _ in range(64):  # two pages each, which fill a block of 16 to its end
            rest(new_port().rtc(CONFIG), buf, 492, 12, 1)
        assert sorted(rp2.erased.values()) == [4, 4], "both blocks wear alike"
    return [len(sizes) + 1, programs, erases]


counted = {}


def rest(rtc, buf, size, wait_ms, due_ms):
    """Sleep until the reset; how long it took."""
    began_ms = time.ticks_ms()
    try:
        rtc.deep_sleep(buf, size, wait_ms, due_ms)
    except fake_port.Reset:
        return time.ticks_diff(time.ticks_ms(), began_ms)
    raise AssertionError("it did not sleep")


def restart():
    """A board whose flash failed resets; a reset would end these checks on a real one."""
    if not fake_port:
        return None
    try:
        new_port().restart()
    except fake_port.Reset:
        return True
    raise AssertionError("it did not reset")


def watchdog():
    """It is started with a time that the chip can count, and a wait never outlasts it."""
    port = new_port()
    if NAME == "nrf":
        reason = ""
        try:
            port.guard(1000)
        except DrupeletError as error:
            reason = str(error)
        assert "watchdog_ms" in reason
        return None
    if NAME == "rp2":
        reason = ""
        try:
            port.guard(9000)
        except DrupeletError as error:
            reason = str(error)
        assert "watchdog_ms" in reason
    if not fake_port:
        return None
    port.guard(200)
    began_ms = port.now_ms()
    port.wait(5000)
    assert 90 <= (port.now_ms() - began_ms) & 0x3FFFFFFF < 1000
    assert machine.WDT.fed == 1
    port.wait(0)
    assert machine.WDT.fed == 2
    return True


def battery():
    """Millivolts behind a divider."""
    volts = new_port().battery({"pin": ANALOGUE, "times": 2}).millivolts()
    assert 0 <= volts <= 6800, volts
    if fake_port:
        assert 3200 <= volts <= 3700, volts
    return volts


def vitals():
    """Readings without a sensor: JSON, as many as the configuration says."""
    port = new_port(battery={"pin": ANALOGUE, "times": 2})
    take = port.source(dict(CONFIG, battery={"pin": ANALOGUE, "times": 2}))
    assert take(2) and take(3) is None
    payload = take(1)
    size = len(payload)
    reading = json.loads(payload[0:5] + payload[5:size])
    assert reading["board"] == "hal" and reading["n"] == 1
    assert reading["temp_c"] is None or -40 < reading["temp_c"] < 90, reading
    return reading


def lamp():
    """The LED is on while the board is awake, and out while it waits."""
    port = new_port(led=LED)
    port.wait(1)
    if not fake_port:
        return None
    assert machine.Pin.history == [(LED, 1), (LED, 0), (LED, 1)]
    return True


def wifi():
    """Absent at the start is no end: it is tried again, joined, lost, joined again."""
    try:
        import network
    except ImportError:
        return None  # no radio
    if NAME in ("stm32", "nrf") or not fake_port:
        return None
    with open(FOLDER + "/wifi.txt", "w") as file:
        file.write("green apples\n")
    port = new_port()
    keeper = port.network({"ssid": "orchard", "password_file": FOLDER + "/wifi.txt"})
    world = network.world
    now_ms = 1000
    seen = []
    for moment in range(4000):  # a second each
        world["there"] = 300 <= moment < 900 or 1500 <= moment < 3000 or moment >= 3050
        world["broken"] = 3000 <= moment < 3100
        keeper.maintain(now_ms & 0x3FFFFFFF)
        assert keeper.poll_object is None and keeper.wait_ms(now_ms & 0x3FFFFFFF) <= 640000
        if not seen or seen[-1][1] != keeper.up:
            seen.append((moment, keeper.up))
        now_ms += 1000
    ups = [up for _moment, up in seen]
    assert ups == [False, True, False, True, False, True], seen
    # Absent for five minutes: not more often tried than the radio's charge allows.
    assert network.calls[: network.calls.index("off") + 1] == ["active", "connect", "off"]
    for path in (FOLDER + "/none.txt", ""):
        reason = ""
        try:
            port.network({"ssid": "orchard", "password_file": path})
        except DrupeletError as error:
            reason = str(error)
        assert ("none.txt" in reason) == bool(path)
    return seen


def card():
    """A card is a stick: it is found, read and written, pulled, and found again."""
    if not fake_port:
        return None
    import os

    import sdcard

    class Time:
        """Between two looks for a card more than five seconds pass."""

        ms = 0

        def ticks_ms(self):
            self.ms += 5001
            return self.ms

    if NAME != "stm32":
        import boards.card

        boards.card.time = Time()
    wires = {"spi": 0, "sck": 18, "mosi": 19, "miso": 16, "cs": 17}
    for detect in ((), ("detect",)) if NAME != "stm32" else ((),):
        for name in detect:
            wires[name] = 22
        port = new_port(sd=wires)
        sdcard.socket["card"] = None
        machine.Pin.states[22] = 1
        stick = port.open_stick("/sd", b"abcd")
        assert not stick.present() and not stick.present()
        if NAME == "stm32":  # its boot mounts a card that is in the slot
            sdcard.socket["card"] = sdcard.new_card()
            os.mount(__import__("pyb").SDCard(), "/sd")
            assert stick.present()
            sdcard.socket["card"] = None
            assert not stick.present()
        first, second = sdcard.new_card(), sdcard.new_card()
        for card in (first, second, first):
            sdcard.socket["card"] = card
            machine.Pin.states[22] = 0
            assert stick.present() and stick.present()
            number = 1 if card is first else 2
            if "number.txt" in os.listdir("/sd"):
                with open("/sd/number.txt") as file:
                    assert file.read() == str(number)
            else:
                with open("/sd/number.txt", "w") as file:
                    file.write(str(number))
            sdcard.socket["card"] = None
            machine.Pin.states[22] = 1
            assert not stick.present() and not stick.present()
    if NAME != "stm32":
        reason = ""
        try:
            new_port().open_stick("/sd", b"abcd")
        except DrupeletError as error:
            reason = str(error)
        assert "sd" in reason
    return True


CHECKS = (
    names, refusals, identity, clock, chance, line, wrong_lines, console, sleep, restart, watchdog,
    battery, vitals, lamp, wifi, card,
)  # fmt: skip


def main():
    """All checks, each in a fresh port; the last line counts."""
    if fake_port:
        fake_port.prepare()
    new_port()
    failed = 0
    for check in CHECKS:
        gc.collect()
        if fake_port and NAME == "rp2":
            import rp2

            counted.update(rp2.counts)
        row = {"check": check.__name__, "port": NAME}
        try:
            row["saw"] = check()
            row["ok"] = None if row["saw"] is None else True
        except FAULTS as error:
            failed += 1
            row["ok"] = False
            row["why"] = "%s: %s" % (type(error).__name__, error)
            if fake_port:
                sys.print_exception(error, sys.stderr)
        print(json.dumps(row))
    print(json.dumps({"checks": len(CHECKS), "failed": failed, "port": NAME}))


main()
