"""PTX text to a ``Module`` (PTX ISA 9.1, 4 to 11): every directive and operand form; opcodes are kept, known or not."""

from __future__ import annotations

from tilewright.ptx.body import BodyReader
from tilewright.ptx.declarations import LINKAGE, SPACES, number, parameters, variables
from tilewright.ptx.syntax import Entry, Identifier, Module, Operand, Variable
from tilewright.ptx.tokens import NAME, NUMBER, Tokens, tokens


def read(text: str, file: str = "<ptx>") -> Module:
    """The module that ``text`` spells; a text that is no PTX raises PTX001 to PTX003 with its line in ``file``."""
    return _ModuleReader(tokens(text, file)).module()


class _ModuleReader:
    """Module scope: directives, variables, functions and kernels in their order."""

    def __init__(self, found: Tokens):
        self.tokens = found
        self.at = 0
        self.version = (0, 0)
        self.target: tuple[str, ...] = ()
        self.address_size = 64
        self.variables: dict[str, Variable] = {}
        self.functions: dict[str, Entry] = {}
        self.entries: dict[str, Entry] = {}
        self.files: dict[int, str] = {}
        self.names: dict[str, Operand] = {}

    def module(self) -> Module:
        """Read to the end of the text."""
        text = self.tokens.text
        while token := text[self.at]:
            if token == ".version":
                self._version()
            elif token == ".target":
                self.target = self._words()
            elif token == ".address_size":
                self.address_size, self.at = number(self.tokens, self.at + 1)
            elif token == ".file":
                self.at = file_directive(self.tokens, self.at, self.files)
            elif token == ".section":
                self._section()
            elif token in (".pragma", ".alias"):
                self.at = self._behind(";")
            else:
                self._declaration()
        if not self.version[0]:
            self.tokens.refuse(self.at, "'.version' at the start of the text")
        return Module(
            self.version,
            self.target,
            self.address_size,
            tuple(self.variables.values()),
            tuple(self.functions.values()),
            tuple(self.entries.values()),
            self.files,
        )

    def _version(self) -> None:
        major, dot, minor = self.tokens.text[self.at + 1].partition(".")
        if not (dot and major.isdecimal() and minor.isdecimal()):
            self.tokens.refuse(self.at + 1, "a version such as 9.0")
        self.version, self.at = (int(major), int(minor)), self.at + 2

    def _words(self) -> tuple[str, ...]:
        text, words = self.tokens.text, [self.tokens.text[self.at + 1]]
        if NAME.match(words[0]) is None:
            self.tokens.refuse(self.at + 1, "a target such as sm_90a")
        self.at += 2
        while text[self.at] == ",":
            words.append(text[self.at + 1])
            self.at += 2
        return tuple(words)

    def _section(self) -> None:
        """DWARF: skipped, braces counted."""
        self.at = self._behind("{")
        depth = 1
        while depth:
            token = self.tokens.text[self.at]
            if not token:
                self.tokens.refuse(self.at, "'}' at the end of the section")
            depth += (token == "{") - (token == "}")
            self.at += 1

    def _behind(self, mark: str) -> int:
        try:
            return self.tokens.text.index(mark, self.at) + 1
        except ValueError:
            self.tokens.refuse(len(self.tokens.text) - 1, f"'{mark}'")

    def _declaration(self) -> None:
        text, external = self.tokens.text, False
        while text[self.at] in LINKAGE:
            external |= text[self.at] == ".extern"
            self.at += 1
        token = text[self.at]
        if token in (".entry", ".func"):
            self._callable(token == ".entry")
        elif token[1:].partition("::")[0] in SPACES and token.startswith("."):
            start = self.at
            found, self.at = variables(self.tokens, self.at, external)
            for variable in found:
                known = self.variables.get(variable.name)
                if known is not None and not known.external and not variable.external:
                    self.tokens.refuse(start, "a name that is new in the module", "PTX003", variable.name)
                if known is None or known.external:
                    self.variables[variable.name] = variable
                self.names[variable.name] = Identifier(variable.name)
        else:
            self.tokens.refuse(self.at, "a directive of module scope")

    def _callable(self, kernel: bool) -> None:
        text, start = self.tokens.text, self.at
        self.at += 1
        if text[self.at].startswith(".attribute"):
            self.at = self._behind(")")
        results, own = (), ()
        if not kernel and text[self.at] == "(":
            results, self.at = parameters(self.tokens, self.at)
        name = text[self.at]
        if NAME.match(name) is None:
            self.tokens.refuse(self.at, "a name")
        self.at += 1
        if text[self.at] == "(":
            own, self.at = parameters(self.tokens, self.at)
        directives = self._directives()
        self.names[name] = Identifier(name)
        shared = tuple(v for v in self.variables.values() if v.space == "shared")
        if text[self.at] == ";":
            made = Entry(name, own, directives, shared, results=results, external=True)
            self.at += 1
        elif text[self.at] == "{":
            body = BodyReader(self.tokens, {**self.names, **{p.name: Identifier(p.name) for p in (*own, *results)}})
            self.at = body.read(self.at, self.files, [*own, *results])
            made = Entry(
                name,
                own,
                directives,
                shared + tuple(body.shared),
                tuple(body.local),
                body.scopes.registers,
                tuple(body.instructions),
                body.labels,
                body.targets,
                tuple(body.pragmas),
                results,
            )
        else:
            self.tokens.refuse(self.at, "'{' or ';'")
        kept = self.entries if kernel else self.functions
        if name in kept and not kept[name].external and not made.external:
            self.tokens.refuse(start, "a name that is new in the module", "PTX003", name)
        if name not in kept or kept[name].external:
            kept[name] = made

    def _directives(self) -> dict[str, tuple[int, ...]]:
        """The performance directives between parameters and body: ``.maxntid 128, 1, 1``, ``.minnctapersm 2``,
        ``.noreturn``."""
        text, found = self.tokens.text, dict[str, tuple[int, ...]]()
        while (token := text[self.at]).startswith("."):
            self.at += 1
            if token == ".pragma":
                self.at = self._behind(";")
                continue
            values: list[int] = []
            while NUMBER.match(text[self.at]):
                value, self.at = number(self.tokens, self.at)
                values.append(value)
                self.at += text[self.at] == ","
            found[token[1:]] = tuple(values)
        return found


def file_directive(tokens: Tokens, at: int, files: dict[int, str]) -> int:
    """Read ``.file 1 "name"`` at token ``at`` into ``files``; the token behind it."""
    index, at = number(tokens, at + 1)
    if not tokens.text[at].startswith('"'):
        tokens.refuse(at, "a file name")
    files[index] = tokens.text[at][1:-1]
    at += 1
    while tokens.text[at] == "," and NUMBER.match(tokens.text[at + 1]):
        at += 2
    return at
