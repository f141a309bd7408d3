"""The demo's course: what happens when, and what is looked at in the end."""

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from drupelet_host.broker import Broker
from drupelet_host.view.log_view import LogView
from drupelet_tools.demo import check, plan
from drupelet_tools.demo.pico import PicoMember
from drupelet_tools.demo.plan import BOARDS, CARRIERS, HOST, IDS, PICO, DemoError, Folders
from drupelet_tools.demo.rows import Rows
from drupelet_tools.demo.world import World
from drupelet_tools.telemetry.intake import job
from drupelet_tools.telemetry.page import report
from drupelet_tools.telemetry.spark.session import Session, start_early

# Boards need a moment of calm before the JVM takes a core.
SPARK_AFTER_READINGS = 2
KILL_AFTER_READINGS = 8
# Time on foot between C and the host.
WALK_S = 1.0
OFF_S = 2.0
CONVERGE_S = 90.0
# An emulated Pico receives some hundred messages within this time, on a busy machine.
PICO_S = 900.0
PICO_PROGRESS_EVERY_S = 20.0
PULLS_TRIED_MAX = 4
ROUND_TRIPS_MAX = 12

Say = Callable[[str], None]


class Course:
    """One run; `result` holds what `drupelet demo --json` prints.

    pico_image: what an emulated Pico runs as the sixth member; None: five take part.
    """

    def __init__(
        self, folders: Folders, broker: str, rows: Rows | None, say: Say,
        pico_image: Path | None = None,
    ) -> None:  # fmt: skip
        self.folders = folders
        self.say = say
        self.rows = rows
        self.broker = broker
        self.readings = dict.fromkeys(BOARDS, plan.READINGS)
        self.pico_image = pico_image
        self.boards: tuple[str, ...] = BOARDS
        if pico_image is not None:
            self.boards = (*BOARDS, PICO)
            self.readings[PICO] = plan.PICO_READINGS
        self.session: Session | None = None
        self.result: dict[str, Any] = {}
        self._started = time.monotonic()

    def tell(self, text: str) -> None:
        """One line of progress with the seconds since the start."""
        self.say(f"{time.monotonic() - self._started:5.1f} s  {text}")

    def run(self) -> None:
        """Everything from switching on to the report; raises DemoError if a promise broke."""
        with ExitStack() as stack:
            stack.callback(self._stop_session)  # however it ends: at once
            if not self.broker:
                broker = Broker()
                stack.callback(broker.stop)
                self.broker = f"{broker.start()}/demo"
                self.tell(f"MQTT broker at {self.broker}")
            self._deal_rows()
            with World(self.folders, self.broker, self.readings, self.pico_image) as world:
                self._sync(world)
                heap_low = dict(world.heap_low)
                kills, pulls = world.kills, world.pulls
            self.tell("members stopped; reading what each of them holds")
            held = check.members_hold(self.folders, self.boards)
            figures = self._telemetry(held)
            assert self.session is not None
            self.session.stop()
        self._sum_up(held, figures, heap_low, kills, pulls)

    def _stop_session(self) -> None:
        if self.session is not None:
            self.session.stop(graceful=False)

    def _deal_rows(self) -> None:
        """Give each board every fourth row of the input file."""
        if self.rows is None:
            return
        texts = self.rows.texts
        for at, board in enumerate(BOARDS):
            share = texts[at :: len(BOARDS)]
            self.readings[board] = len(share)
            path = self.folders.board(board) / "rows.ndjson"
            path.write_text("".join(f"{text}\n" for text in share), encoding="utf-8")

    # --- syncing ---

    def _sync(self, world: World) -> None:
        if self.pico_image is not None:
            self.tell(f"{PICO}, an emulated Pico, gets its configuration and keys over its USB")
        world.start()
        if world.pico is not None:
            # With nothing else to do it is quick at that: nobody has to wait for its readings.
            world.wait_for(
                f"readings of {PICO}", lambda: self._is_pico_acknowledged(world), PICO_S
            )
            self.tell(f"{PICO} has taken its {self.readings[PICO]} readings; now the others start")
        world.switch_on_all()
        world.wait_for("boards start", lambda: all(name in world.status for name in BOARDS), 20)
        self.tell("4 boards on 128 KB heaps and the host are up")
        world.put("the demo begins")
        world.wait_for("first readings", self._own(world, "A", SPARK_AFTER_READINGS), 30)
        self.session = start_early()
        self._round_trip(world)
        self._kill(world, "B")
        self._pull(world)
        total = self._until_equal(world)
        if world.pico is not None:
            self._wait_for_pico(world, total)
        self._collect(world)
        if world.pico is not None:
            self._stop_pico(world, world.pico)

    def _own(self, world: World, board: str, count: int) -> Callable[[], bool]:
        """Whether a board has taken `count` readings, or all if it has fewer to take."""
        wanted = min(count, self.readings[board])
        return lambda: int(world.status.get(board, {}).get("own", -1)) >= wanted

    def _walk(self, world: World) -> None:
        end = time.monotonic() + WALK_S
        world.wait_for("walk", lambda: time.monotonic() >= end, WALK_S + 5)

    def _round_trip(self, world: World) -> None:
        for name in ("C", HOST):
            world.visit(name)
            self.tell(f"stick was at {name}")
            self._walk(world)

    def _kill(self, world: World, board: str) -> None:
        world.wait_for(f"readings of {board}", self._own(world, board, KILL_AFTER_READINGS), 30)
        world.kill(board)
        self.tell(f"{board} killed without warning")
        end = time.monotonic() + OFF_S
        while time.monotonic() < end:
            time.sleep(0.05)
        world.switch_on(board)
        world.wait_for(f"{board} is back", lambda: board in world.status, 20)
        self.tell(f"{board} is back and goes on where it was")

    def _pull(self, world: World) -> None:
        for _ in range(PULLS_TRIED_MAX):
            if world.pull("C"):
                self.tell("stick pulled from C in the middle of a bundle")
                return
            self._walk(world)
        raise DemoError("the stick could not be pulled mid-write: C was too quick each time")

    def _until_equal(self, world: World) -> int:
        """Carry the stick to and fro until every member reports that it has every message.

        It does not wait for an emulated Pico, which is slower. Returns the number of messages.
        """
        taken = [self._own(world, board, self.readings[board]) for board in BOARDS]
        self._walking(world, "last readings", lambda: all(done() for done in taken), 60)
        self.tell("last readings taken")
        world.put("the last word")
        total = sum(int(world.status[board]["own"]) for board in BOARDS) + 2
        total += self.readings.get(PICO, 0)  # the host had these before the other boards started
        for _ in range(ROUND_TRIPS_MAX):
            self._settle(world, total)
            self._round_trip(world)
            if self._equal(world, total):
                break
        world.wait_for("all members equal", lambda: self._equal(world, total), CONVERGE_S)
        others = f" but {PICO}" if world.pico is not None else ""
        self.tell(f"all members{others} have all {total} messages")
        return total

    def _is_pico_acknowledged(self, world: World) -> bool:
        """Whether the host, its only neighbour, has acknowledged all readings of the Pico."""
        taken = self._own(world, PICO, self.readings[PICO])
        return taken() and world.status[PICO]["outstanding"] == 0

    def _wait_for_pico(self, world: World, total: int) -> None:
        """Wait until the Pico has everything, and tell how far it is."""

        def logged() -> int:
            return int(world.status[PICO].get("logged", 0))

        end = time.monotonic() + PICO_S
        while logged() < total:
            if time.monotonic() > end:
                raise DemoError(f"{PICO}: {logged()} of {total} messages in {PICO_S:.0f} s")
            self.tell(f"{PICO} goes on in slow motion, and has {logged()} of {total} messages")
            again = time.monotonic() + PICO_PROGRESS_EVERY_S

            def ready(again: float = again) -> bool:
                return logged() >= total or time.monotonic() > again

            world.wait_for(f"{PICO}'s messages", ready, 2 * PICO_PROGRESS_EVERY_S)
        self.tell(f"{PICO} has all {total} messages, too")

    def _stop_pico(self, world: World, pico: PicoMember) -> None:
        """Let its black box leave, stop it, and copy its log over its USB."""
        pico.command("flush")
        world.wait_for(
            f"{PICO}'s black box",
            lambda: PICO in world.flushed and world.status[PICO]["outstanding"] == 0,
            PICO_S,
        )
        pico.command("stop")
        world.wait_for(f"{PICO} stops", lambda: world.status[PICO]["event"] == "stopped", PICO_S)
        pico.take_log()
        self.tell(f"{PICO}'s black box is at the host, and its log is read from its flash")

    def _walking(
        self, world: World, what: str, is_done: Callable[[], bool], timeout_s: float
    ) -> None:
        """Wait until `done`, and carry the stick when C has no room for what D brings."""
        for _ in range(ROUND_TRIPS_MAX):
            refused = self._refused(world)

            def ready(refused: int = refused) -> bool:
                return is_done() or self._refused(world) > refused

            world.wait_for(what, ready, timeout_s)
            if is_done():
                return
            self.tell("C's flash is full of what the stick has not taken yet")
            self._round_trip(world)
        raise DemoError(f"{what}: not within {ROUND_TRIPS_MAX} visits; {world.where()}")

    @staticmethod
    def _refused(world: World) -> int:
        """Messages that C had no room for."""
        return int(world.status.get("C", {}).get("refused", 0))

    def _settle(self, world: World, total: int) -> None:
        """Give the cables a few epochs to bring C what the stick should take along."""
        end = time.monotonic() + 4
        world.wait_for(
            "C and D agree",
            lambda: (
                self._is_pair_equal(world) or self._equal(world, total) or time.monotonic() > end
            ),
            10,
        )

    def _is_pair_equal(self, world: World) -> bool:
        return all(world.status[name].get("logged") == world.status["C"].get("logged")
                   for name in ("C", "D"))  # fmt: skip

    def _equal(self, world: World, total: int) -> bool:
        if any(int(world.status[board].get("logged", 0)) < total for board in BOARDS):
            return False
        view = LogView(self.folders.host)
        try:
            return sum(1 for _ in view.entries("readings")) >= total
        finally:
            view.close()

    def _collect(self, world: World) -> None:
        """Let the black boxes leave: through the sync, and by stick for C and D."""
        for board in ("D", "A", "B"):
            world.children[board].command("flush")
        for board in ("D", "A", "B"):
            self._wait_at_rest(world, board)
        world.children["C"].command("flush")
        world.wait_for("C's black box", lambda: "C" in world.flushed, 30)
        self._round_trip(world)
        self.tell("black boxes are at the host")

    def _wait_at_rest(self, world: World, board: str) -> None:
        """Wait until a board's neighbour holds everything, black box included."""
        self._walking(
            world,
            f"{board}'s black box",
            lambda: board in world.flushed and world.status[board]["outstanding"] == 0,
            30,
        )

    # --- telemetry ---

    def _telemetry(self, held: dict[str, check.Held]) -> dict[str, Any]:
        view = LogView(self.folders.host)
        try:
            exported = view.export_telemetry(self.folders.telemetry)
        finally:
            view.close()
        self.tell(f"{exported.segments} black-box segments; Spark turns them into tables")
        names = {
            IDS[name]: {
                "name": name,
                "carrier": CARRIERS[name],
                "board": plan.ENERGY[name],
            }
            for name in (HOST, *self.boards)
        }
        names_path = self.folders.out / "names.json"
        names_path.write_text(json.dumps(names, indent=2))
        assert self.session is not None
        segment_files = sorted(self.folders.telemetry.glob("*.dbx"))
        job.ingest(segment_files, self.folders.lake, names, self.session.wait)
        self.tell("tables written; drawing the report")
        results = {
            name: {
                "expected": log_state.expected,
                "delivered": log_state.delivered,
                "created": log_state.created,
                "duplicates": log_state.duplicates,
                "out_of_order": log_state.out_of_order,
            }
            for name, log_state in held.items()
        }
        return report.write_report(self.folders.lake, self.folders.report, results)

    # --- result ---

    def _sum_up(
        self, held: dict[str, check.Held], figures: dict[str, Any], heap_low: dict[str, int],
        kills: int, pulls: int,
    ) -> None:  # fmt: skip
        devices = {device["name"]: device for device in figures["devices"]}
        members = []
        for name, log_state in held.items():
            device = devices.get(name, {})
            limit = None if name == HOST else plan.HEAP_LIMIT
            if name == PICO:
                limit = device["health"]["heap_limit"]  # as its black box has it from its boot
            members.append(
                {
                    "name": name,
                    "kind": plan.KINDS[name],
                    "carrier": CARRIERS[name],
                    "expected": log_state.expected,
                    "delivered": log_state.delivered,
                    "duplicates": log_state.duplicates,
                    "out_of_order": log_state.out_of_order,
                    "heap_limit": limit,
                    "heap_peak": None if limit is None else limit - heap_low[name],
                    "interpreter": self._interpreter(name),
                    "bytes_per_message": device.get("bytes_per_message"),
                    "mah_modelled": device.get("mah_modelled"),
                    "latency_p50_ms": device.get("latency", {}).get("p50_ms"),
                    "latency_p90_ms": device.get("latency", {}).get("p90_ms"),
                }
            )
        self.result = {
            "members": members,
            "bytes_per_message": _rounded(figures["fleet"]["bytes_per_message"]),
            "kills": kills,
            "stick_pulls": pulls,
            "bad_rows": self.rows.bad if self.rows else 0,
            "lake": str(self.folders.lake),
            "report": str(self.folders.report),
        }
        wrong = [name for name, log_state in held.items() if not log_state.right]
        if wrong:
            raise DemoError(f"{', '.join(wrong)}: not every message exactly once and in order")

    def _interpreter(self, name: str) -> str:
        path = self.folders.board(name) / "output.log" if name != HOST else None
        return _interpreter_of(path)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def _interpreter_of(log: Path | None) -> str:
    import platform

    if log is None:
        return f"cpython {platform.python_version()}"
    for line in log.read_text(errors="replace").splitlines():
        if '"interpreter"' in line:
            return str(json.loads(line)["interpreter"])
    raise DemoError(f"{log}: the board did not say what runs it")
