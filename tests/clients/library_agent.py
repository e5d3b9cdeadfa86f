"""An agent of a library, whose model a test drives: it says a line for each turn and is told what to call.

usage: library_agent.py LIBRARY COMMAND [ARGUMENT…]: the command is the MCP server. Each turn prints a line of
JSON, `{"library", "version", "tools", "saw"}`: what the model is offered, and was shown of the last call.
Then it reads one: `{"tool", "arguments"}`, or `null` to end. `PATIENCE_S` is how long openai-agents lets a
request take. The libraries have an environment of their own.
"""
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false

import asyncio
import json
import os
import sys
from importlib.metadata import version
from typing import Any


async def turn(library: str, tools: list[str], saw: object) -> Any:
    """Tell what the model sees, and return what it is to call."""
    told = {"library": library, "version": version(library), "tools": tools, "saw": saw}
    print(json.dumps(told, default=str), flush=True)
    return json.loads(await asyncio.to_thread(sys.stdin.readline) or "null")


async def run_openai_agents(command: list[str]) -> None:
    from agents import Agent, Model, ModelResponse, Runner, Usage, set_tracing_disabled
    from agents.mcp import MCPServerStdio
    from openai.types.responses import (
        ResponseFunctionToolCall,
        ResponseOutputMessage,
        ResponseOutputText,
    )

    set_tracing_disabled(True)

    class Driven(Model):
        count = 0

        async def get_response(self, system_instructions, input, model_settings, tools, *rest, **more):
            outputs = [item for item in input if isinstance(item, dict) and "output" in item]
            names = [tool.name for tool in tools]
            order = await turn("openai-agents", names, outputs[-1]["output"] if outputs else None)
            self.count += 1
            if order is None:
                text = ResponseOutputText(type="output_text", text="That is all.", annotations=[])
                done = ResponseOutputMessage(
                    id=f"m{self.count}", type="message", role="assistant", status="completed", content=[text]
                )
                return ModelResponse(output=[done], usage=Usage(), response_id=None)
            call = ResponseFunctionToolCall(
                type="function_call",
                call_id=f"c{self.count}",
                name=order["tool"],
                arguments=json.dumps(order["arguments"]),
            )
            return ModelResponse(output=[call], usage=Usage(), response_id=None)

        def stream_response(self, *rest, **more):
            raise NotImplementedError

    patience_s = float(os.environ.get("PATIENCE_S", "5"))  # the library's own is five seconds
    parameters = {"command": command[0], "args": command[1:]}
    async with MCPServerStdio(parameters, client_session_timeout_seconds=patience_s) as server:
        agent = Agent(name="driven", model=Driven(), mcp_servers=[server])
        await Runner.run(agent, "go on", max_turns=50)


async def run_pydantic_ai(command: list[str]) -> None:
    from pydantic_ai import Agent
    from pydantic_ai.mcp import MCPToolset
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    async def drive(messages, info):
        parts = [part for message in messages for part in message.parts]
        kinds = ("tool-return", "retry-prompt")
        saw = [part.content for part in parts if getattr(part, "part_kind", "") in kinds]
        names = [tool.name for tool in info.function_tools]
        order = await turn("pydantic-ai-slim", names, saw[-1] if saw else None)
        if order is None:
            return ModelResponse(parts=[TextPart("That is all.")])
        return ModelResponse(parts=[ToolCallPart(order["tool"], order["arguments"])])

    servers = {"mcpServers": {"pml": {"command": command[0], "args": command[1:]}}}
    agent = Agent(FunctionModel(drive), toolsets=[MCPToolset(servers)], retries=5)
    async with agent:
        await agent.run("go on")


LIBRARIES = {"openai-agents": run_openai_agents, "pydantic-ai": run_pydantic_ai}


if __name__ == "__main__":
    asyncio.run(LIBRARIES[sys.argv[1]](sys.argv[2:]))
