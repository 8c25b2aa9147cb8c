"""The examples of the README run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import ROOT
from test_model import FILE, voice, write

EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "python/README.md").read_text(), re.DOTALL)


@pytest.mark.filterwarnings("ignore:::lightning", "ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("number", range(4))
def test_the_examples_run(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(EXAMPLES) == 4
    monkeypatch.chdir(tmp_path)
    Path("model.breg").write_bytes(FILE.read_bytes())
    write(Path("enrolled.wav"), voice(1))
    write(Path("test.wav"), voice(2))
    exec(compile(EXAMPLES[number], f"example {number}", "exec"), {"__name__": "example"})
