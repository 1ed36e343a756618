# SPDX-License-Identifier: Apache-2.0
"""Tensors over host memory with the part of torch's interface that the package uses: enough to prove how shapes,
strides and dtypes are handled where torch is absent. New memory is poisoned: what nobody writes reads as NaN or as
absurd ids."""

import ctypes
import itertools
import math
import struct
import types


class dtype:
    def __init__(self, name, item_bytes, pack=None):
        self.name, self.item_bytes, self.pack = name, item_bytes, pack

    def __repr__(self):
        return f"standin.{self.name}"


float32 = dtype("float32", 4, "f")
float16 = dtype("float16", 2, "e")
bfloat16 = dtype("bfloat16", 2)
float64 = dtype("float64", 8, "d")
float8_e4m3fn = dtype("float8_e4m3fn", 1)
int32 = dtype("int32", 4, "i")
int64 = dtype("int64", 8, "q")
uint8 = dtype("uint8", 1, "B")
int8 = dtype("int8", 1, "b")


class Device:
    def __init__(self, kind, index=None):
        self.type, self.index = kind, index

    def __str__(self):
        return self.type if self.index is None else f"{self.type}:{self.index}"


CPU = Device("cpu")


def packed_strides(shape):
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def reshaped_strides(shape, strides, new_shape):
    """Strides of new_shape over the same elements, or None if some must move."""
    old = [(extent, stride) for extent, stride in zip(shape, strides) if extent != 1]
    result, extent, stride = [], 1, 1
    for wanted in reversed(new_shape):
        while extent < wanted and old:
            outer, outer_stride = old.pop()
            if extent > 1 and outer_stride != stride * extent:
                return None
            stride = outer_stride if extent == 1 else stride
            extent *= outer
        if wanted > 1 and extent % wanted != 0:
            return None
        result.append(stride)
        extent, stride = extent // wanted, stride * wanted
    return tuple(reversed(result))


def bfloat16_bits(x):
    (bits,) = struct.unpack("I", struct.pack("f", x))
    if x != x:
        return 0x7FC0
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


class Tensor:
    def __init__(self, memory, offset, shape, strides, kind, device=CPU):
        self.memory, self.offset = memory, offset  # in elements
        self.shape, self.strides, self.dtype, self.device = tuple(shape), tuple(strides), kind, device

    # torch's interface

    def data_ptr(self):
        return ctypes.addressof(self.memory) + self.offset * self.dtype.item_bytes

    def stride(self, axis=None):
        return self.strides if axis is None else self.strides[axis]

    def size(self, axis=None):
        return self.shape if axis is None else self.shape[axis]

    def dim(self):
        return len(self.shape)

    def numel(self):
        return math.prod(self.shape)

    def is_contiguous(self):
        return self.strides == packed_strides(self.shape)

    def new_empty(self, shape, dtype=None):
        return empty(shape, dtype=dtype or self.dtype)

    def transpose(self, a, b):
        axes = list(range(len(self.shape)))
        axes[a], axes[b] = axes[b], axes[a]
        return Tensor(self.memory, self.offset, [self.shape[i] for i in axes], [self.strides[i] for i in axes],
                      self.dtype, self.device)

    def unsqueeze(self, axis):
        return Tensor(self.memory, self.offset, self.shape[:axis] + (1,) + self.shape[axis:],
                      self.strides[:axis] + (1,) + self.strides[axis:], self.dtype, self.device)

    def reshape(self, *shape):
        """A view where the strides allow it, else a copy."""
        assert math.prod(shape) == self.numel(), (self.shape, shape)
        strides = reshaped_strides(self.shape, self.strides, shape)
        if strides is None:
            return self.contiguous().reshape(*shape)
        return Tensor(self.memory, self.offset, shape, strides, self.dtype, self.device)

    def contiguous(self):
        copy = empty(self.shape, dtype=self.dtype)
        copy.assign(self.flat())
        return copy

    def __getitem__(self, index):
        index = index if isinstance(index, tuple) else (index,)
        index += (slice(None),) * (len(self.shape) - len(index))
        offset, shape, strides = self.offset, [], []
        for at, extent, stride in zip(index, self.shape, self.strides):
            if isinstance(at, int):
                offset += (at + extent if at < 0 else at) * stride
                continue
            begin, end, step = at.indices(extent)
            offset += begin * stride
            shape.append(max(0, -(-(end - begin) // step)))
            strides.append(stride * step)
        return Tensor(self.memory, offset, shape, strides, self.dtype, self.device)

    def fill_(self, value):
        for at in self.offsets():
            self.store(at, value)
        return self

    def zero_(self):
        return self.fill_(0)

    def tolist(self):
        if not self.shape:
            return self.load(self.offset)
        return [self[i].tolist() for i in range(self.shape[0])]

    # its own

    def offsets(self):
        for index in itertools.product(*map(range, self.shape)):
            yield self.offset + sum(i * s for i, s in zip(index, self.strides))

    def load(self, at):
        data = bytes(self.memory[at * self.dtype.item_bytes:(at + 1) * self.dtype.item_bytes])
        if self.dtype is bfloat16:
            return struct.unpack("f", b"\0\0" + data)[0]
        return struct.unpack(self.dtype.pack, data)[0]

    def store(self, at, value):
        data = (struct.pack("H", bfloat16_bits(value)) if self.dtype is bfloat16
                else struct.pack(self.dtype.pack, value))
        ctypes.memmove(ctypes.addressof(self.memory) + at * self.dtype.item_bytes, data, len(data))

    def assign(self, values):
        for at, value in zip(self.offsets(), values):
            self.store(at, value)
        return self

    def flat(self):
        return [self.load(at) for at in self.offsets()]

    def fill_random(self, random, scale=1.0):
        return self.assign(random.uniform(-scale, scale) for _ in range(self.numel()))


def empty(shape, dtype=float32, poison=0xFF):
    """0xFF makes NaN of every float and -1 of every id."""
    shape = tuple(shape)
    num_bytes = max(1, math.prod(shape)) * dtype.item_bytes
    memory = (ctypes.c_ubyte * num_bytes)(*([poison] * min(num_bytes, 1)))
    ctypes.memset(memory, poison, num_bytes)
    return Tensor(memory, 0, shape, packed_strides(shape), dtype)


def tensor(values, dtype=int32, device=CPU):
    """A flat or nested list."""
    shape, inner = [], values
    while isinstance(inner, (list, tuple)):
        shape.append(len(inner))
        inner = inner[0] if inner else None

    def walk(part):
        if isinstance(part, (list, tuple)):
            for element in part:
                yield from walk(element)
        else:
            yield part

    return empty(shape, dtype=dtype).assign(walk(values))


def arange(begin, end, step=1, dtype=int32, device=CPU):
    return tensor(list(range(begin, end, step)), dtype=dtype)


def on_device(tensor, device):
    """The same memory, said to be elsewhere."""
    return Tensor(tensor.memory, tensor.offset, tensor.shape, tensor.strides, tensor.dtype, device)


cuda = types.SimpleNamespace(is_available=lambda: False)
