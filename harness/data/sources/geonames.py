"""Facts of geography from GeoNames (CC BY 4.0): in which country a city lies.

Popularity is the city's population, cut into three bands with gaps between them. Only names that no other listed city
bears are asked about. Left out: names that give the country away (Mexico City, Singapore), countries and regions whose
belonging is disputed, dependent territories.
"""

from __future__ import annotations

import random
from pathlib import Path

from harness.data.items import Item, Row, at_most_each, interleave, read_tsv, with_distractors

BANDS = {"large": (1_000_000, 10**9), "medium": (100_000, 300_000), "small": (15_000, 30_000)}
ITEMS_PER_BAND = 300
CITIES_PER_COUNTRY = 25  # and band; else half of the large cities would be in two countries
NO_COUNTRY = "HK MO PR TW PS XK EH RE GP MQ GF YT NC PF GU VI CS AN"
DISPUTED_ZONES = {"Europe/Simferopol", "Asia/Jerusalem"}


def city_country(registry: Path) -> list[Item]:
    """300 cities a band, four countries to choose from."""
    rng = random.Random("city_country")
    cities = [row for row in read_tsv(registry / "geonames" / "cities15000.tsv") if _is_fair(row)]
    return interleave(_band_items(rng, cities, band) for band in BANDS)


def _is_fair(city: Row) -> bool:
    return (
        city["unique_name"] == "1"
        and city["countrycode"] not in NO_COUNTRY.split()
        and city["timezone"] not in DISPUTED_ZONES
        and not gives_away(city["name"], city["country"])
    )


def gives_away(name: str, answer: str) -> bool:
    """Whether the answer can be read off the name: they share a word of four letters or one begins with the other."""
    name, answer = name.casefold(), answer.casefold()
    if name.startswith(answer) or answer.startswith(name):
        return True
    return any(len(word) >= 4 and word in name for word in answer.split())


def _band_items(rng: random.Random, cities: list[Row], band: str) -> list[Item]:
    low, high = BANDS[band]
    inside = [city for city in cities if low <= int(city["population"]) < high]
    rng.shuffle(inside)
    drawn = at_most_each(inside, lambda city: city["countrycode"], CITIES_PER_COUNTRY)[:ITEMS_PER_BAND]
    answers = [city["country"] for city in drawn]
    return [_city_item(rng, city, answers, band) for city in drawn]


def _city_item(rng: random.Random, city: Row, answers: list[str], band: str) -> Item:
    choices, gold = with_distractors(rng, city["country"], answers, wrong=lambda _: True)
    query = f"The city of {city['name']} is in the country of"
    return Item(query, choices, gold, city["name"], band, float(city["population"]))
