"""Corpora larger than a machine: files to shards of vectors or predictions, and indexes over them."""
