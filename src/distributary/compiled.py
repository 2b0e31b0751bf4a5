"""How inner loops are compiled: once per machine, without the interpreter's lock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numba import njit, types
from numba.extending import intrinsic

__all__ = ["CACHED", "copy_into", "highest_bit", "kernel", "lowest_bit", "popcount"]

# Compiled code is kept beside its source. Shipped to an executor inside a wheel there is no such
# place, and each worker compiles for itself.
CACHED = Path(__file__).is_file()

kernel = njit(cache=CACHED, nogil=True)


@kernel
def copy_into(target: Any, source: Any) -> None:
    """Copy a list of numbers over the beginning of another.

    `target[:] = source` does the same, and takes seconds to compile: Numba compiles the words for
    two shapes that differ along with it.
    """
    for at in range(len(source)):
        target[at] = source[at]


@intrinsic
def popcount(typing_context: Any, word: Any) -> Any:
    """How many bits of a 64-bit word are set."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), build


@intrinsic
def lowest_bit(typing_context: Any, word: Any) -> Any:
    """The position of the lowest set bit of a 64-bit word that is not 0."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], context.get_constant(types.boolean, True))

    return types.uint64(types.uint64), build


@intrinsic
def highest_bit(typing_context: Any, word: Any) -> Any:
    """The position of the highest set bit of a 64-bit word that is not 0."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        zeros = builder.ctlz(arguments[0], context.get_constant(types.boolean, True))
        return builder.sub(context.get_constant(types.uint64, 63), zeros)

    return types.uint64(types.uint64), build
