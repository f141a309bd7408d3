"""Numbers of the black-box format by name (docs/SPEC.md 6), as the reader needs them.

The board's writer has constants of its own; a test compares the two lists.
"""

import re

MAGIC = b"DRBX"
VERSION = 1
BLOCK_MAGIC = 0xB1
WALL_KNOWN = 1  # bit of the header's flags
UNCERTAINTY_UNIT_MS = 10
UNCERTAINTY_UNKNOWN = 65535
# A clock that was never set starts in 1970, 2000 or 2021, by port: 2022 is the first plausible.
WALL_MS_MIN = 1_640_995_200_000
WALL_MS_MAX = 4_102_444_800_000  # 2100-01-01: a later time is no time

STATE = 1
HEAP_LOW = 30
BATTERY = 31
BOOT = 32
ERROR = 33
DESCRIPTOR = 34
COUNTER = 40

MESSAGE_EVENTS = {
    10: "created",
    11: "offered",
    12: "requested",
    13: "sent",
    14: "acked",
    15: "delivered",
    16: "received",
    17: "duplicate",
}

GROUP_EVENTS = ("created", "delivered")  # their b is the group's tag

STATES = (
    "deep sleep",
    "light sleep",
    "idle",
    "receive",
    "send",
    "flash",
    "sensor",
    "state 7",
)
# What started a boot; a crash is the watchdog, or nothing that is known.
RESET_CAUSES = {1: "power on", 2: "reset", 3: "watchdog", 4: "deep sleep", 5: "soft reset"}
RESET_WATCHDOG = 3
RESET_DEEP_SLEEP = 4
RESTARTS = (1, 2)  # by power or by the reset line: no crash that the device knows of
_UNSHOWN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ufffe\uffff]")
DEEP_SLEEP = 0  # of STATES
STATE_UNKNOWN = -1  # time that neither a counter nor an event accounts for

HEALTH_COUNTERS = {
    8: "flash_programs",
    9: "flash_erases",
    10: "messages_created",
    11: "messages_delivered",
    12: "duplicates",
    13: "retransmits",
    14: "refused",
    15: "damaged_frames",
    16: "malformed_records",
    17: "events_lost",
}

TRAFFIC_BASE = 64  # index = TRAFFIC_BASE + carrier * 32 + direction * 16 + kind
CARRIERS = ("serial", "mqtt", "stick", "udp")
DIRECTIONS = ("sent", "received")
# (name, unit) by kind. Kind 1 is the whole on the carrier; 2..7, 13 and 15 are parts of it.
TRAFFIC_KINDS = (
    ("frames", "frames"),
    ("carrier", "bytes"),
    ("ack", "bytes"),
    ("message", "bytes"),
    ("offer", "bytes"),
    ("request", "bytes"),
    ("segment", "bytes"),
    ("link", "bytes"),
    ("ack", "records"),
    ("message", "records"),
    ("offer", "records"),
    ("request", "records"),
    ("segment", "records"),
    ("seal", "bytes"),
    ("dropped", "frames"),
    ("telemetry", "bytes"),
)

# Of drupelet_host.home.board_kinds; those without a table of currents are all called the same.
BOARD_KINDS = {
    1: "esp32", 2: "pico-w", 3: "host", 4: "rp2040", 5: "board", 6: "board", 7: "board",
    9: "host",
}  # fmt: skip
DESCRIPTOR_FIELDS = {1: "heap_limit", 2: "epoch_ms", 3: "board_kind", 4: "firmware"}
FIELD_IN_B = 3  # the others are in c
FIELD_FIRMWARE = 4  # has the set in b
# Places in the lists that pieces keep of them; the set has one behind the fields.
DESCRIPTORS = {**DESCRIPTOR_FIELDS, 5: "firmware_set"}
FIRMWARE_SETS = {1: "micro", 2: "small", 3: "full"}  # their numbers in sets.toml


def version_text(number: int) -> str:
    """The firmware version that a descriptor has as a number: 65536 is 0.1.0."""
    return f"{number >> 24}.{number >> 16 & 0xFF}.{number & 0xFFFF}"


def set_name(number: int) -> str:
    """The name of a firmware set; empty for none and for one that is not known here."""
    return FIRMWARE_SETS.get(number, "")


def device_name(device_id: bytes) -> str:
    """Hex of an 8-byte device id; a 4-byte id (left-aligned, zeros behind) gives 8 digits."""
    text = device_id.hex()
    return text[:8] if text.endswith("00000000") else text


def is_text(text: str) -> bool:
    """Whether a text can be written as UTF-8; with half a surrogate pair it cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_text(text: str) -> str:
    """The text, with U+FFFD for what no page and no drawing can hold.

    Half a surrogate pair, control characters, and the line ends that end a script's string.
    """
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return _UNSHOWN.sub("\ufffd", whole)


# Why a segment is in quarantine although it was written whole: two devices have one id.
REASON_CONFLICT = "other bytes under a number already seen"
REASON_OTHER = "not from its device, or not its first with this number"
