"""The summariser that settings name."""

from foldlog.settings import Settings
from foldlog.summarisers import Summariser
from foldlog.summarisers.extractive import Extractive


def summariser_of(settings: Settings) -> Summariser:
    """The summariser to use."""
    return Extractive()
