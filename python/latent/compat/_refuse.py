# SPDX-License-Identifier: Apache-2.0
"""Arguments of the originals that ask for what is not here."""

from ..errors import Unsupported


def refuse(function, reason, **arguments):
    """`arguments` are {name: (given, the value that asks for nothing)}."""
    for name, (given, neutral) in arguments.items():
        if given is neutral or (type(given) is type(neutral) and given == neutral):
            continue
        shown = given if isinstance(given, (bool, int, float, str)) else f"of type {type(given).__name__}"
        raise Unsupported(f"{function}: {name} {shown} is not supported ({reason}); leave it {neutral!r}")
