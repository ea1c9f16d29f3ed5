"""Append to a conversation and see what a model would be shown.

foldlog up &
FOLDLOG_URL=nats://127.0.0.1:4222 python examples/01_append_and_see.py
"""

import asyncio
import os

from foldlog import Section, Tool, ToolCall, assistant, connect, tool_result, user
from foldlog_projections.renderers import anthropic

SALES = Tool(
    name="sales",
    description="Sales of one show, in euros.",
    parameters={"type": "object", "properties": {"show": {"type": "string"}}},
)


async def main() -> None:
    async with connect(os.environ["FOLDLOG_URL"], actor="analyst") as log:
        session = log.session("examples/01")
        await session.append(user("What did last night's show sell?"))
        view = await session.prepare(
            sections=[Section(name="role", text="You are an analyst. Figures need a source.")],
            tools=[SALES],
        )
        print("the request:", anthropic.render(view))

        call = ToolCall(id="call-1", name="sales", arguments={"show": "last night"})
        await session.append(assistant("", call))
        waiting = await session.context()
        print("before the result:", waiting.messages[-1].parts[0])

        await session.append(tool_result("call-1", "41,300 EUR"))
        await session.append(assistant("Last night's show sold 41,300 EUR."))
        print("after it:", (await session.context()).messages[-2].parts[0])


asyncio.run(main())
