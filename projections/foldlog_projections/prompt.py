"""Prompt sections and tools: replaying them, showing them, planning their next patch (rule 5)."""

from collections.abc import Iterable
from typing import NamedTuple

from foldlog_events.entries import Baseline, Section, SectionInForce
from foldlog_events.messages import Message, Text, Tool
from foldlog_projections.state import PromptPatch


class Prompt:
    """The sections and tools in force while entries are replayed (rules 5.1, 5.6)."""

    def __init__(self, baseline: Baseline | None) -> None:
        baseline = baseline or Baseline()
        self._sections = {section.name: section for section in baseline.sections}
        self._tools = {tool.name: tool for tool in baseline.tools}

    @property
    def sections(self) -> tuple[SectionInForce, ...]:
        """In order."""
        return tuple(self._sections.values())

    @property
    def tools(self) -> tuple[Tool, ...]:
        """In order."""
        return tuple(self._tools.values())

    def apply(self, patch: PromptPatch, entry: str) -> None:
        """Replay one system entry."""
        for section in patch.sections:
            if section.text is None:
                self._sections.pop(section.name, None)
                continue
            before = self._sections.get(section.name)
            self._sections[section.name] = SectionInForce(
                name=section.name,
                text=section.text,
                exact=section.exact,
                entry=entry,
                actor=patch.actor,
                time=patch.time,
                replaced=before.entry if before else "",
            )
        for name in patch.tools_removed:
            self._tools.pop(name, None)
        for tool in patch.tools_added:
            self._tools[tool.name] = tool


def leading_message(sections: Iterable[SectionInForce]) -> Message | None:
    """The one leading system message (rule 5.4); None without sections."""
    parts = tuple(Text(content=section.text) for section in sections)
    return Message(role="system", parts=parts) if parts else None


def patch_message(sections: Iterable[Section]) -> Message | None:
    """A later patch, in the place where it was committed (rules 5.3, 5.4)."""
    last: dict[str, str | None] = {}
    for section in sections:
        last.pop(section.name, None)
        last[section.name] = section.text
    parts = tuple(
        Text(
            content=f'Prompt section "{name}" no longer applies.'
            if text is None
            else f'Prompt section "{name}" is now:\n{text}'
        )
        for name, text in last.items()
    )
    return Message(role="system", parts=parts) if parts else None


class PromptPlan(NamedTuple):
    """The smallest patch from the prompt in force to the one wanted."""

    sections: tuple[Section, ...]
    tools_removed: tuple[str, ...]
    tools_added: tuple[Tool, ...]

    @property
    def changes_nothing(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.sections or self.tools_removed or self.tools_added)


def plan_prompt(
    sections_in_force: tuple[SectionInForce, ...],
    tools_in_force: tuple[Tool, ...],
    sections: tuple[Section, ...],
    tools: tuple[Tool, ...],
) -> PromptPlan:
    """What to append so that exactly `sections` and `tools`, in this order, are in force."""
    return PromptPlan(
        _plan_sections(sections_in_force, sections), *_plan_tools(tools_in_force, tools)
    )


def _keeps_order(in_force: Iterable[str], wanted: Iterable[str]) -> bool:
    """Whether setting by name alone leads to the wanted order."""
    wanted = list(wanted)
    kept = [name for name in in_force if name in wanted]
    return wanted[: len(kept)] == kept


def _plan_sections(
    in_force: tuple[SectionInForce, ...], wanted: tuple[Section, ...]
) -> tuple[Section, ...]:
    wanted = tuple(
        {section.name: section for section in wanted if section.text is not None}.values()
    )
    names = [section.name for section in wanted]
    if not _keeps_order((section.name for section in in_force), names):
        return (*(Section(name=section.name, text=None) for section in in_force), *wanted)
    shown = {section.name: (section.text, section.exact) for section in in_force}
    removed = (Section(name=name, text=None) for name in shown if name not in names)
    changed = (
        section for section in wanted if shown.get(section.name) != (section.text, section.exact)
    )
    return (*removed, *changed)


def _plan_tools(
    in_force: tuple[Tool, ...], wanted: tuple[Tool, ...]
) -> tuple[tuple[str, ...], tuple[Tool, ...]]:
    wanted = tuple({tool.name: tool for tool in wanted}.values())
    names = [tool.name for tool in wanted]
    if not _keeps_order((tool.name for tool in in_force), names):
        return tuple(tool.name for tool in in_force), wanted
    known = {tool.name: tool for tool in in_force}
    return (
        tuple(name for name in known if name not in names),
        tuple(tool for tool in wanted if known.get(tool.name) != tool),
    )
