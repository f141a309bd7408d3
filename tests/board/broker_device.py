"""A board at a broker that asks for something; MicroPython. argv: file of the configuration, URL.

Opens the client as a board does, prints what it says, and `{"echo": ...}` once a frame that it
sent to itself came back. Ends after one reason or echo.
"""

import json
import sys
import time

from boards.broker import open_client
from drupelet.base.errors import DrupeletError

LIFE_MS = 20_000
TEXT = b"21.5 C"
reasons = []


def say(line: str) -> None:
    reasons.append(json.loads(line)["why"])


def main() -> None:
    with open(sys.argv[1]) as file:
        config = json.load(file)
    try:
        client = open_client(config, sys.argv[2], lambda: 7, say)
    except DrupeletError as error:
        print(json.dumps({"refused": str(error)}))
        return
    link = client.transport(b"self", b"self")
    frame = bytearray(1024)
    frame[: len(TEXT)] = TEXT
    sent = False
    size = 0
    begun = time.ticks_ms()
    while not size and not reasons and time.ticks_diff(time.ticks_ms(), begun) < LIFE_MS:
        client.maintain(time.ticks_diff(time.ticks_ms(), begun))
        if client.up and not sent:
            sent = link.send(frame, len(TEXT)) == 0
        size = max(0, link.receive_into(frame))
        time.sleep_ms(2)
    client.close()
    print(json.dumps({"reasons": reasons, "echo": bytes(frame[:size]).decode()}))


main()
