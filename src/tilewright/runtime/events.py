"""Events: points of a stream that the host can query, such as the end of the launches that use a page."""

from __future__ import annotations

import contextlib
from typing import Protocol

from tilewright.diag import TilewrightError
from tilewright.runtime.driver import LEGACY_STREAM, process_driver


class EventDriver(Protocol):
    """The driver interface of events."""

    def record_event(self, stream: int) -> int: ...
    def event_passed(self, event: int) -> bool: ...
    def wait_event(self, event: int) -> None: ...
    def destroy_event(self, event: int) -> None: ...


class StreamEvent:
    """Passes when what was on ``stream`` (a handle, an integer) as it was made has ended, in the current context.

    Has PyTorch's names, so that ``torch.cuda.Event`` can stand wherever one of these can.
    """

    def __init__(self, stream: int = LEGACY_STREAM, driver: EventDriver | None = None) -> None:
        self._driver: EventDriver = process_driver() if driver is None else driver
        self._event: int | None = self._driver.record_event(stream)

    def query(self) -> bool:
        """Whether it has passed."""
        if self._event is not None and self._driver.event_passed(self._event):
            self._destroy()
        return self._event is None

    def synchronize(self) -> None:
        """Wait until it has passed."""
        if self._event is not None:
            self._driver.wait_event(self._event)
            self._destroy()

    def _destroy(self) -> None:
        event, self._event = self._event, None
        if event is not None:
            self._driver.destroy_event(event)

    def __del__(self) -> None:
        if getattr(self, "_event", None) is not None:
            with contextlib.suppress(TilewrightError):  # a context that is gone took its events with it
                self._destroy()
