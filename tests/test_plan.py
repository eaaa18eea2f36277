"""Plans, overrides and group checks, on sites made by hand."""

import pytest

from harness.config import QuantConfig
from harness.errors import UserError
from harness.model.load import Model
from harness.model.sites import Site, find_sites
from harness.plan import Arm, base_arm, check_groups, matches, resolve, trunk_counts
from harness.scheme import Indivisible, Method, Precision, Scheme
from tests.model.architectures import tiny

ROLES = {"ffn": ("gate", "up", "down"), "attention": ("q", "k", "v", "o")}


def sites(layers=3, hidden=64, intermediate=96):
    return [
        Site(
            f"layers.{i}.{block}.{role}", i, block, role, "m", "weight", 64, intermediate if role == "down" else hidden
        )
        for i in range(layers)
        for block, roles in ROLES.items()
        for role in roles
    ]


def quant(**kwargs):
    return QuantConfig(ffn=Scheme(group_size=32), attention=Scheme(group_size=32), **kwargs)


@pytest.mark.parametrize(
    ("pattern", "hits"),
    [
        ("layers.0-1.ffn.down", 2),
        ("layers.*.attention.[qk]", 6),
        ("layers.2.*", 7),
        ("*", 21),
        ("layers.1-9.ffn.*", 6),
        ("layers.0.ffn", 0),
    ],
)
def test_patterns(pattern, hits):
    assert sum(matches(pattern, site.name) for site in sites()) == hits


def test_layer_ranges_are_numbers_not_text():
    assert matches("layers.8-11.ffn.up", "layers.10.ffn.up")
    assert not matches("layers.1-2.ffn.up", "layers.12.ffn.up")


@pytest.mark.case("B10")
def test_last_match_wins_and_what_it_shadows_is_told():
    rules = resolve(
        sites(),
        quant(
            overrides=[
                {"match": "layers.*.ffn.gate", "precision": "int8"},
                {"match": "layers.0-1.*.*", "group_size": 16},
            ]
        ),
    )
    by_name = {site.name: scheme for site, scheme in rules.plan.items()}
    assert by_name["layers.0.ffn.gate"].group_size == 16
    assert by_name["layers.0.ffn.gate"].precision == "int4"  # the earlier rule is shadowed whole
    assert by_name["layers.2.ffn.gate"].precision == "int8"
    assert rules.notes == ["override 1 (layers.0-1.*.*) shadows override 0 (layers.*.ffn.gate) on 2 sites"]


@pytest.mark.case("B6")
@pytest.mark.parametrize("pattern", ["mlp", "self_attn", "typo", "layers.7.ffn.up"])
def test_pattern_without_a_match_is_an_error(pattern):
    with pytest.raises(UserError, match="matches no site"):
        resolve(sites(), quant(overrides=[{"match": pattern, "precision": "int8"}]))


@pytest.mark.parametrize(
    "rule", [{"match": "*", "precison": "int8"}, {"match": "*"}, {"precision": "int8"}, {"match": 3, "damp": 1}]
)
def test_malformed_rule_is_an_error(rule):
    with pytest.raises(UserError, match=r"quant.overrides\[0\]"):
        resolve(sites(), quant(overrides=[rule]))


def test_bad_value_in_a_rule_names_the_choices():
    with pytest.raises(UserError, match="int2, int3"):
        resolve(sites(), quant(overrides=[{"match": "*", "precision": "int7"}]))


@pytest.mark.case("H10")
@pytest.mark.parametrize(
    ("field", "value"),
    [("group_size", "abc"), ("group_size", 0), ("symmetric", "maybe"), ("precision", None), ("damp", "x")],
)
def test_values_in_a_rule_are_typed_and_checked_as_those_of_a_block(field, value):
    with pytest.raises(UserError, match=rf"quant.overrides\[0\].*{field}"):
        resolve(sites(), quant(overrides=[{"match": "*", field: value}]))


def test_a_rule_makes_a_scheme_that_its_method_can_do_or_is_refused():
    with pytest.raises(UserError, match=r"quant.overrides\[0\].*gptq cannot do precision=nf4"):
        resolve(sites(), quant(overrides=[{"match": "*", "method": "gptq", "precision": "nf4"}]))


def test_override_to_keep_takes_a_site_out():
    rules = resolve(sites(), quant(overrides=[{"match": "layers.0.*", "method": "keep"}]))
    assert not any(site.layer == 0 for site in rules.plan)


@pytest.mark.case("A1")
@pytest.mark.case("A6")
def test_indivisible_group_is_refused_before_any_weight_with_names_width_and_way_out():
    plan = resolve(sites(), QuantConfig(ffn=Scheme(group_size=64))).plan
    with pytest.raises(UserError) as error:
        check_groups(plan, Indivisible.error)
    message = str(error.value)
    assert "ffn.down: in_features 96, group_size 64 (3 sites, layers.0.ffn.down .. layers.2.ffn.down)" in message
    assert "8, 12, 16, 24, 32, 48, 96, or -1" in message and "quant.indivisible=tail" in message
    assert "ffn.gate" not in message
    check_groups(plan, Indivisible.tail)


@pytest.mark.case("A14")
def test_a_latent_width_that_no_group_fits_is_refused_and_named():
    found = find_sites(tiny("deepseek_v3", kv_lora_rank=24))
    attention = resolve(found, QuantConfig(attention=Scheme(group_size=16))).plan
    with pytest.raises(UserError, match=r"attention\.kv_b: in_features 24, group_size 16 (?s:.)*: 8, 12, 24"):
        check_groups({site: scheme for site, scheme in attention.items() if site.role == "kv_b"}, Indivisible.error)
    check_groups(attention, Indivisible.tail)


def test_more_columns_than_there_are_cannot_be_kept():
    scheme = Scheme(group_size=32, keep_columns=65)
    with pytest.raises(UserError, match=r"keep_columns=65: layers\.0\.ffn\.gate has 64 inputs"):
        resolve(sites(), QuantConfig(ffn=scheme))


def test_one_group_a_row_always_fits():
    check_groups(resolve(sites(), QuantConfig(ffn=Scheme(group_size=-1))).plan, Indivisible.error)


def test_trunks_are_shared_up_to_the_first_difference():
    some = sites()
    one = {s: Scheme() for s in some if s.layer == 1}
    two = {s: Scheme() for s in some if s.layer >= 1}
    arms = [base_arm(), Arm("a", frozenset("a"), one), Arm("b", frozenset("b"), two)]
    assert trunk_counts(arms, 3) == [1, 2, 3]


def test_keep_is_no_scheme_that_touches():
    assert not resolve(sites(), QuantConfig(ffn=Scheme(method=Method.keep))).plan


@pytest.mark.case("B5")
@pytest.mark.parametrize("name", ["llama", "llama_biased", "gpt2"])
def test_keeping_some_matrices_never_brings_embedding_or_head_in(name):
    """A skip list of one's own replaces the default one elsewhere, and the head is quantized without a word."""
    every = Model.from_module(tiny(name)).all_sites
    assert {"embedding", "head"} < {site.block for site in every}
    nf4 = Scheme(method=Method.bnb, precision=Precision.nf4, group_size=32)
    plan = resolve(every, QuantConfig(nf4, nf4, overrides=[{"match": "*.attention.q", "method": "keep"}])).plan
    kept = {site.name for site in every} - {site.name for site in plan}
    assert kept == {"embedding", "head", "layers.0.attention.q", "layers.1.attention.q"}
    assert set(plan.values()) == {nf4}


@pytest.mark.parametrize(
    ("block", "scheme"),
    [
        ("head", Scheme(method="gptq")),
        ("embedding", Scheme(method="awq")),
        ("embedding", Scheme(method="bnb", precision="int8", group_size=-1)),
    ],
)
def test_what_embedding_and_head_cannot_do_is_refused_before_anything_is_scored(block, scheme):
    tables = [Site(name, -1, name, name, "m", "weight", 128, 64) for name in ("embedding", "head")]
    with pytest.raises(UserError, match=f"quant.{block}.method={scheme.method}.*works in ffn and attention only"):
        resolve([*sites(), *tables], quant(**{block: scheme}))
    live = Scheme(method="bnb", precision="int8", group_size=-1)
    assert len(resolve([*sites(), *tables], quant(head=live)).plan) == 3 * 7 + 1


@pytest.mark.case("C10")
@pytest.mark.parametrize(
    ("name", "block", "words"),
    [
        ("gpt2", "ffn", "layers.0.ffn.up is stored transposed in mlp.c_fc"),
        ("gpt2", "attention", "layers.0.attention.q is only a part of attn.c_attn"),
        ("mixtral", "ffn", "layers.0.ffn.gate.expert0 is only a part of mlp.experts"),
    ],
)
def test_llm_int8_of_what_is_no_linear_module_is_refused_when_planned(name, block, words):
    live = Scheme(method="bnb", precision="int8", group_size=-1)
    with pytest.raises(UserError, match=f"quant.{block}.method=bnb with int8 .*{words}"):
        resolve(Model.from_module(tiny(name)).sites, QuantConfig(**{block: live}))
