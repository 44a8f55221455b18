"""Text to vectors: encoders, pooling, heads, and the model folder that other libraries open, too."""

from nearfar.encoding.dropout_masks import EncoderNoise
from nearfar.encoding.encoder import Output, TextModel
from nearfar.encoding.heads import CenterHead, Head, LinearHead, LogisticHead, NeighborHead, make_head
from nearfar.encoding.model import Model, Prediction, load
from nearfar.encoding.model_folder import Card, save
from nearfar.encoding.pooling_modes import POOLINGS, Pooling, pool
from nearfar.encoding.pretrained import Built, build
from nearfar.encoding.sources import find
from nearfar.encoding.tokens import Inputs, Padded, TokenTable, tokenize
from nearfar.encoding.transform import Transform
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
