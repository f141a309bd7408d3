"""What the black box records: events, reset causes, power states, counters (docs/SPEC.md 6)."""

from drupelet.base.compat import const

# Event codes, and the contents of a, b and c.
CODE_STATE = const(1)  # a: power state entered
CODE_CREATED = const(10)  # 10..17: c is the first 4 bytes of the message id
CODE_OFFERED = const(11)  # a: peer
CODE_REQUESTED = const(12)  # a: peer that was asked
CODE_SENT = const(13)  # a: peer, b: send count
CODE_ACKED = const(14)  # a: peer that acknowledged
CODE_DELIVERED = const(15)  # a: source peer
CODE_RECEIVED = const(16)  # a: peer
CODE_DUPLICATE = const(17)  # a: peer
CODE_HEAP_LOW = const(30)  # c: lowest free bytes
CODE_BATTERY = const(31)  # b: mV
CODE_BOOT = const(32)  # a: reset cause, b: boot number
CODE_ERROR = const(33)  # a: error code index, b: detail
# a: field; c: 1 heap limit, 2 epoch_ms, 4 firmware version; b: 3 board kind, 4 firmware set
CODE_DESCRIPTOR = const(34)
CODE_COUNTER = const(40)  # a: counter, b: its bits 32..47, c: its bits 0..31

# `drupelet.__version__` as c has it: major u8 and minor u8, then patch u16.
VERSION_HIGH = const(0x0001)
VERSION_LOW = const(0x0000)

# Reset causes, as MicroPython's `machine` numbers them on an ESP32; 0 is not known.
RESET_POWER_ON = const(1)
RESET_HARD = const(2)
RESET_WATCHDOG = const(3)
RESET_DEEP_SLEEP = const(4)
RESET_SOFT = const(5)

# Power states.
STATE_DEEP_SLEEP = const(0)
STATE_LIGHT_SLEEP = const(1)
STATE_IDLE = const(2)
STATE_RECEIVE = const(3)
STATE_SEND = const(4)
STATE_FLASH = const(5)
STATE_SENSOR = const(6)

# Counters. 0..7: ms in the power state of that number.
COUNT_PROGRAMS = const(8)
COUNT_ERASES = const(9)
COUNT_CREATED = const(10)
COUNT_DELIVERED = const(11)
COUNT_DUPLICATES = const(12)
COUNT_RETRANSMITS = const(13)
COUNT_REFUSED = const(14)
COUNT_DAMAGED = const(15)
COUNT_MALFORMED = const(16)
COUNT_LOST = const(17)  # events that were dropped for lack of room
# 64 + carrier * 32 + direction * 16 + kind; docs/SPEC.md lists the kinds.
COUNT_CARRIERS = const(64)
