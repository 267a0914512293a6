"""Masters whose job is done, and those that are not heard of any more."""

from rm.applications import (
    begin,
    fail_attempt,
    finish_attempt,
    move_app,
    move_attempt,
    stop_earlier,
)
from rm.containers import order_stop
from rm.state.books import Books
from rm.state.lifecycle import AppEvent, AttemptEvent, AttemptState
from rm.state.records import Attempt
from weft.model.ids import app_of_attempt
from weft.protocol.effects import Send
from weft.protocol.messages import AttemptFinished, AttemptUnregistered, master_address


def finished(books: Books, event: AttemptFinished) -> None:
    """Finish the attempt whose master is done; a repeated message is answered again."""
    app = books.apps.get(app_of_attempt(event.attempt_id))
    attempt = None if app is None else app.attempt
    if attempt is not None and attempt.attempt_id == event.attempt_id:
        if attempt.state is AttemptState.ALLOCATED:
            # The manager restarted meanwhile.
            move_attempt(books, attempt, AttemptEvent.REGISTERED)
            move_app(books, attempt.app, AppEvent.ATTEMPT_REGISTERED)
            begin(books, attempt.app)
        if attempt.state is AttemptState.RUNNING:
            attempt.seen_s = books.now
            attempt.app.tracking_url = event.tracking_url or attempt.app.tracking_url
            status = event.status or ("SUCCEEDED" if event.succeeded else "FAILED")
            finish_attempt(books, attempt, status, event.diagnostics)
    answer = AttemptUnregistered(event.attempt_id)
    books.out.append(Send(master_address(event.attempt_id), answer))


def expire(books: Books) -> None:
    """Fail the masters that were silent for too long."""
    limit = books.settings.master_expiry_s
    if books.rarely("masters expire early"):
        limit /= 2
    for app in list(books.app_at):
        attempt = None if app is None else app.attempt
        if attempt is None:
            continue
        if attempt.state is AttemptState.SCHEDULED and app is not None:
            if books.now - attempt.created_s >= books.settings.reserve_after_s:
                # What still runs of an earlier attempt may hold the room that its next master
                # lacks.
                stop_earlier(books, app)
            continue
        if books.now - attempt.seen_s < limit:
            continue
        if attempt.state in (AttemptState.ALLOCATED, AttemptState.RUNNING):
            fail_attempt(books, attempt, f"its master was silent for {limit:g} s")
        elif attempt.state is AttemptState.FINISHING and attempt.master is not None:
            order_stop_if_held(books, attempt)


def forgive(books: Books, pause_s: float) -> None:
    """Count a pause of the manager as nobody's silence: shift the masters' last signs of life."""
    for app in books.app_at:
        if app is not None and app.attempt is not None:
            app.attempt.seen_s = min(app.attempt.seen_s + pause_s, books.now)


def order_stop_if_held(books: Books, attempt: Attempt) -> None:
    """Stop a master's own container if it is still there."""
    # Its node may have reported it once more, so what is booked now counts.
    held = None if attempt.master is None else books.holdings.get(attempt.master.container_id)
    if held is not None:
        order_stop(books, held)
