"""The model calls of many executions on a set of engines, compiled and exact at event level.

`ServingModel` replays rows of a `Program` between the actions of a control plane. Time is advanced from event to
event, never from token to token. The rules, which a plain-Python oracle in the tests follows too, iteration by
iteration:

Calls
    A call is released when the calls it depends on have finished, one without dependencies when set-up ends,
    `setup_s` after its execution started. It starts `wait_s` after its release: that is when it becomes a request.
    When all its calls have finished an execution ends. At its first deadline all it holds is cancelled and it ends
    with that deadline's reason (the harness's own before the overall one at one time). One without calls ends when
    set-up does.

Order at one time
    Runs and prefills end, by engine, sequences that finish by admission; then ends of executions are reported, in the
    order they came about; then set-ups of executions without calls end, KV transfers end, requests start, deadlines
    pass (each kind in the order in which it was set off); then engines decide. So a request that starts at a boundary
    counts as before it. Control actions take place between events: after `advance` returned None, all events of the
    present time have happened, decisions included; after it returned an end, all boundaries have, and no decision.

Engine
    An engine decides when it is idle, at the end of an iteration and at the end of a prefill:
    1. If the head of its queue (first in, first out) fits, it admits from the head as many as fit in `max_running`,
       the KV and `max_prefill_tokens` (the first is always admitted), and prefills them: p0 + sum of (p1 N + p2 N (F
       + N/2)) seconds, N new tokens (at least 1) behind F cached ones. Decode stalls. At the end each has its next
       output token. What starts during a prefill or an iteration waits for its end, and is then prefilled before
       decode goes on.
    2. Else, with n sequences in its batch, it does an iteration of a + e (1 - (1 - k/E)^n) + b n + c S seconds, S the
       sum of their contexts (input + generated so far) at its start. Each gets one token.
    3. Else it is idle.

    A cancelled request leaves at once with its KV; the iteration or prefill that is on keeps its length.

KV
    Admission reserves input + output + `kv_sequence_tokens` until the call ends (lengths are known: no retraction),
    its thread's own entry becoming part of that and the rest of the entry being freed. When a call ends, its context
    (input + output) stays as its thread's idle entry. Room is made by evicting idle tokens, least recently idle entry
    first, from its tail, only what is needed. Idle entries never keep a request from being admitted.

    A request finds F = min(`prefix_tokens`, input - 1, what its engine holds computed of the thread of
    `prefix_call`): its idle entry; its cached part while it is in prefill; its input while it is in the batch. A
    prefix of another thread's is copied; that thread's entry is evicted last, and counts as found even if it then
    goes. (A radix tree would share the two.) Which call of that thread wrote the tokens is not looked at.

    An entry is freed when its execution ends and when its thread moves. If a thread has several requests in flight,
    the one admitted last speaks for it, and the others leave no entry.

Routing
    A thread's first request goes to the least loaded open engine that can hold it (load: threads at home there,
    between their first request and the end of their last call), ties going round in turn. Later ones go there too,
    while that engine is open and its load is at most `rebalance` * (least load) + 1; else the thread moves to the
    least loaded one. Paused engines count as open. If no open engine can hold it, a request waits in one queue, in
    order of arrival. When engines have been opened, these requests are routed as soon as time goes on: engines opened
    at one time share them.

Close
    A sequence in the batch keeps the tokens of whole iterations, one in prefill those it had before; both become
    requests for input + generated tokens. All are routed anew at once: batch and prefill by admission, then the
    queue, then requests whose KV was on its way here. All KV here is lost, threads have no home until their next
    request. With `migrate` the KV of sequences in the batch leaves one after another, `migration_s_per_token` a token
    of context, behind earlier transfers from this engine. When its transfer ends it becomes its thread's idle entry,
    as much of it as fits beside what is reserved there, others being evicted; the request joins the queue and finds
    it as its prefix, so that N = 1 if nothing was evicted meanwhile. If no open engine could take it, it is computed
    again.

Pause and resume
    A paused engine stops at the end of its present iteration or prefill. On resuming with `recompute`, at that end if
    it is still on, all its idle KV is dropped and its batch goes back to the front of the queue, by admission, to be
    prefilled again with the tokens generated so far.

An admitted request is metered at once: N tokens as prefilled, F as cached, and as computed again what was computed
before (all but one of its tokens if it was admitted before, else its prefix) and is not cached.
"""

from .model import ServingModel
from .spec import Ended, EndReason, EngineMeters, EngineSpec

__all__ = ["EndReason", "Ended", "EngineMeters", "EngineSpec", "ServingModel"]
