"""The Python interface: estimators with the contract of scikit-learn, and saved models. Torch is loaded late."""

from nearfar.estimators.classifier import Classifier
from nearfar.estimators.display import Chart, Page
from nearfar.estimators.encoder import Encoder, Hit
from nearfar.estimators.experiments import Comparison, Tuning, compare, tune
from nearfar.estimators.multitask import MultiTask
from nearfar.estimators.recipes import train
from nearfar.estimators.saved_model import load

__all__ = [
    "Chart",
    "Classifier",
    "Comparison",
    "Encoder",
    "Hit",
    "MultiTask",
    "Page",
    "Tuning",
    "compare",
    "load",
    "train",
    "tune",
]
