"""The reference page is the schema, and the committed page is up to date."""

import re
import subprocess
import sys
from pathlib import Path

from nearfar.recipe import OBJECTIVES, Batches, Data, Encoder, Head, Recipe, Stage, Training
from nearfar.recipe.keys import entries
from nearfar.recipe.reference import description, reference, task_reference

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
    tables = [Data, Encoder, *OBJECTIVES.values(), Head, Batches, Training, Stage]
    inner = {(OBJECTIVES["blend"], "parts"), (Stage, "objective")}
    assert rows == ["seed", *(name for table in tables for name in entries(table) if (table, name) not in inner)]
    assert list(entries(Recipe)) == ["seed", "data", "encoder", "objective", "head", "batches", "training", "stage"]


def test_tables_that_are_there_twice_are_referred_to():
    page = reference()
    headings = re.findall(r"^## .*$", page, re.MULTILINE)
    assert len(headings) == len(set(headings)) == 10 + len(OBJECTIVES)
    blended = 'The keys are those of `[objective]`, with any `name` but `"auto"` and `"blend"`.\n'
    assert re.search(r"^## `\[objective\.parts\.NAME\]`\n\n.*" + re.escape(blended), page, re.MULTILINE)
    assert re.search(r"^## `\[stage\.objective\]`\n\n.* The keys are those of `\[objective\]`\.\n", page, re.MULTILINE)
    assert "## `[[stage]]`\n\nOne of several training stages" in page


def test_rows_say_what_fits_and_the_default():
    page = reference()
    assert "| `train` | a string | required | The training data" in page
    assert '| `schedule` | "auto", "linear", "cosine" or "constant" | `"auto"` | How the learning' in page
    assert "| `patience` | a whole number of at least 1 | unset | Early stopping after" in page
    assert '## `[objective]` with `name = "triple-entropy"`' in page


def test_parts_of_several_lines_are_whole():
    formula, related = description(OBJECTIVES["supcon"])["formula"], description(OBJECTIVES["auto"])["related"]
    assert formula.endswith("; with several labels, a mean weighted by the Jaccard index of the labels")
    assert related.endswith("score-mse for scored texts, cosine-mse for scored pairs, batch-softmax for pairs")


def test_former_names_are_listed():
    assert "| `batches.words` | `batches.shingle_size` |\n" in reference()
    assert '| `batches.shuffle = "words"` | `batches.shuffle = "shingles"` |\n' in reference()
    assert "`turns`" not in reference()
    assert "| `turns` | `schedule` |\n" in task_reference()
