# mypy: ignore-errors
# ruff: noqa
"""Classes of every kind, for test_in_flash: CPython and a board that has them in flash print the same."""


def twice(number):
    return 2 * number


def with_default(number, factor=3, *, more=1):
    return number * factor + more


def doubled(self):
    return 2 * self.value


class Plain:
    """Methods, constants and a property: laid out in flash."""

    count = other = 0
    name = "plain"
    nothing = None
    is_set = True
    data = b"data"
    empty = b""
    rows = ()
    doubled = doubled

    def __init__(self, value, step=2, text="t", flag=True, nothing=None, data=b"", more=b"more"):
        self.value = value
        self.rest = (step, text, flag, nothing, data, more)

    @property
    def squared(self):
        return self.value * self.value

    def each(self):
        for number in range(self.value):
            yield number * self.count

    def closure(self):
        value = self.value

        def inner(more, again=5):
            return value + more + again

        return inner

    def sorted(self, rows):
        return sorted(rows, key=lambda row: -row)

    def __len__(self):
        return self.value

    def __eq__(self, other):
        return self.value == other.value

    def __hash__(self):
        return self.value


class Heir(Plain):
    """Made at run time, for `super` asks for its class."""

    def __init__(self, value):
        super().__init__(value + 1)

    def each(self):
        return [-number for number in super().each()]


def make(base):
    class Made(base):
        """Made when it is called, of a base that is in flash."""

        def __len__(self):
            return 1 + super().__len__()

    return Made


class Near(Plain):
    def near(self):
        return "near"


class Late(Near):
    """Two floors above the class whose property it has."""

    def __init__(self, value):
        Near.__init__(self, value + 3)
        self.is_late = bool(self.squared)


class Outside(make(Plain)):
    """Its base has no name."""


thing = object


class Root(thing):
    kind = Late

    def made(self, kind=Near):
        return self.kind(1).near(), kind(2).near(), super(Root, self).__init__()


class Odd:
    """Its body needs to run."""

    rows = [1, 2]
    sum = rows[0] + rows[1]

    def method(self, number=sum, flags=(1, 2)):
        return number, flags

    @staticmethod
    def static(number):
        return number + 1

    @classmethod
    def of_class(cls):
        return cls.__name__

    @property
    def both(self):
        return self._both

    @both.setter
    def both(self, value):
        self._both = value + 1


class Outer:
    class Inner:
        def name(self):
            return "inner"


class Empty(Exception):
    pass


def main():
    plain, heir, odd = Plain(4), Heir(3), Odd()
    print(
        twice(4),
        with_default(4),
        with_default(4, 5, more=2),
        plain.rest,
        plain.squared,
        len(plain),
    )
    print(
        list(plain.each()),
        plain.closure()(7),
        plain.sorted([2, 3, 1]),
        plain == heir,
        plain != heir,
    )
    print(Plain.name, Plain.nothing, Plain.is_set, plain.count, heir.count, Plain.__name__)
    plain.count = 2
    print(list(plain.each()), Plain.count, heir.each())
    print(Plain.data, Plain.empty, Plain.rows, plain.doubled(), Root().made(), Root.kind is Late)
    odd.rows.append(3)
    Odd.count = 3
    print(
        Odd.rows,
        odd.count,
        list(Late(2).each()),
        Late(2).near(),
        Late.__name__,
        isinstance(Late(2), Plain),
        Outside(5).squared,
    )
    try:
        plain.squared = 3
    except AttributeError:
        print("no setter")
    try:
        plain.missing
    except AttributeError:
        print("missing")
    odd.both = 5
    print(
        odd.method(), odd.static(1), Odd.static(2), odd.of_class(), odd.both, Outer.Inner().name()
    )
    try:
        raise Empty("text")
    except Empty as error:
        print("raised", error)
    print(
        isinstance(heir, Plain), isinstance(plain, Heir), type(heir) is Heir, {plain: 1}[Plain(4)]
    )
