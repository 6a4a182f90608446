"""Bugs planted in the compiler, and the judge that counts which of them are refused before code leaves it."""
