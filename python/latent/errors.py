# SPDX-License-Identifier: Apache-2.0
"""What a refused call raises. Each is also the built-in exception that a caller would expect."""


class LatentError(RuntimeError):
    """Anything that liblatent_attention refuses; the text names the value."""


class InvalidArgument(LatentError, ValueError):
    """A value is wrong."""


class Unsupported(LatentError, NotImplementedError):
    """No backend can serve it here; the text has each one's reason."""


class Exhausted(LatentError, MemoryError):
    """No memory left."""


class LibraryNotFound(LatentError, ImportError):
    """liblatent_attention is not where it was looked for, or it is of another version."""
