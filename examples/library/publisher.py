"""Publishes each line of standard input: `rtl_433 -F json | python publisher.py HOME`."""

import sys

from drupelet_host import open_home

with open_home(sys.argv[1]) as home:
    for line in sys.stdin.buffer:
        if reading := line.strip():
            home.publish(reading, wait=True)
