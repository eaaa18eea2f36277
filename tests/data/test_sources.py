"""Pure functions of the sources, and the two sources that need no files from elsewhere."""

import random

import pytest

from harness.data.items import read_tsv
from harness.data.sources import grammar
from harness.data.sources.adjectives import KINDS, adjective_order
from harness.data.sources.everyday import TABLE, everyday_physics, read_kinds
from harness.data.sources.prose import documents
from harness.data.sources.wikidata import relation_of
from harness.data.sources.wordnet import plain_name, speaks_of

RANK = {word: rank for rank, words in enumerate(KINDS.values()) for word in words.split()}


def test_only_the_right_phrase_keeps_the_order_of_adjectives():
    for item in adjective_order():
        for i, phrase in enumerate(item.choices):
            *adjectives, noun = phrase.split()
            ranks = [RANK[adjective] for adjective in adjectives]
            assert (ranks == sorted(ranks)) == (i == item.gold)
            assert noun == item.document
        assert sorted(item.choices[0].split()) == sorted(item.choices[1].split())


def test_everyday_answers_are_of_one_kind():
    items = everyday_physics()
    right = {band: {i.choices[i.gold] for i in items if i.band == band} for band in ("tool", "material", "effect")}
    assert all(set(item.choices) <= right[item.band] for item in items)


def test_no_wrong_everyday_ending_is_of_a_kind_that_fits():
    kinds, rows = read_kinds(), {row["query"]: row for row in read_tsv(TABLE) if row["batch"] == "second"}
    second = [item for item in everyday_physics() if item.query in rows]
    assert len(second) == len(rows) > 900
    for item in second:
        row = rows[item.query]
        assert item.choices[item.gold] == row["answer"]
        fits = kinds[item.band, row["answer"]] | set(row["also"].split())
        assert not any(kinds[item.band, choice] & fits for choice in item.choices if choice != row["answer"])


def test_every_kind_that_a_question_names_is_one_of_its_band():
    known = {band: set() for band in ("tool", "material", "effect")}
    for (band, _), kinds in read_kinds().items():
        known[band] |= kinds
    assert all(set(row["also"].split()) <= known[row["band"]] for row in read_tsv(TABLE))


def test_everyday_questions_on_one_tool_or_effect_share_a_document():
    for band, one_an_ending in (("tool", True), ("effect", True), ("material", False)):
        items = [item for item in everyday_physics() if item.band == band]
        endings, queries = {i.choices[i.gold] for i in items}, {i.query for i in items}
        assert len(queries) == len(items)
        assert len({i.document for i in items}) == len(endings if one_an_ending else queries)
        assert {i.document for i in items} <= queries


@pytest.mark.parametrize("seed", range(20))
def test_agreement_is_with_the_subject(seed):
    lawyer, house = ("lawyer", "lawyers"), ("house", "houses")
    near = grammar.agreement(random.Random(seed), [lawyer])
    far = grammar.distant_agreement(random.Random(seed), [lawyer], [house])
    for beginning, right, wrong, document in (near, far):
        plural = "lawyers" in beginning
        assert right in {verb[plural] for verb in grammar.VERBS}
        assert wrong in {verb[not plural] for verb in grammar.VERBS}
        assert document == "lawyer"
    assert ("lawyers" in far[0]) != ("houses" in far[0])


@pytest.mark.parametrize("seed", range(20))
def test_determiner_and_reflexive(seed):
    beginning, right, wrong, _ = grammar.determiner(random.Random(seed), [("lawyer", "lawyers")])
    assert (beginning.split()[-1] in ("these", "those")) == (right == "lawyers") == (wrong == "lawyer")
    beginning, right, _, noun = grammar.reflexive(random.Random(seed))
    assert (noun in grammar.FEMALE.split()) == (right == "herself")
    assert noun in beginning


@pytest.mark.parametrize("seed", range(10))
def test_verb_form_follows_the_auxiliary(seed):
    beginning, right, wrong, _ = grammar.verb_form(random.Random(seed), [("lawyer", "lawyers")], [("take", "took")])
    assert (right, wrong) == (("take", "took") if beginning.endswith("will") else ("took", "take"))


def test_plural():
    nouns = ("boat", "box", "church", "city", "boy")
    assert [grammar.plural(noun) for noun in nouns] == ["boats", "boxes", "churches", "cities", "boys"]


def test_documents_joined_again_are_the_text():
    text = "title\nCHAPTER 1. a\nb\nBOOK I. CHAPTER I.\nCHAPTER 2. c\n"
    parts = documents(text, r"(?m)^CHAPTER \d+\. ")
    assert parts == ["title\n", "CHAPTER 1. a\nb\nBOOK I. CHAPTER I.\n", "CHAPTER 2. c\n"]
    assert documents("one\n\ntwo", r"(?<=\n\n)") == ["one\n\n", "two"]


def test_names_are_the_full_ones_and_keep_the_class_to_themselves():
    assert plain_name("Fields|W._C._Fields|William_Claude_Dukenfield", "actor film_maker") == "W. C. Fields"
    assert plain_name("Plato", "philosopher") == "Plato"
    assert plain_name("Loch_Ness|Ness", "lake loch") == "Ness"
    assert plain_name("Lake_Erie", "lake") == ""


def test_classes_are_found_in_glosses():
    assert speaks_of("King of England from 1154", "king King_of_England")
    assert speaks_of("a port in Chile", "city|port")
    assert not speaks_of("German composer", "painter")


def test_relation_with_the_longest_beginning():
    assert relation_of("The country of citizenship of Nina Simone is") == "citizenship"
    assert relation_of("The country of Basel is") == "country"
    assert relation_of("The eye color of Nina Simone is") is None
