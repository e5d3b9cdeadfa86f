"""How the web inbox does with many cards: `python -m bench.inbox [COUNT]`. Needs Chromium.

Times are taken in the page, from what the person does to the next picture that shows it.
"""

import asyncio
import os
import shutil
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any, Final

from playwright.async_api import Page, async_playwright

from bench.contexts import ME, bench_context, bench_session
from bench.hubs import ASKED, Server, hub
from pml.service.approvals.lifecycle import MAX_PENDING, Question, ask
from pml.service.context import Context
from pml.service.sessions.logins import login_link, make_login

COUNT: Final = 500
KEYS: Final = 40
WAIT_MS: Final = 120_000  # only ever reached by what never happens
WATCH: Final = """
window.seen = {keys: []};
const card = "article.card";
const watch = new MutationObserver(() => {
  const count = document.querySelectorAll(card).length;
  if (count && !seen.first) requestAnimationFrame(() => seen.first ??= performance.now());
  if (count >= COUNT && !seen.all) requestAnimationFrame(() => seen.all ??= performance.now());
});
watch.observe(document, {childList: true, subtree: true});
let pressedAt = 0;
document.addEventListener("keydown", () => pressedAt = performance.now(), true);
document.addEventListener("focusin", () => {
  const from = pressedAt;
  requestAnimationFrame(() => seen.keys.push(performance.now() - from));
});
"""


async def fill(context: Context, home: Path, count: int) -> None:
    """Let so many questions wait."""
    for first in range(0, count, MAX_PENDING):
        session = await bench_session(context, home, f"agent-{first}")
        for number in range(first, min(first + MAX_PENDING, count)):
            given = {"file_path": f"notes/{number}.md", "old_string": "a", "new_string": f"b {number}"}
            use = f"toolu_{number}"
            await ask(context, Question(session=session, tool=ASKED, arguments=given, tool_use_id=use))


async def measure(page: Page, link: str, count: int) -> dict[str, float]:
    await page.add_init_script(WATCH.replace("COUNT", str(count)))
    await page.goto(link)
    await page.wait_for_function("seen.all", timeout=WAIT_MS)
    await page.locator("article.card").first.focus()
    await page.evaluate("seen.keys = []")
    for number in range(KEYS):
        await page.keyboard.press("j")
        await page.wait_for_function("number => seen.keys.length > number", arg=number)
    seen: dict[str, Any] = await page.evaluate("seen")
    search = await page.evaluate("""async () => {
      const field = document.querySelector("main input[type=search]");
      const from = performance.now();
      field.value = "notes/77.md";
      field.dispatchEvent(new Event("input", {bubbles: true}));
      await new Promise(requestAnimationFrame);
      return performance.now() - from;
    }""")
    return {
        "opened → first card": seen["first"],
        f"opened → all {count} cards": seen["all"],
        f"j → next card, p50 of {KEYS}": median(seen["keys"]),
        f"j → next card, slowest of {KEYS}": max(seen["keys"]),
        "search typed → others hidden": search,
        "elements in the page": await page.evaluate("document.querySelectorAll('*').length"),
    }


async def run(server: Server, count: int) -> None:
    assert server.home is not None
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        raise SystemExit("needs Chromium")
    async with bench_context(server.home) as context, async_playwright() as playwright:
        await fill(context, server.home, count)
        link = login_link(server.url, await make_login(context, name="bench", by=ME))
        # root has no sandbox of its own
        args = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = await playwright.chromium.launch(executable_path=found, args=args)
        page = await browser.new_page(bypass_csp=True)  # the policy would keep out what measures, too
        numbers = await measure(page, link, count)
        await browser.close()
    for name, value in numbers.items():
        unit = "" if name.startswith("elements") else " ms"
        print(f"{name:36} {value:8.0f}{unit}")


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else COUNT
    with tempfile.TemporaryDirectory() as folder, hub(Path(folder).resolve()) as server:
        asyncio.run(run(server, count))
    return 0


if __name__ == "__main__":
    sys.exit(main())
