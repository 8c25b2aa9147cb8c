"""The type stubs and annotations hold."""

from __future__ import annotations

import subprocess
import sys

from conftest import ROOT


def test_the_package_is_typed_without_a_complaint() -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--ignore-missing-imports", "-p", "bregman"]
    told = subprocess.run(command, cwd=ROOT / "python", capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
