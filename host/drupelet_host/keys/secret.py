"""Bytes that nobody may read by accident: a log, a traceback or `--json` shows `Secret(...)`."""

import hmac


class Secret:
    """Key bytes. `reveal` is the only way to them, and it is easy to search for."""

    __slots__ = ("_value",)

    def __init__(self, value: bytes | bytearray) -> None:
        self._value = bytes(value)

    def reveal(self) -> bytes:
        """The bytes themselves: for key derivation and for files of mode 0600, nothing else."""
        return self._value

    def __len__(self) -> int:
        return len(self._value)

    def __repr__(self) -> str:
        return f"Secret({len(self._value)} bytes)"

    __str__ = __repr__

    def __format__(self, _spec: str) -> str:
        return repr(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._value, other._value)

    __hash__ = None  # type: ignore[assignment]  # in no set and no key of a dict

    def __reduce__(self) -> str:
        raise TypeError("a secret is not pickled")
