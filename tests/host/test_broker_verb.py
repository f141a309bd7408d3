"""`drupelet broker` and `drupelet --version`, as a person runs them."""

import signal
import socket
import subprocess
import sys

import drupelet

DRUPELET = [sys.executable, "-m", "drupelet_host"]
TIMEOUT_S = 60


def test_the_version_is_one_line() -> None:
    done = subprocess.run(
        [*DRUPELET, "--version"], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert (done.returncode, done.stdout) == (0, f"drupelet {drupelet.__version__}\n")


def test_a_broker_serves_until_it_is_ended() -> None:
    for end in (signal.SIGTERM, signal.SIGINT):
        process = subprocess.Popen(
            [*DRUPELET, "broker", "--port", "0"], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        address = ("127.0.0.1", int(url.removeprefix("mqtt://127.0.0.1:")))
        with socket.create_connection(address, TIMEOUT_S):
            process.send_signal(end)
            assert process.wait(TIMEOUT_S) == 0
        process.stdout.close()
        with socket.socket() as probe:
            assert probe.connect_ex(address) != 0


def test_a_port_that_is_taken_is_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = subprocess.run(
            [*DRUPELET, "broker", "--port", str(port)],
            capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stdout == "" and done.stderr.count("\n") == 1 and str(port) in done.stderr
    assert "choose another one" in done.stderr
