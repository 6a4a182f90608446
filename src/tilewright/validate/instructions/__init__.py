"""The semantics of PTX instructions on registers and events, one file per topic."""
