"""How a chip is, as readings: what every microcontroller can tell without a sensor."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from boards.ports import ChipFactsPort


class Vitals:
    """A JSON text per reading: the chip's temperature and its supply, null where it has none."""

    def __init__(self, port: "ChipFactsPort", config: dict) -> None:
        self._port = port
        self._name = config["name"]
        self._readings_max = config.get("readings_max", 0)
        self._battery = None
        if config.get("battery"):
            self._battery = port.battery(config["battery"])
        self._number = 0
        self._payload = b""
        self._at = 0

    def ready(self, number: int) -> bool:
        """True while there is a reading to take; without `readings_max` always."""
        self._number = number
        return not self._readings_max or number < self._readings_max

    def size(self) -> int:
        """Take the reading that `ready` was asked for; its payload size."""
        warmth = self._port.warmth()
        volts = self._battery.millivolts() if self._battery is not None else 0
        text = '{"board":"%s","n":%d,"temp_c":%s,"supply_mv":%s}' % (
            self._name, self._number, "null" if warmth is None else "%.1f" % warmth,
            volts or "null",
        )  # fmt: skip
        self._payload = text.encode()
        self._at = 0
        return len(self._payload)

    def read_into(self, buf: bytearray, at: int, size: int) -> None:
        """The next `size` bytes of the payload."""
        buf[at : at + size] = self._payload[self._at : self._at + size]
        self._at += size
