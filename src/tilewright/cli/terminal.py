"""Output of commands. Control characters are escaped: text from an untrusted file must not control the terminal."""

from __future__ import annotations

import sys

from tilewright.diag import printable


def echo(text: object, *, err: bool = False, nl: bool = True) -> None:
    """Print ``text`` at once, to stderr with ``err``; control characters and lone surrogates are shown as escapes."""
    stream = sys.stderr if err else sys.stdout
    if stream is None:  # pyright: ignore[reportUnnecessaryComparison] - closed by the caller of the process
        return
    encoding = stream.encoding or "utf-8"
    shown = printable(str(text)).encode(encoding, "backslashreplace").decode(encoding)
    stream.write(shown + "\n" * nl)
    stream.flush()
