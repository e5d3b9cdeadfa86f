from tests.cli.test_call_loading import *
def test_x(registry, pml):
    registry.offer(lock=registry.locked())
    with on_terminal(*CALL) as t:
        t.until(PROMPT); t.type("c\n"); print(t.end()); print(t.screen)
    with on_terminal(*CALL) as t:
        t.until(PROMPT); t.type("b\n"); print(t.end()); print(t.screen)
    assert 0
