"""Tiers: where data lives and what moving it costs, as data; the layout attributes of the dialects."""
