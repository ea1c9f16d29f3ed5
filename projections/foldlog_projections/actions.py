"""The ledger of actions: what was asked for, allowed, and really done outside the conversation.

It is folded from `action` entries and from nothing else. What a message or a summary claims
changes nothing here, and neither do edits, compactions and resets: programs ask the ledger,
never the text.

A start always needs an approval. Where an action needs nobody's consent, the program that knows
so writes the approval itself, in the same batch as the request, with itself as the actor and the
ground as the reason: then every start in the record says who allowed it and why.
"""

import hashlib
import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from foldlog_events.entries import ActionEntry, ActionStep, Entry, Recorded
from foldlog_events.errors import FoldlogError, InvalidEntry

TRANSITIONS: dict[ActionStep | None, tuple[ActionStep, ...]] = {
    None: ("requested",),
    "requested": ("approved", "denied"),
    "approved": ("started", "denied"),
    "denied": (),
    "started": ("succeeded", "failed", "unknown"),
    "unknown": ("succeeded", "failed"),
    "succeeded": (),
    "failed": (),
}
"""The steps that may follow a state; None is an action that nobody requested. A denial after an
approval withdraws it; an `unknown` outcome ends when somebody has found out."""

BOUND_STEPS: tuple[ActionStep, ...] = ("requested", "approved", "started")
"""Steps that must say which arguments they are about."""


class InvalidTransition(FoldlogError):
    """A step that the ledger refuses; appending it would change nothing.

    `state` is the action's state (None: never requested), `allowed` the steps that may follow it.
    """

    def __init__(
        self,
        action: str,
        state: ActionStep | None,
        step: ActionStep,
        allowed: tuple[ActionStep, ...],
        reason: str,
    ) -> None:
        super().__init__(
            f"the action {action!r} is {state or 'not requested'} and cannot be {step}: {reason}; "
            f"allowed now: {', '.join(allowed) or 'nothing'}"
        )
        self.action = action
        self.state = state
        self.step = step
        self.allowed = allowed
        self.reason = reason


class TakenStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A step that took effect, and the entry that says so."""

    step: ActionStep
    entry: str
    version: int
    time: datetime
    """As its writer stated it."""
    actor: str = ""
    arguments_digest: str | None = None
    expires: datetime | None = None
    result: Any = None
    reason: str = ""


class RefusedStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A step that is in the log and changed nothing, and why."""

    action: str
    step: ActionStep
    entry: str
    version: int
    actor: str = ""
    reason: str


class Action(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One action as it stands."""

    action: str
    name: str = ""
    arguments: dict[str, Any] | None = None
    """As requested; None where only their digest was recorded."""
    arguments_digest: str
    steps: tuple[TakenStep, ...]
    """In order; the first is the request."""
    inherited: bool = False
    """It belongs to the conversation that this one was forked from, which alone may go on."""

    @property
    def state(self) -> ActionStep:
        """The last step taken."""
        return self.steps[-1].step

    @property
    def allowed(self) -> tuple[ActionStep, ...]:
        """The steps that may follow."""
        return () if self.inherited else TRANSITIONS[self.state]

    def taken(self, step: ActionStep) -> TakenStep | None:
        """The step, if it took effect."""
        return next((taken for taken in self.steps if taken.step == step), None)


class Ledger(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Every action of a conversation, by id, in the order of their requests."""

    version: int = 0
    """Of the last entry folded."""
    actions: dict[str, Action] = {}
    refused: tuple[RefusedStep, ...] = ()


def arguments_digest(arguments: dict[str, Any]) -> str:
    """What an approval is bound to: `sha256:` and 64 hexadecimal digits of the arguments as JSON.

    Keys are sorted; texts and numbers count as they are written, so 1 and 1.0 differ. Raises
    InvalidEntry for arguments that JSON does not have.
    """
    try:
        canonical = json.dumps(
            arguments, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        ).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidEntry(f"the arguments are no JSON: {error}", place="$.arguments") from None
    return f"sha256:{hashlib.sha256(canonical).hexdigest()}"


def check_step(ledger: Ledger, entry: ActionEntry) -> None:
    """Return where appending this step is harmless: it takes effect, or repeats what is known.

    Steps are idempotent by action and step: the same entry again, or another one that says the
    same, changes nothing. Only a start is exclusive: a second one by another entry is refused,
    for its writer would run the action a second time. Raises InvalidTransition.
    """
    action = ledger.actions.get(entry.action)
    reason = _objection(action, entry)
    if reason:
        raise InvalidTransition(
            entry.action,
            action.state if action else None,
            entry.step,
            action.allowed if action else TRANSITIONS[None],
            reason,
        )


def apply(ledger: Ledger, version: int, entry: Entry) -> Ledger:
    """The ledger after one more entry; for a run of entries `fold` costs less."""
    return fold(ledger, (Recorded(version, entry),))


def fold(ledger: Ledger, entries: Iterable[Recorded]) -> Ledger:
    """The ledger after these entries, given in the order of their versions.

    An entry at or below the version reached was folded before. A refused step never changes an
    action; it is listed with its reason.
    """
    version = ledger.version
    actions = dict(ledger.actions)
    refused = list(ledger.refused)
    refused_ids = {step.entry for step in refused}
    for recorded in entries:
        if recorded.version <= version:
            continue
        version = recorded.version
        entry = recorded.entry
        # A retry that was stored twice must not take effect the second time (rule 1.4).
        if not isinstance(entry, ActionEntry) or entry.id in refused_ids:
            continue
        action = actions.get(entry.action)
        reason = _objection(action, entry)
        if reason:
            refused.append(_refused(version, entry, reason))
            refused_ids.add(entry.id)
        elif action is None:
            actions[entry.action] = _requested(version, entry)
        elif action.taken(entry.step) is None:
            actions[entry.action] = msgspec.structs.replace(
                action, steps=(*action.steps, _taken(version, entry))
            )
    return Ledger(version=version, actions=actions, refused=tuple(refused))


def inherit(parent: Ledger, version: int) -> Ledger:
    """A forked child's first ledger, from its parent's; `version` is the fork entry's.

    The child sees what was done before, and can take no step of it: an approval given once must
    not be used by two conversations.
    """
    return Ledger(
        version=version,
        actions={
            name: msgspec.structs.replace(action, inherited=True)
            for name, action in parent.actions.items()
        },
    )


def _objection(action: Action | None, entry: ActionEntry) -> str:
    """Why the step changes nothing and should not be appended; empty where it may be."""
    stated, fault = _stated_digest(entry)
    if fault:
        return fault
    if action is None:
        return "" if entry.step == "requested" else "nobody requested it"
    taken = action.taken(entry.step)
    if taken is not None and taken.entry == entry.id:
        return ""
    if action.inherited:
        return "it belongs to the conversation this one was forked from: request it anew"
    if stated is not None and stated != action.arguments_digest:
        return (
            f"its arguments have the digest {stated} and those requested {action.arguments_digest}"
        )
    if entry.name and entry.name != action.name:
        return f"it names {entry.name!r} and {action.name!r} was requested"
    if taken is not None:
        return _objection_to_repeat(action, taken, entry)
    if entry.step not in action.allowed:
        return f"{entry.step} does not follow {action.state}"
    return _objection_to_start(action, entry) if entry.step == "started" else ""


def _stated_digest(entry: ActionEntry) -> tuple[str | None, str]:
    """The digest of the arguments the step is about, and what is wrong with it."""
    if entry.expires is not None and entry.expires.utcoffset() is None:
        return None, "its expiry needs its offset from UTC"
    stated = entry.arguments_digest
    if entry.arguments is not None:
        try:
            computed = arguments_digest(entry.arguments)
        except InvalidEntry as error:
            return None, error.reason
        if stated not in (None, computed):
            return None, f"its arguments_digest {stated} is not that of its arguments, {computed}"
        stated = computed
    if stated is None and entry.step in BOUND_STEPS:
        return None, "it must state the arguments or their arguments_digest"
    return stated, ""


def _objection_to_repeat(action: Action, taken: TakenStep, entry: ActionEntry) -> str:
    if entry.step == "started":
        return f"the entry {taken.entry} has started it: one start runs an action once"
    if entry.step == "approved" and action.state == "denied":
        return "its approval was withdrawn: request it anew"
    if entry.expires != taken.expires:
        return f"it is {entry.step} with another expiry by the entry {taken.entry}"
    if entry.result != taken.result:
        return f"it is {entry.step} with another result by the entry {taken.entry}"
    return ""


def _objection_to_start(action: Action, entry: ActionEntry) -> str:
    approval = action.taken("approved")
    expires = approval.expires if approval else None
    if expires is None:
        return ""
    if entry.time.utcoffset() is None:
        return "its time needs its offset from UTC, for the approval expires"
    if entry.time >= expires:
        return (
            f"the approval expired at {expires.isoformat()} and the start is stated for "
            f"{entry.time.isoformat()}: request it anew under another id"
        )
    return ""


def _requested(version: int, entry: ActionEntry) -> Action:
    step = _taken(version, entry)
    return Action(
        action=entry.action,
        name=entry.name,
        arguments=entry.arguments,
        arguments_digest=step.arguments_digest or "",
        steps=(step,),
    )


def _taken(version: int, entry: ActionEntry) -> TakenStep:
    stated, _ = _stated_digest(entry)
    return TakenStep(
        step=entry.step,
        entry=entry.id,
        version=version,
        time=entry.time,
        actor=entry.actor,
        arguments_digest=stated,
        expires=entry.expires,
        result=entry.result,
        reason=entry.reason,
    )


def _refused(version: int, entry: ActionEntry, reason: str) -> RefusedStep:
    return RefusedStep(
        action=entry.action,
        step=entry.step,
        entry=entry.id,
        version=version,
        actor=entry.actor,
        reason=reason,
    )


__all__ = [
    "BOUND_STEPS",
    "TRANSITIONS",
    "Action",
    "InvalidTransition",
    "Ledger",
    "RefusedStep",
    "TakenStep",
    "apply",
    "arguments_digest",
    "check_step",
    "fold",
    "inherit",
]
