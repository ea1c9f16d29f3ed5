"""How large a context is: the newest usable measurement, and estimates of what came after it."""

from foldlog_events.messages import Usage

CALIBRATION_RANGE = (0.5, 2.0)
"""A ratio of measured to estimated tokens beyond this is no error of the estimate."""

CALIBRATION_FROM = 500
"""Estimated tokens below which a ratio says nothing: a provider's own additions outweigh them."""


def is_usable(usage: Usage | None) -> bool:
    """Whether a usage tells a context's size; one that reports nothing sent (an aborted reply)
    does not."""
    if usage is None:
        return False
    sent = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    return sent > 0 and usage.context_tokens > 0


class ContextMeter:
    """Sums estimates while a context is folded; a measurement replaces those up to it."""

    def __init__(self, calibration: float = 1.0) -> None:
        self.calibration = calibration
        """Measured tokens for each estimated one, by the last measurement."""
        self.estimated = 0
        """Tokens of the context by estimates alone."""
        self._measured: tuple[int, int] | None = None

    def change(self, tokens: int) -> None:
        """Take in an estimate; a negative one where something was replaced or left."""
        self.estimated += tokens

    def measure(self, usage: Usage) -> None:
        """A provider counted the context as it stands now."""
        if not is_usable(usage):
            return
        measured = usage.context_tokens
        self._measured = (measured, self.estimated)
        if self.estimated >= CALIBRATION_FROM:
            lowest, highest = CALIBRATION_RANGE
            self.calibration = min(highest, max(lowest, measured / self.estimated))

    @property
    def tokens(self) -> int:
        """The context's size."""
        measured, estimated_then = self._measured or (0, 0)
        return max(0, measured + round((self.estimated - estimated_then) * self.calibration))
