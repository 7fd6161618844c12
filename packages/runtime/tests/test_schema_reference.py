from hypothesis import given
from hypothesis import strategies as st

from minivllm_runtime.schema_reference import escaped, follow

names = st.text(alphabet="ab/~%01", max_size=4)
values = st.recursive(
    st.none() | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


def places_in(value, pointer=""):
    yield pointer, value
    if isinstance(value, dict | list):
        for name, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places_in(part, f"{pointer}/{escaped(str(name))}")


@given(values)
def test_a_pointer_made_of_escaped_names_leads_back(value):
    for pointer, place in places_in(value):
        assert follow("#" + pointer.replace("%", "%25"), value) is place


@given(values, st.sampled_from(["/x", "/-", "/00", "/99", "/0/0/0/0/0/0/0/0/0"]))
def test_a_pointer_to_nothing_leads_nowhere(value, missing):
    assert follow("#" + missing, value) is None
