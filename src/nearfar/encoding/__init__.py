"""Text to vectors: encoders, pooling, heads, and the model folder that other libraries open, too."""

from nearfar.encoding.dropout import EncoderNoise
from nearfar.encoding.encoder import POOLINGS, Output, Pooling, TextModel, Transform, pool
from nearfar.encoding.heads import (
    CenterHead,
    Head,
    LinearHead,
    LogisticHead,
    NeighborHead,
    RidgeHead,
    ScoreHead,
    make_head,
)
from nearfar.encoding.model import Model, Prediction, load
from nearfar.encoding.model_folder import Card, save
from nearfar.encoding.pretrained import Built, build, find
from nearfar.encoding.tokens import Inputs, Padded, TokenTable, tokenize
from nearfar.encoding.unpadded import Unpadded

__all__ = [
    "POOLINGS",
    "Built",
    "Card",
    "CenterHead",
    "EncoderNoise",
    "Head",
    "Inputs",
    "LinearHead",
    "LogisticHead",
    "Model",
    "NeighborHead",
    "Output",
    "Padded",
    "Pooling",
    "Prediction",
    "RidgeHead",
    "ScoreHead",
    "TextModel",
    "TokenTable",
    "Transform",
    "Unpadded",
    "build",
    "find",
    "load",
    "make_head",
    "pool",
    "save",
    "tokenize",
]
