"""What cannot be meant is refused before anything is opened, with field, value and way out, in a few lines."""

import pytest
from omegaconf import OmegaConf

from harness.check import check
from harness.config import RunConfig
from harness.errors import UserError
from harness.scheme import Method, Scheme

NAMED = ("experiment=own", "model.name=own", "model.path=somewhere")


def settings(*changes: str) -> RunConfig:
    """A configuration that differs from the defaults by `changes`, without Hydra's files."""
    made = OmegaConf.merge(OmegaConf.structured(RunConfig), OmegaConf.from_dotlist([*NAMED, *changes]))
    config = OmegaConf.to_object(made)
    assert isinstance(config, RunConfig)
    return config


def test_defaults_are_meant():
    check(settings())


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"match": "*", "presicion": "int8"}, "unknown fields presicion"),
        ({"match": "*", "precision": "int9"}, "int9"),
        ({"match": "*", "group_size": "many"}, "many"),
        ({"precision": "int8"}, "A rule is"),
    ],
)
def test_a_misspelt_override_is_known_before_a_model_is_fetched(rule, words):
    config = settings("quant.ffn.method=rtn")
    config.quant.overrides = [{"match": "*.down", "precision": "int8"}, rule]
    with pytest.raises(UserError, match=words) as error:
        check(config)
    assert "quant.overrides[1]" in str(error.value)


@pytest.mark.parametrize(
    "change",
    [
        "quant.ffn.keep_columns=nan", "quant.ffn.keep_columns=-1.0",
        "quant.ffn.group_size=0", "quant.ffn.group_size=-5", "eval.limit=0", "eval.limit=-3", "eval.num_fewshot=-1",
        "eval.perplexity.window=1", "eval.perplexity.window=0", "eval.perplexity.stride=-1",
        "eval.perplexity.stride=1025", "eval.perplexity.max_windows=-1", "eval.perplexity.max_chars=-1",
        "eval.perplexity.max_windows_per_document=-1", "eval.perplexity.document_regex=(",
        "eval.task_options.arc_easy.limit=0", "eval.task_options.arc_easy.num_fewshot=-2",
        "eval.task_options.arc_easy.seed=-1", "engine.memory_gib=-1", "engine.memory_gib=nan", "engine.memory_gib=inf",
        "engine.batch_tokens=0", "engine.head_tokens=0",
        "engine.pack_tokens=-3", "attribute.resamples=0", "attribute.level=1.5", "attribute.level=nan",
        "attribute.margin=-1", "attribute.claims.ffn=70.0", "calib.seeds=[]", "calib.seeds=[0, 0]", "calib.samples=0",
        "calib.length=0", "design.noise_draws=-1", "design.random_sets=-1", "design.matched_noise=-0.1",
        "design.layer_groups=-1", "design.layer_groups=2", "design.permutations=0",
        "model.off_grid.sigma=-0.1", "model.off_grid.sigma=50.0",
        "attribute.seed=-1", "attribute.resamples=1000000000", "design.seed=-1", "eval.seed=-1", "model.seed=-1",
        "eval.context_suite.seed=-1", "model.off_grid.seed=-1",
        "experiment=a/b", "experiment=..", "experiment=''", "experiment=.hidden", "design.arms=owen",
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_meant_is_refused_with_field_and_value(change):
    field, _, value = change.partition("=")
    with pytest.raises(UserError) as error:
        check(settings("quant.ffn.method=rtn", change))
    message = str(error.value)
    assert field.removeprefix("quant.ffn.") in message and value in message
    assert message.count("\n") < 4


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["model.path=''"], "model.path is empty"),
        (["model.path=''", "model.source=gguf"], "model.path is empty"),
        (["model.source=package"], "model.file is empty"),
        (["model.source=random"], "model.config.model_type"),
        (["outputs=''"], "outputs is empty"),
        (["model.name=' '"], "model.name is empty"),
        (["eval.perplexity.name=''"], "eval.perplexity.name is empty"),
        (["eval.perplexity.subset=''"], "eval.perplexity.subset is empty"),
        (["model.config.hidden_size=64"], r"model.config.hidden_size: .* model=tiny"),
        (["model.source=random", "model.config.model_type=llama", "model.off_grid.sigma=0.1"], "sit on no grid"),
        (["calib.seeds=[0, -1]"], "calib.seeds: -1 is negative"),
        (["calib.seeds=[0, 1]", "calib.draw=start"], "calib.draw=start takes the same samples whatever the seed"),
        (["calib.path=mine.txt"], "calib.path=mine.txt: calib.source=shipped reads no file"),
        (["calib.source=text"], "calib.path is empty"),
        (["calib.source=dataset"], "calib.path is empty"),
        (["design.arms=sampled", "design.permutations=7"], "design.permutations=7 is odd: .* Set it to 8"),
        (["design.arms=owen", "design.players=layers"], "roles, block_layers or role_layers"),
        (["quant.ffn.method=gptq", "quant.ffn.true_sequential=true"], "calib.inputs=quantized"),
        (["quant.overrides=[{match: '*', method: gptq, true_sequential: true}]"], "calib.inputs=quantized"),
        (["eval.perplexity.window=64", "eval.perplexity.bos=window", "eval.perplexity.stride=64"], "63 tokens"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(changes, words):
    with pytest.raises(UserError, match=words):
        check(settings(*changes))


@pytest.mark.parametrize(
    "changes",
    [
        ["design.arms=owen", "design.players=roles"],
        ["design.arms=owen", "design.players=block_layers"],
        ["design.layer_groups=2", "design.players=role_layers"],
        ["design.arms=base", "design.permutations=7"],
        ["eval.perplexity.window=2", "eval.perplexity.bos=window", "eval.perplexity.stride=1"],
        ["eval.perplexity.stride=1024"],
        ["eval.num_fewshot=0"],
        ["quant.ffn.method=rtn", "quant.ffn.group_size=-1"],
    ],
)
def test_what_lies_just_inside_the_bounds_passes(changes):
    check(settings(*changes))


@pytest.mark.parametrize("block", ["ffn", "attention", "embedding", "head"])
def test_a_scheme_is_checked_in_every_block(block):
    config = settings()
    setattr(config.quant, block, Scheme(Method.rtn, precision="nf4"))  # pyright: ignore
    with pytest.raises(UserError, match=f"quant.{block}: method=rtn cannot do precision=nf4"):
        check(config)
