"""Who sits together: samplers cut a data set into batches, schedules let several tasks take turns."""

from nearfar.batching.balanced import Balanced, lonely
from nearfar.batching.groups import Grouping, Groups, shingle_groups
from nearfar.batching.nearest_neighbors import Search, cluster_groups, neighbor_groups, neighbor_id_groups, unit
from nearfar.batching.neighbor_sampler import Clusters, NeighborIds, Neighbors
from nearfar.batching.samplers import FileOrder, RandomOrder, Rows, Sampler, cut
from nearfar.batching.schedules import Annealed, RoundRobin, Sampled, Schedule, Sequential, Turn, describe
from nearfar.batching.shingle_sampler import Words, word_shingles

__all__ = [
    "Annealed",
    "Balanced",
    "Clusters",
    "FileOrder",
    "Grouping",
    "Groups",
    "NeighborIds",
    "Neighbors",
    "RandomOrder",
    "RoundRobin",
    "Rows",
    "Sampled",
    "Sampler",
    "Schedule",
    "Search",
    "Sequential",
    "Turn",
    "Words",
    "cluster_groups",
    "cut",
    "describe",
    "lonely",
    "neighbor_groups",
    "neighbor_id_groups",
    "shingle_groups",
    "unit",
    "word_shingles",
]
