"""The policies that settings name."""

from foldlog.settings import Settings
from foldlog_projections.policy import Policies, load


def policies_of(settings: Settings) -> Policies:
    """Raises InvalidPolicy for a policy that cannot work."""
    return Policies(
        fallback=load(settings.policy),
        by_model={model: load(policy) for model, policy in settings.policies.items()},
    )
