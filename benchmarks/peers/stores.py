"""One small class for each store, all with the same few methods.

The packages are imported where they are used, so that a store whose package is not installed is
left out and the others are measured.
"""

import contextlib
import json
import sqlite3
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Protocol

from benchmarks.workload import text

KINDS = ("user", "call", "result", "told")


def kind_of(number: int) -> str:
    """What the message of this number is, as in `workload.message`."""
    return KINDS[number % 4]


class Store(Protocol):
    """Conversations of one store. `name` of a conversation, `number` of a message."""

    async def open(self, address: str) -> None:
        """Connect to a file, or to a broker."""

    async def append(self, name: str, numbers: Sequence[int]) -> None:
        """Append messages by one call of the store, or one after the other where it has none."""

    async def fill(self, name: str, count: int) -> None:
        """Make a conversation of the first `count` messages, as fast as can be."""

    async def load(self, name: str) -> int:
        """Read a conversation as its user would; how many messages it has."""

    async def order(self, name: str) -> list[tuple[str, int]]:
        """What each message is, and its number."""

    async def close(self) -> None:
        """End."""


def item(number: int) -> dict[str, Any]:
    """A message as OpenAI's Responses take it."""
    match kind_of(number):
        case "user":
            return {"role": "user", "content": text(number)}
        case "call":
            return {
                "type": "function_call",
                "call_id": f"call_{number}",
                "name": "query",
                "arguments": json.dumps({"sql": text(number, 750)}),
            }
        case "result":
            return {
                "type": "function_call_output",
                "call_id": f"call_{number - 1}",
                "output": text(number),
            }
        case _:
            return {"role": "assistant", "content": text(number)}


def told(one: dict[str, Any]) -> tuple[str, int]:
    """Kind and number of an item."""
    said = one.get("content") or one.get("output") or json.loads(one["arguments"])["sql"]
    number = int(said.split(":")[0])
    return kind_of(number), number


class PlainSqlite:
    """A table of JSON texts: WAL, an fsync for each commit."""

    async def open(self, address: str) -> None:
        self._db = sqlite3.connect(address, timeout=30)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS items "
            "(id INTEGER PRIMARY KEY, session TEXT, data TEXT, time TEXT)"
        )
        self._db.execute("CREATE INDEX IF NOT EXISTS by_session ON items (session, id)")
        self._db.commit()

    async def append(self, name: str, numbers: Sequence[int]) -> None:
        rows = [(name, json.dumps(item(number)), time.ctime()) for number in numbers]
        self._db.executemany("INSERT INTO items (session, data, time) VALUES (?, ?, ?)", rows)
        self._db.commit()

    async def fill(self, name: str, count: int) -> None:
        await self.append(name, range(count))

    async def load(self, name: str) -> int:
        return len(self._read(name))

    async def order(self, name: str) -> list[tuple[str, int]]:
        return list(map(told, self._read(name)))

    async def close(self) -> None:
        self._db.close()

    def _read(self, name: str) -> list[dict[str, Any]]:
        rows = self._db.execute("SELECT data FROM items WHERE session = ? ORDER BY id", (name,))
        return [json.loads(data) for (data,) in rows]


class AgentsSqlite:
    """OpenAI Agents SDK, `SQLiteSession`."""

    async def open(self, address: str) -> None:
        self._address = address
        self._sessions: dict[str, Any] = {}

    def session(self, name: str) -> Any:
        from agents import SQLiteSession

        if name not in self._sessions:
            self._sessions[name] = SQLiteSession(name, self._address)
        return self._sessions[name]

    async def append(self, name: str, numbers: Sequence[int]) -> None:
        await self.session(name).add_items([item(number) for number in numbers])

    async def fill(self, name: str, count: int) -> None:
        await self.append(name, range(count))

    async def load(self, name: str) -> int:
        return len(await self.session(name).get_items())

    async def order(self, name: str) -> list[tuple[str, int]]:
        return list(map(told, await self.session(name).get_items()))

    async def close(self) -> None:
        for session in self._sessions.values():
            session.close()


class AgentsSqlalchemy(AgentsSqlite):
    """OpenAI Agents SDK, the session on SQLAlchemy."""

    def session(self, name: str) -> Any:
        from agents.extensions.memory import SQLAlchemySession

        if name not in self._sessions:
            if not self._sessions:
                from sqlalchemy.ext.asyncio import create_async_engine

                self._engine = create_async_engine(f"sqlite+aiosqlite:///{self._address}")
            self._sessions[name] = SQLAlchemySession(name, engine=self._engine, create_tables=True)
        return self._sessions[name]

    async def close(self) -> None:
        if self._sessions:
            await self._engine.dispose()


class Adk:
    """Google ADK, `DatabaseSessionService`."""

    async def open(self, address: str) -> None:
        from google.adk.sessions import DatabaseSessionService

        self._address = address
        self._service = DatabaseSessionService(f"sqlite+aiosqlite:///{address}")
        self._known: dict[str, Any] = {}
        self.refused = 0

    async def _session(self, name: str) -> Any:
        if name not in self._known:
            found = await self._get(name)
            self._known[name] = found or await self._service.create_session(
                app_name="bench", user_id="user", session_id=name
            )
        return self._known[name]

    async def _get(self, name: str) -> Any:
        return await self._service.get_session(app_name="bench", user_id="user", session_id=name)

    async def append(self, name: str, numbers: Sequence[int]) -> None:
        session = await self._session(name)
        for number in numbers:
            try:
                await self._service.append_event(session, self._event(number))
            except ValueError:  # another process appended since this one read the session
                self.refused += 1
                self._known[name] = session = await self._get(name)

    async def fill(self, name: str, count: int) -> None:
        """The first hundred by its interface; it has no other way, so the rest by copying rows."""
        await self.append(name, range(min(count, 100)))
        if count <= 100:
            return
        with sqlite3.connect(self._address, timeout=30) as db:
            names = [row[1] for row in db.execute("PRAGMA table_info(events)")]
            found = db.execute(
                f"SELECT {', '.join(names)} FROM events WHERE session_id = ?", (name,)
            ).fetchall()
            place = names.index("id")
            for copy in range(1, count // 100):
                rows = [
                    tuple(
                        f"{value}-{copy}" if at == place else value for at, value in enumerate(row)
                    )
                    for row in found
                ]
                places = ", ".join("?" * len(names))
                db.executemany(f"INSERT INTO events ({', '.join(names)}) VALUES ({places})", rows)
        db.close()
        self._known[name] = await self._get(name)

    async def load(self, name: str) -> int:
        return len((await self._get(name)).events)

    async def order(self, name: str) -> list[tuple[str, int]]:
        events = (await self._get(name)).events
        return [(kind_of(number), number) for number in (int(e.invocation_id) for e in events)]

    async def close(self) -> None:
        await self._service.close()

    def _event(self, number: int) -> Any:
        from google.adk.events import Event
        from google.genai import types

        said = text(number)
        match kind_of(number):
            case "call":
                call = types.FunctionCall(
                    id=f"call_{number}", name="query", args={"sql": text(number, 750)}
                )
                part = types.Part(function_call=call)
            case "result":
                response = types.FunctionResponse(
                    id=f"call_{number - 1}", name="query", response={"result": said}
                )
                part = types.Part(function_response=response)
            case _:
                part = types.Part(text=said)
        role = "user" if kind_of(number) in ("user", "result") else "model"
        return Event(
            author=role,
            invocation_id=str(number),
            content=types.Content(role=role, parts=[part]),
        )


class Langgraph:
    """LangGraph, `AsyncSqliteSaver` behind `aupdate_state`."""

    async def open(self, address: str) -> None:
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
        from langgraph.graph import START, MessagesState, StateGraph

        self._stack = AsyncExitStack()
        saver = await self._stack.enter_async_context(AsyncSqliteSaver.from_conn_string(address))
        graph = StateGraph(MessagesState)
        graph.add_node("agent", lambda state: {})
        graph.add_edge(START, "agent")
        self._graph = graph.compile(checkpointer=saver)

    async def append(self, name: str, numbers: Sequence[int]) -> None:
        await self._graph.aupdate_state(
            self._config(name), {"messages": [self._message(number) for number in numbers]}, "agent"
        )

    async def fill(self, name: str, count: int) -> None:
        await self.append(name, range(count))

    async def load(self, name: str) -> int:
        return len(await self._messages(name))

    async def order(self, name: str) -> list[tuple[str, int]]:
        numbers = [int(message.id) for message in await self._messages(name)]
        return [(kind_of(number), number) for number in numbers]

    async def close(self) -> None:
        await self._stack.aclose()

    async def _messages(self, name: str) -> list[Any]:
        state = await self._graph.aget_state(self._config(name))
        return list(state.values.get("messages", []))

    def _config(self, name: str) -> Any:
        return {"configurable": {"thread_id": name}}

    def _message(self, number: int) -> Any:
        from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

        said, own = text(number), str(number)
        match kind_of(number):
            case "user":
                return HumanMessage(said, id=own)
            case "call":
                arguments = {"sql": text(number, 750)}
                call = {"id": f"call_{number}", "name": "query", "args": arguments}
                return AIMessage("", id=own, tool_calls=[call])
            case "result":
                return ToolMessage(said, id=own, tool_call_id=f"call_{number - 1}")
            case _:
                return AIMessage(said, id=own)


FILES: dict[str, type[Store]] = {
    "plain SQLite": PlainSqlite,
    "Agents SQLiteSession": AgentsSqlite,
    "Agents SQLAlchemy": AgentsSqlalchemy,
    "ADK database": Adk,
    "LangGraph SQLite": Langgraph,
}
"""Stores in a file."""


def size_of(address: str) -> int:
    """Bytes that a store's file takes once its write-ahead log is part of it."""
    with contextlib.closing(sqlite3.connect(address, timeout=30)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return Path(address).stat().st_size
