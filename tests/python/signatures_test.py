# SPDX-License-Identifier: Apache-2.0
"""The compatible calls have the names, the order and the defaults of the originals (signatures.json)."""

import importlib
import inspect
import json
import pathlib
import unittest

import cases
import latent.compat

DATA = json.loads((pathlib.Path(latent.compat.__file__).parent / "signatures.json").read_text(encoding="utf-8"))


class Signatures(unittest.TestCase):
    def test_every_function_of_the_originals(self):
        for module_name, entry in DATA.items():
            module = importlib.import_module(module_name)
            for name, parameters in entry["functions"].items():
                with self.subTest(f"{module_name}.{name}"):
                    self.assertEqual([str(p) for p in inspect.signature(getattr(module, name)).parameters.values()],
                                     parameters)

    def test_no_public_function_is_left_out(self):
        for module_name, entry in DATA.items():
            module = importlib.import_module(module_name)
            public = {name for name, value in vars(module).items()
                      if inspect.isfunction(value) and value.__module__ == module_name and not name.startswith("_")}
            self.assertEqual(public, set(entry["functions"]), module_name)


if __name__ == "__main__":
    cases.main()
