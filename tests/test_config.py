"""Every shipped YAML composes and types; what cannot be meant is refused at once, in a few lines."""

from dataclasses import asdict, fields, is_dataclass

import pytest
from hydra.core.config_store import ConfigStore
from hydra.errors import ConfigCompositionException

from harness.app import config_folder
from harness.config import GROUPS, ArmsRule, CalibConfig, CalibSource, ModelSource, RunConfig
from harness.errors import UserError
from harness.scheme import Method, Scheme
from tests.runs import composed

NEEDS_PATH = {"hf", "gguf"}


def names(group):
    found = sorted(path.stem for path in (config_folder() / group).glob("*.yaml"))
    assert found, group
    return found


@pytest.mark.parametrize("name", names("exp"))
def test_every_experiment_composes_and_says_what_it_is(name):
    config = composed(f"+exp={name}")
    assert config.experiment == name
    touched = any(getattr(config.quant, block).touches for block in ("ffn", "attention"))
    assert touched != (config.design.arms is ArmsRule.base)


@pytest.mark.parametrize(("group", "name"), [(g, n) for g in GROUPS for n in names(g)])
def test_every_option_of_every_group_composes(group, name):
    extra = ("model.path=somewhere",) if group == "model" and name in NEEDS_PATH else ()
    config = composed(f"{group}={name}", *extra)
    if group == "model":
        assert config.model.name == ("somewhere" if extra else name)


@pytest.mark.parametrize("name", [name for name in names("model") if name not in NEEDS_PATH])
def test_hub_presets_calibrate_as_papers_do_and_other_models_by_default(name):
    config = composed("+exp=gptq_int4_split", f"model={name}")
    if config.model.source is ModelSource.hf:
        assert (config.calib.samples, config.calib.length) == (128, 2048)
        assert config.calib.source is CalibSource.dataset and config.calib.path
        assert config.model.revision and config.model.licence
    else:
        assert config.calib == CalibConfig()


@pytest.mark.parametrize(
    ("overrides", "samples", "length"),
    [
        (("model=llama2_7b", "calib.samples=16"), 16, 2048),
        (("calib.length=512", "model=llama2_7b"), 128, 512),
        (("model=llama2_7b", "calib=default"), 32, 512),
        (("calib=default", "model=llama2_7b"), 32, 512),
        (("calib=hub",), 128, 2048),
        (("+exp=published_llama2_7b_awq_int4",), 128, 512),
        (("+exp=published_llama2_7b_rtn_int4",), 128, 2048),
        (("+exp=published_llama2_7b_rtn_int4", "model=tiny"), 32, 512),
    ],
)
def test_what_is_asked_for_goes_before_what_a_preset_calibrates_with(overrides, samples, length):
    calib = composed(*overrides).calib
    assert (calib.samples, calib.length) == (samples, length)
    assert (calib.source is CalibSource.shipped) == (length == 512 and samples == 32)


@pytest.mark.parametrize("group", ["quant", "calib", "design"])
def test_defaults_are_written_in_one_place(group):
    assert asdict(getattr(composed(), group)) == asdict(GROUPS[group]())


def test_every_group_has_a_schema_so_that_its_files_are_typed():
    for group in GROUPS:
        assert ConfigStore.instance().load(f"{group}/schema.yaml")
        for name in names(group):
            assert "- schema" in (config_folder() / group / f"{name}.yaml").read_text(encoding="utf-8"), (group, name)


def test_no_scheme_is_ever_null_so_any_field_can_be_set_from_the_command_line():
    config = composed("quant.embedding.method=rtn", "quant.head.group_size=32")
    assert config.quant.embedding.method is Method.rtn and config.quant.head == Scheme(Method.keep, group_size=32)


@pytest.mark.case("H10")
@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("quant.ffn.group_size=abc", "group_size"),
        ("quant.ffn.group_size=64.5", "group_size"),
        ("quant.ffn.precision=int7", "int2"),
        ("quant.ffn.method=off", "keep"),
        ("quant.ffn.method=no", "keep"),
        ("quant.ffn.symmetric=sometimes", "symmetric"),
        ("quant.ffn.precision=null", "precision"),
        ("quant.ffn=null", "quant.ffn"),
        ("quant.overrides=[null]", "overrides"),
        ("eval.general=arc_easy", "eval.general"),
        ("eval.limit=some", "limit"),
        ("eval.limit=4:30", "limit"),
        ("quant.ffn.damp=4:30", "damp"),
        ("eval.context_suite.lengths=[4:30]", "lengths"),
        ("eval.bos=on", "always"),
        ("eval.sampler=nosuch", "first_n"),
        ("+eval.task_options={arc_easy:{limt:1}}", "limt"),
        ("eval.foo=1", "eval.foo"),
        ("design.arms=some", "one_in_out"),
        ("attribute.effects=[harm]", "restored"),
        ("exp=int4_split", "+exp=int4_split"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_when_composed(override, words):
    with pytest.raises(ConfigCompositionException) as error:
        composed(override)
    said = f"{error.value}\n{error.value.__cause__}"
    assert words in said and "=" in said


@pytest.mark.case("H10")
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("method: off", "method"),
        ("method: no", "method"),
        ("precison: int4", "precison"),
        ("group_size: 6_4x", "group"),
    ],
)
def test_a_file_with_a_wrong_word_is_refused_too(tmp_path, line, words):
    write_experiment(tmp_path, line)
    with pytest.raises(ConfigCompositionException) as error:
        composed("+exp=own", f"hydra.searchpath=[file://{tmp_path}]")
    assert words in f"{error.value}\n{error.value.__cause__}"


@pytest.mark.case("H10")
def test_numbers_in_a_file_are_numbers(tmp_path):
    write_experiment(tmp_path, "damp: 1e-3")
    assert composed("+exp=own", f"hydra.searchpath=[file://{tmp_path}]").quant.ffn.damp == 0.001


def write_experiment(folder, line):
    (folder / "exp").mkdir()
    text = f"# @package _global_\nquant:\n  ffn:\n    method: gptq\n    {line}\n"
    (folder / "exp" / "own.yaml").write_text(text.replace("    method: gptq\n", "") if "method" in line else text)


@pytest.mark.case("H10")
@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("+exq=int4_split", "Did you mean exp"),
        ("+evl=quick", "Did you mean eval"),
        ("+eval.limt=3", "Did you mean eval.limit"),
        ("+quant.ffn.bits=4", "quant.ffn.bits"),
        ("+harness.resume=true", "Settings here: force"),
        ("model=hf", "model.path is empty"),
        ("model=gguf", "model.path is empty"),
    ],
)
def test_a_key_that_is_no_setting_is_refused_with_the_nearest_one(override, words):
    with pytest.raises(UserError, match=words):
        composed(override)


def test_every_setting_is_typed_down_to_the_leaves():
    def walk(value, where):
        for field in fields(value):
            inner = getattr(value, field.name)
            if is_dataclass(inner):
                walk(inner, f"{where}.{field.name}")
            assert not isinstance(inner, dict) or where.endswith(("model", "eval", "attribute")), (
                f"{where}.{field.name}"
            )

    config = composed("+exp=int4_split")
    assert isinstance(config, RunConfig)
    walk(config, "run")
