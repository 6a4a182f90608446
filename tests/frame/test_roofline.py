"""The roofline: circles lie where their figures say, under the roofs."""

from __future__ import annotations

import re
import sys
from itertools import pairwise

import pytest

from support.pages import ROOT

sys.path.append(str(ROOT / "tools"))

from site_pages.roofline import RooflinePoint, Roofs, roofline_picture

ROOFS = Roofs(bandwidth=4.0, peak=1000.0)


def circles(picture: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', picture)]


def roof(picture: str) -> list[tuple[float, float]]:
    (path,) = re.findall(r'<polyline points="([^"]+)"', picture)
    return [(float(x), float(y)) for x, y in (pair.split(",") for pair in path.split())]


@pytest.mark.parametrize("intensity", [10.0, 250.0, 4000.0])
def test_what_reaches_a_roof_lies_on_it(intensity: float) -> None:
    ends = RooflinePoint("low", 10, 20), RooflinePoint("high", 4000, 20)
    picture = roofline_picture([*ends, RooflinePoint("top", intensity, ROOFS.at(intensity))], ROOFS)
    *_, (x, y) = circles(picture)
    (one, other) = next(pair for pair in pairwise(roof(picture)) if pair[0][0] <= x + 0.1 and x - 0.1 <= pair[1][0])
    on_line = one[1] + (other[1] - one[1]) * (x - one[0]) / (other[0] - one[0])
    assert y == pytest.approx(on_line, abs=0.5)


def test_more_is_higher_and_to_the_right() -> None:
    points = [RooflinePoint("a", 10, 20), RooflinePoint("b", 100, 200), RooflinePoint("c", 1000, 700, peer=True)]
    places = circles(roofline_picture(points, ROOFS))
    assert [x for x, _ in places] == sorted(x for x, _ in places)
    assert [y for _, y in places] == sorted((y for _, y in places), reverse=True)


def test_names_are_escaped_and_peers_are_empty() -> None:
    picture = roofline_picture([RooflinePoint("a<b", 10, 20), RooflinePoint("c", 20, 20, peer=True)], ROOFS)
    assert "a&lt;b" in picture
    assert picture.count('fill="none" stroke="#1c7ed6"') == 1
