"""The reference page is the schema, and the committed page is up to date."""

import re
import subprocess
import sys
from pathlib import Path

from nearfar.recipe import OBJECTIVES, Batches, Data, Encoder, Recipe, Training
from nearfar.recipe.keys import entries
from nearfar.recipe.reference import reference

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "recipe.md"
COMMAND = ".venv/bin/python -m nearfar.recipe.reference > docs/reference/recipe.md"


def test_the_committed_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == reference(), f"The page is out of date. Run: {COMMAND}"


def test_the_command_prints_the_page():
    command = [sys.executable, "-W", "error", "-m", "nearfar.recipe.reference"]
    run = subprocess.run(command, capture_output=True, check=True)
    assert run.stdout.decode("utf-8") == reference()


def test_every_key_has_a_row():
    rows = re.findall(r"^\| `(\w+)` \|", reference(), re.MULTILINE)
    tables = [Data, Encoder, *OBJECTIVES.values(), Batches, Training]
    assert rows == ["seed", *(name for table in tables for name in entries(table))]
    assert set(entries(Recipe)) == {"seed", "data", "encoder", "objective", "batches", "training"}


def test_rows_say_what_fits_and_the_default():
    page = reference()
    assert "| `train` | a string | required | The training texts" in page
    assert '| `schedule` | "linear", "cosine" or "constant" | `"linear"` | How the learning' in page
    assert "| `patience` | a whole number of at least 1 | unset | Stop after" in page
    assert '## `[objective]` with `name = "triple-entropy"`' in page
