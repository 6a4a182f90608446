"""Right pipelines are proved; with one small mistake they are refuted under the code that names it."""

from __future__ import annotations

import pytest
from gallery import GALLERY, Entry

from tilewright.base.verdict import Proved, Refuted
from tilewright.verify import check

pytestmark = pytest.mark.sample(12)


@pytest.mark.parametrize("entry", GALLERY, ids=lambda e: e.name)
def test_right_forms_are_proved(entry: Entry) -> None:
    assert isinstance(check(entry.build(False)), Proved)


@pytest.mark.parametrize("entry", GALLERY, ids=lambda e: e.name)
def test_wrong_forms_are_refuted_for_what_is_wrong(entry: Entry) -> None:
    found = check(entry.build(True))
    assert isinstance(found, Refuted)
    assert found.witness.code in entry.codes
