"""The serving loop of examples/decode.py: what it generates is what a dense model generates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from support.example_cases import load


@pytest.fixture(scope="module")
def example() -> Any:
    return load("decode")


def norm(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-6)


def turned(x: np.ndarray) -> np.ndarray:
    half = x.shape[2] // 2
    turns = np.arange(len(x))[:, None] * 1e4 ** (-np.arange(half) / half)
    a, b, c, s = x[:, :, :half], x[:, :, half:], np.cos(turns)[:, None], np.sin(turns)[:, None]
    return np.concatenate((a * c - b * s, b * c + a * s), 2)


def dense(example: Any, model: Any, tokens: list[int]) -> np.ndarray:
    """Logits behind the last token, in float64 and from all tokens anew."""
    heads, groups = example.HEADS, example.GROUPS
    x = model.embedding[tokens].astype(np.float64)
    for layer in model.layers:
        w = {name: weight.astype(np.float64).T for name, weight in layer.items()}
        split = (norm(x) @ w["qkv"]).reshape(len(tokens), -1, example.WIDTH)
        q, k, v = turned(split[:, :heads]), turned(split[:, heads:-groups]), split[:, -groups:]
        k, v = (np.repeat(y, heads // groups, 1) for y in (k, v))
        scores = np.where(np.tri(len(x), dtype=bool), np.einsum("shd,thd->hst", q, k) * q.shape[2] ** -0.5, -np.inf)
        p = np.exp(scores - scores.max(2, keepdims=True))
        x = x + np.einsum("hst,thd->shd", p / p.sum(2, keepdims=True), v).reshape(x.shape) @ w["out"]
        gate, up = norm(x) @ w["gate"], norm(x) @ w["up"]
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w["down"]
    return norm(x)[-1] @ model.head.astype(np.float64).T


def generated(example: Any, model: Any, prompt: list[int], count: int) -> tuple[list[int], float]:
    """Greedily; and by how much a second choice comes behind, at the least."""
    tokens, margin = list(prompt), np.inf
    for _ in range(count):
        logits = dense(example, model, tokens)
        second, first = np.sort(logits)[-2:]
        margin = min(margin, first - second)
        tokens.append(int(logits.argmax()))
    return tokens[len(prompt) :], margin


@pytest.mark.slow
def test_requests_that_come_and_go_get_the_tokens_of_a_dense_model(example: Any) -> None:
    model, requests = example.Transformer(), example.workload()
    pool, sizes = example.serve(model, requests)
    for request in requests:
        tokens, margin = generated(example, model, request.prompt, request.wanted)
        assert margin > 0.05  # far more than float16 loses: a wrong key would show
        assert request.tokens == tokens
    assert max(sizes) == example.BATCH < len(requests)
    stats = pool.stats()
    assert (stats.held, stats.deferred, stats.free + stats.cached) == (0, 0, example.PAGES)
    assert stats.cached > 0
    assert len({t for r in requests for t in r.tokens}) > len(requests)  # not one token again and again
