"""How inner loops are compiled: once per machine, without the interpreter's lock."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit, types
from numba.core.registry import CPUDispatcher
from numba.extending import intrinsic

__all__ = ["CACHED", "copy_into", "highest_bit", "inner_kernel", "kernel", "lowest_bit", "popcount"]

# Compiled code is kept beside its source. Shipped to an executor inside a wheel there is no such
# place, and each worker compiles for itself.
CACHED = Path(__file__).is_file()

T = TypeVar("T")

kernel = njit(cache=CACHED, nogil=True)


class _InnerKernel(CPUDispatcher):
    """A compiled function with one version for all callers, and no way in from Python.

    Numba would compile a version for each constant and each width of integer that a caller passes.
    """

    def get_call_template(self, args: Any, kws: Any) -> Any:
        named = {name: _generalize(kind) for name, kind in kws.items()}
        return super().get_call_template(tuple(map(_generalize, args)), named)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        raise TypeError(f"only a kernel may call {self.py_func.__name__}")


def _generalize(kind: Any) -> Any:
    """The type of all such arguments: an integer has 64 bits, and is not one constant."""
    unliteral: Any = types.unliteral
    general = unliteral(kind)
    return types.int64 if general in (types.int8, types.int16, types.int32) else general


def inner_kernel(function: Callable[..., T]) -> Callable[..., T]:
    """Compile a function that only kernels call, once for all of them."""
    options = {"nopython": True, "nogil": True, "no_cpython_wrapper": True}
    inner: Any = _InnerKernel(function, targetoptions={**options, "no_cfunc_wrapper": True})
    if CACHED:
        inner.enable_caching()
    return cast("Callable[..., T]", inner)


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
