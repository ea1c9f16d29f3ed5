"""Change how the past is seen, and still see it as it was.

FOLDLOG_URL=nats://127.0.0.1:4222 python examples/02_edit_and_look_back.py
"""

import asyncio
import os

from foldlog import assistant, connect, user


async def main() -> None:
    async with connect(os.environ["FOLDLOG_URL"], actor="person") as log:
        session = log.session("examples/02")
        (question,) = await session.append(user("Compare with the week before lats."))
        await session.append(assistant("Which week do you mean?"))
        before = await session.context()

        await session.edit(question.entry.id, [user("Compare with last week.")])
        after = await session.context()
        assert before.messages != after.messages
        assert await session.context(at=before.version) == before

        what_if = await session.fork("examples/02/what-if", at=before.version)
        await what_if.append(user("The one before last."))
        assert len((await what_if.context()).messages) == 3
        assert len((await session.context()).messages) == 2

        await session.reset([user("Start anew: compare with last week.")])
        print("now:", (await session.context()).messages)
        print("then:", (await session.context(at=after.version)).messages)


asyncio.run(main())
