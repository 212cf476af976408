"""Whatever JSON is sent, a reader gives a value that can be written again or an error of the user's."""

import json
import warnings
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from autoplan.errors import ClusterError, ModelError
from autoplan.readers import ReaderWarning, parse_cluster, parse_model
from autoplan.spec import ModelSpec
from autoplan.spec.codec import content_hash, from_jsonable, to_jsonable
from autoplan.spec.tensors import num_parameters

CONFIGS = Path(__file__).parent / "configs"
FILES = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(CONFIGS.glob("*.json"))]

leaves = (
    st.none()
    | st.booleans()
    | st.integers(-2, 4)
    | st.integers()
    | st.just(10**400)
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(("llama", "gpt2", "qwen2", "full_attention", "linear", "silu", "\ud800", "h100-80g-sxm"))
)
anything = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(("factor", "rope_type", "device", "groups")) | st.text(max_size=3), inner)
    ),
    max_leaves=5,
)


@st.composite
def altered(draw, documents):
    document = dict(draw(st.sampled_from(documents)))
    for key in draw(st.lists(st.sampled_from(sorted(document)), max_size=3)):
        if draw(st.booleans()):
            document[key] = draw(anything)
        else:
            document.pop(key, None)
    return document


def quietly(read, data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ReaderWarning)
        return read(data, where="body")


@settings(max_examples=100, deadline=None)
@given(altered(FILES) | anything)
def test_models(data):
    try:
        model = quietly(parse_model, data)
    except ModelError as problem:
        message = str(problem)
        assert message.startswith(("body", "preset"))
    else:
        assert num_parameters(model) > 0
        assert from_jsonable(ModelSpec, to_jsonable(model), where="again") == model


CLUSTERS = [
    {"name": "mine", "groups": [{"device": "h100-80g-sxm", "num_nodes": 2}]},
    to_jsonable(parse_cluster("cpu:1x2", where="body")),
]


@settings(max_examples=100, deadline=None)
@given(altered(CLUSTERS) | anything | st.from_regex(r"(cpu|h100):\d{1,3}x\d+(\+.*)?", fullmatch=True))
def test_clusters(data):
    try:
        cluster = quietly(parse_cluster, data)
    except ClusterError as problem:
        message = str(problem)
        assert "body" in message
    else:
        assert cluster.num_devices > 0
        assert content_hash(to_jsonable(cluster))
