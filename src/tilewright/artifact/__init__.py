"""Compiled programs as data: the schema, the bundle format, the content-addressed store. Standard library only."""
