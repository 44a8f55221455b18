"""Everything a recipe can say: one frozen dataclass per table, one sentence per key."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeAlias

from nearfar.recipe.keys import Key

ClassWeights: TypeAlias = Literal["none", "balanced"]
Tracker: TypeAlias = Literal["tensorboard", "mlflow", "wandb"]

# Keys that several objectives share.
_Name = Key("The objective; it decides which other keys this table has.")
_LearningRate = Key(
    "The learning rate of the objective's own weights; unset means 100 times training.learning_rate.",
    above=0,
    at_most=10,
)
_LabelSmoothing = Key("The share of each target that is spread evenly over all classes.", at_least=0, below=1)
_ClassWeights = Key('"balanced" weighs every class by the inverse of its frequency in the training texts.')


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
            '"auto" takes 0.1 when the training file has at least 1,000 rows and none otherwise.',
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
            "for cross-entropy and mean pooling for embedding objectives."
        ),
    ] = None
    dropout: Annotated[
        float | None, Key("The dropout inside the encoder; unset means the encoder's own.", at_least=0, below=1)
    ] = None
    fast: Annotated[
        bool,
        Key("Whether BERT, RoBERTa, DistilBERT, ELECTRA and their like compute without padding, which is faster."),
    ] = True


@dataclass(frozen=True, kw_only=True)
class CrossEntropy:
    """Cross-entropy on the classes: each text's own class should be the likely one.

    Formula:  L = -mean log softmax(logits)[own class]
    Reads:    single texts or pairs joined by the tokenizer, one class each
    Batches:  any
    Related:  triple-entropy adds centers on the tokens, cross-entropy+supcon compares the texts of a batch
    Paper:    the usual objective of fine-tuning: Devlin et al. 2019, arXiv:1810.04805
    """

    name: Annotated[Literal["cross-entropy"], _Name] = "cross-entropy"
    learning_rate: Annotated[float | None, _LearningRate] = None
    label_smoothing: Annotated[float, _LabelSmoothing] = 0.0
    class_weights: Annotated[ClassWeights, _ClassWeights] = "none"


@dataclass(frozen=True, kw_only=True)
class TripleEntropy:
    """Cross-entropy blended with SoftTriple, which gives every class several centers.

    Formula:  L = beta * cross-entropy + (1 - beta) * SoftTriple, the latter on every token with its text's class
    Reads:    single texts or pairs joined by the tokenizer, one class each
    Batches:  any
    Related:  cross-entropy is the same without centers; cross-entropy+supcon needs classmates in the batch instead
    Paper:    Sosnowski et al. 2022 (FedCSIS, arXiv:2112.08462); SoftTriple: Qian et al. 2019, arXiv:1909.05235
    """

    name: Annotated[Literal["triple-entropy"], _Name] = "triple-entropy"
    learning_rate: Annotated[float | None, _LearningRate] = None
    beta: Annotated[float, Key("The weight of cross-entropy; SoftTriple gets the rest.", at_least=0, at_most=1)] = 0.9
    centers: Annotated[int, Key("The centers of each class, K in the paper.", at_least=1)] = 10
    gamma: Annotated[float, Key("How softly a text is shared among the centers of a class.", above=0)] = 0.1
    scale: Annotated[float, Key("The factor on all similarities, lambda in the paper.", above=0)] = 3.3
    margin: Annotated[float, Key("How much nearer the own class has to be, delta in the paper.", at_least=0)] = 0.3
    spread: Annotated[float, Key("The weight of the regularizer that merges needless centers.", at_least=0)] = 0.0
    level: Annotated[
        Literal["tokens", "text"], Key("Whether SoftTriple sees every token vector or one vector per text.")
    ] = "tokens"
    label_smoothing: Annotated[float, _LabelSmoothing] = 0.0
    class_weights: Annotated[ClassWeights, _ClassWeights] = "none"


@dataclass(frozen=True, kw_only=True)
class CrossEntropySupCon:
    """Cross-entropy blended with the supervised contrastive objective: classmates come near each other.

    Formula:  L = (1 - weight) * cross-entropy + weight * SupCon on the L2-normalized text vectors
    Reads:    single texts or pairs joined by the tokenizer, one class each
    Batches:  two or more texts of a class; a text without a classmate in its batch counts for cross-entropy only
    Related:  triple-entropy compares with trained centers, so it does not depend on the batch
    Paper:    Gunel et al. 2021, arXiv:2011.01403; SupCon: Khosla et al. 2020, arXiv:2004.11362
    """

    name: Annotated[Literal["cross-entropy+supcon"], _Name] = "cross-entropy+supcon"
    learning_rate: Annotated[float | None, _LearningRate] = None
    weight: Annotated[
        float, Key("The share of the contrastive part; cross-entropy gets the rest.", at_least=0, at_most=1)
    ] = 0.9
    temperature: Annotated[
        float, Key("The divisor of all similarities; lower listens more to the nearest texts.", above=0)
    ] = 0.3
    label_smoothing: Annotated[float, _LabelSmoothing] = 0.0
    class_weights: Annotated[ClassWeights, _ClassWeights] = "none"


Objective: TypeAlias = CrossEntropy | TripleEntropy | CrossEntropySupCon

OBJECTIVES: dict[str, type[Objective]] = {
    "cross-entropy": CrossEntropy,
    "triple-entropy": TripleEntropy,
    "cross-entropy+supcon": CrossEntropySupCon,
}
"""Every objective by the name a recipe uses."""


@dataclass(frozen=True, kw_only=True)
class Batches:
    """Which texts sit together in a step."""

    size: Annotated[int, Key("The texts in a batch.", at_least=1)] = 32
    chunk: Annotated[
        int | None,
        Key(
            "The texts of a batch that are in memory at a time, with the same loss and gradients for a third more "
            "time; unset means all of them.",
            at_least=1,
        ),
    ] = None
    shuffle: Annotated[
        Literal["random", "file-order"], Key("Whether every epoch has an order of its own or that of the file.")
    ] = "random"


@dataclass(frozen=True, kw_only=True)
class Training:
    """How long and how fast to learn, and what to keep."""

    epochs: Annotated[int, Key("How often every training text is seen.", at_least=1)] = 5
    max_steps: Annotated[
        int | None, Key("Stop after this many optimizer steps, even within an epoch; unset means no limit.", at_least=1)
    ] = None
    learning_rate: Annotated[float, Key("The highest learning rate of the encoder.", above=0, at_most=10)] = 5e-5
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
        int | Literal["epoch"], Key('The steps between two evaluations on the dev texts, or "epoch".', at_least=1)
    ] = "epoch"
    metric: Annotated[
        Literal["accuracy", "f1_macro", "f1_weighted"], Key("The score on the dev texts that picks the best model.")
    ] = "f1_weighted"
    patience: Annotated[
        int | None,
        Key("Stop after this many evaluations without improvement; unset means never.", at_least=1),
    ] = None
    checkpoint_every: Annotated[
        int | Literal["epoch"], Key('The steps between two checkpoints, or "epoch".', at_least=1)
    ] = "epoch"
    keep_checkpoints: Annotated[int, Key("The newest checkpoints that are kept.", at_least=1)] = 2
    trackers: Annotated[
        tuple[Tracker, ...], Key("Where the scores are sent while training.", distinct=True, none=())
    ] = ()


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One run, in writing."""

    seed: Annotated[int, Key("The number all randomness follows from.", at_least=0, at_most=2**31 - 1)] = 2
    data: Annotated[Data, Key("Which texts to read and what their columns mean.")]
    encoder: Annotated[Encoder, Key("The pretrained model that turns texts into vectors.")] = field(
        default_factory=Encoder
    )
    objective: Annotated[Objective, Key("What makes a vector good or bad.")] = field(default_factory=CrossEntropy)
    batches: Annotated[Batches, Key("Which texts sit together in a step.")] = field(default_factory=Batches)
    training: Annotated[Training, Key("How long and how fast to learn, and what to keep.")] = field(
        default_factory=Training
    )
