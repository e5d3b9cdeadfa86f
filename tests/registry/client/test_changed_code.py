"""Pinned code beside what its registry has now, by URL; folders are tried with `pml capability accept`."""

import pytest

from pml.core.errors import Changed, NotFound, Unavailable
from pml.registry.client.code_pins import CodePins, Offered, look_again
from pml.registry.client.lookups import FRESH_S
from tests.registry.client.test_code import ENTRY, OTHER, offer
from tests.registry.liar import JSON, TYPESCRIPT, Liar, body
from tests.registry.places import CODE, GREET, Reader, encoded


async def test_both_codes_are_had_once_the_registry_has_other_code(reader: Reader, liar: Liar) -> None:
    offer(liar, CODE)
    await reader.code(liar.url)
    offer(liar, OTHER)
    reader.clock.advance(FRESH_S)
    with pytest.raises(Changed):
        await reader.code(liar.url)
    pins = CodePins(reader.home)
    [pin] = pins.of(GREET)
    offered = await look_again(reader.home, pin)
    assert offered == Offered(code=OTHER, before=CODE)
    pins.replace(pin, sha256=offered.sha256, pinned_at=reader.clock.now())
    assert await reader.code(liar.url) == OTHER


async def test_code_at_an_address_of_its_own_is_looked_for_there(reader: Reader, liar: Liar) -> None:
    liar.say(ENTRY, body(encoded(code_url="/code/greet.ts")), form=JSON)
    liar.say("/code/greet.ts", body(CODE, kind=TYPESCRIPT), form=TYPESCRIPT)
    await reader.code(liar.url)
    [pin] = CodePins(reader.home).of(GREET)
    liar.say("/code/greet.ts", body(OTHER, kind=TYPESCRIPT), form=TYPESCRIPT)
    assert (await look_again(reader.home, pin)).code == OTHER


async def test_what_is_gone_or_out_of_reach_is_not_made_up_from_what_was_kept(
    reader: Reader, liar: Liar
) -> None:
    offer(liar, CODE)
    await reader.code(liar.url)
    [pin] = CodePins(reader.home).of(GREET)
    liar.say(ENTRY, body(b"", status="404 Not Found"), form=TYPESCRIPT)
    with pytest.raises(NotFound):
        await look_again(reader.home, pin)
    liar.say(ENTRY, body(b"", status="503 Busy"), form=TYPESCRIPT)
    with pytest.raises(Unavailable):
        await look_again(reader.home, pin)
