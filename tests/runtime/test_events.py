"""Events of streams, on a driver that records what it is asked."""

from __future__ import annotations

from tilewright.runtime.events import StreamEvent


class Recorder:
    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []
        self.passed = False

    def record_event(self, stream: int) -> int:
        self.calls.append(("record", stream))
        return 77

    def event_passed(self, event: int) -> bool:
        self.calls.append(("query", event))
        return self.passed

    def wait_event(self, event: int) -> None:
        self.calls.append(("wait", event))

    def destroy_event(self, event: int) -> None:
        self.calls.append(("destroy", event))


def test_an_event_is_asked_until_it_has_passed() -> None:
    driver = Recorder()
    event = StreamEvent(5, driver)
    assert not event.query()
    driver.passed = True
    assert event.query()
    assert event.query()
    assert driver.calls == [("record", 5), ("query", 77), ("query", 77), ("destroy", 77)]


def test_an_event_is_waited_for_once() -> None:
    driver = Recorder()
    event = StreamEvent(5, driver)
    event.synchronize()
    event.synchronize()
    assert event.query()
    assert driver.calls == [("record", 5), ("wait", 77), ("destroy", 77)]


def test_an_event_without_uses_is_destroyed() -> None:
    driver = Recorder()
    StreamEvent(5, driver)
    assert driver.calls[-1] == ("destroy", 77)
