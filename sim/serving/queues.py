"""Linked lists of requests: each engine's queue and prefill batch, and the queue for want of an engine."""

from __future__ import annotations

from .compiler import inner_kernel
from .state import Record, Records


@inner_kernel
def append(queue: Record, requests: Records, index: int) -> None:
    """Put a request at the end of the queue; `queue` is a row of `State.queues`."""
    request = requests[index]
    request.previous = queue.tail
    request.next = -1
    if queue.tail >= 0:
        requests[queue.tail].next = index
    else:
        queue.head = index
    queue.tail = index
    queue.length += 1


@inner_kernel
def prepend(queue: Record, requests: Records, index: int) -> None:
    """Put a request at the front of the queue."""
    request = requests[index]
    request.previous = -1
    request.next = queue.head
    if queue.head >= 0:
        requests[queue.head].previous = index
    else:
        queue.tail = index
    queue.head = index
    queue.length += 1


@inner_kernel
def unlink(queue: Record, requests: Records, index: int) -> None:
    """Take a request out of the queue."""
    request = requests[index]
    if request.previous >= 0:
        requests[request.previous].next = request.next
    else:
        queue.head = request.next
    if request.next >= 0:
        requests[request.next].previous = request.previous
    else:
        queue.tail = request.previous
    queue.length -= 1


@inner_kernel
def clear(queue: Record) -> None:
    """Empty the queue; its requests keep their links."""
    queue.head = -1
    queue.tail = -1
    queue.length = 0
