"""What a session tells of its conversation beside the context; nothing here writes."""

from datetime import UTC, datetime

from foldlog.acting import Actions
from foldlog.artifacts import Artifacts
from foldlog.comparing import between
from foldlog.contexts import At, Contexts
from foldlog.history import history
from foldlog.log import Log
from foldlog.recall_tool import DEFAULT_LIMIT, run_recall
from foldlog.recalling import ConversationReader
from foldlog_events.entries import Recorded
from foldlog_events.messages import ArtifactReference, Message, ToolCall
from foldlog_projections.actions import Ledger
from foldlog_projections.diff import ContextDiff
from foldlog_projections.recall import Outcome, SearchResult
from foldlog_projections.section_history import SectionSetting, section_history


class Looking:
    """The reading side of a session."""

    def __init__(
        self,
        log: Log,
        contexts: Contexts,
        artifacts: Artifacts,
        tenant: str,
        conversation: str,
    ) -> None:
        self._log = log
        self._contexts = contexts
        self._artifacts = artifacts
        self.tenant = tenant
        self.conversation = conversation
        self.reader = ConversationReader(log, artifacts, tenant, conversation)
        """What the recall tool reads from."""
        self._actions = Actions(log, tenant, conversation)
        self._own_version = 0

    async def diff(self, a: At, b: At | None = None) -> ContextDiff:
        """What changed for the model from one moment to a later one (now by default), and why.

        Raises UnknownEntry, and InvalidEntry where the first moment is not before the second.
        """
        return await between(self._contexts, self._log, self.tenant, self.conversation, a, b)

    async def actions(self) -> Ledger:
        """Every action of the conversation as it stands: what was requested, allowed and done.

        Messages, summaries, edits and compactions change nothing here. The first call reads the
        whole `log` lane, later ones what came after.
        """
        return await self._actions.ledger(at_least=self._own_version)

    async def section_history(self, name: str) -> tuple[SectionSetting, ...]:
        """When a prompt section was set or removed, by whom, and what each text replaced."""
        reads = history(self._log, self.tenant, self.conversation)
        return section_history(name, [read async for read in reads if isinstance(read, Recorded)])

    async def recall(
        self,
        query: str = "",
        *,
        reference: str = "",
        offset: int = 0,
        limit: int = DEFAULT_LIMIT,
    ) -> SearchResult | Outcome:
        """Search the whole conversation for words, or read what a reference stands for.

        A reference is an entry id or an artifact's digest; offset and limit are in code points.
        What cannot be read is an answer that says why: Unresolved, NotAllowed, Expired. Raises
        NothingToSearchFor.
        """
        if reference:
            return await self.reader.read(reference, offset, limit, now=datetime.now(UTC))
        return await self.reader.search(query)

    async def answer_recall(self, call: ToolCall) -> Message:
        """The tool message that answers a model's call of the tool `RECALL`; append it."""
        answer = await run_recall(self.reader, call.arguments, now=datetime.now(UTC))
        return answer.message(call.id)

    async def artifact(self, reference: ArtifactReference | str) -> bytes:
        """An artifact's content, by its reference or digest.

        Raises UnknownArtifact, CorruptArtifact.
        """
        digest = reference if isinstance(reference, str) else reference.digest
        return await self._artifacts.get(digest)
