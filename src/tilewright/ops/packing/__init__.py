"""Rows packed by the bucket that an integer names, moved there and back: a mixture's experts, segments, pages.

``plan = tw.build_pack_plan(ids, buckets)`` finds where each row goes, once; ``tw.pack`` and ``tw.unpack`` move rows by
it, and kernels read its arrays. ``packing.policy`` alone is imported with the language.
"""
