"""Samplers and task schedules: which rows share a batch, and which task a training step takes its batch from."""

from nearfar.batching.groupings import Clusters, EmbeddingSampler, Grouping, NearestNeighbors, SharedNeighbors
from nearfar.batching.groups import GroupReport
from nearfar.batching.nearest_neighbors import Search
from nearfar.batching.samplers import ClassBalanced, FileOrder, RandomOrder, Rows, Sampler, count_without_positive, cut
from nearfar.batching.schedules import (
    Annealing,
    BlockRoundRobin,
    OneOfEach,
    RoundRobin,
    Sampled,
    Schedule,
    Sequential,
    TaskBatch,
    describe,
)
from nearfar.batching.shingle_sampler import ShingleSampler
from nearfar.batching.vector_file import VectorFile

__all__ = [
    "Annealing",
    "BlockRoundRobin",
    "ClassBalanced",
    "Clusters",
    "EmbeddingSampler",
    "FileOrder",
    "GroupReport",
    "Grouping",
    "NearestNeighbors",
    "OneOfEach",
    "RandomOrder",
    "RoundRobin",
    "Rows",
    "Sampled",
    "Sampler",
    "Schedule",
    "Search",
    "Sequential",
    "SharedNeighbors",
    "ShingleSampler",
    "TaskBatch",
    "VectorFile",
    "count_without_positive",
    "cut",
    "describe",
]
