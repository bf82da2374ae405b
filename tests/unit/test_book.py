"""The book of leases: what SQS is asked for each message, and what each of its answers means.

No extension shortens a lease or follows a release, no delete or release is given up before it is
confirmed or pointless, and the book never touches a message that may be someone else's.
"""

from __future__ import annotations

import pytest

from tests.unit.book_scripts import Book
from tests.unit.scripts import table

EXTENSION = """
done:
    events lease-extended; a status=owned expires_at=50 hidden_until=53; due 40
failed / unsure / unknown:
    events extension-failed; a status=owned expires_at=30 attempts=1; due 23.05
throttled:
    events extension-failed; a status=owned expires_at=30; due 23.2
denied / no-queue:
    events permission-denied extension-failed; a status=owned expires_at=30; due 23.2
lost / malformed:
    events lease-lost; a status=lost expires_at=30 goal=hold; due never
capped:
    events lease-capped; a status=capped expires_at=30; due never
"""
RELEASE = """
done:
    events message-released; a gone
failed:
    events; a goal=release; due 0.05; then release a=5
throttled:
    events; due 0.2; 3 calls release a=2
denied / no-queue:
    events permission-denied; calls; due 0.2; then release a=5
unsure / unknown / lost / malformed / capped:
    events message-lapsing; a gone; due never
"""
DELETE = """
done:
    events message-deleted; a gone; ending 0
failed / unsure / unknown:
    events delete-failed; ending 1; due 0.05
throttled:
    events delete-failed; ending 1; due 0.2
denied / no-queue:
    events permission-denied delete-failed; ending 1; due 0.2
lost / malformed / capped:
    events delete-abandoned; told delete-abandoned a cause=delete_refused; ending 0; a gone;
    receive a handle=b count=2 -> finished; calls delete b
"""
#: Of an answer to a call that was given up, only a success counts.
LATE_EXTENSION = """
done:
    events lease-extended; a status=owned is_exclusive=yes expires_at=50
failed / unsure / unknown / throttled / denied / no-queue / lost / malformed / capped:
    events; a status=owned expires_at=30 attempts=1
"""
LATE_DELETE = """
done:
    events message-deleted; left 0; ending 0
failed / unsure / unknown / throttled / denied / no-queue / lost / malformed / capped:
    events; left 1; ending 1; a goal=delete attempts=1
"""
HELD = """
is extended when less than the threshold is left:
    receive a; due 20; 19.9 calls; 20 calls extend a=30; a expires_at=30
is in one call at a time:
    receive a; 20 calls extend a=30; 29 calls; answer unknown; 29.2 calls extend a=30
is extended again within its margin after a failure:
    receive a; 20 calls extend a=30; answer failed; then extend a=30; answer done;
    a expires_at=50.05 attempts=0
whose entry failed in a good batch is extended again:
    receive a; receive b; 20 calls extend a=30 b=30; answer done failed;
    20.05 calls extend b=30 a=30
is extended alone after a call that SQS could not read:
    receive a; receive b; receive c; 20 calls extend a=30 b=30 c=30; answer malformed;
    calls extend a=30 | extend b=30 | extend c=30; answer done; answer malformed; answer done;
    b status=lost; a expires_at=50; c expires_at=50
is extended at once if it came at the end of a long poll (found by the simulation, calm 0):
    receive a poll=20; a expires_at=10 hidden_until=30; calls extend a=30
is extended at once if its task has a longer timeout than its queue:
    receive a timeout=300 threshold=100 hidden=30; calls extend a=300
is extended at once if its timeout is not known:
    receive a hidden=0; a expires_at=10; due 0
is not extended if its task opted out, but deleted:
    receive a extend=no; due never; 25 calls; done a; calls delete a
expires, which is not a loss, and is extended late:
    receive a; 30 calls extend a=30; events lease-expired; a status=expired; answer done;
    a status=owned is_exclusive=no; events lease-extended
is lost a whole timeout after its expiry:
    receive a; 60 calls; a status=lost goal=hold; events lease-expired lease-lost; due never
is lost then although its queue gets no calls:
    receive a; 30 a is_lost=no; 59 a is_lost=no; 60 a is_lost=yes status=owned
is not extended late if that would cut it short:
    receive a max_lease=50; 31 calls; a status=lost; events lease-expired lease-lost
is extended late in full:
    receive a max_lease=70; 31 calls extend a=30
is not extended late if its task is stopped then:
    receive a extend_late=no; 30 calls; a status=lost; events lease-expired lease-lost; due never
that expired and pauses after a failure joins no call of another:
    receive a extend_late=no; 12 receive b; 20 calls extend a=30 b=30; 30.01 answer failed;
    a status=expired; 30.02 release b; calls release b=0
in an endless call expires:
    receive a timeout=2 threshold=0.5; 1.5 calls extend a=2; 2 calls; events lease-expired
expires although there is no room for calls:
    receive a; due 20; expiry 30
of a task that opted out expires without a word:
    receive a extend=no; expiry never; 100 calls; events
still expires after extensions:
    receive a; run 60 extend=done; expiry 90; events lease-extended lease-extended lease-extended;
    90 calls extend a=30; events lease-expired
of a queue with a longer timeout is not shortened by a call that it could join:
    receive a; receive b timeout=300 threshold=10; receive c timeout=5 threshold=1 hidden=300;
    20 calls extend a=30 b=300
ends at its maximum:
    receive a max_lease=100; run 200 extend=done; a status=capped expires_at=100;
    count lease-capped 1; due never
is reported once, as nine tenths of its maximum have passed:
    receive a max_lease=1000; run 890 extend=done; count lease-cap-near 0; run 920 extend=done;
    count lease-cap-near 1; run 2000 extend=done; count lease-cap-near 1
is near its end after its last extension:
    receive a max_lease=60; 20 calls extend a=30; answer done; events lease-extended;
    40 calls extend a=20; answer done; events lease-extended lease-cap-near
is near its end if a slow answer leaves no room for another:
    receive a max_lease=52; 20 calls extend a=30; 22 answer done;
    events lease-extended lease-cap-near; 40 calls; events lease-capped
is not shortened by its last extension, as SQS counts from its arrival (simulation, calm 12):
    receive a max_lease=50.5; 20 calls extend a=30; 21 answer done; 40 calls;
    a status=capped expires_at=50
"""
RECEIVED = """
is left alone if it was delayed for its whole timeout (simulation, storm 14):
    receive a poll=29.9; receive b poll=30 -> lapsed; b gone
or for the longest poll if its timeout is not known (simulation, storm 106):
    receive a poll=20.9 hidden=0; receive b poll=21 hidden=0 -> lapsed; b gone
while its task runs gives its lease the new handle:
    receive a handle=h1; 20 calls extend h1=30; 31 receive a handle=h2 count=2 -> redelivered;
    answer lost; h1 status=owned expires_at=61 receipt_handle=h2; 51 calls extend h2=30; done h1;
    answer done; +0.05 calls delete h2
moves the expiry that is watched:
    receive a timeout=300 threshold=100; 1 receive a handle=b hidden=20 -> redelivered; expiry 21;
    calls extend b=300
by an older receive does not give it the older handle:
    receive a handle=new count=2; 10 receive a handle=old poll=15 -> redelivered;
    receive a handle=older poll=15 hidden=0 -> redelivered; old expires_at=30 receipt_handle=new;
    done old; calls delete new
by an older receive after its release is not run:
    receive a handle=new count=2; 10 release new; receive a handle=old hidden=0 poll=15 -> lapsed;
    calls release new=0
whose count began again is not older:
    receive a handle=h1 count=3; 10 receive a handle=h2 count=1 -> redelivered;
    h1 receipt_handle=h2
after its lease was lost resumes it while its task runs:
    receive a handle=h1; 20 calls extend h1=30; answer lost;
    receive a handle=h2 count=3 -> redelivered; h1 status=owned; done h1; calls delete h2
after its task has succeeded is deleted:
    receive a handle=h1; done h1; calls delete h1; answer done;
    receive a handle=h2 count=2 -> finished; calls delete h2
while its delete is under way is deleted again:
    receive a handle=h1; done h1; calls delete h1; receive a handle=h2 count=2 -> finished;
    answer done; calls delete h2
after its release begins another lease:
    receive a handle=h1; release h1; calls release h1=0; receive a handle=h2 count=2;
    answer throttled; h1 gone; due 20; ending 0
after a loss may be released again:
    receive a; 20 calls extend a=30; 30 answer done; a is_exclusive=no;
    receive a handle=b -> redelivered; release b; calls release b=0
too late shows that someone else has it:
    receive a; 10 receive a handle=b poll=30 -> lapsed; a is_exclusive=no; release a; calls;
    a gone; ending 0
after it was let expire runs again:
    receive a handle=h1; drop h1; 40 receive a handle=h2 count=2
before its release was confirmed: that is reported first:
    receive m; release m 0 failed; calls release m=0; 0.1 receive m handle=n count=2;
    events message-released;
    told message-released m receipt_handle=m receive_count=1 action=release outcome=done
    cause=failed; answer done; events
before its release was sent: that it was not is reported first:
    receive m; release m 0 failed; 0.1 receive m handle=n count=2; events message-lapsing;
    told message-lapsing m receipt_handle=m action=none outcome=none cause=failed
while its release waits for an extension: that it was not sent is reported first:
    receive m; 21 calls extend m=30; release m 0 failed; receive m handle=n count=2;
    events message-lapsing; told message-lapsing m action=none
as its lease ran out while its release was under way: no one knows:
    receive m; 29 release m; calls release m=0; 31 receive m handle=n count=2 -> released;
    receive m handle=o count=3; events message-lapsing;
    told message-lapsing m receipt_handle=m outcome=unknown
"""
ENDING = """
a failing delete keeps its lease:
    receive a; done a; run 70 delete=throttled extend=done; ending 1;
    a status=owned is_exclusive=yes; count lease-extended 3
a delete of a queue that is gone is abandoned after 12 hours:
    receive a; done a; run 43199 delete=no-queue extend=no-queue; ending 1;
    run 43260 delete=no-queue; ending 0; count delete-abandoned 1
a delete that failed until its lease expired is tried at once when that is extended:
    receive a; 19 done a; run 30 delete=unknown extend=unknown; then extend a=30; answer done;
    calls delete a
a delete that is not permitted is not tried more often for that:
    receive a; 10 done a; run 30.5 delete=denied extend=failed; then extend a=30; answer done; calls
a lease whose task was stopped is extended late while its delete is repeated:
    receive a extend_late=no; 6 done a; run 19 delete=denied; 30.5 calls extend a=30
no extension follows a release:
    receive a; 5 release a; calls release a=0; answer throttled; run 29 release=throttled;
    count message-lapsing 0; 30 calls; a gone
a repeated release is for the rest of its delay:
    receive a; release a 20; calls release a=20; answer throttled; 3.5 calls release a=17;
    answer throttled; 21 calls release a=0
a release is not sent after the lease has expired:
    receive a; 30 release a; calls; a gone
nor after a late extension:
    receive a; 20 calls extend a=30; 30 answer done; release a; calls; a gone; ending 0
nor if it waited for that:
    receive a; 20 calls extend a=30; release a; 30 answer done; calls; a gone; ending 0
nor if an earlier try was throttled:
    receive a; 29 release a; calls release a=0; answer throttled; 31 calls; a gone; ending 0
a message that was extended late is still deleted:
    receive a; 20 calls extend a=30; 30 answer done; done a; calls delete a
a release waits for the extension that is under way:
    receive a; 20 calls extend a=30; release a; calls; answer done; calls release a=0
a release whose extension is refused is not sent:
    receive a; 20 calls extend a=30; release a; answer lost; a gone; events message-lapsing;
    calls
a release goes before extensions that become due later:
    receive a; receive b; 12 release b 60; calls release b=60 extend a=30
an extension that was due before goes before a release:
    receive a; 15 receive b; 21 release b; calls extend a=30 release b=0
the first word counts:
    receive a; done a; release a; +0.05 calls delete a
a task that succeeds after its release has finished its message:
    receive a handle=h1; release h1; calls release h1=0; done h1; answer done;
    receive a handle=h2 count=2 -> finished
a release that was not sent gives way to a delete:
    receive a; release a; done a; calls delete a
no extension follows a release that was tried before such a delete:
    receive a; release a; calls release a=0; answer denied; done a; run 29 delete=failed;
    ending 1; count lease-extended 0
a message that was let expire is not called for again:
    receive a handle=h1; receive a handle=h2 -> redelivered; drop h1 kept;
    told message-lapsing a cause=kept; done h1 -> unknown; release h2 -> unknown;
    drop h1 -> unknown; 100 calls; left 0; due never
of a task that succeeds while its release waits for an extension, the message is deleted:
    receive a; 20 calls extend a=30; release a; done a; answer done; +0.05 calls delete a
a delete is sent though the extension before it was lost, and nothing is reported before:
    receive a; 20 calls extend a=30; done a; answer lost; events; +0.05 calls delete a
no extension follows a release that was throttled, though its task succeeds:
    receive a; 19 release a; calls release a=0; answer throttled; done a; run 35 delete=denied
a handle that is not known changes nothing:
    done x -> unknown; release x -> unknown; drop x -> unknown; start x -> unknown; left 0
a delete that pauses does not join another's:
    receive a; receive b; done a; +0.05 calls delete a; answer denied; done b;
    +0.05 calls delete b
"""
REFUSED = """
after one refusal a single entry is tried, and then all others:
    receive m1..m12; 20 sizes 10 2; answer no-queue; answer denied; sizes; m1 status=owned;
    due 20.2; then extend m1=30;
    answer done; sizes 10 1; count permission-granted 1; count lease-expired 0
probes of a queue that keeps refusing become rarer:
    receive a; receive b; 20 calls extend a=30 b=30; answer denied; a status=owned; due 20.2;
    then extend a=30; answer denied; a status=refused; due 20.6; then extend b=30; answer denied;
    due 21.4; run 100 extend=denied; count permission-denied 1; count lease-expired 2
its leases count as refused until it accepts extensions again:
    receive a; receive b timeout=600 threshold=200; 20 calls extend a=30 b=600; answer denied;
    then extend a=30; answer denied; b status=refused is_ours=yes;
    receive c timeout=600 threshold=200; c status=refused; then extend a=30; answer done;
    a status=owned expires_at=50.6; b status=owned; c status=owned
a release outlives a single refusal:
    receive a; release a 5; calls release a=5; answer denied; calls; then release a=5
a release is given up after two, and deletes continue:
    receive a; receive b; release a; calls release a=0; answer denied; then release a=0;
    answer denied; a gone; done b; calls delete b; answer done;
    events permission-denied message-lapsing message-deleted
a delete does not wait for a probe:
    receive a timeout=600 threshold=200; receive b; 19 done b; 20 calls delete b;
    answer throttled; run 22 delete=throttled extend=denied; b status=refused;
    count delete-failed 4
after a probe that was not refused whole batches go next:
    receive m1..m10; 20 sizes 10; answer denied; 20.2 sizes 1; answer unknown; sizes 10;
    count permission-granted 0
what it accepts again does not revive a lost lease:
    receive a; receive b; 20 calls extend a=30 b=30; answer lost denied; done a;
    run 23 delete=throttled extend=denied; b status=refused; run 28 delete=throttled extend=done;
    b status=owned; a status=lost
it is probed though another call of the same moment was unclear:
    receive m1..m30; 20 sizes 10 10 10; answer denied; answer unknown; answer denied; 20.5 sizes 1
a lost lease is not ours again when a permission is restored:
    receive a; 20 calls extend a=30; answer lost; 25 receive b; receive c;
    45 calls extend b=30 c=30; answer denied done; a status=lost
an expiry is reported though the grant comes first:
    receive a; 20 calls extend a=30; answer denied; then extend a=30; answer denied;
    29 calls extend a=30; 30.5 answer done; count lease-expired 1
refused deletes are tried ever more rarely:
    receive a timeout=600 threshold=200; done a; calls delete a; answer denied; due 0.2;
    then delete a; answer denied; due 0.6; then delete a; answer no-queue; due 1.4
a delete that failed otherwise before is tried as soon after its first refusal:
    receive a timeout=600 threshold=200; done a; run 20 delete=throttled; then delete a;
    answer denied; due +0.2
once a delete is accepted the others do not wait:
    receive a timeout=600 threshold=200; done a; run 7 delete=denied;
    receive b timeout=600 threshold=200; done b; run 90 delete=denied; then delete a; answer done;
    due +0; calls delete b; answer done; left 0; count permission-granted 1
unless it is of another queue:
    receive a timeout=600 threshold=200; done a; run 90 delete=denied;
    receive c queue_url=other timeout=600 threshold=200; done c; then delete c; answer denied;
    then delete c; answer done; calls
a flush tries every delete at once, with short pauses again:
    receive a timeout=600 threshold=200; done a; run 7 delete=denied;
    receive b timeout=600 threshold=200; done b; run 90 delete=denied; flush; calls delete a b;
    +0.05 answer denied; due +0.2
"""
UNANSWERED = """
its leases join another:
    receive a; 20 calls extend a=30; due 23.3333; give-up 0; 23.4 give-up 1;
    events extension-failed; then extend a=30; answer 2 done; a expires_at=53.45; answer done;
    a expires_at=53.45 is_exclusive=yes
the most urgent of its leases decides for how long it is waited for:
    receive a threshold=5; receive b threshold=20; 10 calls extend b=30 a=30; due 11.6667
after an answer past the expiry no one knows whose the message is:
    receive a; 20 calls extend a=30; 31 give-up 1; calls; 32 answer done;
    a expires_at=50 is_exclusive=no
an answer counts no longer than a shorter extension after it (simulation, storm 66):
    receive a max_lease=60; 20 calls extend a=30; answer done; 40 calls extend a=20; 44 give-up 1;
    44.25 calls extend a=15; 46 answer 2 done; a expires_at=59.25; answer done;
    a expires_at=59.25 hidden_until=66
nor if the shorter one is not answered yet:
    receive a max_lease=60; 20 calls extend a=30; answer done; 40 calls extend a=20; 44 give-up 1;
    44.25 calls extend a=15; 46 answer done; a expires_at=55; answer done;
    a expires_at=59.25 hidden_until=66
a release is given up:
    receive a; release a; calls release a=0; 6 give-up 1; events message-lapsing; answer done;
    events; due never
a release that was never sent is made again:
    receive a; release a; calls release a=0; 6 give-up 1 unsent; events; then release a=0;
    answer 2 done; events message-released; answer unknown; events; receive a handle=b
others of its queue are made:
    receive m1..m60; 20 sizes 10 10 10 10; 26.1 give-up 4; sizes 10 10
releases behind it lapse in time:
    receive m1 timeout=600 threshold=200; 400 calls extend m1=600;
    0 receive m2 timeout=600 threshold=200; 400 calls extend m2=600;
    0 receive m3 timeout=600 threshold=200; 400 calls extend m3=600;
    0 receive m4 timeout=600 threshold=200; 400 calls extend m4=600; 0 receive a; release a;
    calls; due 30; 30 calls; events message-lapsing; ending 0
"""
#: An extension by 30 s is under way when its message is received again, for longer.
OVERTAKEN = """
a lease counts for no longer than the extension may leave, and is extended after two thirds of it:
    new expires_at=61 hidden_until=151 extend_at=51
nor does a longer extension that the other may overtake:
    answer unknown; 51 calls extend new=101; 51.5 answer done; new expires_at=81 extend_at=71
once the older one is answered, the longer one counts in full:
    answer done; 51 calls extend new=101; answer done; new expires_at=152
but not if it was sent before that answer:
    give-up 1; 51 calls extend new=101; answer done; answer done; new expires_at=81
"""
#: An extension by 30 s is answered before its message is received again, for longer.
ANSWERED = """
done:
    22 receive m handle=new hidden=120 poll=2 -> redelivered; new expires_at=50;
    23 receive m handle=newer hidden=120 poll=1 -> redelivered; new expires_at=142
throttled / failed / denied:
    22 receive m handle=new hidden=120 poll=2 -> redelivered; new expires_at=140
"""
#: A release is under way.
LEFT = """
its message is not run while it may end the lease, which holds back only one receive:
    31 receive m handle=new -> released; new gone; 61 receive m handle=newer;
    newer is_exclusive=no
a message that is received before its lease expired was released by it:
    1 receive m handle=new; new is_exclusive=yes limit=never
failed / unsure:
    answer {}; 31 calls; receive m handle=new; new is_exclusive=yes
a confirmed delete ends the memory of it:
    answer throttled; done old; run 1 delete=done; left 0; 31 receive m handle=new -> finished;
    new is_exclusive=yes
"""
ANY_STALE = """
an older extension by as much costs nothing:
    receive m handle=old; 20 calls extend old=30;
    31 receive m handle=new hidden=30 -> redelivered; new expires_at=61 extend_at=51
a lease that begins again remembers the calls of the last one:
    receive m handle=old; 20 calls extend old=30; drop old;
    31 receive m handle=new timeout=120 threshold=40; new expires_at=61
"""


@table(EXTENSION, "receive a; 20 calls extend a=30; 23 answer {};")
def test_an_extension_was(script: str) -> None:
    Book().play(script)


@table(RELEASE, "receive a; release a 5; calls release a=5; answer {};")
def test_a_release_was(script: str) -> None:
    Book().play(script)


@table(DELETE, "receive a; done a; calls delete a; answer {};")
def test_a_delete_was(script: str) -> None:
    Book().play(script)


@table(
    LATE_EXTENSION,
    "receive a; 20 calls extend a=30; 26 give-up 1; events extension-failed; 28 answer {};",
)
def test_an_extension_that_was_given_up_was(script: str) -> None:
    Book().play(script)


@table(
    LATE_DELETE, "receive a; done a; calls delete a; 6 give-up 1; events delete-failed; answer {};"
)
def test_a_delete_that_was_given_up_was(script: str) -> None:
    Book().play(script)


@table(HELD)
def test_a_held_lease(script: str) -> None:
    Book().play(script)


@table(RECEIVED)
def test_a_message_that_is_received(script: str) -> None:
    Book().play(script)


@table(ENDING)
def test_of_deletes_and_releases(script: str) -> None:
    Book().play(script)


@table(REFUSED)
def test_of_a_queue_that_refuses_calls(script: str) -> None:
    Book().play(script)


@table(UNANSWERED)
def test_of_a_call_without_an_answer(script: str) -> None:
    Book().play(script)


@table(
    OVERTAKEN,
    "receive m handle=old threshold=12; 20 calls extend old=30; "
    "31 receive m handle=new threshold=12 hidden=120 -> redelivered;",
)
def test_of_an_extension_by_a_handle_that_was_replaced(script: str) -> None:
    Book().play(script)


@table(ANSWERED, "receive m handle=old; 20 calls extend old=30; 21 answer {};")
def test_an_extension_by_a_handle_that_is_replaced_was(script: str) -> None:
    Book().play(script)


@table(LEFT, "receive m handle=old; release old; calls release old=0;")
def test_of_a_release_by_a_handle_that_was_replaced(script: str) -> None:
    Book().play(script)


@table(ANY_STALE)
def test_of_calls_by_a_handle_that_was_replaced(script: str) -> None:
    Book().play(script)


def test_a_delay_that_is_not_a_number_changes_nothing() -> None:
    book = Book().play("receive a")
    with pytest.raises(ValueError, match="NaN"):
        book.book.release("a", float("nan"), book.now)
    book.play("ending 0; release a; calls release a=0")
