"""A standalone Spark cluster whose machines are network namespaces, each with its own address.

They hang on one switch that is connected to nothing else; every namespace has a loopback of its
own. So whoever tells another machine to call back to 127.0.0.1 gets no answer.
"""

import os
import signal
import subprocess
import time
from pathlib import Path

import pyspark

from drupelet_tools.telemetry.spark.session import java_options

START_S = 120
_SPARK = Path(pyspark.__file__).parent
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_PORT = 7077


class Cluster:
    """A master, two workers with one core each, and a place for the driver; `close` ends all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._prefix = f"dp{os.getpid()}"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._namespaces: list[str] = []
        self._switch = self._namespace("s")
        _ip_in(self._switch, "link", "add", "switch", "type", "bridge")
        _ip_in(self._switch, "link", "set", "dev", "switch", "up")
        self.workers: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Return once both workers have registered."""
        address = self._machine("m", 2)
        self.url = f"spark://{address}:{_PORT}"
        self._spark("m", address, _MASTER, "--port", str(_PORT), "--webui-port", "0")
        self._wait("m", "I have been elected leader")
        for number in (1, 2):
            name, address = f"w{number}", self._machine(f"w{number}", 10 + number)
            worker = ("--cores", "1", "--memory", "1g", "--webui-port", "0", "-d")
            self.workers.append(
                self._spark(name, address, _WORKER, *worker, str(self._folder / name), self.url)
            )
        for number in (1, 2):
            self._wait(f"w{number}", "Successfully registered with master")
        self.driver_address = self._machine("d", 20)

    def driver(self, command: list[str]) -> list[str]:
        """A command that runs on the driver's machine."""
        return [*_inside(self._prefix + "d"), *command]

    def launched(self, worker: int) -> int:
        """How many executors a worker has launched."""
        text = (self._folder / f"w{worker + 1}.log").read_text("utf-8", "replace")
        return text.count("Asked to launch executor")

    def kill_busy_worker(self, worker: int, launched: int) -> None:
        """Kill a worker and its executor, once the latter runs Python for a new application."""
        name = self._prefix + f"w{worker + 1}"
        end = time.monotonic() + START_S
        while self.launched(worker) == launched or not self._runs_python(name):
            assert time.monotonic() < end, f"{name} runs no task"
            time.sleep(0.05)
        os.killpg(self.workers[worker].pid, signal.SIGKILL)

    def _runs_python(self, namespace: str) -> bool:
        done = subprocess.run(
            ["ip", "netns", "pids", namespace], capture_output=True, text=True, check=False
        )
        words = [Path(f"/proc/{pid}/cmdline") for pid in done.stdout.split()]
        return any(b"pyspark.daemon" in path.read_bytes() for path in words if path.exists())

    def close(self) -> None:
        """End every process, then the namespaces with what is in them."""
        for process in self._processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(START_S)
        for name in self._namespaces:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def _namespace(self, name: str) -> str:
        namespace = self._prefix + name
        _run("ip", "netns", "add", namespace)
        self._namespaces.append(namespace)
        _ip_in(namespace, "link", "set", "dev", "lo", "up")
        return namespace

    def _machine(self, name: str, number: int) -> str:
        """A namespace on the switch; returns its address."""
        namespace = self._namespace(name)
        address = f"10.77.0.{number}"
        _ip_in(namespace, "link", "add", "eth0", "type", "veth",
               "peer", "name", name, "netns", self._switch)  # fmt: skip
        _ip_in(self._switch, "link", "set", "dev", name, "master", "switch", "up")
        _ip_in(namespace, "addr", "add", f"{address}/24", "dev", "eth0")
        _ip_in(namespace, "link", "set", "dev", "eth0", "up")
        return address

    def _spark(self, name: str, address: str, *words: str) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ, "SPARK_LOCAL_IP": address, "SPARK_HOME": str(_SPARK),
            "SPARK_DAEMON_MEMORY": "256m", "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_JAVA_OPTS": java_options(),
        }  # fmt: skip
        with (self._folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [*_inside(self._prefix + name), str(_SPARK / "bin" / "spark-class"),
                 words[0], "--host", address, *words[1:]],
                env=environment, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self._processes.append(process)
        return process

    def _wait(self, name: str, text: str) -> None:
        log = self._folder / f"{name}.log"
        end = time.monotonic() + START_S
        while text not in log.read_text("utf-8", "replace"):
            assert time.monotonic() < end, log.read_text("utf-8", "replace")[-2000:]
            time.sleep(0.1)


def _inside(namespace: str) -> list[str]:
    """What stands before a command that runs in a namespace.

    `ip netns exec` and `ip -n` also remount `/`, which no system in a folder (chroot) can.
    """
    return ["nsenter", f"--net=/run/netns/{namespace}"]


def _ip_in(namespace: str, *words: str) -> None:
    _run(*_inside(namespace), "ip", *words)


def _run(*words: str) -> None:
    completed = subprocess.run(words, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, f"{' '.join(words)}: {completed.stderr}"
