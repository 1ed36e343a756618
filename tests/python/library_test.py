# SPDX-License-Identifier: Apache-2.0
"""Finding and loading liblatent_attention, and what it shows."""

import ctypes
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import cases
import latent
from latent import _library, library

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Library(unittest.TestCase):
    def test_it_shows_its_c_interface_and_nothing_else(self):
        if shutil.which("nm") is None:
            self.skipTest("no nm")
        listing = subprocess.run(["nm", "-D", "--defined-only", _library.find()], capture_output=True, text=True,
                                 check=True)
        shown = {line.split()[-1] for line in listing.stdout.splitlines()}
        header = (ROOT / "include/latent/attention.h").read_text(encoding="utf-8")
        declared = set(re.findall(r"LATENT_API [^;(]*?\b(latent_attention_\w+)\(", header))
        self.assertEqual(shown, declared)
        self.assertEqual(declared, {f"latent_attention_{name}" for name in _library._FUNCTIONS})

    def test_fields_are_those_of_the_header(self):
        header = re.sub(r"/\*.*?\*/", "", (ROOT / "include/latent/attention.h").read_text(encoding="utf-8"),
                        flags=re.DOTALL)
        for struct, name in ((_library.Desc, "desc"), (_library.Limits, "limits"), (_library.Step, "step"),
                             (_library.Operands, "operands"), (_library.BackendInfo, "backend_info")):
            body = re.search(rf"typedef struct latent_attention_{name} {{(.*?)}}", header, re.DOTALL).group(1)
            fields = re.findall(r"(\w+)(?:\[\d+\])?;", body)
            self.assertEqual([field for field, _ in struct._fields_], fields, name)

    def test_versions(self):
        self.assertRegex(latent.version(), r"^\d+\.\d+\.\d+$")
        header = (ROOT / "include/latent/attention.h").read_text(encoding="utf-8")
        declared = int(re.search(r"#define LATENT_ATTENTION_ABI_VERSION (\d+)", header).group(1))
        self.assertEqual(library().abi_version(), declared)
        self.assertEqual(_library.ABI_VERSION, declared)

    def test_another_abi_version_is_refused(self):
        with mock.patch.object(_library, "ABI_VERSION", 99), self.assertRaisesRegex(ImportError, "99"):
            _library.Library(_library.find())

    def test_the_variable_names_the_file(self):
        with mock.patch.dict(os.environ, LATENT_LIBRARY="no/such.so"):
            with self.assertRaisesRegex(latent.LibraryNotFound, "no/such.so"):
                _library.find()
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            with mock.patch.dict(os.environ, LATENT_LIBRARY=file.name):
                self.assertEqual(_library.find(), file.name)
                with self.assertRaisesRegex(latent.LibraryNotFound, "cannot be loaded"):
                    _library.Library(file.name)

    def test_without_the_variable_it_is_beside_the_package_or_in_the_newest_build(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ):
            os.environ.pop("LATENT_LIBRARY", None)
            package = pathlib.Path(folder) / "python/latent"
            package.mkdir(parents=True)
            with mock.patch.object(_library, "__file__", str(package / "_library.py")):
                with self.assertRaisesRegex(latent.LibraryNotFound, "latent_attention_shared"):
                    _library.find()
                for age, build in enumerate(("new", "old")):
                    path = pathlib.Path(folder).resolve() / "build" / build / _library.NAME
                    path.parent.mkdir(parents=True)
                    path.touch()
                    os.utime(path, (1000 - age, 1000 - age))
                self.assertEqual(pathlib.Path(_library.find()).parent.name, "new")
                (package / _library.NAME).touch()
                self.assertEqual(pathlib.Path(_library.find()).parent, package.resolve())

    def test_importing_the_package_loads_nothing(self):
        code = "import sys, latent.compat.flash_mla, latent.compat.vllm, latent.compat.flashinfer; " \
               "from latent import library; assert 'torch' not in sys.modules; print(library.cache_info().currsize)"
        environment = dict(os.environ, LATENT_LIBRARY="no/such.so")
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "0"), done.stderr)

    def test_a_null_handle_is_an_error_not_a_crash(self):
        functions = library()
        step = _library.Step()
        for status in (functions.plan_step(None, ctypes.byref(step)), functions.prepare_capture(None),
                       functions.prepare_replay(None, ctypes.byref(step)), functions.run(None, None, None, 0, None)):
            self.assertEqual(status, _library.INVALID_ARGUMENT)
        functions.destroy(None)
        functions.plan_destroy(None)


if __name__ == "__main__":
    cases.main()
