"""What every store does with receipts: one request, one answer."""

import asyncio

import msgspec

from pml.core.ports.session_store import Receipt
from pml.core.ports.store import Store
from tests.builders import NOW, later, make_receipt
from tests.promises import promise


def answered(receipt: Receipt, body: bytes = b'{"ok":true}', status: int = 200) -> Receipt:
    return msgspec.structs.replace(receipt, body=body, status=status)


@promise("receipt:one-answer")
async def test_of_many_who_begin_with_one_key_exactly_one_is_first(store: Store) -> None:
    receipts = [make_receipt(request=f"sha256:{n}") for n in range(10)]

    found = await asyncio.gather(*(store.receipts.begin(receipt) for receipt in receipts))

    assert found.count(None) == 1
    first = receipts[found.index(None)]
    assert [receipt for receipt in found if receipt is not None] == [first] * 9


@promise("receipt:one-answer")
async def test_the_very_same_receipt_begins_once(store: Store) -> None:
    receipt = make_receipt()

    assert await store.receipts.begin(receipt) is None
    assert await store.receipts.begin(receipt) == receipt


@promise("receipt:one-answer")
async def test_who_comes_later_gets_the_answer_that_was_given(store: Store) -> None:
    receipt = make_receipt()
    await store.receipts.begin(receipt)
    await store.receipts.close(answered(receipt, b"\x00\xff\r\n", 409))

    again = await store.receipts.begin(make_receipt(request="sha256:other", made_at=later(1)))

    assert again == answered(receipt, b"\x00\xff\r\n", 409)


@promise("receipt:one-answer")
async def test_the_first_answer_stays(store: Store) -> None:
    receipt = make_receipt()
    await store.receipts.begin(receipt)
    await store.receipts.close(answered(receipt, b""))

    await store.receipts.close(answered(receipt, b"another"))

    assert await store.receipts.begin(receipt) == answered(receipt, b"")


@promise("receipt:one-answer")
async def test_an_answer_to_another_request_is_not_kept(store: Store) -> None:
    receipt = make_receipt()
    await store.receipts.begin(receipt)

    await store.receipts.close(answered(make_receipt(request="sha256:other")))
    await store.receipts.close(answered(make_receipt("never begun")))

    assert await store.receipts.begin(receipt) == receipt
    assert await store.receipts.begin(make_receipt("never begun")) is None


async def test_a_key_is_one_principals_own(store: Store) -> None:
    mine, theirs = make_receipt(), make_receipt(principal="mallory")
    await store.receipts.begin(mine)

    assert await store.receipts.begin(theirs) is None
    assert await store.receipts.begin(make_receipt("key-2")) is None
    await store.receipts.close(answered(mine))

    assert await store.receipts.begin(theirs) == theirs


async def test_old_receipts_are_forgotten_and_their_keys_are_free_again(store: Store) -> None:
    old, kept = make_receipt(made_at=later(-0.000001)), make_receipt("key-2", made_at=NOW)
    await store.receipts.begin(old)
    await store.receipts.begin(kept)

    await store.receipts.forget(older_than=NOW)

    assert await store.receipts.begin(kept) == kept
    assert await store.receipts.begin(old) is None
