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

    def take(self, number: int) -> "bytes | None":
        """Reading `number`; None behind the last, where `readings_max` says which that is."""
        if self._readings_max and number >= self._readings_max:
            return None
        warmth = self._port.warmth()
        volts = self._battery.millivolts() if self._battery is not None else 0
        text = '{"board":"%s","n":%d,"temp_c":%s,"supply_mv":%s}' % (
            self._name, number, "null" if warmth is None else "%.1f" % warmth, volts or "null",
        )  # fmt: skip
        return text.encode()
