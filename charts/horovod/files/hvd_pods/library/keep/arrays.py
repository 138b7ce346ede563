"""Arrays, tensors and variables as bytes, and bytes as arrays and tensors."""

from __future__ import annotations

import importlib
import re
import sys
from typing import Any, Sequence

# Names of types as arrays have them: of NumPy, without objects and records, and of ml_dtypes.
NUMPY_TYPE = re.compile(r"[<>|=][biufcmMSU]\d{1,9}(\[\d{0,9}[a-zA-Z]{1,2}\])?")
ML_TYPE = re.compile(r"b?float\d[a-z0-9_]*|u?int\d{1,2}")


def is_variable(part: Any) -> bool:
    return hasattr(part, "assign") and hasattr(part, "shape")


def to_bytes(value: Any) -> tuple[str, list[int], memoryview]:
    """Return the type, the shape and the bytes of an array, tensor or variable.

    Memory that the CPU reads is not copied. Raises TypeError for any other value, and for arrays of
    objects or records.
    """
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "bytes", [len(value)], memoryview(value)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        flat = value.detach().cpu().contiguous().reshape(-1)
        return str(value.dtype), list(value.shape), memoryview(flat.view(torch.uint8).numpy())
    if hasattr(value, "read_value"):
        # A variable of TensorFlow: its own numpy() copies, and read_value() takes twice as long.
        value = value.value()
    elif is_variable(value):
        return to_bytes(value.value)
    if not hasattr(value, "__array__"):
        raise TypeError(f"keep: a {type(value).__name__} cannot be kept: {value!r:.80}")
    numpy = numpy_module()
    array = numpy.ascontiguousarray(value)
    if array.dtype.hasobject or array.dtype.names:
        raise TypeError(f"keep: an array of {array.dtype} cannot be kept")
    # NumPy does not know the types of ml_dtypes, as bfloat16, by anything but their names.
    is_numpy = array.dtype.type.__module__ == "numpy"
    kind = array.dtype.str if is_numpy else array.dtype.name
    return kind, list(numpy.shape(value)), memoryview(array.reshape(-1).view(numpy.uint8))


def numpy_module() -> Any:
    # Every framework brings it; those who keep bytes alone need not have it.
    import numpy

    return numpy


def order_of(tensor: Any) -> list[int] | None:
    """Return the dimensions of a tensor in the order of its memory, as for channels_last.

    Return None if that is their own order, or if the memory of the tensor has gaps.
    """
    if tensor.is_contiguous():
        return None
    strides = tensor.stride()
    order = sorted(range(len(strides)), key=lambda dimension: -strides[dimension])
    return order if tensor.permute(order).is_contiguous() else None


def from_bytes(
    kind: str, shape: Sequence[int], data: memoryview, order: Sequence[int] | None = None
) -> Any:
    """Return an array or tensor of this type and shape over these bytes; copy plain bytes.

    `order` is the order of its dimensions in memory. Raises ValueError if the arguments do not fit
    together.
    """
    if order is not None:
        if sorted(order) != [*range(len(shape))]:
            raise ValueError(f"{order!r:.80} is no order of the dimensions of {shape!r:.80}")
        there = from_bytes(kind, [shape[dimension] for dimension in order], data)
        back = [order.index(dimension) for dimension in range(len(shape))]
        return there.permute(back) if hasattr(there, "permute") else there.transpose(back)
    if kind == "bytes":
        return bytes(data)
    if kind.startswith("torch."):
        torch: Any = sys.modules["torch"]
        dtype = getattr(torch, kind.partition(".")[2])
        if not isinstance(dtype, torch.dtype):
            raise ValueError(f"{kind} is no type of numbers")
        if not data:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(data, dtype=dtype).reshape(shape)
    if ML_TYPE.fullmatch(kind):
        kind = getattr(importlib.import_module("ml_dtypes"), kind)
    elif not NUMPY_TYPE.fullmatch(kind):
        raise ValueError(f"{kind!r:.80} is no type of an array's numbers")
    return numpy_module().frombuffer(data, kind).reshape(shape)
