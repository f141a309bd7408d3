"""Prints each message once, as it comes: `python subscriber.py HOME`, beside `drupelet agent`."""

import sys

from drupelet_host import open_home

with open_home(sys.argv[1]) as home:
    for message in home.messages("subscriber", follow=True):
        print(message.time.isoformat(), message.author, message.text, flush=True)
        message.done()
