"""What holds of the Deno process even if code had all of the runtime: it may do nothing, and has nothing."""

import json
import os
from collections.abc import Generator
from pathlib import Path

import msgspec
import pytest

from pml.install.package_managers import find_deno
from pml.sandbox.deno.command import script
from pml.sandbox.deno.limits import Limits
from pml.sandbox.deno.process import Recipe, start
from tests.promises import promise
from tests.sandbox.deno_rig import BOTH, find_box, of_process
from tests.sandbox.deno_surroundings import Surroundings, surroundings


@pytest.fixture
def around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Surroundings]:
    with surroundings(tmp_path, monkeypatch) as made:
        yield made


def recipe(kind: str, path: Path, limits: Limits) -> Recipe:
    return Recipe(deno=find_deno(), bwrap=find_box(kind), script=path, limits=limits)


HOSTILE = """
const args = JSON.parse(`ARGS`);
const node = (name) => process.getBuiltinModule(name);
const outcome = {};
for (const kind of ["error", "unhandledrejection"]) addEventListener(kind, (event) => event.preventDefault());
const attempt = async (name, what) => {
  const late = new Promise((_, no) => setTimeout(() => no(new Error("late")), 500));
  try {
    outcome[name] = `got ${await Promise.race([what(), late])}`;
  } catch (error) {
    outcome[name] = `${error}`;
  }
};
Deno.stdout.writeSync(new TextEncoder().encode('{"ready":true}\\n'));
Deno.stdin.readSync(new Uint8Array(1));
await attempt("read", () => Deno.readTextFileSync(args.file));
await attempt("write", () => Deno.writeTextFileSync(args.new, "x"));
await attempt("list", () => [...Deno.readDirSync("/")]);
await attempt("remove", () => Deno.removeSync(args.file));
await attempt("env", () => Deno.env.get("CANARY"));
await attempt("tcp", () => Deno.connect({ port: args.tcp }));
await attempt("unix", () => Deno.connect({ transport: "unix", path: args.unix }));
await attempt("listen", () => Deno.listen({ port: 0 }));
await attempt("fetch", () => fetch(`http://127.0.0.1:${args.tcp}/`));
await attempt("fetch file", async () => (await fetch(`file://${args.file}`)).text());
await attempt("websocket", () => new Promise((yes, no) => {
  const socket = new WebSocket(`ws://127.0.0.1:${args.tcp}/`);
  socket.onopen = yes;
  socket.onerror = () => no(new Error("refused"));
}));
await attempt("dns", () => Deno.resolveDns("localhost", "A"));
const shell = ["-c", `echo x > ${args.new}`];
await attempt("run", () => new Deno.Command("/bin/sh", { args: shell }).outputSync().code);
await attempt("ffi", () => Deno.dlopen("libc.so.6", { getpid: { parameters: [], result: "i32" } }));
await attempt("kill", () => Deno.kill(args.pid, "SIGCONT"));
await attempt("sys", () => Deno.hostname());
await attempt("permission", async () => {
  const { state } = await Deno.permissions.request({ name: "read" });
  if (state !== "granted") throw new Error(state);
});
await attempt("storage", () => localStorage.setItem("a", "b"));
await attempt("cache", () => caches.open("x"));
await attempt("node:fs", () => node("node:fs").readFileSync(args.file, "utf8"));
await attempt("node:fs write", () => node("node:fs").writeFileSync(args.new, "x"));
await attempt("node:child_process", () => {
  const { status, error } = node("node:child_process").spawnSync("/bin/sh", shell);
  if (error || status !== 0) throw error ?? new Error(`status ${status}`);
});
await attempt("node:net", () => new Promise((yes, no) => {
  node("node:net").connect(args.tcp, "127.0.0.1", yes).on("error", no);
}));
await attempt("node:net unix", () => new Promise((yes, no) => {
  node("node:net").connect(args.unix, yes).on("error", no);
}));
await attempt("node:dgram", () => new Promise((yes, no) => {
  const socket = node("node:dgram").createSocket("udp4");
  socket.on("error", no);
  socket.send("x", args.udp, "127.0.0.1", (error) => error ? no(error) : yes());
}));
await attempt("node:dns", () => node("node:dns").promises.lookup("localhost"));
await attempt("node:inspector", () => {
  node("node:inspector").open(0, "127.0.0.1");
  if (!node("node:inspector").url()) throw new Error("no url");
});
await attempt("node:sqlite", () => new (node("node:sqlite").DatabaseSync)(args.new));
await attempt("node:os", () => node("node:os").userInfo());
await attempt("process.env", () => {
  if (process.env.CANARY === undefined) throw new Error("none");
});
await attempt("createRequire", () => node("node:module").createRequire("file:///x.js")(args.file));
await attempt("worker", () => new Promise((yes, no) => {
  const read = `try { data = Deno.readTextFileSync("${args.file}") } catch {}`;
  const source = `let data = ""; ${read}; self.postMessage(data)`;
  const worker = new Worker(`data:text/javascript,${encodeURIComponent(source)}`, { type: "module" });
  worker.onmessage = ({ data }) => data ? yes(data) : no(new Error("nothing"));
  worker.onerror = (event) => { event.preventDefault(); no(new Error("no worker")) };
}));
const bytes = new TextEncoder().encode(JSON.stringify(outcome) + "\\n");
Deno.stdout.writeSync(bytes);
"""


@pytest.mark.parametrize("kind", BOTH)
@promise("code:nothing-but-mcp")
async def test_even_code_with_all_of_the_runtime_may_do_nothing(
    kind: str, around: Surroundings, tmp_path: Path
) -> None:
    limits = Limits(turn_s=60, memory_mb=4096)  # else a worker has no room
    hostile = tmp_path / "scripts" / "hostile.js"
    hostile.parent.mkdir()
    hostile.write_text(HOSTILE.replace("ARGS", json.dumps(around.told())))
    process = await start(recipe(kind, hostile, limits))
    try:
        outcome = msgspec.json.decode(await process.exchange(b"\n"), type=dict[str, str])
    finally:
        await process.end()
    assert [name for name, what in outcome.items() if what.startswith("got")] == []
    assert len(outcome) > 30
    around.assert_untouched(outcome)


@pytest.mark.parametrize("kind", BOTH)
async def test_the_process_has_an_empty_environment_and_none_of_our_files(
    kind: str, around: Surroundings, tmp_path: Path
) -> None:
    held = os.open(around.file, os.O_RDONLY)
    os.set_inheritable(held, True)
    process = await start(recipe(kind, script("runner.js"), Limits()))
    os.close(held)
    pid = process.pid
    environment = of_process(pid, "environ").split(b"\0")
    names = {entry.split(b"=")[0] for entry in environment if entry} - {b"PWD"}  # bwrap sets the last
    assert names == {b"DENO_DIR", b"TZ", b"NO_COLOR", b"PML_AGENT"}
    files = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
    assert [path for path in files if path.startswith("/")] == []
    await process.end()
