"""Started on a board by `import boards.micro.main`; its owner writes `micro_config.py` beside it.

    GROUP = b"orchard"             the same at every member
    EPOCH_MS = 60000
    LINES = ((0, 115200, 0),)      UART number, baud, 0 batch or 1 interactive
    IDS = "ids"                    file on flash: what was here (board.py)
    def reading(number): ...       bytes of the next reading since boot, b"" for none
    def taken(node, row): ...      a message of another member; its body: node.body_at(row), ...

Without a clock of its own a board puts into its readings what differs from boot to boot: two equal
messages of one moment are one message.
"""

import gc
import time

# What an import leaves behind is collected at once, so that the tables find room in one piece.
gc.threshold(1024)

import machine

from boards.micro.board import Board

# A UART keeps 256 bytes for us: 22 ms at 115,200 baud.
_SLEEP_MS_MAX = 10

# It runs until the power goes.
config = __import__("micro_config")
board = Board(config)
for number, baud, interactive in config.LINES:
    uart = machine.UART(number, baudrate=baud, timeout=0, rxbuf=256)
    board.add(uart, interactive)
while True:
    time.sleep_ms(min(board.step(), _SLEEP_MS_MAX))
