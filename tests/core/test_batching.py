"""The write-behind machine: each rule of the module as a short story, then all interleavings at once."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fencepost.core.batching import Action, ArmTimer, Batching, Write


def loaded(*seqs: int, now: float = 0.0) -> Batching:
    """A machine with these events pending, ten bytes each, none of them asked for yet."""
    machine = Batching(seqs[0] - 1)
    for seq in seqs:
        machine.accept(seq, 10, now)
    return machine


def in_flight(*seqs: int) -> Batching:
    """A machine whose write of these events has just begun, at time 1."""
    machine = loaded(*seqs)
    assert machine.due(1.0) == Write(seqs[0], seqs[-1])
    return machine


# --- the window -------------------------------------------------------------------------------------------------


def test_the_first_pending_event_opens_a_window_that_later_ones_do_not_move():
    machine = Batching()
    assert machine.accept(0, 10, now=5.0) == ArmTimer(5.2)
    assert [machine.accept(seq, 10, now=5.0 + seq / 100) for seq in range(1, 20)] == [None] * 19
    assert machine.due(5.2) == Write(0, 19)


def test_a_timer_that_fires_early_is_armed_again():
    machine = loaded(0, now=5.0)
    assert machine.due(5.1999) == ArmTimer(5.2)


def test_a_timer_with_nothing_pending_does_nothing():
    assert Batching().due(5.0) is None


def test_after_a_write_the_next_event_opens_a_new_window():
    machine = in_flight(0)
    assert machine.wrote(1.1) is None
    assert machine.accept(1, 10, now=7.0) == ArmTimer(7.2)


def test_an_urgent_event_ends_the_window_at_once():
    machine = loaded(0)
    assert machine.accept(1, 10, now=0.05, urgent=True) == ArmTimer(0.05)
    assert machine.due(0.05) == Write(0, 1)


def test_events_of_the_same_instant_as_an_urgent_one_share_its_write():
    machine = Batching()
    machine.accept(0, 10, now=0.0, urgent=True)
    assert machine.accept(1, 10, now=0.0) is None
    assert machine.flush(1, now=0.0) == ArmTimer(0.0)
    assert machine.due(0.0) == Write(0, 1)


# --- one write in flight ----------------------------------------------------------------------------------------


def test_an_event_during_a_write_keeps_a_window_of_its_own():
    machine = in_flight(0)
    assert machine.accept(1, 10, now=1.05) is None
    assert machine.wrote(1.1) == ArmTimer(1.25)


def test_a_window_that_passed_during_a_write_is_followed_at_once():
    machine = in_flight(0)
    machine.accept(1, 10, now=1.05)
    assert machine.due(1.25) is None
    assert machine.wrote(3.0) == Write(1, 1)


def test_an_urgent_event_during_a_write_is_written_directly_after_it():
    machine = in_flight(0)
    machine.accept(1, 10, now=1.05)
    assert machine.accept(2, 10, now=1.06, urgent=True) is None
    assert machine.wrote(1.07) == Write(1, 2)


# --- flush ------------------------------------------------------------------------------------------------------


def test_a_flush_does_not_wait_for_the_window():
    machine = loaded(0, 1)
    assert machine.flush(1, now=0.01) == ArmTimer(0.01)
    assert machine.due(0.01) == Write(0, 1)


def test_a_flush_of_what_is_durable_asks_for_nothing():
    machine = in_flight(0)
    machine.wrote(1.1)
    assert machine.flush(0, now=1.2) is None
    assert machine.due(1.2) is None


def test_a_flush_that_the_write_in_flight_covers_makes_no_second_write():
    machine = in_flight(0, 1)
    assert machine.flush(1, now=1.05) is None
    assert machine.wrote(1.1) is None


def test_a_flush_that_the_write_in_flight_does_not_cover_is_followed_at_once():
    machine = in_flight(0)
    machine.accept(1, 10, now=1.05)
    assert machine.flush(1, now=1.06) is None
    assert machine.wrote(1.07) == Write(1, 1)


def test_a_flush_of_what_was_never_accepted_is_refused_because_no_write_would_answer_it():
    machine = loaded(0)
    with pytest.raises(ValueError, match="seq 1 was never accepted"):
        machine.flush(1, now=0.0)


# --- failure ----------------------------------------------------------------------------------------------------


def test_after_a_failure_nothing_is_retried_by_itself():
    machine = in_flight(0, 1)
    assert machine.failed(1.1) is None
    assert machine.due(99.0) is None


def test_the_next_event_opens_a_window_that_takes_the_failed_batch_along():
    machine = in_flight(0, 1)
    machine.failed(1.1)
    assert machine.accept(2, 10, now=50.0) == ArmTimer(50.2)
    assert machine.due(50.2) == Write(0, 2)


def test_the_next_urgent_event_takes_the_failed_batch_along_at_once():
    machine = in_flight(0)
    machine.failed(1.1)
    assert machine.accept(1, 10, now=50.0, urgent=True) == ArmTimer(50.0)
    assert machine.due(50.0) == Write(0, 1)


def test_the_next_flush_retries_at_once():
    machine = in_flight(0, 1)
    machine.failed(1.1)
    assert machine.flush(0, now=50.0) == ArmTimer(50.0)
    assert machine.due(50.0) == Write(0, 1)


def test_an_event_that_came_during_the_failed_write_keeps_its_window():
    machine = in_flight(0)
    machine.accept(1, 10, now=1.05)
    assert machine.failed(1.1) == ArmTimer(1.25)
    assert machine.due(1.25) == Write(0, 1)


def test_a_flush_that_the_failed_write_did_not_cover_retries_everything_in_one_write():
    machine = in_flight(0)
    machine.accept(1, 10, now=1.05)
    machine.flush(1, now=1.06)
    assert machine.failed(1.1) == Write(0, 1)


def test_a_flush_that_the_failed_write_covered_is_answered_by_it():
    machine = in_flight(0)
    machine.flush(0, now=1.05)
    assert machine.failed(1.1) is None


# --- bytes and misuse -------------------------------------------------------------------------------------------


def test_bytes_stay_pending_until_their_write_succeeds():
    machine = Batching(bound=20)
    for seq, over in [(0, False), (1, False), (2, True)]:
        machine.accept(seq, 10, now=0.0)
        assert (machine.pending, machine.over_bound) == (10 * seq + 10, over)
    machine.due(1.0)
    machine.accept(3, 10, now=1.0)
    assert machine.pending == 40
    machine.failed(1.1)
    assert machine.pending == 40
    machine.due(2.0)
    machine.wrote(2.1)
    assert (machine.pending, machine.over_bound) == (0, False)


def test_a_session_that_was_stored_before_goes_on_behind_its_last_seq():
    machine = Batching(41)
    machine.accept(42, 10, now=0.0)
    assert machine.due(0.2) == Write(42, 42)


def test_no_event_is_accepted_twice():
    machine = loaded(0, 1)
    with pytest.raises(ValueError, match="accepted before"):
        machine.accept(1, 10, now=0.0)


@pytest.mark.parametrize("end", ["wrote", "failed"])
def test_a_write_that_was_not_begun_cannot_end(end):
    with pytest.raises(ValueError, match="no write is in flight"):
        getattr(Batching(), end)(0.0)


def test_its_repr_says_where_it_stands():
    machine = in_flight(0, 1)
    machine.accept(2, 10, now=1.0)
    assert repr(machine) == "<Batching durable -1 | writing 0..1 | accepted 2, 30 bytes, due 1.200>"


# --- every interleaving -----------------------------------------------------------------------------------------


class Interleavings(RuleBasedStateMachine):
    """Drives a machine as a writer would, beside a list that plays the disk and a list of flushes that wait."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = Batching(bound=200)
        self.now = 0.0
        self.timer: float | None = None
        self.flight: Write | None = None
        self.appended = 0
        self.disk: list[int] = []
        self.waiting: list[int] = []
        self.deadlines: dict[int, float] = {}
        """For each event that no write has taken yet: when its own window ends."""

    def do(self, action: Action) -> None:
        if isinstance(action, ArmTimer):
            self.timer = action.at
        elif isinstance(action, Write):
            assert self.flight is None, "two writes in flight"
            assert action == Write(len(self.disk), self.appended - 1), "a write takes all that is not on disk"
            self.flight = action
            self.timer = None

    @rule(urgent=st.booleans(), size=st.integers(1, 100))
    def append(self, urgent: bool, size: int) -> None:
        self.deadlines[self.appended] = self.now + (0.0 if urgent else 0.2)
        self.appended += 1
        self.do(self.machine.accept(self.appended - 1, size, self.now, urgent))

    @rule()
    @precondition(lambda self: self.appended > len(self.disk))
    def flush(self) -> None:
        self.waiting.append(self.appended - 1)
        self.do(self.machine.flush(self.appended - 1, self.now))

    @rule(by=st.sampled_from([0.0, 0.01, 0.19, 0.2, 5.0]))
    def time_passes(self, by: float) -> None:
        self.now += by
        if self.timer is not None and self.timer <= self.now:
            self.timer = None
            self.do(self.machine.due(self.now))

    @rule()
    def a_timer_fires_for_no_reason(self) -> None:
        self.do(self.machine.due(self.now))

    @rule()
    @precondition(lambda self: self.flight is not None)
    def the_write_succeeds(self) -> None:
        write = self.land()
        self.disk.extend(range(write.first_seq, write.last_seq + 1))
        self.do(self.machine.wrote(self.now))

    @rule()
    @precondition(lambda self: self.flight is not None)
    def the_write_fails(self) -> None:
        self.land()
        self.do(self.machine.failed(self.now))

    def land(self) -> Write:
        write = self.flight
        assert write is not None
        self.flight = None
        self.waiting = [seq for seq in self.waiting if seq > write.last_seq]
        self.deadlines = {seq: at for seq, at in self.deadlines.items() if seq > write.last_seq}
        return write

    @invariant()
    def what_is_durable_is_a_prefix_and_each_event_is_there_once(self) -> None:
        assert self.disk == list(range(len(self.disk)))
        assert self.machine.durable == len(self.disk) - 1

    @invariant()
    def a_flush_that_waits_has_a_write_on_its_way(self) -> None:
        if self.waiting:
            assert self.flight is not None or (self.timer is not None and self.timer <= self.now)

    @invariant()
    def an_event_that_no_write_has_tried_is_tried_when_its_window_ends(self) -> None:
        if self.deadlines and self.flight is None:
            assert self.timer is not None
            assert self.timer <= min(self.deadlines.values())

    @invariant()
    def bytes_are_pending_exactly_while_events_are(self) -> None:
        assert (self.machine.pending > 0) == (self.appended > len(self.disk))

    def teardown(self) -> None:
        """A last flush on a store that works again: everything is there, and nobody waits."""
        if self.appended > len(self.disk):
            self.flush()
        for _ in range(3):
            if self.flight is not None:
                self.the_write_succeeds()
            self.time_passes(0.0)
        assert self.disk == list(range(self.appended))
        assert not self.waiting
        assert self.flight is None


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
