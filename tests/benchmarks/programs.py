"""What a program of the benchmarks answers when it is called in this process."""

from collections.abc import Callable
from typing import NamedTuple


class Ran(NamedTuple):
    code: int
    out: str
    err: str


Program = Callable[..., Ran]
