# mypy: ignore-errors
"""Runs a board's own program between meters: on a Cortex-M3 in QEMU, or on an emulated Pico.

/bench.json says what to do. `set`: small, full or micro; `port`: a folder below boards; `mode`:

    modules   import `names`, and say what they keep of the heap
    run       the program as it is; what the heap holds once it is up, the deepest stack, flash
    peak      likewise, with a collection before each allocation, on a Pico after each so many
              bytes: the most that is in use at once
    count     of each call of node and link that matters: its instructions, and what it
              allocates; a Cortex-M3 takes turns with its peer meanwhile (turns.py)

The program runs until Ctrl-C or `stop`; then one line goes to the console: a JSON object.
"""

import gc
import json
import sys
import time

SAMPLES = 24
# Of idle polls the last ones count: tables are as full then as they get.
IDLE_SAMPLES = 6
KINDS = ("publish", "receive", "ack", "idle", "seal_100")
ACK = 0
MESSAGE = 1
ACK_SIZE = 37  # a frame of bsp-1 with one id
SEAL_SIZE = 100
EPOCH_MS = 500  # as configured
# An emulated Pico takes a tenth of a second for a collection.
COLLECT_AFTER = {"qemu": 1, "rp2": 512}

STARTED_MS = time.ticks_ms()

with open("/bench.json") as stream:
    settings = json.load(stream)


class Emulator:
    """What the emulator of a Pico counts (pico/meter.mjs), by the names of m3's module."""

    @staticmethod
    def instructions() -> int:
        """Since power-on, modulo 2^30."""
        return machine.mem32[0x400F0000]

    @staticmethod
    def stack_peak() -> int:
        """Most bytes that were in use since the last call."""
        return machine.mem32[0x400F0004]

    @staticmethod
    def heap_peak() -> int:
        """Most bytes that were in use after any collection since the last call."""
        return machine.mem32[0x400F0008]


turns = None
if settings["port"] == "rp2":
    import machine

    board = Emulator
else:
    import board

    if settings["mode"] == "count":
        import turns

        turns.begin()


class Meter:
    """What was seen, in tables that are there before the program begins."""

    def __init__(self) -> None:
        self.samples = [[0] * SAMPLES for _ in KINDS]
        self.counts = [0] * len(KINDS)
        self.record = 0  # most bytes that a call with one record allocated
        self.idle_bytes = 0  # most bytes that a poll without news allocated
        self.count = self.taken = 0  # of the last call
        self.flash = [0, 0]  # programs and erases
        self.base = self.used = self.boot_ms = self.began = self.before = 0
        self.poll_most = self.poll_since = 0

    def own(self) -> None:
        """Before the program's first import: what the heap holds now is of the meters."""
        gc.collect()
        self.base = gc.mem_alloc() - settings["bare"]

    def begin(self) -> None:
        """Before a call."""
        gc.disable()
        self.before = gc.mem_alloc()
        self.began = board.instructions()

    def end(self, kind: int, record: bool) -> None:
        """After it."""
        self.count = (board.instructions() - self.began) & 0x3FFFFFFF
        self.taken = gc.mem_alloc() - self.before
        gc.enable()
        if kind >= 0:
            self.note(kind, self.count)
        if record:
            self.record = max(self.record, self.taken)

    def note(self, kind: int, count: int) -> None:
        """Keep a sample; the last ones count."""
        self.samples[kind][self.counts[kind] % SAMPLES] = count
        self.counts[kind] += 1

    def idle(self, now_ms: int, count: int) -> None:
        """Of the polls of an epoch, keep the one that looks at everything."""
        self.poll_most = max(self.poll_most, count)
        if (now_ms - self.poll_since) & 0x3FFFFFFF >= EPOCH_MS:
            self.note(3, self.poll_most)
            self.poll_most = 0
            self.poll_since = now_ms

    def up(self) -> None:
        """The board is ready to run."""
        self.boot_ms = time.ticks_diff(time.ticks_ms(), STARTED_MS)
        gc.collect()
        self.used = gc.mem_alloc()
        board.stack_peak()
        board.heap_peak()
        if settings["mode"] == "peak":
            gc.threshold(COLLECT_AFTER[settings["port"]])
        self.flash[:] = worn()


def loaded(name: str) -> "object":
    """A module of the firmware; an image joins modules, and loads them by another name."""
    __import__(name)
    return sys.modules[name]


def replace(meter: "Meter", module: str, name: str, methods: "dict") -> None:
    """Put a class with other methods in the place of a class, wherever a module knows it.

    An image has classes in flash, where nobody can set their methods. What this takes of the heap
    is the meters'.
    """
    gc.collect()
    before = gc.mem_alloc()
    cls = getattr(loaded(module), name)
    changed = type(name, (cls,), methods)
    for other in list(sys.modules.values()):
        for known in dir(other):
            if getattr(other, known, None) is cls:
                setattr(other, known, changed)
    gc.collect()
    meter.base += gc.mem_alloc() - before


def worn() -> "tuple":
    """Flash programs and erases since power-on; the emulator counts those of a Pico."""
    if "drive" in sys.modules:
        return tuple(sys.modules["drive"].worn)
    return 0, 0


def kind_of(frame: bytearray, size: int) -> int:
    """The type of the only record of a frame of bsp-1; -1 where it has more."""
    return frame[2] if size > 5 and frame[3] << 8 | frame[4] == size - 5 else -1


def watch_link(meter: "Meter", module: str, name: str) -> None:
    """Count what comes and goes on links of a class."""
    cls = getattr(loaded(module), name)
    receive = cls.receive
    poll_into = cls.poll_into

    def receive_measured(self: "object", frame: bytearray, size: int, now_ms: int) -> int:
        kind = kind_of(frame, size)
        meter.begin()
        code = receive(self, frame, size, now_ms)
        meter.end(
            1 if kind == MESSAGE else 2 if kind == ACK and size == ACK_SIZE else -1, kind >= 0
        )
        return code

    def poll_measured(self: "object", frame: bytearray, now_ms: int) -> int:
        meter.begin()
        size = poll_into(self, frame, now_ms)
        meter.end(-1, size and kind_of(frame, size) >= 0)
        if not size:
            meter.idle_bytes = max(meter.idle_bytes, meter.taken)
            meter.idle(now_ms, meter.count)
        return size

    replace(meter, module, name, {"receive": receive_measured, "poll_into": poll_measured})


def watch_node(meter: "Meter", module: str, name: str) -> None:
    """Count what nodes of a class publish."""
    publish = getattr(loaded(module), name).publish

    def publish_measured(self: "object", *arguments: object) -> int:
        meter.begin()
        handle = publish(self, *arguments)
        meter.end(0, False)
        return handle

    replace(meter, module, name, {"publish": publish_measured})


def seal(meter: "Meter") -> None:
    """Seal a frame of 100 bytes, as a cable's are: key of 16, tag of 8."""
    aead = loaded("boards.aead").Aead()
    cipher = aead.cipher(bytes(range(16)), 0)
    nonce = bytearray(13)
    buf = bytearray(SEAL_SIZE + 64)
    for _ in range(SAMPLES):
        meter.begin()
        aead.seal(cipher, nonce, buf, 8, 8, SEAL_SIZE, 8)
        meter.end(4, False)


def run_small(meter: "Meter") -> None:
    """A board of sets small or full."""
    meter.own()
    main = "boards." + settings["port"] + ".main"
    module = __import__(main, None, None, ("run",))
    if turns:
        port = "boards." + settings["port"] + ".port"
        replace(meter, port, "Port", {"wait": turns.turn, "watch": turns.nothing})
    if settings["mode"] == "count":
        watch_link(meter, "drupelet.link.link", "Link")
        watch_node(meter, "drupelet.node", "Node")
    plain = loaded("boards.device").Device.run

    def run(self: "object") -> None:
        meter.up()
        plain(self)

    replace(meter, "boards.device", "Device", {"run": run})
    if module.run("/bench.board.json"):
        raise OSError("the board does not start")


def run_micro(meter: "Meter") -> None:
    """A board of set micro: it runs until it is interrupted."""
    meter.own()
    cls = loaded("boards.micro.board").Board
    plain_add = cls.add
    plain_step = cls.step

    def add(self: "object", stream: "object", interactive: int) -> None:
        plain_add(self, stream, interactive)
        meter.up()
        print("board up")

    def step_in_turns(self: "object") -> int:
        turns.turn()
        plain_step(self)
        return 0

    if settings["mode"] == "count":
        watch_link(meter, "drupelet.micro.link", "MicroLink")
        watch_node(meter, "boards.micro.board", "FlashMicro")
    methods = {"add": add}
    if turns:
        methods["step"] = step_in_turns
    replace(meter, "boards.micro.board", "Board", methods)
    __import__("boards.micro.main")


def modules() -> "dict":
    """What the modules of a running board keep, imported one by one in their order."""
    sys.modules.pop("board", None)
    gc.collect()
    before = gc.mem_alloc()
    for name in settings["names"]:
        if name != "boards.micro.main":  # which would run
            __import__(name)
            gc.collect()
    return {"modules_heap": gc.mem_alloc() - before}


def measure(meter: "Meter") -> "dict":
    """Run the program, and say what the meters show."""
    try:
        (run_micro if settings["set"] == "micro" else run_small)(meter)
    except KeyboardInterrupt:  # which ends the micro set's program
        gc.collect()
    gc.threshold(-1)
    programs, erases = worn()
    result = {
        "used": meter.used - meter.base, "names": list(sys.modules),
        "boot_ms": meter.boot_ms, "programs": programs - meter.flash[0],
        "erases": erases - meter.flash[1], "stack_peak": board.stack_peak(),
        "heap_peak": board.heap_peak() - meter.base,
    }  # fmt: skip
    if settings["mode"] == "count":
        if settings["set"] != "micro":
            seal(meter)
        result["alloc_per_record"] = meter.record
        result["alloc_per_epoch"] = meter.idle_bytes
        for kind in range(len(KINDS)):
            result[KINDS[kind]] = meter.samples[kind][: min(meter.counts[kind], SAMPLES)]
        last = meter.counts[3]
        result["idle"] = [meter.samples[3][i % SAMPLES] for i in range(last - IDLE_SAMPLES, last)]
    return result


meter = Meter()
print(json.dumps(modules() if settings["mode"] == "modules" else measure(meter)))
