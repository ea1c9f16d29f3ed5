"""What an agent uses: a session on one conversation of the log.

async with connect("nats://127.0.0.1:4222") as log:
    session = log.session("support-42")
    await session.append(user("What did we sell last night?"))
    view = await session.prepare(sections=[Section(name="role", text="You are an analyst.")])
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Unpack

from foldlog.acting import StepFields
from foldlog.artifacts import Artifacts
from foldlog.attaching import INLINE_BYTES, TEXT, Facts, attach, with_large_texts_attached
from foldlog.attempt_log import AttemptLog
from foldlog.broker import Broker
from foldlog.broker import connect as connect_to_broker
from foldlog.composing import compose, envelope
from foldlog.contexts import At, Contexts, UnknownEntry
from foldlog.erasure import Erasure, delete, erase
from foldlog.errors import ConversationExists, VersionConflict
from foldlog.family import materialise
from foldlog.log import Log
from foldlog.looking import Looking
from foldlog.records import Records
from foldlog.room import Room, check_room
from foldlog.streams import set_up
from foldlog.views import Views
from foldlog_events.entries import (
    DEFAULT_TENANT,
    ActionEntry,
    ActionStep,
    Baseline,
    Edit,
    EditEntry,
    Entry,
    ForkEntry,
    NoteEntry,
    Recorded,
    ResetEntry,
    Section,
    SystemEntry,
    Unreadable,
)
from foldlog_events.messages import ArtifactReference, Message, Seen, Tool
from foldlog_projections.attempts import CompactionRecord
from foldlog_projections.fold import ContextFold
from foldlog_projections.policy import Policies, default
from foldlog_projections.prompt import plan_prompt
from foldlog_projections.views import ContextView

DEFAULT_WINDOW = 200_000
"""Tokens a model is assumed to take where no policy says otherwise."""
APPEND_DEADLINE = 30.0
"""Seconds after which an append gives up, unless the caller says otherwise."""


@asynccontextmanager
async def connect(
    url: str = "nats://127.0.0.1:4222",
    *,
    tenant: str = DEFAULT_TENANT,
    actor: str = "",
    replicas: int = 1,
    policies: Policies | None = None,
) -> AsyncIterator["Foldlog"]:
    """A connection to the log; streams that do not exist yet are made.

    `policies` are those of the models in use; without them a window of 200,000 tokens is assumed.

    Raises BrokerUnreachable, JetStreamUnavailable, or StreamMismatch where an existing stream
    is configured otherwise.
    """
    broker = await connect_to_broker(url)
    try:
        await set_up(broker, replicas=replicas)
        yield Foldlog(broker, tenant=tenant, actor=actor, policies=policies)
    finally:
        await broker.close()


class Foldlog:
    """The log as one process uses it."""

    def __init__(
        self,
        broker: Broker,
        *,
        tenant: str = DEFAULT_TENANT,
        actor: str = "",
        policies: Policies | None = None,
    ) -> None:
        self.broker = broker
        self.tenant = tenant
        self.actor = actor
        self.policies = policies or Policies(fallback=default(DEFAULT_WINDOW))
        self.log = Log(broker)
        self.artifacts = Artifacts(broker)
        self.views = Views(broker, self.artifacts)
        self.records = Records(broker)
        self.attempts = AttemptLog(self.records)
        self.contexts = Contexts(self.log, self.views)

    async def materialise(self, child: str) -> Recorded | None:
        """Make a fork independent of its parent; None where it is. Its context stays the same.

        Then the parent may be deleted, and with it older contexts of the child, recall of what
        it inherited, and inherited actions.
        """
        return await materialise(self, child)

    async def erase(self, conversation: str, entry: str, *, reason: str = "") -> Erasure:
        """Remove an entry for good, and whatever foldlog derived from it: see `erasure`.

        Raises UnknownEntry, NotErasable, ErasureNotPermitted.
        """
        return await erase(self, conversation, entry, reason=reason)

    async def delete(self, conversation: str, *, reason: str = "") -> Erasure:
        """Remove a conversation for good; what stays says that it was deleted.

        Raises UnknownConversation, HasChildren, ErasureNotPermitted.
        """
        return await delete(self, conversation, reason=reason)

    def session(self, conversation: str, *, tenant: str | None = None) -> "Session":
        """A session on a conversation, which begins with its first entry."""
        return Session(self, conversation, tenant=tenant or self.tenant)


class Session(Looking):
    """One conversation: append to it, see its context, change how it is seen."""

    def __init__(self, foldlog: Foldlog, conversation: str, *, tenant: str) -> None:
        super().__init__(foldlog.log, foldlog.contexts, foldlog.artifacts, tenant, conversation)
        self._foldlog = foldlog
        self._room = Room(
            foldlog.broker,
            foldlog.records,
            foldlog.contexts,
            foldlog.policies,
            tenant,
            conversation,
        )
        self._context: ContextFold | None = None
        self._seen: Seen | None = None

    async def append(
        self,
        *items: Message | Entry,
        expect: int | None = None,
        causation: str | None = None,
        deadline: float = APPEND_DEADLINE,
        inline_bytes: int | None = INLINE_BYTES,
    ) -> tuple[Recorded, ...]:
        """Append entries, or messages as one entry; all of them or none.

        A text of a user or a tool over `inline_bytes` (256 KiB; None: no limit) is kept as an
        artifact, and the entry holds a reference with a preview.

        `expect` is the version of the `log` lane that the caller acts on: if the lane has moved
        on, VersionConflict holds what came in between and nothing is written. Without it the
        entries are put after whatever is there. Once this returns, they are durable. Raises
        InvalidEntry, EntryTooLarge, and AppendOutcomeUnknown after `deadline` seconds.
        """
        entries = compose(items, self._envelope, seen=self._seen, causation=causation)
        if inline_bytes is not None:
            entries = tuple(
                [
                    await with_large_texts_attached(self._foldlog.artifacts, entry, inline_bytes)
                    for entry in entries
                ]
            )
        recorded = await self._log.append(entries, expect=expect, deadline=deadline)
        self._own_version = max(self._own_version, recorded[-1].version)
        return recorded

    async def context(self, at: At | None = None) -> ContextView:
        """What a model is shown now, or was shown at a version, an entry id or a time.

        It holds what this session has appended. Raises UnknownEntry for an id that is not there.
        """
        if at is not None:
            version = await self._contexts.version_at(self.tenant, self.conversation, at)
            return (await self._contexts.at(self.tenant, self.conversation, version)).view()
        view = (await self._current()).view()
        self._seen = Seen(version=view.version, digest=view.digest)
        return view

    async def prepare(
        self,
        sections: Sequence[Section] = (),
        tools: Sequence[Tool] = (),
        *,
        model: str | None = None,
    ) -> ContextView:
        """The context for the next request, with exactly these sections and tools in force.

        Appends the smallest patch that leads there, and nothing where they are in force already.
        `model` is the one that is asked, where that is not the one that answered last. Raises
        ContextTooLarge, which lists what takes the room, over the hard limit of its policy.
        """
        while True:
            context = await self._current()
            await self._omit_superseded_prompts(context)
            view = context.view()
            plan = plan_prompt(view.sections, view.tools, tuple(sections), tuple(tools))
            if plan.changes_nothing:
                check_room(view, self._foldlog.policies, model)
                return await self.context()
            patch = SystemEntry(
                **self._envelope(),
                sections=plan.sections,
                tools_removed=plan.tools_removed,
                tools_added=plan.tools_added,
            )
            try:
                await self.append(patch, expect=view.base_version.log)
            except VersionConflict:
                continue

    async def edit(
        self, target: str, replace: Sequence[Message] | None = None, *, reason: str = ""
    ) -> Recorded:
        """From now on an entry contributes these messages; without any, nothing.

        Raises UnknownEntry where the entry is not in force, so that the edit would do nothing.
        """
        context = await self._current()
        if target not in context.ids():
            raise UnknownEntry(target, self.conversation)
        edit = Edit(target=target, replace=None if replace is None else tuple(replace))
        return (await self.append(EditEntry(**self._envelope(), edits=(edit,), reason=reason)))[0]

    async def reset(
        self,
        handoff: Sequence[Message] = (),
        *,
        keep_prompt: bool = True,
        reason: str = "",
    ) -> Recorded:
        """Start the context anew: with the handoff, and the prompt in force if it is kept."""
        baseline = None
        if keep_prompt:
            view = (await self._current()).view()
            baseline = Baseline(sections=view.sections, tools=view.tools)
        entry = ResetEntry(
            **self._envelope(), handoff=tuple(handoff), baseline=baseline, reason=reason
        )
        return (await self.append(entry))[0]

    async def act(
        self,
        action: str,
        step: ActionStep,
        *,
        entry_id: str | None = None,
        deadline: float = APPEND_DEADLINE,
        **fields: Unpack[StepFields],
    ) -> Recorded:
        """Take one step of an action, where the ledger allows it; of two starts one succeeds.

        `requested`, `approved` and `started` state the arguments or their digest. A step that
        was taken already is returned as it was. After AppendOutcomeUnknown call it again with
        `entry_id` from the error. Raises InvalidTransition; then nothing was written.
        """
        fixed = self._envelope()
        fixed["id"] = entry_id or fixed["id"]
        entry = ActionEntry(**fixed, action=action, step=step, **fields)
        recorded = await self._actions.take(entry, deadline=deadline)
        self._own_version = max(self._own_version, recorded.version)
        return recorded

    async def attach(
        self, content: bytes | str, mime_type: str = TEXT, **facts: Unpack[Facts]
    ) -> ArtifactReference:
        """Keep content as an artifact; the reference goes into a message, for the model to see
        its preview.

        Past its `valid_until` a recall says so. Raises InvalidEntry, BrokerRefused.
        """
        return await attach(self._foldlog.artifacts, content, mime_type, **facts)

    async def fork(self, conversation: str, at: At | None = None) -> "Session":
        """A new conversation that inherits this one up to a moment, now by default.

        Raises ConversationExists, and UnknownConversation where there is nothing to inherit.
        """
        await self._contexts.require(self.tenant, self.conversation)
        if at is None:
            version = (await self._current()).version
        else:
            moment = await self._contexts.version_at(self.tenant, self.conversation, at)
            # A moment after the last entry must not let later ones in.
            version = (await self._contexts.at(self.tenant, self.conversation, moment)).version
        child = Session(self._foldlog, conversation, tenant=self.tenant)
        fork = ForkEntry(**child._envelope(), parent=self.conversation, parent_version=version)
        try:
            recorded = await self._log.append((fork,), expect=0, deadline=APPEND_DEADLINE)
        except VersionConflict:
            raise ConversationExists(conversation, tenant=self.tenant) from None
        child._own_version = recorded[-1].version
        return child

    async def compact(self, instructions: str = "", *, within: float = 120.0) -> CompactionRecord:
        """Have the context compacted now, and how that ended.

        `instructions` say what the summary should heed. A compactor does the work; while one is
        at it already, this waits for its end first. Raises CompactionTimedOut after `within` s.
        """
        return await self._room.compact(instructions, within)

    async def cancel_compaction(self, *, within: float = 2.0) -> bool:
        """End the compaction that is under way: the context stays as it was, and a record says so.

        False where no compactor had one in hand. Raises BrokerUnreachable.
        """
        return await self._room.cancel(within)

    async def report_overflow(self, *, within: float = 120.0) -> bool:
        """After a provider refused the request as too large: whether the context is smaller now.

        Only then may the request be sent again, prepared anew. Raises CompactionTimedOut.
        """
        before = (await self._current()).view()
        await self._room.after_overflow(within)
        return (await self._current()).view().digest != before.digest

    async def wait_for_room(
        self, *, within: float = 120.0, model: str | None = None
    ) -> ContextView:
        """The context, once it is under the hard limit of the policy of `model`, or of the one
        that answered last.

        Raises CompactionTimedOut after `within` seconds.
        """
        await self._room.wait(within, model)
        return await self.context()

    async def watch(self, after: int | None = None) -> AsyncIterator[Recorded | Unreadable]:
        """Entries as they are appended, in order, from after a version on (default: from now)."""
        if after is None:
            after = (await self._current()).version
        async for recorded in self._log.watch(self.tenant, self.conversation, after=after):
            yield recorded

    async def note(self, name: str, data: Any) -> Recorded:
        """Keep data for people and programs; no model sees it."""
        return (await self.append(NoteEntry(**self._envelope(), name=name, data=data)))[0]

    async def _current(self) -> ContextFold:
        if self._context is None:
            self._context = await self._contexts.current(
                self.tenant, self.conversation, at_least=self._own_version
            )
        else:
            await self._contexts.advance(self._context, at_least=self._own_version)
        return self._context

    async def _omit_superseded_prompts(self, context: ContextFold) -> None:
        """After a head marker without a baseline, what is left of the older prompt misleads."""
        superseded = context.superseded_prompts()
        if superseded:
            edits = tuple(Edit(target=target) for target in superseded)
            await self.append(
                EditEntry(**self._envelope(), edits=edits, reason="a new baseline follows")
            )
            await self._contexts.advance(context, at_least=self._own_version)

    def _envelope(self) -> dict[str, Any]:
        return envelope(self.tenant, self.conversation, self._foldlog.actor)
