"""Who sits together: samplers cut a data set into batches."""

from nearfar.batching.samplers import FileOrder, RandomOrder, Rows, Sampler, cut

__all__ = ["FileOrder", "RandomOrder", "Rows", "Sampler", "cut"]
