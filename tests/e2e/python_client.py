"""Drives the Python `mcp` client by lines, as `tests/clients/lines.mjs` drives the TypeScript ones."""

import asyncio
import json
import sys
from typing import Any

from mcp import Client, MCPError, StdioServerParameters
from mcp.client.session import ClientRequestContext, IncomingMessage
from mcp.types import ElicitRequestParams, ElicitResult, ErrorData
from pydantic import BaseModel


def plain(model: BaseModel) -> Any:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


class Person:
    """What was shown since the last answer, and what will be answered next, after how long a look.

    An answer of None leaves a form open.
    """

    def __init__(self) -> None:
        self.forms: list[Any] = []
        self.notifications: list[Any] = []
        self.answer: dict[str, Any] | None = None
        self.reads_s = 0.0

    async def fill(
        self, context: ClientRequestContext, params: ElicitRequestParams
    ) -> ElicitResult | ErrorData:
        self.forms.append(plain(params))
        await asyncio.sleep(self.reads_s)
        if self.answer is None:
            await asyncio.Event().wait()
        return ElicitResult.model_validate(self.answer)

    async def note(self, message: IncomingMessage) -> None:
        if isinstance(message, BaseModel):
            self.notifications.append(plain(message))


async def perform(client: Client, person: Person, request: dict[str, Any]) -> dict[str, Any]:
    try:
        if request["do"] == "tools":
            return {"result": plain(await client.list_tools())}
        person.answer, person.reads_s = request["answer"], request["reads_s"]
        return {"result": plain(await client.call_tool(request["name"], request["arguments"]))}
    except MCPError as exc:
        return {"error": {"code": exc.code, "message": exc.message, "data": exc.data}}


async def serve() -> None:
    async def read() -> dict[str, Any] | None:
        line = await asyncio.to_thread(sys.stdin.readline)
        return json.loads(line) if line else None

    def say(value: object) -> None:
        print(json.dumps(value), flush=True)

    job = await read()
    assert job is not None
    person = Person()
    async with Client(
        job["server"].get("url") or StdioServerParameters.model_validate(job["server"]),
        mode=job["mode"],
        elicitation_callback=person.fill if job["forms"] else None,
        message_handler=person.note,
    ) as client:
        say({"protocol": client.protocol_version})
        while (request := await read()) is not None:
            outcome = await perform(client, person, request)
            say({**outcome, "forms": person.forms, "notifications": person.notifications})
            person.forms, person.notifications = [], []


if __name__ == "__main__":
    asyncio.run(serve())
