"""Stands in for `network`: an access point that comes and goes, also by a file that says so."""

import os

STA_IF = 0
world = {"there": False, "ssid": "orchard", "password": "green apples", "broken": False}
calls = []
FILE = "network-is-there"


class WLAN:
    def __init__(self, interface):
        if interface != STA_IF:
            raise ValueError
        self._active = self._joined = False

    def active(self, *on):
        if world["broken"]:
            raise OSError(5)
        if on:
            self._active = bool(on[0])
            self._joined = self._joined and self._active
            calls.append("active" if self._active else "off")
        return self._active

    def connect(self, ssid, *key):
        if not self._active:
            raise OSError("STA must be active")
        calls.append("connect")
        self._joined = ssid == world["ssid"] and key == (world["password"],)

    def isconnected(self):
        return self._active and self._joined and (world["there"] or FILE in os.listdir())
