"""The agenda against a model that looks at every key."""

from hypothesis import given
from hypothesis import strategies as st

from engine.formats.zmailer.scheduling.timers import Agenda
from tests.examples import examples


@examples(200)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("set"), st.integers(0, 9), st.integers(0, 50)),
            st.tuples(st.just("cancel"), st.integers(0, 9), st.just(0)),
            st.tuples(st.just("pop"), st.just(0), st.integers(0, 50)),
        ),
        max_size=60,
    )
)
def test_an_agenda_is_a_table_of_times(steps: list[tuple[str, int, int]]) -> None:
    """After any changes the keys that are due come in the order of their times, each once."""
    agenda, model = Agenda[int](), dict[int, float]()
    for verb, key, at in steps:
        if verb == "set":
            agenda.set(key, at)
            model[key] = at
        elif verb == "cancel":
            agenda.cancel(key)
            model.pop(key, None)
        else:
            due = sorted((when, one) for one, when in model.items() if when <= at)
            assert list(agenda.pop_due(at)) == [one for _, one in due]
            for _, one in due:
                del model[one]
        assert agenda.next_due() == min(model.values(), default=None)
        assert len(agenda) == len(model)


def test_only_the_last_time_of_a_key_counts() -> None:
    """A key is not due at an earlier time, nor if cancelled; its old times take no memory."""
    agenda = Agenda[int]()
    for key, at in ((1, 5), (1, 9), (2, 5), (3, 9), (3, 5)):
        agenda.set(key, at)
    agenda.cancel(2)
    assert [list(agenda.pop_due(at)) for at in (6, 9)] == [[3], [1]]
    for at in range(10_000):
        agenda.set(at % 3, at)
    assert len(agenda) == 3
    assert len(agenda._heap) < 200


def test_a_key_that_is_set_while_others_are_popped_is_seen() -> None:
    """A caller may set keys while it takes the due ones, also when the heap is built again."""
    agenda = Agenda[int]()
    for key in range(50):
        agenda.set(key, 1)
    seen = []
    for key in agenda.pop_due(5):
        seen.append(key)
        if key < 50:
            for at in range(5):
                agenda.set(key + 100, 4 - at / 10)
    assert sorted(seen) == [*range(50), *range(100, 150)]
