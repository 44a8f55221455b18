"""The page of the command line is what the command line says of itself."""

import subprocess
import sys

from tests.docs.blocks import ROOT

COMMAND = ".venv/bin/python docs/generate_cli.py > docs/reference/cli.md"


def test_the_committed_page_is_up_to_date():
    run = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "docs" / "generate_cli.py")], capture_output=True, check=True
    )
    page = ROOT / "docs" / "reference" / "cli.md"
    assert page.read_text(encoding="utf-8") == run.stdout.decode("utf-8"), f"The page is out of date. Run: {COMMAND}"


def test_every_command_has_its_section():
    page = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    sections = [line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")]
    assert {"train", "check", "evaluate", "predict", "embed", "objectives"} <= set(sections)
    assert "| `--batch-size BATCH_SIZE` | `64` | Texts computed at once. |" in page
