"""Schema values to JSON and back, driven by the dataclasses' own annotations.

One rule for each kind of type, applied in both directions: integers, booleans and strings as themselves; expressions as
their text, long ones over parts that they share; enumerations by name; tuples as lists; a dataclass as an object with
exactly its fields, and a member of a union with its class name under ``is``. A field marked ``blob`` is kept outside
the JSON, under the mark's name.

Decoding is strict: a missing or unknown field, or a value of another type, is a ``MalformedError`` with the path to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, lru_cache
from types import UnionType
from typing import Any, NamedTuple, TypeAlias, TypeVar, Union, cast, get_args, get_origin

from tilewright.base.expr import OWN, Expr, ExprError, SharedParts, SharedTexts, parse

Json: TypeAlias = "bool | int | str | list[Json] | dict[str, Json] | None"
Blobs: TypeAlias = dict[str, bytes | memoryview]
T = TypeVar("T")

_TAG = "is"
_MAX_EXPR_CHARACTERS = 16_384
_LONG = 512
"""Characters beyond which an expression's text names the parts that it shares with others."""
_MAX_INT_BITS = 64

Fetch: TypeAlias = Callable[[str], bytes | memoryview]
"""Returns a blob by its name; KeyError if there is none."""


class MalformedError(ValueError):
    """JSON that is not what the schema describes; the message begins with the path to the place."""


# -- writing --------------------------------------------------------------------------------------------------------


def encode(value: object, blobs: Blobs) -> tuple[Json, list[str]]:
    """``value`` (a schema dataclass) as JSON, and the texts of the parts that its long expressions share; its blobs are
    added to ``blobs``."""
    texts = SharedTexts(_long_expressions(value))
    return _encode(value, type(value), blobs, texts), texts.parts


def _long_expressions(value: object) -> Iterator[Expr]:
    if isinstance(value, Expr) and len(value.text) > _LONG:
        yield value
    elif isinstance(value, tuple):
        for item in cast("tuple[object, ...]", value):
            yield from _long_expressions(item)
    elif is_dataclass(value) and not isinstance(value, type):
        for name, _, blob in _layout(type(value)):
            if not blob:
                yield from _long_expressions(getattr(value, name))


def _encode(value: object, kind: Any, blobs: Blobs, texts: SharedTexts) -> Json:
    if isinstance(value, Expr):
        return texts.text(value) if len(value.text) > _LONG else value.text
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, tuple):
        items = cast("tuple[object, ...]", value)
        return [
            _encode(item, item_kind, blobs, texts)
            for item, item_kind in zip(items, _items(kind, len(items)), strict=True)
        ]
    if is_dataclass(value) and not isinstance(value, type):
        out: dict[str, Json] = {_TAG: type(value).__name__} if _is_union(kind) else {}
        for name, field_kind, blob in _layout(type(value)):
            member = getattr(value, name)
            if blob:
                blobs[_blob_name(blob, value)] = member if isinstance(member, bytes) else str(member).encode()
            else:
                out[name] = _encode(member, field_kind, blobs, texts)
        return out
    raise TypeError(f"the schema has no JSON form for {type(value).__name__}")


# -- reading --------------------------------------------------------------------------------------------------------


def decode(kind: type[T], json: Json, blobs: Fetch, parts: Json) -> T:
    """The ``kind`` that ``json`` describes, with the blobs that it refers to and the parts of its expressions."""
    if not isinstance(parts, list):
        raise MalformedError(f"expressions: a list expected, {_word(parts)} found")
    texts = [_expression_text(part, f"expressions[{i}]") for i, part in enumerate(parts)]
    try:
        source = _Source(blobs, SharedParts(texts))
    except ExprError as error:
        raise MalformedError(f"expressions: {error}") from None
    return cast("T", _decode(kind, json, source, kind.__name__))


class _Source(NamedTuple):
    """What JSON refers to."""

    blobs: Fetch
    parts: SharedParts


def _decode(kind: Any, json: Json, source: _Source, path: str) -> object:
    if kind in (int, bool, str):
        if type(json) is not kind:
            raise MalformedError(f"{path}: {kind.__name__} expected, {_word(json)} found")
        if isinstance(json, int) and json.bit_length() > _MAX_INT_BITS:
            raise MalformedError(f"{path}: a number of {json.bit_length()} bits; at most {_MAX_INT_BITS} are read")
        if isinstance(json, str) and not json.isascii():
            _check_text(json, path)
        return json
    if kind is Expr:
        return _decode_expr(json, source.parts, path)
    if get_origin(kind) is tuple:
        if not isinstance(json, list):
            raise MalformedError(f"{path}: a list expected, {_word(json)} found")
        arity = _arity(kind)
        if arity is not None and len(json) != arity:
            raise MalformedError(f"{path}: {arity} items expected, {len(json)} found")
        kinds = _items(kind, len(json))
        return tuple(
            _decode(k, item, source, f"{path}[{i}]") for i, (k, item) in enumerate(zip(kinds, json, strict=True))
        )
    if isinstance(kind, type) and issubclass(kind, Enum):
        if not isinstance(json, str) or json not in kind.__members__:
            raise MalformedError(f"{path}: one of {', '.join(kind.__members__)} expected, {_word(json)} found")
        return kind[json]
    if not isinstance(json, dict):
        raise MalformedError(f"{path}: an object expected, {_word(json)} found")
    if _is_union(kind):
        members = {member.__name__: member for member in get_args(kind)}
        tag = json.get(_TAG)
        if not isinstance(tag, str) or tag not in members:
            raise MalformedError(f"{path}.{_TAG}: one of {', '.join(members)} expected, {_word(tag)} found")
        return _decode_object(members[tag], {k: v for k, v in json.items() if k != _TAG}, source, f"{path}:{tag}")
    return _decode_object(kind, json, source, path)


def _decode_object(kind: Any, json: dict[str, Json], source: _Source, path: str) -> object:
    layout = _layout(kind)
    expected = {name for name, _, blob in layout if not blob}
    if json.keys() != expected:
        missing, extra = sorted(expected - json.keys()), sorted(json.keys() - expected)
        found = [f"no {name!r}" for name in missing] + [f"an unknown {_word(name)}" for name in extra[:5]]
        raise MalformedError(f"{path}: {', '.join(found)}")
    values = {name: _decode(k, json[name], source, f"{path}.{name}") for name, k, blob in layout if not blob}
    for name, field_kind, blob in layout:
        if blob:
            blob_name = blob.format(**values)
            try:
                data = source.blobs(blob_name)
            except KeyError:
                raise MalformedError(f"{path}.{name}: no blob {_word(blob_name)}") from None
            values[name] = bytes(data) if field_kind is bytes else _decode_text(data, path, name)
    return kind(**values)


def _check_text(text: str, path: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise MalformedError(f"{path}: text without lone surrogates expected") from None


def _decode_text(data: bytes | memoryview, path: str, name: str) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        raise MalformedError(f"{path}.{name}: UTF-8 text expected") from None


def _decode_expr(json: Json, parts: SharedParts, path: str) -> Expr:
    text = _expression_text(json, path)
    try:
        return _parse(text) if len(text) <= _LONG and OWN not in text else parts.read(text)
    except ExprError as error:
        raise MalformedError(f"{path}: {error}") from None


def _expression_text(json: Json, path: str) -> str:
    if not isinstance(json, str):
        raise MalformedError(f"{path}: an expression's text expected, {_word(json)} found")
    if len(json) > _MAX_EXPR_CHARACTERS:
        raise MalformedError(
            f"{path}: an expression of {len(json)} characters; at most {_MAX_EXPR_CHARACTERS} are read"
        )
    return json


@lru_cache(4096)
def _parse(text: str) -> Expr:
    """``parse``, cached: the variants of a program repeat the same expressions."""
    return parse(text)


# -- the schema's own shape -----------------------------------------------------------------------------------------


@cache
def _layout(kind: type) -> tuple[tuple[str, Any, str], ...]:
    """(name, annotation, blob name or empty) of every field. The schema's annotations are types, not text."""
    return tuple((f.name, f.type, f.metadata.get("blob", "")) for f in fields(kind))


def _blob_name(pattern: str, value: object) -> str:
    return pattern.format(**{name: getattr(value, name) for name, _, blob in _layout(type(value)) if not blob})


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, UnionType)


def _arity(kind: Any) -> int | None:
    """Length of a fixed tuple; None for ``tuple[X, ...]``."""
    args = get_args(kind)
    return None if len(args) == 2 and args[1] is Ellipsis else len(args)


def _items(kind: Any, count: int) -> tuple[Any, ...]:
    args = get_args(kind)
    return (args[0],) * count if _arity(kind) is None else args


def _word(json: Json) -> str:
    text = repr(json)
    return text if len(text) <= 60 else f"{text[:57]}..."
