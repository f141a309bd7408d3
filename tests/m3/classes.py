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


# What a name means when a class reads it.


def first():
    return "first"


def wrapped(function):
    return lambda *arguments: ("wrapped", function(*arguments))


@wrapped
def decorated():
    return "decorated"


class Replaced:
    kind = "in flash"


FirstReplaced = Replaced
Replaced = Plain


class Twice:
    kind = "first"


FirstTwice = Twice


class Twice:
    kind = "second"


def again():
    return "again 1"


def again():
    return "again 2"


if len("two") == 3:

    class Chosen:
        kind = "always"

    def chosen():
        return "always"

else:

    class Chosen:
        kind = "never"

    def chosen():
        return "never"


either = first if len("two") == 3 else twice
other_of_both = None or first


def put():
    global from_a_function
    from_a_function = twice


def from_a_function():
    return "at first"


put()
deleted = first
del deleted
deleted = twice


class Reads:
    """Names that mean what was laid out last under them."""

    replaced = Replaced
    twice = Twice
    again = again
    deleted = deleted


class ReadsMade:
    """Names of what is made at run time."""

    heir = Heir
    outside = Outside
    decorated = decorated
    text = with_default
    other_of_both = other_of_both


# Each of these reads a name that means something else than what was laid out last under it.


class ReadsClass:
    chosen = Chosen


class ReadsFunction:
    chosen = chosen


class ReadsEither:
    def call(self, function=either):
        return function()


class ReadsGlobal:
    from_a_function = from_a_function


def put_property():
    global property

    def property(function):
        return "changed"


put_property()


class ReadsProperty:
    @property
    def one(self):
        return 1


del property


class OfReplaced(Replaced):
    pass


class OfTwice(Twice):
    pass


class OfChosen(Chosen):
    pass


class Own:
    """Names of its own, that the module has too."""

    first = 1
    second = first
    twice = "own"
    thrice = twice

    def name(self, default=second, text=twice):
        return default, text, self.twice

    alias = name
    name_2 = name
    Plain = None

    def later(self, kind=Plain):
        return kind


class OwnProperty:
    def property(function):
        return "not a property"

    @property
    def one(self):
        return 1


class Redefined:
    value = 1
    value = 2

    def method(self):
        return 1

    def method(self):
        return 2

    @property
    def one(self):
        return 1

    @property
    def one(self):
        return 2


def _get(self):
    return "got"


class ByCall:
    one = property(_get)
    two = property(lambda self: self.one + "!")
    three = property(lambda self: 3, lambda self, value: None)


made_in_loop = []
for number in range(2):

    class InLoop:
        kind = "loop"

    made_in_loop.append(InLoop)

while len(made_in_loop) < 4:
    try:
        if len(made_in_loop) == 2:

            class InWhile:
                kind = "while"

            made_in_loop.append(InWhile)
            continue

        class InWhile:
            kind = "while 2"

        made_in_loop.append(InWhile)
    finally:
        number = 0

try:

    class InTry:
        kind = "try"

    raise ValueError

    class InTry:
        kind = "never"

except ValueError:

    class InExcept(InTry):
        kind = "except"

    def after():
        return InExcept.kind

finally:

    class InFinally(InTry):
        two = 2


def names():
    made = ReadsMade()
    print(Reads.replaced is Plain, Reads.twice.kind, Reads.again(), Reads.deleted(3))
    print(made.heir is Heir, made.outside is Outside, ReadsMade.decorated(), ReadsMade.text(4))
    print(ReadsMade.other_of_both(), ReadsClass.chosen.kind, ReadsFunction.chosen())
    print(ReadsEither().call(), ReadsGlobal.from_a_function(2), ReadsProperty.one)
    print(FirstReplaced.kind, issubclass(OfReplaced, Plain), OfReplaced(2).squared)
    print(OfTwice.kind, OfTwice().kind, issubclass(OfTwice, FirstTwice), OfChosen.kind)
    own = Own()
    print(Own.second, Own.thrice, own.name(), own.alias(5), own.name_2(), own.later(), Own.Plain)
    print(
        OwnProperty.one, OwnProperty().one, Redefined.value, Redefined().method(), Redefined().one
    )
    print(ByCall().one, ByCall().two, ByCall().three)
    print([kind.kind for kind in made_in_loop], made_in_loop[0] is made_in_loop[1])
    print(InTry.kind, after(), InFinally.kind, InFinally.two, issubclass(InFinally, InTry))


# Special methods.


class Operators:
    def __init__(self, value):
        self.value = value

    def __add__(self, other):
        return Operators(self.value + getattr(other, "value", other))

    def __radd__(self, other):
        return Operators(other + self.value)

    def __iadd__(self, other):
        self.value += other
        return self

    def __sub__(self, other):
        return self.value - other

    def __mul__(self, other):
        return self.value * other

    def __neg__(self):
        return -self.value

    def __invert__(self):
        return ~self.value

    def __lt__(self, other):
        return self.value < other.value

    def __le__(self, other):
        return self.value <= other.value

    def __eq__(self, other):
        return isinstance(other, Operators) and self.value == other.value

    def __hash__(self):
        return 7

    def __bool__(self):
        return self.value != 0

    def __contains__(self, item):
        return item == self.value

    def __getitem__(self, index):
        return index, self.value

    def __setitem__(self, index, value):
        self.value = index + value

    def __delitem__(self, index):
        self.value = -index

    def __call__(self, one, *more, key, **others):
        return one, more, key, sorted(others)

    def __getattr__(self, name):
        if name == "hidden":
            return "found"
        raise AttributeError(name)

    def __repr__(self):
        return "Operators(%d)" % self.value

    def __int__(self):
        return self.value

    def __abs__(self):
        return abs(self.value)


class Counter:
    def __init__(self, last):
        self.last = last
        self.at = 0
        self.events = []

    def __iter__(self):
        return self

    def __next__(self):
        if self.at == self.last:
            raise StopIteration
        self.at += 1
        return self.at

    def __enter__(self):
        self.events.append("in")
        return self

    def __exit__(self, kind, error, trace):
        self.events.append(kind)
        return kind is ValueError


class Iterable:
    def __iter__(self):
        yield from Counter(3)


class OfOperators(Operators):
    def __sub__(self, other):
        return "other"


class Native(OfOperators, Exception):
    """Two bases: one in flash, one of MicroPython's own."""


class One:
    one = 1

    @property
    def name(self):
        return "one"

    def which(self):
        return "one"


class Two:
    two = 2

    def which(self):
        return "two"

    def only(self):
        return "only two"


class Both(One, Two):
    def both(self):
        return self.one + self.two


class Reverse(Two, One):
    pass


class Failed(Exception):
    def code(self):
        return self.args[0]


class FailedMore(Failed):
    more = True


class Accessors:
    def __setattr__(self, name, value):
        object.__setattr__(self, name, value + 1)

    def __delattr__(self, name):
        object.__setattr__(self, name, None)


class OfAccessors(Accessors):
    pass


class Descriptor:
    def __get__(self, instance, owner):
        return "described"


class Described:
    one = Descriptor()


class New:
    def __new__(cls, value):
        made = object.__new__(cls)
        made.value = value
        return made


class OfNew(New):
    pass


def special():
    one, two = Operators(1), Operators(2)
    print(one + two, one + 5, 5 + one, two - 1, two * 3, -one, ~one, one < two, one <= two)
    print(one == Operators(1), one != two, one == 1, hash(one), len({one, Operators(1)}), abs(two))
    one += 3
    print(one, bool(one), bool(Operators(0)), 4 in one, 5 in one, one[3], one[1:2:3])
    one[4] = 5
    print(one, one(1, key=5), one(1, 2, 3, key=4, b=1, a=2), one.hidden, hasattr(one, "none"))
    del one[8]
    print(one, int(one), str(one), OfOperators(3) - 1, OfOperators(3) + 1)
    with Counter(3) as counter:
        print(list(counter), list(counter))
        raise ValueError
    print(counter.events, list(Iterable()))
    both, reverse = Both(), Reverse()
    print(both.both(), both.which(), both.only(), both.name, reverse.which(), reverse.name)
    print(isinstance(both, Two), issubclass(Both, (int, One)), isinstance(One(), Two))
    try:
        both.name = 1
    except AttributeError:
        print("no setter")
    both.one = 5
    print(both.one, Both.one, both.both(), One.one)
    del both.one
    print(both.one, hasattr(One, "two"), hasattr(Two, "two"), getattr(Two, "none", "none"))
    try:
        raise FailedMore(5, "text")
    except Failed as error:
        print(error.code(), error.more, type(error) is FailedMore, repr(error))
    accessors = OfAccessors()
    accessors.value = 1
    print(accessors.value)
    del accessors.value
    print(accessors.value, Described().one, OfNew(3).value, type(OfNew(3)) is OfNew)
    native = Native(3)
    print(native - 1, isinstance(native, Exception))


# Functions.


class Defaults:
    def all(
        self, n=None, t=True, f=False, i=-5, large=1073741823, small=-1073741824, s="", b=b"\x00"
    ):
        return n, t, f, i, large, small, s, b

    def objects(self, kind=Plain, function=first, empty=()):
        return kind is Plain, function(), empty

    def stars(self, *arguments, **keywords):
        return arguments, sorted(keywords)

    def nested(self):
        def inner(a, b=2, *, c=3):
            def innermost():
                return a, b, c, self.stars(a)

            return innermost()

        return inner(1)

    def comprehensions(self):
        numbers = [number * 2 for number in range(3)]
        return (
            numbers,
            {number for number in numbers if number > 2},
            {1: number for number in numbers},
        )

    def generator(self):
        got = yield 1
        yield got
        return

    def kinds(self):
        return [kind for kind in (None, True, ..., 1.5) if kind]

    constant = lambda self: 5
    ordinary = True


class MadeDefaults(Defaults):
    """Default arguments that are made."""

    def tuples(self, empty=(), full=(1, (2, "3")), nested=((),)):
        return empty, full, nested

    def objects(self, huge=1 << 70, real=1.5, text="x" * 3):
        return huge, real, text

    def keywords(self, a, b=2, *, c, d=4):
        return a, b, c, d

    def only_keywords(self, *, c=3, d=4):
        return c, d


class Defaults_table:
    """Named as the table of another class might be."""

    one = 1


class names_Defaults:
    one = 2


class Ünïcode:
    größe = "größe"

    def länge(self):
        return len(self.größe)


class A_very_long_name_of_a_class_that_is_longer_than_what_one_would_write_in_a_line:
    an_attribute = 5


class Nothing:
    pass


class int_:
    pass


class main_:
    def main(self):
        return "main"


class Nested:
    one = 1

    class Inner:
        two = 2

        class Inner:
            three = 3

    class Own(Inner):
        four = 4

    def local(self):
        class Local(Nested):
            five = 5

        return Local


def accumulate():
    total = 0

    def add(number):
        nonlocal total
        total += number
        return total

    return add


async def wait():
    return 5


async def wait_twice():
    return await wait() + await wait()


class Waiter:
    async def wait(self):
        return 1 + await wait_twice()


def functions():
    defaults = Defaults()
    print(defaults.all(), defaults.all(1, b=2), defaults.objects(), defaults.objects(empty=1))
    defaults = MadeDefaults()
    print(defaults.all(), defaults.tuples(), defaults.objects())
    print(defaults.keywords(1, c=3), defaults.only_keywords(d=1), defaults.stars(1, b=2, a=3))
    try:
        defaults.keywords(1)
    except TypeError:
        print("too few")
    print(defaults.nested(), defaults.comprehensions(), defaults.kinds(), defaults.constant())
    generator = defaults.generator()
    print(next(generator), generator.send(7), list(generator))
    print(Defaults_table.one, names_Defaults.one, Ünïcode().länge(), Ünïcode.__name__)
    print(
        len(
            A_very_long_name_of_a_class_that_is_longer_than_what_one_would_write_in_a_line.__name__
        )
    )
    nothing = Nothing()
    nothing.attribute = 1
    print(nothing.attribute, hasattr(Nothing, "attribute"), nothing == Nothing(), main_().main())
    print(Nested.Inner.Inner.three, Nested.Own.two, Nested().local().five, Nested().local().one)
    one, two = accumulate(), accumulate()
    print(one(1), one(2), two(5))
    try:
        Waiter().wait().send(None)
    except StopIteration as stop:
        print("waited", stop.value)
    print(sorted(name for name in dir(Own) if name[0] != "_"))
    print(sorted(name for name in Own.__dict__ if name[0] != "_"), Own.__dict__["first"])
    print(Near.__bases__ == (Plain,), Plain.__bases__ == (object,), Plain.__name__)


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
    names()
    special()
    functions()
