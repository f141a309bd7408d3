"""A chip's `machine` for boards of this machine: what its pins do goes into the file `pins`, and
its ADC shows what stands in the file `adc`, both in the folder of the owner's program."""

FOLDER = __file__.rpartition("/")[0]


class Pin:
    OUT = 1

    def __init__(self, number, mode):
        assert mode == self.OUT
        self._number = number

    def _note(self, what):
        with open(FOLDER + "/pins", "a") as file:
            file.write(f"{self._number} {what}\n")

    def on(self):
        self._note("on")

    def off(self):
        self._note("off")


class ADC:
    def __init__(self, pin):
        assert pin == 26

    def read_u16(self):
        with open(FOLDER + "/adc") as file:
            return int(file.read())
