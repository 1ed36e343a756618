# SPDX-License-Identifier: Apache-2.0
"""liblatent_attention through ctypes: where it is, its structs and functions (include/latent/attention.h)."""

import ctypes
import functools
import os
import pathlib

from . import errors

ABI_VERSION = 1
NAME = "liblatent_attention.so"

OK, INVALID_ARGUMENT, UNSUPPORTED, EXHAUSTED, INTERNAL = range(5)
ERRORS = {INVALID_ARGUMENT: errors.InvalidArgument, UNSUPPORTED: errors.Unsupported, EXHAUSTED: errors.Exhausted}

DTYPES = {"float32": 1, "float16": 2, "bfloat16": 3, "float8_e4m3fn": 4, "uint8": 5}
HOST, DEVICE = 1, 2
ABSORBED, MULTI_HEAD = 1, 2


class _Sized(ctypes.Structure):
    """A struct whose first field is its own size."""

    def __init__(self, **fields):
        super().__init__(ctypes.sizeof(type(self)), **fields)


def _fields(kind, names):
    return [(name, kind) for name in names.split()]


_int, _long, _pointer = ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p
_size = [("struct_size", ctypes.c_size_t)]


class Desc(_Sized):
    _fields_ = _size + _fields(_int, "form memory num_heads latent_dim rope_dim nope_dim v_dim page_tokens "
                                     "q_dtype cache_dtype out_dtype kv_b_dtype")


class Limits(_Sized):
    _fields_ = _size + _fields(_int, "max_tokens max_seqs max_kv_len num_threads deterministic reserved")


class Step(_Sized):
    _fields_ = _size + _fields(_int, "num_seqs max_q_len") + _fields(_pointer, "q_starts kv_lens")


class Operands(_Sized):
    _fields_ = (_size + _fields(_int, "num_tokens num_seqs num_pages max_pages")
                + [("softmax_scale", ctypes.c_float), ("cache_scale", ctypes.c_float)]
                + [("q_nope", _pointer)] + _fields(_long, "q_nope_token_stride q_nope_head_stride")
                + [("q_pe", _pointer)] + _fields(_long, "q_pe_token_stride q_pe_head_stride")
                + [("cache", _pointer)] + _fields(_long, "cache_page_stride cache_token_stride")
                + _fields(_pointer, "q_starts kv_lens block_table") + [("block_table_stride", _long)]
                + [("out", _pointer)] + _fields(_long, "out_token_stride out_head_stride")
                + [("lse", _pointer)] + _fields(_long, "lse_token_stride lse_head_stride")
                + [("kv_b", _pointer), ("kv_b_row_stride", _long)])


class BackendInfo(_Sized):
    _fields_ = _size + _fields(_int, "is_built can_serve") + [("name", ctypes.c_char * 32),
                                                              ("reason", ctypes.c_char * 216)]


_handle_to = ctypes.POINTER(_pointer)
_FUNCTIONS = {
    "abi_version": (ctypes.c_uint32, []),
    "version": (ctypes.c_char_p, []),
    "last_error": (ctypes.c_char_p, []),
    "num_backends": (_int, []),
    "query_backend": (_int, [_int, ctypes.POINTER(Desc), ctypes.POINTER(BackendInfo)]),
    "create": (_int, [ctypes.POINTER(Desc), ctypes.c_char_p, _handle_to]),
    "destroy": (None, [_pointer]),
    "backend": (ctypes.c_char_p, [_pointer]),
    "workspace_size": (_int, [_pointer, ctypes.POINTER(Limits), ctypes.POINTER(ctypes.c_size_t)]),
    "plan_create": (_int, [_pointer, ctypes.POINTER(Limits), _handle_to]),
    "plan_destroy": (None, [_pointer]),
    "plan_step": (_int, [_pointer, ctypes.POINTER(Step)]),
    "run": (_int, [_pointer, ctypes.POINTER(Operands), _pointer, ctypes.c_size_t, _pointer]),
    "prepare_capture": (_int, [_pointer]),
    "prepare_replay": (_int, [_pointer, ctypes.POINTER(Step)]),
}


def find():
    """Path of the library: LATENT_LIBRARY, next to this package, or the newest under build/ of the checkout."""
    asked = os.environ.get("LATENT_LIBRARY")
    if asked:
        if not os.path.isfile(asked):
            raise errors.LibraryNotFound(f"LATENT_LIBRARY={asked} is no file")
        return asked
    here = pathlib.Path(__file__).resolve().parent
    if (here / NAME).is_file():
        return str(here / NAME)
    builds = here.parents[1] / "build"
    found = sorted(builds.glob(f"*/{NAME}"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise errors.LibraryNotFound(f"no {NAME} in {here} or {builds}/*; build the target latent_attention_shared, "
                                     "or set LATENT_LIBRARY to the file")
    return str(found[-1])


class Library:
    """The functions, without their prefix; `check` raises what a status means."""

    def __init__(self, path):
        self.path = path
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            raise errors.LibraryNotFound(f"{path} cannot be loaded: {error}") from error
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, f"latent_attention_{name}")
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)
        if self.abi_version() != ABI_VERSION:
            raise errors.LibraryNotFound(f"{path} has ABI version {self.abi_version()}, and this package speaks "
                                         f"{ABI_VERSION}")

    def check(self, status):
        if status != OK:
            raise ERRORS.get(status, errors.LatentError)(self.last_error().decode())


@functools.lru_cache(maxsize=None)
def library():
    """Loaded on first use, once a process."""
    return Library(find())
