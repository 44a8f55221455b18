"""Who sits together: samplers cut a data set into batches."""

from nearfar.batching.balanced import Balanced, lonely
from nearfar.batching.encoded import Clusters, NeighborIds, Neighbors
from nearfar.batching.groups import Grouping, Groups, shingle_groups
from nearfar.batching.nearest import Search, cluster_groups, neighbor_groups, neighbor_id_groups, unit
from nearfar.batching.samplers import FileOrder, RandomOrder, Rows, Sampler, cut
from nearfar.batching.words import Words, word_shingles

__all__ = [
    "Balanced",
    "Clusters",
    "FileOrder",
    "Grouping",
    "Groups",
    "NeighborIds",
    "Neighbors",
    "RandomOrder",
    "Rows",
    "Sampler",
    "Search",
    "Words",
    "cluster_groups",
    "cut",
    "lonely",
    "neighbor_groups",
    "neighbor_id_groups",
    "shingle_groups",
    "unit",
    "word_shingles",
]
