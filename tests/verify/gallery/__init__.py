"""Pipelines as people write them, each in a right form and in one with a small mistake in it."""

from gallery.attention import ATTENTION
from gallery.clusters import CLUSTERS
from gallery.entry import Entry
from gallery.epilogues import EPILOGUES
from gallery.mainloops import MAIN_LOOPS
from gallery.tensor_memory import TENSOR_MEMORY
from gallery.work import WORK

GALLERY: tuple[Entry, ...] = (*MAIN_LOOPS, *EPILOGUES, *ATTENTION, *CLUSTERS, *TENSOR_MEMORY, *WORK)
"""All of them."""
