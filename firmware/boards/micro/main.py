"""Starts a micro board: `import boards.micro.main`. Its owner writes `micro_config.py`:

    GROUP = b"orchard"             the same at every member
    EPOCH_MS = 60000
    LINES = ((0, 115200, 0),)      UART number, baud, 0 batch or 1 interactive
    IDS = "ids"                    file on flash for the prefixes of ids (board.py)
    def reading(number): ...       bytes of reading `number` since boot, b"" for none
    def taken(node, row): ...      a message of another member; its body: node.body_at(row), ...

A board without a clock must make its readings differ from boot to boot: two messages with equal
body and timestamp are the same message.
"""

import gc
import time

# Collect the garbage of imports soon, so that there is contiguous room for the tables.
gc.threshold(1024)

import machine

from boards.micro.board import Board

# A UART buffers 256 bytes: 22 ms at 115,200 baud.
_SLEEP_MS_MAX = 10

# Run until the power is cut.
config = __import__("micro_config")
board = Board(config)
for number, baud, interactive in config.LINES:
    uart = machine.UART(number, baudrate=baud, timeout=0, rxbuf=256)
    board.add(uart, interactive)
while True:
    time.sleep_ms(min(board.step(), _SLEEP_MS_MAX))
