"""The text of ops as xDSL's ``Printer`` writes it, at a fraction of the time."""

from __future__ import annotations

from io import StringIO

from xdsl.ir import Attribute, Operation
from xdsl.printer import Printer


class QuickPrinter(Printer):
    """Writes each attribute once and a string in one piece, where xDSL writes character by character: a kernel repeats
    few types, places and expressions thousands of times."""

    def __init__(self, stream: StringIO):
        super().__init__(stream)
        self._texts: dict[int, tuple[str, Attribute]] = {}  # by identity, which lasts while the attribute is held

    def print_string(self, text: str, *, indent: int | None = None) -> None:
        if "\n" in text:
            super().print_string(text, indent=indent)
        else:
            assert self.stream is not None
            self.stream.write(text)

    def print_string_literal(self, string: str) -> None:
        if string.isascii() and string.isprintable() and '"' not in string and "\\" not in string:
            self.print_string(f'"{string}"')
        else:
            super().print_string_literal(string)

    def print_attribute(self, attribute: Attribute) -> None:
        known = self._texts.get(id(attribute))
        if known is None:
            outer, self.stream = self.stream, StringIO()
            super().print_attribute(attribute)
            known = self._texts[id(attribute)] = self.stream.getvalue(), attribute
            self.stream = outer
        self.print_string(known[0])


def text_of(op: Operation) -> str:
    """The op with everything inside it."""
    stream = StringIO()
    QuickPrinter(stream).print_op(op)
    return stream.getvalue()
