"""Readings of the chip itself, which need no sensor: temperature and supply voltage."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from boards.ports import ChipFactsPort


class Vitals:
    """Each reading is a JSON text with temperature and supply voltage, null if not measurable."""

    def __init__(self, port: "ChipFactsPort", config: dict) -> None:
        self._port = port
        self._name = config["name"]
        self._readings_max = config.get("readings_max", 0)
        self._battery = port.battery(config["battery"]) if config.get("battery") else None

    def take(self, number: int) -> "bytes | None":
        """Return reading `number`; None after the last, which `readings_max` may define."""
        if self._readings_max and number >= self._readings_max:
            return None
        warmth = self._port.warmth()
        volts = self._battery.millivolts() if self._battery is not None else 0
        text = '{"board":"%s","n":%d,"temp_c":%s,"supply_mv":%s}' % (
            self._name, number, "null" if warmth is None else "%.1f" % warmth, volts or "null",
        )  # fmt: skip
        return text.encode()
