"""The tables of a recipe: one frozen dataclass per table, one sentence per key."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeAlias

from nearfar.recipe.capabilities import Objective
from nearfar.recipe.keys import Key
from nearfar.recipe.objectives import Auto

Tracker: TypeAlias = Literal["tensorboard", "mlflow", "wandb"]
HeadKind: TypeAlias = Literal["auto", "trained", "native", "logistic", "nearest-center", "neighbors", "ridge"]
Shuffle: TypeAlias = Literal[
    "auto", "random", "file-order", "balanced", "neighbors", "shingles", "clusters", "neighbor-ids"
]
ClassNames: TypeAlias = str | dict[str, str | tuple[str, ...]]
RankingMetric: TypeAlias = Literal["map", "mrr", "p@1", "ndcg@10", "has_positive@1", "has_positive@5"]
LabelSetMetric: TypeAlias = Literal["f1_micro", "f1_samples", "lrap"]
PairMetric: TypeAlias = Literal["spearman", "pearson", "f1", "average_precision"]
Keep: TypeAlias = Literal["last", "best"]
Metric: TypeAlias = Literal["auto", "accuracy", "f1_macro", "f1_weighted", LabelSetMetric, PairMetric, RankingMetric]

# Keys that recipes of one task and of several share.
SEED = Key("The seed of all random numbers.", at_least=0, at_most=2**31 - 1)
DATA = Key("The data files and their columns.")
ENCODER = Key("The pretrained model that computes the embeddings of texts.")
CHUNK = Key(
    "The number of rows of a batch that are in memory at a time (GradCache), with the same loss and gradients for a "
    "third more time; unset means all of them.",
    at_least=1,
)
STAGE_OBJECTIVE = Key("The objective of this stage.")


@dataclass(frozen=True, kw_only=True)
class Data:
    """The data files and their columns."""

    train: Annotated[
        str, Key("The training data: a file, hub:NAME, sample:NAME or - for standard input; #SPLIT selects a split.")
    ]
    dev: Annotated[
        str | float,
        Key(
            "The dev data (validation set), which selects the best weights: a file, a share of the training data, or 0 "
            "for none; "
            '"auto" is 0.1 for at least 1,000 training rows that can be evaluated, and 0 otherwise.',
            at_least=0,
            below=1,
            none=0.0,
        ),
    ] = "auto"
    test: Annotated[
        str | float | None,
        Key("The test data, for the final scores: a file, or a share of the training data.", at_least=0, below=1),
    ] = None
    text: Annotated[str | None, Key("The column with the text; unset means it is recognized by its name.")] = None
    pair: Annotated[str | None, Key("The column with the second text of a pair.")] = None
    label: Annotated[str | None, Key("The column with the class; unset means it is recognized by its name.")] = None
    score: Annotated[str | None, Key("The column with the score of a text, or the similarity score of a pair.")] = None
    columns: Annotated[
        tuple[str, ...] | None, Key("The column names of a CSV or TSV file without a header.", distinct=True)
    ] = None
    label_separator: Annotated[
        str | None, Key("What separates the labels of a text in the label column, if a text has several, such as ;.")
    ] = None
    label_columns: Annotated[
        tuple[str, ...] | None,
        Key("Columns of 0 and 1, one for each label, if a text has several (an indicator matrix).", distinct=True),
    ] = None
    negative: Annotated[str | None, Key("The column with the negative of a triplet.")] = None
    query_id: Annotated[str | None, Key("The column with the query id, for ranking.")] = None
    doc_id: Annotated[str | None, Key("The column with the document id, for ranking.")] = None
    weight: Annotated[
        str | None,
        Key("The column with the weight of each training row, for cross-entropy, logistic and nearest-center heads."),
    ] = None
    scale: Annotated[
        tuple[float, ...] | None,
        Key(
            "The lowest and the highest possible score or grade, such as [1, 5]; others are refused; unset means that "
            "it is recognized from the values."
        ),
    ] = None
    relevant: Annotated[
        float | None,
        Key(
            "The lowest grade of a relevant document, for ranking; unset means every grade above the lowest one.",
            above=0,
        ),
    ] = None
    corpus: Annotated[
        str | None,
        Key(
            "A file of texts that are searched when dev and test pairs are evaluated; unset means the second texts of "
            "these pairs."
        ),
    ] = None
    positives_only: Annotated[
        bool, Key("Whether labeled negative pairs are left out of the training rows; dev and test keep them.")
    ] = False
    limit: Annotated[
        int | Literal["S", "M", "L", "XL"] | None,
        Key(
            "The number of training rows, sampled by the seed and stratified by class; S, M, L and XL are 1,000, "
            "4,000, 10,000 and all.",
            at_least=1,
            usual=1_000,
        ),
    ] = None
    per_class: Annotated[
        int | None, Key("The number of training rows per class, sampled by the seed.", at_least=1, usual=8)
    ] = None
    names: Annotated[
        ClassNames,
        Key(
            "The names of the classes, which are added to the training data if they fit the labeled texts: a table "
            'with one or more descriptions of each label, or a file with one; "auto" uses labels that are words if '
            'there are few labeled texts and objective.name is "auto", and "none" uses no names.',
            none="none",
        ),
    ] = "auto"
    unlabeled: Annotated[
        str | bool,
        Key(
            "Texts without labels in addition to the labeled ones (self-training): a file, hub:NAME or sample:NAME; a "
            "first model labels them, and the reliable ones are added to the training data if cross-validation on the "
            "labeled texts shows that such labels are right; true means that the training texts themselves have no "
            "labels, so that data.names selects some of them for each class (zero-shot)."
        ),
    ] = False
    adapt: Annotated[
        bool,
        Key(
            "Whether the encoder is first trained on the texts of data.unlabeled with simcse (at most 10,000 of them), "
            "for a kind of texts that it was not pretrained on."
        ),
    ] = False
    encoding: Annotated[
        str | None,
        Key("The character encoding of text files, such as cp1252; unset means it is detected: UTF-8 in most cases."),
    ] = None
    invalid: Annotated[Literal["refuse", "drop"], Key("Whether invalid rows stop the run or are left out.")] = "refuse"
    max_chars: Annotated[
        int, Key("The most characters of a text, a cell or a line; a longer one is refused with its line.", at_least=1)
    ] = 10_000_000
    large: Annotated[
        bool,
        Key(
            "Whether the size limits are lifted, for texts above max_chars, compressed files whose content is more "
            "than 100 times larger than the file, and .json files and standard input of more than 500 MB."
        ),
    ] = False
    disk: Annotated[
        bool | Literal["auto"],
        Key(
            "Whether checked rows and their tokens are kept in temporary files (in TMPDIR) instead of in memory, with "
            'the same result; "auto" does so for files of at least 300 MB, compressed ones from 100 MB on.'
        ),
    ] = "auto"


ENCODER_NAME = Key(
    "A short name, a model folder, or a name on the Hugging Face Hub; of several names with commas between them, or "
    '"auto" for all that are installed or cached, the best one for the training texts is used.'
)


@dataclass(frozen=True, kw_only=True)
class Encoder:
    """The pretrained model that computes the embeddings of texts."""

    name: Annotated[str, ENCODER_NAME] = "minilm"
    max_length: Annotated[
        int | None,
        Key("The tokens at which a text is truncated; unset means the encoder's own limit, at most 512.", at_least=2),
    ] = None
    pooling: Annotated[
        Literal["first", "mean", "pooler", "last"] | None,
        Key(
            "How token embeddings become one text embedding: the first token, the mean, the pooler of the architecture "
            "or the last token; unset means the pooling that the encoder's folder states, and if it states none the "
            "mean, or for cross-entropy the architecture's own classification head (next to which a contrastive loss "
            "reads the first token)."
        ),
    ] = None
    dropout: Annotated[
        float | None, Key("The dropout probability in the encoder; unset means the encoder's own.", at_least=0, below=1)
    ] = None
    drophead: Annotated[
        float,
        Key(
            "The probability that an attention head is dropped for a text in training (DropHead).", at_least=0, below=1
        ),
    ] = 0.0
    cutoff: Annotated[
        float,
        Key(
            "The share of the coordinates of the word embeddings that are set to zero in training (feature cutoff).",
            at_least=0,
            below=1,
        ),
    ] = 0.0
    frozen: Annotated[
        bool,
        Key(
            "Whether the encoder's weights are frozen, so that only heads are trained; stages before the tasks of a "
            "multi-task recipe train it nevertheless."
        ),
    ] = False
    fast: Annotated[
        bool, Key("Whether BERT, RoBERTa, MPNet, ModernBERT and similar ones compute without padding, which is faster.")
    ] = True


@dataclass(frozen=True, kw_only=True)
class Head:
    """The classification head on the text embedding."""

    kind: Annotated[
        HeadKind,
        Key(
            '"trained" is trained together with the encoder; so is "native", the architecture\'s own head, which '
            'transformers opens; the others are fitted to the embeddings after the training; "auto" is "trained" if '
            'the objective has cross-entropy; otherwise it is "nearest-center" for up to 10 classes of up to 100 texts '
            'if texts of a class were compared, and "logistic" in the other cases.'
        ),
    ] = "auto"
    neighbors: Annotated[int, Key('The number of nearest training texts that vote, for "neighbors".', at_least=1)] = 5
    keep_vectors: Annotated[
        bool,
        Key(
            "Whether the model folder contains the vectors of all training texts, so that nearfar extend can fit a "
            "logistic head to all of them; whoever has the folder can compare texts with them."
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class Batches:
    """Batch size and composition."""

    size: Annotated[
        int | None,
        Key(
            "The batch size; unset means 64 for objectives that compare the texts of a batch, 128 for simcse and "
            "mirror among them, and 32 otherwise.",
            at_least=1,
        ),
    ] = None
    chunk: Annotated[int | None, CHUNK] = None
    shuffle: Annotated[
        Shuffle,
        Key(
            'The batch composition: "balanced" has several texts of each class; "neighbors", "shingles", "clusters" '
            'and "neighbor-ids" put similar pairs into one batch (hard in-batch negatives); "auto" is balanced if the '
            "objective needs positives in the batch, and random otherwise."
        ),
    ] = "auto"
    per_class: Annotated[int, Key("The number of texts of each class in a balanced batch.", at_least=2)] = 4
    group: Annotated[int, Key("The number of similar pairs in a group; a batch consists of groups.", at_least=2)] = 8
    candidates: Annotated[int, Key("The number of nearest neighbors from which a group is chosen.", at_least=1)] = 500
    neighbor_text: Annotated[Literal["left", "right"], Key("The text of a pair by which similar pairs are found.")] = (
        "left"
    )
    reverse: Annotated[
        bool, Key("Whether pairs that are left over, without similar pairs, come first in an epoch.")
    ] = True
    refresh: Annotated[
        int,
        Key(
            "The number of epochs after which neighbors and clusters are computed again with the current model.",
            at_least=1,
        ),
    ] = 1
    clusters: Annotated[int, Key('The number of clusters, for shuffle = "clusters".', at_least=1)] = 300
    shingle_size: Annotated[
        int,
        Key(
            'The number of words (for shuffle = "shingles") or of nearest neighbors (for "neighbor-ids") that the '
            "pairs of a group have in common.",
            at_least=1,
        ),
    ] = 1
    neighbors: Annotated[
        int,
        Key(
            "The number of nearest neighbors of each text, itself included, in which those in common are looked for "
            '(for shuffle = "neighbor-ids").',
            at_least=1,
        ),
    ] = 5
    memory: Annotated[
        float,
        Key(
            "The memory in GB for finding similar pairs; if their vectors need more, they are kept on disk, and the "
            "search is approximate.",
            above=0,
        ),
    ] = 4.0
    separate_duplicates: Annotated[bool, Key("Whether pairs with an identical text are put into different groups.")] = (
        False
    )


@dataclass(frozen=True, kw_only=True)
class Training:
    """Epochs, optimizer, evaluation and checkpoints."""

    epochs: Annotated[
        int | None,
        Key(
            "The number of passes over the training data; unset means 5, with classes at least as many as make 80 "
            "steps; for simcse and mirror 1 or 2; for supcon, triplet and contrastive 6 if one batch holds all texts, "
            "otherwise 3 or as many as make 30 steps.",
            at_least=1,
        ),
    ] = None
    max_steps: Annotated[
        int | None, Key("Stop after this many optimizer steps, even within an epoch; unset means no limit.", at_least=1)
    ] = None
    learning_rate: Annotated[
        float | None,
        Key("The peak learning rate of the encoder; unset means the objective's default.", above=0, at_most=10),
    ] = None
    head_learning_rate: Annotated[
        float | None,
        Key(
            "The peak learning rate of the classification head; unset means 100 times training.learning_rate for a "
            "linear head on a pooled embedding and on a frozen encoder, 20 times for the architecture's own head.",
            above=0,
            at_most=10,
        ),
    ] = None
    weight_decay: Annotated[float, Key("The weight decay of AdamW.", at_least=0)] = 0.01
    bias_correction: Annotated[
        bool, Key("Whether AdamW corrects the bias of its moments, which makes the first steps smaller.")
    ] = True
    warmup: Annotated[
        float | None,
        Key(
            "The steps in which the learning rate rises to its peak: a number below 1 is a share of all steps, from 1 "
            "on it is their number; unset means 0.06, or the value of the objective's preset.",
            at_least=0,
            whole_from=1,
        ),
    ] = None
    schedule: Annotated[
        Literal["auto", "linear", "cosine", "constant"],
        Key('How the learning rate falls after the warmup; "auto" is linear, or that of the objective\'s preset.'),
    ] = "auto"
    clip: Annotated[float, Key("The largest gradient norm; 0 means no clipping.", at_least=0)] = 1.0
    accumulate: Annotated[
        int, Key("The number of batches whose gradients are accumulated for one optimizer step.", at_least=1)
    ] = 1
    precision: Annotated[
        Literal["auto", "fp32", "bf16"],
        Key('The number format; "auto" is bf16 if the device has units for it and the encoder is wide enough.'),
    ] = "auto"
    evaluate_every: Annotated[
        int | Literal["auto", "epoch"],
        Key(
            'The number of steps between two evaluations on the dev data, or "epoch"; "auto" is once per epoch, and '
            "less often if there are more than ten epochs.",
            at_least=1,
        ),
    ] = "auto"
    metric: Annotated[
        Metric, Key('The metric on the dev data that selects the best weights; "auto" is the default of the data.')
    ] = "auto"
    keep: Annotated[
        Keep | Literal["auto"],
        Key('The weights that are kept: the last, or the best on the dev data; "auto" is the best if there are any.'),
    ] = "auto"
    keep_untrained: Annotated[
        bool | None,
        Key(
            "Whether the weights before the first step are kept if no later ones have a better dev score; unset means "
            "true, and false for texts with classes."
        ),
    ] = None
    patience: Annotated[
        int | None, Key("Early stopping after this many evaluations without improvement; unset means none.", at_least=1)
    ] = None
    estimate: Annotated[
        bool,
        Key(
            "Whether a training on texts with classes or scores ends with an estimate of the score on new texts: on "
            "the test or dev data, or for fewer than 1,000 texts by cross-validation; the same texts calibrate the "
            "probabilities, and the weights are the same without it."
        ),
    ] = True
    checkpoint_every: Annotated[
        int | Literal["auto", "epoch"],
        Key(
            'The number of steps between two checkpoints, or "epoch"; "auto" is the end of an epoch, and more often if '
            "epochs are long, but at most once a minute.",
            at_least=1,
        ),
    ] = "auto"
    keep_checkpoints: Annotated[int, Key("The number of latest checkpoints that are kept.", at_least=1)] = 2
    trackers: Annotated[
        tuple[Tracker, ...], Key("The experiment trackers that losses and scores are sent to.", distinct=True, none=())
    ] = ()


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One of several training stages, each of which starts from the weights of the one before."""

    objective: Annotated[Objective, STAGE_OBJECTIVE] = field(default_factory=Auto)
    epochs: Annotated[
        int | None, Key("The number of passes over the data; unset means training.epochs.", at_least=1)
    ] = None
    learning_rate: Annotated[
        float | None, Key("The peak learning rate; unset means training.learning_rate.", above=0, at_most=10)
    ] = None
    batch_size: Annotated[int | None, Key("The batch size; unset means batches.size.", at_least=1)] = None
    shuffle: Annotated[Shuffle | None, Key("The batch composition; unset means batches.shuffle.")] = None
    keep: Annotated[
        Keep | None,
        Key(
            "The weights that the next stage starts from: the last, or the best on the dev data; unset means the last, "
            "and for the last stage training.keep."
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All settings of a training run.

    >>> recipe = Recipe(data=Data(train="train.csv"), training=Training(epochs=3))
    >>> recipe.seed, recipe.encoder.name, recipe.training.epochs
    (2, 'minilm', 3)
    """

    seed: Annotated[int, SEED] = 2
    data: Annotated[Data, DATA]
    encoder: Annotated[Encoder, ENCODER] = field(default_factory=Encoder)
    objective: Annotated[Objective, Key("The training objective.")] = field(default_factory=Auto)
    head: Annotated[Head, Key("The classification head on the text embedding.")] = field(default_factory=Head)
    batches: Annotated[Batches, Key("Batch size and composition.")] = field(default_factory=Batches)
    training: Annotated[Training, Key("Epochs, optimizer, evaluation and checkpoints.")] = field(
        default_factory=Training
    )
    stage: Annotated[tuple[Stage, ...], Key("Training stages, instead of objective.", none=())] = ()
