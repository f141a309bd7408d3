"""A Spark session that starts early, says nothing, and leaves nothing behind.

The JVM takes ten seconds and more to come up, so `start_early` starts it in a thread while
other things are going on; `wait` gives the session when it is needed.

A session on this machine is made small and kept on loopback. On any other master, addresses,
Python, shuffle partitions and adaptive execution are its owner's: `--conf` passes on their choice.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import UTF8Deserializer, read_int
from pyspark.sql import SparkSession

from drupelet_tools.telemetry import ARROW_POOL
from drupelet_tools.telemetry.base import scratch
from drupelet_tools.telemetry.base.errors import TelemetryError

JAVA_VERSION_MIN = 17
# Two workers; a task whose worker is killed (memory) is tried twice more.
LOCAL_MASTER = "local[2,3]"
# 25 CPU seconds: with twenty other processes on two cores it took more than 150 s.
START_TIMEOUT_S = 300
# Each executor of a cluster on this machine is one more JVM.
CLUSTER_START_TIMEOUT_S = 500
LOCAL_CLUSTER = "local-cluster"
STOP_TIMEOUT_S = 10
FOLDER_PREFIX = "drupelet-spark-"
# Without C2, which would not pay within seconds.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
JAVA_CLASSES = Path(sys.prefix) / "share/drupelet/spark.jsa"  # see java_classes.py

# Lines of the JVM's that name what went wrong; it also says that its log level is "ERROR".
_JVM_LOG = "jvm.log"
_TELLING = re.compile(r"ERROR \w|Exception|Error:")

LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c: %m%n
"""


def check_java() -> None:
    """Raise TelemetryError unless a Java runtime that Spark can use is there."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    remedy = f"Spark needs Java {JAVA_VERSION_MIN} or later: run tools/setup"
    if java is None:
        raise TelemetryError(f"no Java found; {remedy}")
    try:
        told = subprocess.run(
            [java, "-XX:-UsePerfData", "-version"],
            check=False,
            capture_output=True,
            text=True,
            timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired):
        raise TelemetryError(f"{java} does not run; {remedy}") from None
    version = re.search(r'version "(?:1\.)?(\d+)', told.stderr)
    if version is None or int(version.group(1)) < JAVA_VERSION_MIN:
        first = told.stderr.strip().splitlines()[:1]
        raise TelemetryError(f"{java} is {' '.join(first) or 'unknown'}; {remedy}")


class Cluster(NamedTuple):
    """Where a session runs. conf: settings of Spark's, which win over ours."""

    master: str = LOCAL_MASTER
    conf: tuple[tuple[str, str], ...] = ()

    @property
    def is_here(self) -> bool:
        """Whether all of it runs on this machine, started and ended by us."""
        return self.master.partition("[")[0] in ("local", LOCAL_CLUSTER)


def cluster_of(master: str, settings: list[str]) -> Cluster:
    """A cluster from the command line; settings: KEY=VALUE each. Raises TelemetryError."""
    conf = []
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals or not key.startswith("spark."):
            raise TelemetryError(f"--conf {text}: write spark.KEY=VALUE, as for spark-submit")
        conf.append((key, value))
    return Cluster(master, tuple(conf))


def java_options() -> str:
    """Of a JVM that lives for seconds."""
    shared = [f"-XX:SharedArchiveFile={JAVA_CLASSES}"] if JAVA_CLASSES.is_file() else []
    return " ".join([JAVA_OPTIONS, *shared])


def configuration(folder: Path, cluster: Cluster) -> SparkConf:
    """What the session is started with; `folder` goes when it ends."""
    (folder / "log4j2.properties").write_text(LOG4J, "utf-8")
    java = [
        java_options(),
        f"-Djava.io.tmpdir={folder}",
        f"-Dlog4j2.configurationFile=file:{folder}/log4j2.properties",
    ]
    # Without what a Java of this process that is there already was started with.
    conf = SparkConf(loadDefaults=False)
    conf.setMaster(cluster.master).setAppName("drupelet telemetry")
    conf.set("spark.ui.showConsoleProgress", "false").set("spark.log.level", "ERROR")
    conf.setExecutorEnv(ARROW_POOL, os.environ[ARROW_POOL])
    if cluster.is_here:
        conf.set("spark.ui.enabled", "false")
        conf.set("spark.sql.shuffle.partitions", "2").set("spark.sql.adaptive.enabled", "false")
        conf.set("spark.local.dir", str(folder))
        conf.set("spark.sql.warehouse.dir", str(folder / "warehouse"))
        conf.set("spark.driver.host", "127.0.0.1").set("spark.driver.bindAddress", "127.0.0.1")
        conf.set("spark.driver.extraJavaOptions", " ".join(java))
    if cluster.master.startswith(LOCAL_CLUSTER):
        conf.set("spark.executor.extraJavaOptions", " ".join(java))
    return conf.setAll(list(cluster.conf))


class Session:
    """A Spark session on its way up, running, or stopped."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        scratch.sweep(FOLDER_PREFIX)  # of sessions whose process was killed
        self._folder = Path(tempfile.mkdtemp(prefix=f"{FOLDER_PREFIX}{os.getpid()}-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._spark: SparkSession | None = None
        self._error: TelemetryError | None = None
        # Where the executors of a cluster on this machine keep their logs.
        self._work: Path | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._start, name="spark-start", daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float | None = None) -> SparkSession:
        """The session, warmed up. Raises TelemetryError if it did not come up."""
        if timeout_s is None:
            is_one_process = self.cluster.master.partition("[")[0] == "local"
            timeout_s = START_TIMEOUT_S if is_one_process else CLUSTER_START_TIMEOUT_S
        self._thread.join(timeout_s)
        if self._error is not None:
            raise self._error
        if self._spark is None or self._thread.is_alive():
            raise TelemetryError(f"Spark did not start within {timeout_s:.0f} s")
        return self._spark

    def stop(self, graceful: bool = True, exit_s: float = 0) -> None:
        """End the JVM and remove its folders; may be called at any time, repeatedly.

        Bounded: at most STOP_TIMEOUT_S twice, and under 2 s if not `graceful` (Ctrl-C). exit_s:
        how long the JVM may take to exit by itself, on top of that.
        """
        self._stopping.set()
        # A JVM that is ended while it is asked to stop is nothing to tell of.
        logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
        logging.getLogger().addFilter(is_not_py4j)
        if graceful and self._spark is not None:
            ending = threading.Thread(target=self._spark.stop, daemon=True)
            ending.start()
            ending.join(STOP_TIMEOUT_S)
        self._spark = None
        self._end_process(exit_s)
        # With the JVM gone, whatever the starting thread waits for fails at once.
        self._thread.join(STOP_TIMEOUT_S if graceful else 1)
        _forget_gateway()
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._work is not None:
            shutil.rmtree(self._work, ignore_errors=True)

    def _end_process(self, exit_s: float) -> None:
        process = self._process
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(exit_s)
        process.kill()  # it holds nothing that has to be saved
        process.wait(STOP_TIMEOUT_S)

    def _start(self) -> None:
        try:
            check_java()
            if self.cluster.is_here:
                os.environ["PYSPARK_PYTHON"] = sys.executable
                os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
                os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
            conf = configuration(self._folder, self.cluster)
            # spark-submit does this for a program that it starts itself.
            if python := conf.get("spark.pyspark.python"):
                os.environ["PYSPARK_PYTHON"] = python
            port, secret = self._launch(conf)
            os.environ["PYSPARK_GATEWAY_PORT"] = port
            os.environ["PYSPARK_GATEWAY_SECRET"] = secret
            try:
                gateway = launch_gateway(conf)
            finally:
                del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
            context = SparkContext(gateway=gateway, conf=conf)
            if self.cluster.master.startswith(LOCAL_CLUSTER):
                self._work = Path(_find_spark_home()) / "work" / context.applicationId
            # It prints a traceback for every connection that a JVM that is ended leaves open.
            server: Any = context._accumulatorServer
            server.handle_error = lambda *_: None
            spark = SparkSession(context)
            spark.range(0, 2, 1, 2).mapInArrow(_warm, "part string").collect()
            self._spark = spark
        except TelemetryError as told:
            self._error = told
        except (PySparkException, Py4JError, OSError, ValueError, RuntimeError) as broken:
            self._error = TelemetryError(self._why_not_started(broken))

    def _launch(self, conf: SparkConf) -> tuple[str, str]:
        """Start the JVM and return the port and the secret of its gateway.

        Done here and not by `launch_gateway`, so that `stop` can end a JVM that is only on its
        way up, and so that nothing of what it prints reaches the terminal.
        """
        told = self._folder / "gateway"
        command = [str(Path(_find_spark_home()) / "bin" / "spark-submit")]
        for key, value in conf.getAll():
            command += ["--conf", f"{key}={value}"]
        environment = {
            **os.environ,
            "SPARK_CONNECT_MODE": "0",
            "SPARK_LAUNCHER_OPTS": "-XX:-UsePerfData",
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(told),
        }
        with open(self._folder / _JVM_LOG, "wb") as log:
            self._process = subprocess.Popen(
                [*command, "pyspark-shell"],
                stdin=subprocess.PIPE,  # the JVM ends when this closes, however we end
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,  # Ctrl-C is for us to handle
            )
        for _ in range(START_TIMEOUT_S * 10):
            if self._stopping.wait(0.1):
                raise TelemetryError("Spark was stopped while it started")
            if told.exists():  # written whole, then renamed
                with open(told, "rb") as file:
                    return str(read_int(file)), UTF8Deserializer().loads(file)
            if self._process.poll() is not None:
                break
        raise TelemetryError(self._why_not_started(RuntimeError("no gateway")))

    def _why_not_started(self, broken: BaseException) -> str:
        return why_not_started(self._folder / _JVM_LOG, self.cluster.master, broken)


def why_not_started(log: Path, master: str, broken: BaseException) -> str:
    """One line on a session that did not come up; `log` is what its JVM printed."""
    text = f"Spark did not start: {_reason(log, broken)}"
    return text if master == LOCAL_MASTER else f"{text}; is --master {master} right?"


def _reason(log: Path, broken: BaseException) -> str:
    """The most telling single line: the JVM's own, else the exception's."""
    try:
        printed = log.read_text("utf-8", "replace")
    except OSError:
        printed = ""
    lines = [line for line in printed.splitlines() if _TELLING.search(line)]
    return (lines or str(broken).splitlines() or [type(broken).__name__])[0][:300]


def _warm(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Make a worker load what the ingest will need; workers are used again.

    The rows have the shape of the ingest's, so that Spark compiles its plan here, too.
    """
    from drupelet_tools.telemetry.base.memory import freeze_loaded
    from drupelet_tools.telemetry.intake import job

    freeze_loaded()
    for batch in batches:
        names = [job.__name__] * batch.num_rows
        yield pa.RecordBatch.from_pydict({"part": pa.array(names, pa.string())})


def is_not_py4j(record: logging.LogRecord) -> bool:
    """Leaves out what py4j logs without a logger of its own, from finalisers at any moment."""
    return "py4j" not in Path(record.pathname).parts


def _forget_gateway() -> None:
    """Make the next context of this process launch a JVM of its own."""
    gateway = SparkContext._gateway
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    if gateway is not None:
        gateway.shutdown()


class Remote:
    """A session of a Spark Connect server: there is no JVM to start or to end here."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._spark: SparkSession | None = None

    def wait(self) -> SparkSession:
        """The session. Raises TelemetryError if the server does not answer."""
        try:
            builder = SparkSession.builder.remote(self.cluster.master)
            for key, value in self.cluster.conf:
                builder = builder.config(key, value)
            self._spark = builder.getOrCreate()
        except (PySparkException, ImportError, ValueError) as refused:
            first = (str(refused).splitlines() or [type(refused).__name__])[0]
            raise TelemetryError(
                f"{self.cluster.master}: no Spark Connect session: {first};"
                f" it needs a server there and pyspark's connect extra here"
            ) from None
        return self._spark

    def stop(self, graceful: bool = True) -> None:  # noqa: ARG002
        """Leave the server."""
        if self._spark is not None:
            self._spark.stop()
            self._spark = None


def start_early(master: str = LOCAL_MASTER) -> Session:
    """Start a session in the background; it must be stopped with `stop()`."""
    return Session(Cluster(master))


def connect(cluster: Cluster) -> Session | Remote:
    """A session of its own, or, for sc://host, of a Spark Connect server."""
    return Remote(cluster) if cluster.master.startswith("sc://") else Session(cluster)
