# SPDX-License-Identifier: Apache-2.0
"""Tensors of whoever calls: torch's, or anything with data_ptr(), stride(), shape, dtype, device and new_empty().

torch is never imported here; what is needed of it is reached through the tensors."""

import contextlib
import functools
import sys

from . import errors

ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1, "int32": 4,
              "int64": 8, "uint8": 1, "int8": 1, "float64": 8, "int16": 2, "bool": 1}


@functools.lru_cache(maxsize=None)
def dtype_name(dtype):
    """torch.bfloat16 -> "bfloat16" """
    return str(dtype).rpartition(".")[2]


def module_of(tensor):
    """The module that tensors of this kind come from: torch for torch's."""
    return sys.modules[type(tensor.dtype).__module__]


def dtype_called(tensor, name):
    return getattr(module_of(tensor), name)


def is_cuda(tensor):
    return tensor.device.type == "cuda"


def memory(tensor):
    """ "cuda" or "cpu" """
    kind = tensor.device.type
    if kind not in ("cpu", "cuda"):
        raise errors.InvalidArgument(f"a tensor lives on '{tensor.device}'; it may live on a CPU or a CUDA device")
    return kind


def place(tensor):
    """Its device, as a key."""
    return tensor.device.type, tensor.device.index


def stream(tensor):
    """The current stream of its device, as an address; None in host memory."""
    if not is_cuda(tensor):
        return None
    return module_of(tensor).cuda.current_stream(tensor.device).cuda_stream


def is_capturing(tensor):
    return is_cuda(tensor) and module_of(tensor).cuda.is_current_stream_capturing()


def device_guard(tensor):
    """The library works on the current device."""
    if not is_cuda(tensor):
        return contextlib.nullcontext()
    cuda = module_of(tensor).cuda
    return contextlib.nullcontext() if cuda.current_device() == tensor.device.index else cuda.device(tensor.device)


class View:
    """Where a tensor's elements lie. Owns nothing."""

    __slots__ = ("address", "shape", "strides", "dtype")

    def __init__(self, address, shape, strides, dtype):
        self.address, self.shape, self.strides, self.dtype = address, tuple(shape), tuple(strides), dtype

    @classmethod
    def of(cls, tensor):
        return cls(tensor.data_ptr(), tensor.shape, tensor.stride(), dtype_name(tensor.dtype))

    def narrow(self, start, length):
        """Elements [start, start + length) of the innermost axis."""
        return View(self.address + start * self.strides[-1] * ITEM_BYTES[self.dtype],
                    self.shape[:-1] + (length,), self.strides, self.dtype)

    def join(self, axis):
        """Axes `axis` and `axis + 1` as one, or None where their strides do not allow it."""
        outer, inner = self.shape[axis], self.shape[axis + 1]
        if outer > 1 and inner > 1 and self.strides[axis] != self.strides[axis + 1] * inner:
            return None
        stride = self.strides[axis] if inner == 1 else self.strides[axis + 1]
        return View(self.address, self.shape[:axis] + (outer * inner,) + self.shape[axis + 2:],
                    self.strides[:axis] + (stride,) + self.strides[axis + 2:], self.dtype)


def joined(name, view, axis):
    """view.join(axis), or an error that says what to do."""
    result = view.join(axis)
    if result is None:
        raise errors.InvalidArgument(
            f"{name} with shape {list(view.shape)} and strides {list(view.strides)}: dimensions {axis} and {axis + 1} "
            f"must follow each other in memory; pass {name}.contiguous()")
    return result


def expect(name, tensor, shape, dtypes, error=errors.InvalidArgument):
    """Checks dtype, shape (None: any size) and that the innermost axis is contiguous."""
    dtype = dtype_name(tensor.dtype)
    if dtype not in dtypes:
        raise error(f"{name} has dtype {dtype}; it must be {' or '.join(dtypes)}")
    given = tuple(tensor.shape)
    if len(given) != len(shape) or any(want is not None and want != got for want, got in zip(shape, given)):
        wanted = ", ".join("any" if want is None else str(want) for want in shape)
        raise error(f"{name} has shape {list(given)}; it must be [{wanted}]")
    if given and given[-1] > 1 and tensor.stride(-1) != 1:
        raise error(f"{name} must have a contiguous last dimension, not stride {tensor.stride(-1)}")


def same_device(tensors, error=errors.InvalidArgument):
    """All of {name: tensor} live where the first does."""
    (first, where), *others = tensors.items()
    for name, tensor in others:
        if tensor.device != where.device and str(tensor.device) != str(where.device):
            raise error(f"{name} is on {tensor.device}, and {first} on {where.device}")
