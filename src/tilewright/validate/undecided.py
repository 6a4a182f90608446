"""The exception for questions that the validator can't settle."""

from __future__ import annotations


class Undecided(Exception):
    """The validator can't settle a question: ``what``, and where in the PTX or the IR."""

    def __init__(self, what: str, where: str = ""):
        super().__init__(f"{what} ({where})" if where else what)
        self.what, self.where = what, where
