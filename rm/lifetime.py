"""How long an application may last: from its submission on, waiting included, as in YARN."""

from math import inf

from rm.applications import OVER, kill_app
from rm.state.books import Books
from rm.state.records import App
from weft.model.ids import AppId
from weft.protocol.effects import SetTimer

# A timer's key is this and the application's number.
LIFETIME = "lifetime"


def limit(books: Books, app: App) -> None:
    """Work out when an application is over whatever it does, and have `alarm` called then.

    What a client said since counts, else its job, else its queue's default, and never more than its
    queue's most.
    """
    usual, most = books.queues.lifetime_s[app.queue]
    said = max(0.001, app.wished_s - app.submitted_s) if app.wished_s else app.job.lifetime_s
    wanted = [own for own in (said or usual, most) if own]
    before = app.expires_s
    app.expires_s = app.submitted_s + min(wanted) if wanted else inf
    if app.expires_s != before:
        _set_alarm(books, app)


def alarm(books: Books, number: AppId) -> None:
    """Handle the lifetime timeout of an application; timers may fire slightly early."""
    app = books.apps.get(number)
    if app is None or app.state in OVER:
        return
    if books.now < app.expires_s:
        # Timers of hosts may be a little early.
        _set_alarm(books, app)
        return
    lasted_s = app.expires_s - app.submitted_s
    kill_app(books, app, f"it exceeded its lifetime of {lasted_s:g} s after its submission")


def _set_alarm(books: Books, app: App) -> None:
    delay_s = None if app.expires_s == inf else max(0.001, app.expires_s - books.now)
    books.out.append(SetTimer(delay_s, (LIFETIME, app.app_id)))
