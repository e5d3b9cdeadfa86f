"""Logins under way in one process: each has a page for the browser, and an address that it comes back to.

A login ends when the browser came back, when what it brought was pasted, or after a while. What becomes of it
is told to whoever began it.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Final

from pml.core.errors import Invalid, LoginFailed, NotFound, PmlError
from pml.core.ports.server_logins import LoginWish, OnLogin, ServerLogins
from pml.oauth.callback import Callback, open_callback
from pml.oauth.flow import LoginFlow, Returned, pasted

LOGIN_S: Final = 900.0  # a person finds a password, and a second factor
_AT_ONCE: Final = 20


class _OpenLogin:
    def __init__(self) -> None:
        self.url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.typed: asyncio.Future[Returned] = asyncio.get_running_loop().create_future()
        self.flow: LoginFlow | None = None
        self.redirect_uri = ""
        self.task: asyncio.Task[None]


class OpenLogins:
    """The logins that this process has begun, by the question that each is for."""

    def __init__(self, logins: ServerLogins, *, now: Callable[[], datetime]) -> None:
        self._logins = logins
        self._now = now
        self._open: dict[str, _OpenLogin] = {}
        self._problems: dict[str, PmlError] = {}

    async def begin(self, key: str, wish: LoginWish, on_login: OnLogin) -> str:
        """Return the page of a new login, in place of an older one for the same. Raises: PmlError."""
        await self._end(key)
        if len(self._open) >= _AT_ONCE:
            raise Invalid("too many logins are under way: finish one, or try again later")
        self._problems.pop(key, None)
        login = self._open[key] = _OpenLogin()
        login.task = asyncio.create_task(self._run(key, login, wish, on_login))
        return await asyncio.shield(login.url)

    def paste(self, key: str, text: str) -> None:
        """Take the address that the browser was sent back to. Raises: Invalid, NotFound, LoginFailed."""
        login = self._open.get(key)
        if login is None or login.flow is None:
            raise NotFound("no login is under way here", hint="begin it again")
        answer = pasted(text, login.redirect_uri)
        if not login.flow.is_mine(answer):
            raise LoginFailed(
                "that address belongs to another login", hint="begin again, and paste the new one"
            )
        if not login.typed.done():
            login.typed.set_result(answer)

    async def finished(self, key: str) -> None:
        """Return once the login has come about. Raises: PmlError if it does not."""
        login = self._open.get(key)
        if login is not None:
            await asyncio.shield(login.task)
        if (problem := self._problems.get(key)) is not None:
            raise problem

    def problem(self, key: str) -> PmlError | None:
        """Return why the last login for this did not come about, if it did not."""
        return self._problems.get(key)

    def is_open(self, key: str) -> bool:
        return key in self._open

    async def close(self) -> None:
        for key in [*self._open]:
            await self._end(key)

    async def _end(self, key: str) -> None:
        login = self._open.pop(key, None)
        if login is not None:
            login.task.cancel()
            await asyncio.gather(login.task, return_exceptions=True)

    async def _run(self, key: str, login: _OpenLogin, wish: LoginWish, on_login: OnLogin) -> None:
        try:
            async with asyncio.timeout(LOGIN_S), open_callback(wish.callback_port) as callback:
                await self._log_in(login, wish, callback, on_login)
        except TimeoutError:
            self._fail(key, login, LoginFailed("nobody finished the login in time", hint="begin it again"))
        except PmlError as exc:
            self._fail(key, login, exc)
        except Exception as exc:  # a mistake of ours: its text may hold what came
            self._fail(key, login, PmlError(f"internal error: {type(exc).__name__}"))
            raise
        finally:
            if not login.url.done():
                login.url.cancel()
            if self._open.get(key) is login:
                del self._open[key]

    async def _log_in(
        self, login: _OpenLogin, wish: LoginWish, callback: Callback, on_login: OnLogin
    ) -> None:
        login.redirect_uri = callback.redirect_uri
        kept = await asyncio.to_thread(self._logins.find, wish.server, wish.url)
        flow = login.flow = await LoginFlow.begin(wish, kept, redirect_uri=callback.redirect_uri)
        callback.expect(flow)
        login.url.set_result(flow.url)
        came = asyncio.ensure_future(callback.wait())
        try:
            done, _ = await asyncio.wait({came, login.typed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            came.cancel()
        held = await flow.finish(next(iter(done)).result(), now=self._now())
        await asyncio.to_thread(self._logins.keep, held)
        await on_login(held)

    def _fail(self, key: str, login: _OpenLogin, error: PmlError) -> None:
        self._problems[key] = error
        if not login.url.done():
            login.url.set_exception(error)
