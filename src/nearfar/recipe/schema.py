"""Everything a recipe can say: one frozen dataclass per table, one sentence per key."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeAlias

from nearfar.recipe.capabilities import Objective
from nearfar.recipe.keys import Key
from nearfar.recipe.objectives import Auto

Tracker: TypeAlias = Literal["tensorboard", "mlflow", "wandb"]
HeadKind: TypeAlias = Literal["auto", "trained", "logistic", "nearest-center", "neighbors"]
Shuffle: TypeAlias = Literal[
    "auto", "random", "file-order", "balanced", "neighbors", "shingles", "clusters", "neighbor-ids"
]
Metric: TypeAlias = Literal[
    "auto", "accuracy", "f1_macro", "f1_weighted", "spearman", "pearson", "f1", "average_precision", "map", "mrr",
    "p@1", "ndcg@10", "has_positive@1", "has_positive@5",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Data:
    """Which texts to read and what their columns mean."""

    train: Annotated[
        str, Key("The training texts: a file, hub:NAME, sample:NAME or - for standard input; #SPLIT picks a split.")
    ]
    dev: Annotated[
        str | float,
        Key(
            "The texts that pick the best epoch: a file, a share of the training texts, or 0 for none; "
            '"auto" takes 0.1 where at least 1,000 rows are trained on and can be measured, and none otherwise.',
            at_least=0,
            below=1,
            none=0.0,
        ),
    ] = "auto"
    test: Annotated[
        str | float | None,
        Key("The texts for the final scores: a file, or a share of the training texts.", at_least=0, below=1),
    ] = None
    text: Annotated[str | None, Key("The column with the text; unset means it is found by its usual names.")] = None
    pair: Annotated[str | None, Key("The column with the second text, where texts come in pairs.")] = None
    label: Annotated[str | None, Key("The column with the class; unset means it is found by its usual names.")] = None
    score: Annotated[str | None, Key("The column with a graded similarity, where pairs have one.")] = None
    columns: Annotated[
        tuple[str, ...] | None, Key("The column names of a CSV or TSV file that has no header.", distinct=True)
    ] = None
    negative: Annotated[str | None, Key("The column with the negative, where rows are triplets.")] = None
    query_id: Annotated[str | None, Key("The column with the id of the query, in ranking files.")] = None
    doc_id: Annotated[str | None, Key("The column with the id of the document, in ranking files.")] = None
    limit: Annotated[
        int | Literal["S", "M", "L", "XL"] | None,
        Key(
            "The training texts that are used, drawn by the seed with the classes in proportion; S, M, L and XL are "
            "1,000, 4,000, 10,000 and all.",
            at_least=1,
            usual=1_000,
        ),
    ] = None
    per_class: Annotated[
        int | None, Key("The training texts of each class that are used, drawn by the seed.", at_least=1, usual=8)
    ] = None
    invalid: Annotated[
        Literal["refuse", "drop"], Key("Whether rows that cannot be used stop the run or are left out.")
    ] = "refuse"


@dataclass(frozen=True, kw_only=True)
class Encoder:
    """The pretrained model that turns texts into vectors."""

    name: Annotated[str, Key("A short name, a folder with a model, or a name on the Hugging Face Hub.")] = "minilm"
    max_length: Annotated[
        int | None,
        Key("The tokens of a text that are read; unset means what the encoder states, at most 512.", at_least=2),
    ] = None
    pooling: Annotated[
        Literal["first", "mean", "pooler"] | None,
        Key(
            "How token vectors become one text vector; unset means the architecture's own classification head "
            "for cross-entropy, and for other objectives what the encoder states, or the mean where it states none."
        ),
    ] = None
    dropout: Annotated[
        float | None, Key("The dropout inside the encoder; unset means the encoder's own.", at_least=0, below=1)
    ] = None
    drophead: Annotated[
        float,
        Key("The probability of each attention head to be dropped for a text while training.", at_least=0, below=1),
    ] = 0.0
    cutoff: Annotated[
        float,
        Key("The share of the word vectors' coordinates that are cut out of a text while training.", at_least=0,
            below=1),
    ] = 0.0  # fmt: skip
    fast: Annotated[
        bool, Key("Whether BERT, RoBERTa, DistilBERT, ELECTRA and their like compute without padding, which is faster.")
    ] = True


@dataclass(frozen=True, kw_only=True)
class Head:
    """What makes a class of a text vector."""

    kind: Annotated[
        HeadKind,
        Key(
            '"trained" learns with the encoder, the others are fitted to its vectors afterwards; "auto" trains a head '
            "where the objective has cross-entropy; else it fits a logistic one, or the nearest center where "
            "classmates were compared, in up to 10 classes of up to 100 texts."
        ),
    ] = "auto"
    neighbors: Annotated[int, Key('How many nearest training texts vote, for "neighbors".', at_least=1)] = 5


@dataclass(frozen=True, kw_only=True)
class Batches:
    """Which texts sit together in a step."""

    size: Annotated[
        int | None,
        Key(
            "The rows in a batch; unset means 64 for objectives that compare the texts of a batch, 128 for simcse and "
            "mirror among them, and 32 otherwise.",
            at_least=1,
        ),
    ] = None
    chunk: Annotated[
        int | None,
        Key(
            "The rows of a batch that are in memory at a time, with the same loss and gradients for a third more "
            "time; unset means all of them.",
            at_least=1,
        ),
    ] = None
    shuffle: Annotated[
        Shuffle,
        Key(
            'Who shares a batch: "balanced" keeps classmates together, the last four put like pairs together; "auto" '
            "is balanced where an objective needs classmates and random otherwise."
        ),
    ] = "auto"
    per_class: Annotated[int, Key("The texts of a class that sit together in a balanced batch.", at_least=2)] = 4
    group: Annotated[int, Key("How many like pairs sit together.", at_least=2)] = 8
    candidates: Annotated[int, Key("The nearest neighbors among which a group is chosen.", at_least=1)] = 500
    neighbor_text: Annotated[Literal["left", "right"], Key("The text of a pair by which similar pairs are found.")] = (
        "left"
    )
    reverse: Annotated[bool, Key("Whether the leftovers, which have no like pairs, come first in an epoch.")] = True
    refresh: Annotated[
        int, Key("The epochs after which neighbors and clusters are found anew with the current model.", at_least=1)
    ] = 1
    clusters: Annotated[int, Key("How many clusters there are, for clusters.", at_least=1)] = 300
    shingle_size: Annotated[
        int, Key("The words, or neighbors, that the pairs of a group share, for shingles and neighbor-ids.", at_least=1)
    ] = 1
    separate_duplicates: Annotated[bool, Key("Whether pairs with an identical text are put into different groups.")] = (
        False
    )


@dataclass(frozen=True, kw_only=True)
class Training:
    """How long and how fast to learn, and what to keep."""

    epochs: Annotated[
        int | None,
        Key(
            "How often every training text is seen; unset means 5, for simcse and mirror 1 or 2, and for supcon, "
            "triplet and contrastive 3 or as many as make 30 steps, 6 if one batch holds all texts.",
            at_least=1,
        ),
    ] = None
    max_steps: Annotated[
        int | None, Key("Stop after this many optimizer steps, even within an epoch; unset means no limit.", at_least=1)
    ] = None
    learning_rate: Annotated[
        float | None,
        Key("The highest learning rate of the encoder; unset means what suits the objective.", above=0, at_most=10),
    ] = None
    head_learning_rate: Annotated[
        float | None,
        Key(
            "The highest learning rate of the class head; unset means 100 times training.learning_rate for the linear "
            "head on a pooled vector (encoder.pooling), and training.learning_rate for an architecture's own head.",
            above=0,
            at_most=10,
        ),
    ] = None
    weight_decay: Annotated[float, Key("How strongly weights are pulled to zero.", at_least=0)] = 0.01
    warmup: Annotated[
        float,
        Key(
            "The steps over which the learning rate rises: below 1 a share of all steps, from 1 on their number.",
            at_least=0,
            whole_from=1,
        ),
    ] = 0.06
    schedule: Annotated[
        Literal["linear", "cosine", "constant"], Key("How the learning rate falls after the warmup.")
    ] = "linear"
    clip: Annotated[float, Key("The largest norm of the gradient; 0 means no clipping.", at_least=0)] = 1.0
    accumulate: Annotated[int, Key("The batches that are added up for one optimizer step.", at_least=1)] = 1
    precision: Annotated[
        Literal["auto", "fp32", "bf16"], Key('The number format of the arithmetic; "auto" asks the device.')
    ] = "auto"
    evaluate_every: Annotated[
        int | Literal["auto", "epoch"],
        Key(
            'The steps between two evaluations on the dev texts, or "epoch"; "auto" is the epoch, and fewer than that '
            "where a run has more than ten.",
            at_least=1,
        ),
    ] = "auto"
    metric: Annotated[
        Metric, Key('The score on the dev rows that picks the best model; "auto" is what suits the data.')
    ] = "auto"
    patience: Annotated[
        int | None, Key("Stop after this many evaluations without improvement; unset means never.", at_least=1)
    ] = None
    checkpoint_every: Annotated[
        int | Literal["auto", "epoch"],
        Key(
            'The steps between two checkpoints, or "epoch"; "auto" is the end of an epoch, and more often where epochs '
            "are long, but at most once a minute.",
            at_least=1,
        ),
    ] = "auto"
    keep_checkpoints: Annotated[int, Key("The newest checkpoints that are kept.", at_least=1)] = 2
    trackers: Annotated[
        tuple[Tracker, ...], Key("Where the scores are sent while training.", distinct=True, none=())
    ] = ()


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One of several trainings in a row, each from the weights of the one before."""

    objective: Annotated[Objective, Key("What this stage trains for.")] = field(default_factory=Auto)
    epochs: Annotated[int | None, Key("How often it sees every row; unset means training.epochs.", at_least=1)] = None
    learning_rate: Annotated[
        float | None, Key("Its highest learning rate; unset means training.learning_rate.", above=0, at_most=10)
    ] = None
    batch_size: Annotated[int | None, Key("The rows in its batches; unset means batches.size.", at_least=1)] = None
    shuffle: Annotated[Shuffle | None, Key("Who shares a batch; unset means batches.shuffle.")] = None


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One run, in writing."""

    seed: Annotated[int, Key("The number all randomness follows from.", at_least=0, at_most=2**31 - 1)] = 2
    data: Annotated[Data, Key("Which texts to read and what their columns mean.")]
    encoder: Annotated[Encoder, Key("The pretrained model that turns texts into vectors.")] = field(
        default_factory=Encoder
    )
    objective: Annotated[Objective, Key("What makes a vector good or bad.")] = field(default_factory=Auto)
    head: Annotated[Head, Key("What makes a class of a text vector.")] = field(default_factory=Head)
    batches: Annotated[Batches, Key("Which texts sit together in a step.")] = field(default_factory=Batches)
    training: Annotated[Training, Key("How long and how fast to learn, and what to keep.")] = field(
        default_factory=Training
    )
    stage: Annotated[tuple[Stage, ...], Key("Trainings in a row, in place of objective.", none=())] = ()
