"""A terminal that stands for a serial device: it goes for good."""

import os

import pytest

from drupelet_tools.terminal import Terminal


def test_bytes_pass_untouched_both_ways() -> None:
    terminal = Terminal()
    device = os.open(terminal.path, os.O_RDWR | os.O_NOCTTY)
    os.write(device, b"\x03\r\n\x00")
    assert os.read(terminal.fd, 10) == b"\x03\r\n\x00"
    os.write(terminal.fd, b"\x03\r\n\x00")
    assert os.read(device, 10) == b"\x03\r\n\x00"
    os.close(device)
    terminal.close()


def test_a_pulled_one_is_never_another_that_came_later() -> None:
    first = Terminal()
    first.close()
    others = [Terminal() for _ in range(3)]  # one of them has the number that is free again
    with pytest.raises(FileNotFoundError):
        os.open(first.path, os.O_RDWR | os.O_NOCTTY)
    for other in others:
        other.close()
