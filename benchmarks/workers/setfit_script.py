"""What a user of SetFit writes: a CSV file of texts and labels to a model in a folder, with SetFit's defaults.

Arguments: the file, the encoder, the folder.
"""

from __future__ import annotations

import csv
import sys

from datasets import Dataset
from setfit import SetFitModel, Trainer, TrainingArguments


def main() -> None:
    file, encoder, folder = sys.argv[1:]
    with open(file, encoding="utf-8", newline="") as source:
        rows = list(csv.DictReader(source))
    model = SetFitModel.from_pretrained(encoder)
    arguments = TrainingArguments(
        output_dir=f"{folder}-checkpoints", report_to="none", save_strategy="no", show_progress_bar=False
    )
    Trainer(model=model, args=arguments, train_dataset=Dataset.from_list(rows)).train()
    model.save_pretrained(folder)


if __name__ == "__main__":
    main()
