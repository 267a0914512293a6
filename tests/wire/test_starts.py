"""The stream of starts: what only says that tasks begin waits for company, the rest does not."""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc.aio
import pytest

from weft.protocol.messages import ItemAnswer, StartAnswered, StartContainers, TaskLaunch
from weft.runtime.clock import Clock
from weft.wire import channel, codec, starts
from weft.wire.connections import DEADLINE_S, NodeLink
from weft.wire.containers_pb2 import ContainersResponse, StartContainersRequest
from weft.wire.containers_pb2_grpc import ContainerManagerStub
from weft.wire.outbound_queues import Lane
from weft.wire.server import Server
from weft.wire.services import add_container_service, begun_within_s
from weft.wire.starts import answering, merged, only_begins

LONG_S = 60.0  # what waits so long leaves because of something else


async def until(condition: Callable[[], Any]) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.005)


def start(attempt: int, *, reusable: bool = False) -> StartContainers:
    """An order to start one task."""
    item = TaskLaunch(2**40 + attempt, 0, 0, 0, 1.0, (1.0,), reusable=reusable)
    return StartContainers(attempt, "n1", (item,))


def answer(order: StartContainers, error: str = "") -> StartAnswered:
    """What a node says to it."""
    item = order.items[0]
    answered = ItemAnswer(item.container_id, item.stage, item.task, error)
    return StartAnswered(order.node_id, order.attempt_id, (answered,))


class Node:
    """A node manager that refuses what attempts from 300 on order."""

    def __init__(self) -> None:
        self.heard: list[int] = []

    async def carry_out(self, follower: str, orders: list[Any], shown: Any, peer: str) -> list[Any]:
        self.heard.extend(order.attempt_id for order in orders)
        return [answer(one, "full" if one.attempt_id >= 300 else "") for one in orders]

    def follow(self, follower: str, lane: Lane) -> None: ...


async def served(node: Node, within_s: float) -> tuple[Server, str]:
    server = Server("127.0.0.1", 0)
    add_container_service(server, node, within_s=within_s)  # type: ignore[arg-type]
    return server, await server.start()


def attempts(response: Any) -> list[int]:
    return [one.attempt_id for one in codec.decode_answers(response)]


@pytest.mark.parametrize("last", [start(301), start(258, reusable=True)])
def test_what_only_says_that_tasks_begin_leaves_with_what_is_answered_at_once(
    last: StartContainers,
) -> None:
    async def main() -> None:
        server, address = await served(Node(), LONG_S)
        async with channel.dial(address) as dialled:
            stream = ContainerManagerStub(dialled).StreamStarts()
            for order in (start(256), start(257), last):
                await stream.write(codec.encode_starts("master", [order]))
            told = await stream.read()
            assert attempts(told) == [256, 257, last.attempt_id], "in the order of the requests"
            assert told.requests == 3
            stream.cancel()
        await server.stop(0)

    asyncio.run(main())


def test_what_only_says_that_tasks_begin_leaves_in_time_without_company() -> None:
    async def main() -> None:
        server, address = await served(Node(), 0.01)
        async with channel.dial(address) as dialled:
            stream = ContainerManagerStub(dialled).StreamStarts()
            for number in (256, 257):
                await stream.write(codec.encode_starts("master", [start(number)]))
                told = await stream.read()
                assert (attempts(told), told.requests) == ([number], 1)
            stream.cancel()
        await server.stop(0)

    asyncio.run(main())


def test_who_orders_no_more_is_still_told_of_what_it_ordered() -> None:
    """As any client does that sends what it has and then reads, `grpcurl` for one."""

    async def main() -> None:
        server, address = await served(Node(), LONG_S)
        async with channel.dial(address) as dialled:
            stream = ContainerManagerStub(dialled).StreamStarts()
            for number in (256, 300, 257):
                await stream.write(codec.encode_starts("master", [start(number)]))
            await stream.done_writing()
            told = [answer async for answer in stream]
            assert [one for each in told for one in attempts(each)] == [256, 300, 257]
        await server.stop(0)

    asyncio.run(main())


def test_what_was_answered_is_told_before_a_request_that_breaks_a_rule_ends_the_stream() -> None:
    async def main() -> None:
        server, address = await served(Node(), LONG_S)
        async with channel.dial(address) as dialled:
            stream = ContainerManagerStub(dialled).StreamStarts()
            await stream.write(codec.encode_starts("master", [start(256)]))
            await stream.write(codec.encode_starts("a\nb", [start(257)]))
            told = await stream.read()
            assert (attempts(told), told.requests) == ([256], 1)
            assert await stream.code() is grpc.StatusCode.INVALID_ARGUMENT
        await server.stop(0)

    asyncio.run(main())


@pytest.mark.slow
def test_what_fails_while_an_answer_is_written_ends_the_stream_behind_it() -> None:
    """A call that still writes can end with no status: its master would wait for its deadline."""

    async def main() -> None:
        gate, told = asyncio.Event(), list[int]()
        orders = iter([start(300), start(301), start(1)])

        class Context:
            """A connection that takes nothing until the gate is open."""

            peer = "a peer"

            async def read(self) -> Any:
                await asyncio.sleep(0.01)
                return codec.encode_starts("m", [next(orders)])

            async def write(self, response: Any) -> None:
                await gate.wait()
                told.extend(attempts(response))

        async def fails(request: Any, _: Any) -> Any:
            if request.starts[0].attempt_id == 1:
                raise ValueError("a defect")
            return codec.encode_answers([answer(start(request.starts[0].attempt_id), "full")])

        serving = asyncio.create_task(answering(fails, 0.0)(None, Context()))
        await asyncio.wait([serving], timeout=0.5)
        assert not serving.done(), "an answer is still being written"
        gate.set()
        with pytest.raises(ValueError, match="a defect"):
            await serving
        assert told == [300, 301]

    asyncio.run(main())


@pytest.mark.slow
def test_of_a_peer_that_does_not_read_its_answers_no_more_is_read() -> None:
    async def main() -> None:
        heard, gate = list[Any](), asyncio.Event()

        class Context:
            """A connection that takes nothing until the gate is open."""

            told = 0
            peer = "a peer"

            async def read(self) -> Any:
                return codec.encode_starts("m", [start(1)]) if len(heard) < 999 else grpc.aio.EOF

            async def write(self, response: Any) -> None:
                await gate.wait()
                self.told += response.requests

        async def refuse(request: Any, _: Any) -> Any:
            heard.append(request)
            await asyncio.sleep(0)
            return codec.encode_answers([answer(start(1), "full")])

        context = Context()
        serving = asyncio.create_task(answering(refuse, 0.0)(None, context))
        await asyncio.sleep(0.5)
        assert len(heard) < 50, "else what waits for it has no bound"
        gate.set()
        async with asyncio.timeout(30):
            await serving
        assert context.told == 999

    asyncio.run(main())


def test_a_master_waits_for_no_answer_before_it_orders_more_and_counts_what_none_came_for() -> None:
    async def main() -> None:
        node, got, lost = Node(), list[Any](), list[int]()
        server, address = await served(node, LONG_S)
        link = NodeLink(address, "master", got.extend, lost.append)
        for number in (256, 257):
            link.send([start(number)])
            await until(lambda: node.heard[-1:] == [number])  # noqa: B023
        assert not got
        assert not link.idle, "its last answers are still to come"
        link.send([start(300)])
        await until(lambda: link.idle)
        assert [one.attempt_id for one in got] == [256, 257, 300]
        assert not lost
        link.send([start(258)])
        await until(lambda: node.heard[-1:] == [258])
        link.send([start(259), start(260)])
        await until(lambda: node.heard[-1:] == [260])
        await server.stop(0)
        await until(lambda: link.idle)
        assert lost == [3], "the masters repeat what was not answered"
        await link.close()

    asyncio.run(main())


def served_by(stream: Any) -> Server:
    """A node manager whose stream of starts a function of bytes serves."""

    def add(_: Any, server: Any) -> None:
        methods = {"StreamStarts": grpc.stream_stream_rpc_method_handler(stream)}
        name = "weft.ContainerManager"
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, methods),))

    server = Server("127.0.0.1", 0)
    server.add(add, None, "weft.ContainerManager")
    return server


def test_what_a_node_manager_may_owe_is_bounded_and_leaves_together_where_it_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(starts, "UNANSWERED_REQUESTS_MAX", 5)

    async def main() -> None:
        heard, told = list[int](), asyncio.Event()

        async def reads_only(_: Any, context: Any) -> None:
            while (request := await context.read()) is not grpc.aio.EOF:
                heard.append(len(StartContainersRequest.FromString(request).starts))
                if len(heard) >= 5:
                    await told.wait()
                    owed = 5 if len(heard) == 5 else 1
                    await context.write(ContainersResponse(requests=owed).SerializeToString())

        server, lost = served_by(reads_only), list[int]()
        link = NodeLink(await server.start(), "master", lambda batch: None, lost.append)
        for number in range(20):
            link.send([start(256 + number)])
            await asyncio.sleep(0.02)
        assert heard == [1] * 5
        told.set()
        await until(lambda: link.idle)
        assert (heard, lost) == ([1] * 6 + [14], []), "one of those that wait was taken before"
        await link.close()
        await server.stop(0)

    asyncio.run(main())


def test_what_is_sent_before_an_answer_comes_is_bounded_by_its_messages_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A request holds up to a thousand: what waits behind too many is sent once more."""
    monkeypatch.setattr(starts, "UNANSWERED_ORDERS_MAX", 5)

    async def main() -> None:
        heard, told = list[int](), asyncio.Event()

        async def reads_only(_: Any, context: Any) -> None:
            while (request := await context.read()) is not grpc.aio.EOF:
                heard.append(len(StartContainersRequest.FromString(request).starts))
                if len(heard) >= 2:
                    await told.wait()
                    owed = 2 if len(heard) == 2 else 1
                    await context.write(ContainersResponse(requests=owed).SerializeToString())

        server, lost = served_by(reads_only), list[int]()
        link = NodeLink(await server.start(), "master", lambda batch: None, lost.append)
        for number in range(3):
            link.send([start(256 + 4 * number + one) for one in range(4)])
            await until(lambda: len(heard) == min(2, number + 1))  # noqa: B023
            await asyncio.sleep(0.02)
        assert heard == [4, 4], "of eight none was answered"
        told.set()
        await until(lambda: link.idle)
        assert (heard, lost) == ([4, 4, 4], [])
        await link.close()
        await server.stop(0)

    asyncio.run(main())


def test_an_answer_lets_no_more_through_where_too_much_is_still_owed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(starts, "UNANSWERED_ORDERS_MAX", 5)

    async def main() -> None:
        heard, told = list[int](), asyncio.Semaphore(0)

        async def one_by_one(_: Any, context: Any) -> None:
            async def reads() -> None:
                while (request := await context.read()) is not grpc.aio.EOF:
                    heard.append(len(StartContainersRequest.FromString(request).starts))

            reading = asyncio.create_task(reads())
            while not reading.done():
                await told.acquire()
                await context.write(ContainersResponse(requests=1).SerializeToString())

        server, lost = served_by(one_by_one), list[int]()
        link = NodeLink(await server.start(), "master", lambda batch: None, lost.append)
        for number, size in enumerate((1, 1, 4, 4)):
            link.send([start(256 + 4 * number + one) for one in range(size)])
            await until(lambda: len(heard) == min(3, number + 1))  # noqa: B023
        told.release()
        await asyncio.sleep(0.1)
        assert heard == [1, 1, 4], "five are owed"
        told.release()
        await until(lambda: heard == [1, 1, 4, 4])
        for _ in range(2):
            told.release()
        await until(lambda: link.idle)
        assert not lost
        await link.close()
        told.release()  # so that who serves sees that the stream is over
        await server.stop(0)

    asyncio.run(main())


def test_an_answer_to_many_orders_waits_for_no_company() -> None:
    """Else a master that may order no more before it is told would stand still."""

    async def main() -> None:
        server, address = await served(Node(), LONG_S)
        async with channel.dial(address) as dialled:
            stream = ContainerManagerStub(dialled).StreamStarts()
            orders = [
                start(256 + number % 40) for number in range(starts.GATHERED_ORDERS_MAX)
            ]  # none is refused
            await stream.write(codec.encode_starts("m", orders))
            told = await stream.read()
            assert len(attempts(told)) == starts.GATHERED_ORDERS_MAX
            few = [orders[:200], orders[:200], orders[:100]]
            for some in few:
                await stream.write(codec.encode_starts("m", some))
            told = await stream.read()
            assert (len(attempts(told)), told.requests) == (500, 3), "nor do several of fewer"
            stream.cancel()
        await server.stop(0)

    asyncio.run(main())


def test_a_stream_that_answers_with_what_is_no_answer_is_left_at_once() -> None:
    async def main() -> None:
        turns = list[bytes]()

        async def garbage(_: Any, context: Any) -> None:
            while (request := await context.read()) is not grpc.aio.EOF:
                turns.append(request)
                await context.write(b"\xff\xff\xff")

        server, lost = served_by(garbage), list[int]()
        link = NodeLink(await server.start(), "master", lambda batch: None, lost.append)
        async with asyncio.timeout(5):  # half of what a node manager has that says nothing
            for number in (256, 257):
                link.send([start(number)])
                await until(lambda: len(lost) == len(turns) == number - 255)  # noqa: B023
        assert lost == [1, 1]
        await link.close()
        await server.stop(0)

    asyncio.run(main())


def test_what_waits_leaves_long_before_masters_give_the_stream_up_however_slow_the_clock() -> None:
    waits = [begun_within_s(Clock(time_scale=scale).wall_s) for scale in (10.0, 1.0, 0.1, 0.001)]
    assert waits == pytest.approx([0.005, 0.05, 0.5, 1.0])
    assert max(waits) < DEADLINE_S / 5


def test_answers_are_merged_without_a_change_to_any_of_them() -> None:
    answers = [codec.encode_answers([answer(start(number))]) for number in (256, 257, 258)]
    for one in answers:
        one.requests = 1
    assert merged(answers[:1]) is answers[0]
    for _ in range(2):  # where they do not fit one message, they are merged in parts
        whole = merged(answers)
        assert (attempts(whole), whole.requests) == ([256, 257, 258], 3)
    assert [one.requests for one in answers] == [1, 1, 1]


def test_what_says_more_than_that_tasks_begin_is_known() -> None:
    plain, kept = (codec.encode_starts("m", [start(1, reusable=own)]) for own in (False, True))
    begun = codec.encode_answers([answer(start(1))])
    assert only_begins(plain, begun)
    assert not only_begins(kept, begun)
    assert not only_begins(plain, codec.encode_answers([answer(start(1), "full")]))
    begun.ended.add(node_id="n1", attempt_id=1)
    assert not only_begins(plain, begun)
