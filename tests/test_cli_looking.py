"""The commands that look into a conversation, and those that remove: for people and programs."""

from collections.abc import AsyncIterator

import pytest

from foldlog import Foldlog, Section, assistant, connect, user
from tests.command_line import foldlog
from tests.test_cli_commands import refused, some_talk

SECRET = "the code is XYZZY-4711"


@pytest.fixture
async def opened(nats_url: str) -> AsyncIterator[Foldlog]:
    async with connect(nats_url, actor="tester") as found:
        yield found


async def test_a_difference_is_shown_side_by_side(nats_url: str, opened: Foldlog) -> None:
    session = opened.session("talk")
    await some_talk(opened)
    first = (await session.context()).origins[0]
    await session.edit(first.id, [user("read b\x1b[2J")])
    await session.prepare([Section(name="role", text="You read.", exact=True)])
    shown = await foldlog("diff", "talk", "4", "--url", nats_url)
    assert shown.code == 0, shown.err
    assert "user: read a" in shown.out
    assert "user: read b\\x1b[2J" in shown.out
    assert "section role (exact): You read." in shown.out
    assert "edit " in shown.out
    told = (await foldlog("diff", "talk", "4", "6", "--json", "--url", nats_url)).json
    assert (told["version_before"], told["version_after"]) == (4, 6)
    assert [one["change"] for one in told["messages"]] == ["entered", "replaced"]
    assert [one["name"] for one in told["sections"]] == ["role"]
    same = await foldlog("diff", "talk", "6", "--url", nats_url)
    assert same.out.endswith("a model is shown the same\n")
    refused(await foldlog("diff", "talk", "6", "4", "--url", nats_url), 1, "swap")
    refused(await foldlog("diff", "nobody", "1", "--url", nats_url), 1, "has no entries")


async def test_prefix_stability_and_what_broke_it(nats_url: str, opened: Foldlog) -> None:
    session = opened.session("talk")
    first = (await session.append(user("read a " + "x" * 500)))[0]
    for n in range(3):
        await session.context()
        await session.append(assistant(f"answer {n}"), user(f"question {n}"))
    edit = await session.edit(first.entry.id, [user("read b")])
    shown = await foldlog("context", "talk", "--prefix", "--url", nats_url)
    assert shown.code == 0, shown.err
    assert "breaks: 1 by edit" in shown.out
    told = (await foldlog("context", "talk", "--prefix", "--json", "--url", nats_url)).json
    assert list(told) == ["share", "reasons", "steps"]
    assert told["reasons"] == {"edit": 1}
    assert [step["version"] for step in told["steps"]] == [1, 2, 3, edit.version]
    assert told["steps"][2]["broken"] is None
    assert told["steps"][3]["broken"]["cause"]["id"] == edit.entry.id
    child = await session.fork("child")
    await child.append(assistant("from the child"))
    other = ("context", "child", "--prefix", "--json", "--render", "anthropic", "--url", nats_url)
    assert [step["version"] for step in (await foldlog(*other)).json["steps"]] == [6, 7]
    both = await foldlog("context", "talk", "--prefix", "--at", "1", "--url", nats_url)
    refused(both, 2, "leave --at out")


async def test_words_are_found_and_entries_read_back(nats_url: str, opened: Foldlog) -> None:
    await some_talk(opened)
    session = opened.session("talk")
    artifact = await session.attach(b"\x00", "application/zip")
    entry = (await opened.log.read_all("default", "talk"))[2].entry.id  # type: ignore[union-attr]
    await session.reset()
    shown = await foldlog("recall", "talk", "text", "of", "--url", nats_url)
    assert shown.code == 0, shown.err
    assert shown.out.splitlines()[-1] == "2 entries, 2 shown"
    told = (await foldlog("recall", "talk", "TEXT", "--json", "--url", nats_url)).json
    assert [hit["version"] for hit in told["hits"]] == [4, 3]
    part = ("recall", "talk", "--reference", entry, "--offset", "4", "--limit", "4")
    assert (await foldlog(*part, "--json", "--url", nats_url)).json["text"] == "text"
    assert (await foldlog(*part, "--url", nats_url)).out == "text\ncharacters 4 to 8 of 13\n"
    for reference, said in ((artifact.digest, "not to be read here"), ("no", "nothing is there")):
        none = await foldlog("recall", "talk", "--reference", reference, "--url", nats_url)
        assert (none.code, none.out[: len(said)]) == (1, said)
    refused(await foldlog("recall", "talk", "--url", nats_url), 2, "one of the two")


async def test_actions_are_listed_with_their_steps(nats_url: str, opened: Foldlog) -> None:
    session = opened.session("talk")
    await session.act("mail-1", "requested", name="send", arguments={"to": "ann"})
    await session.act("mail-1", "denied", reason="not now")
    shown = await foldlog("actions", "talk", "--url", nats_url)
    assert "mail-1" in shown.out
    assert "requested by tester at 1, denied by tester at 2" in shown.out
    told = (await foldlog("actions", "talk", "--json", "--url", nats_url)).json
    assert [step["step"] for step in told["actions"]["mail-1"]["steps"]] == ["requested", "denied"]


async def test_entries_and_conversations_are_removed(nats_url: str, opened: Foldlog) -> None:
    session = opened.session("talk")
    secret = (await session.append(user(SECRET)))[0]
    await session.append(assistant(f"noted: {SECRET}"))
    await session.fork("child")
    erased = await foldlog("erase", "talk", secret.entry.id, "--url", nats_url)
    assert erased.code == 0, erased.err
    assert erased.out.startswith("removed 1 entries from talk and from 1 forks")
    assert "repeats its text" in erased.out
    again = await foldlog("erase", "talk", secret.entry.id, "--json", "--url", nats_url)
    assert again.json["summaries_remade"] == 0
    refused(await foldlog("delete", "talk", "--url", nats_url), 1, "materialise or delete it first")
    independent = await foldlog("materialise", "child", "--json", "--url", nats_url)
    assert independent.json["version"] > 3
    once_more = await foldlog("materialise", "child", "--url", nats_url)
    assert once_more.out == "child inherits nothing that is in force\n"
    assert (await foldlog("delete", "talk", "--url", nats_url)).code == 0
    verified = await foldlog("verify", "--json", "--url", nats_url)
    assert verified.json["differences"] == []
