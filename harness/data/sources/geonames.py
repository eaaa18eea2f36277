"""Facts of geography from GeoNames (CC BY 4.0): the country of a city, the capital and the currency of a country.

Popularity is the population. Only names that no other listed city bears are asked about. Left out: names that give the
answer away (Mexico City, Singapore), places whose belonging is disputed, dependent territories, countries of the past,
and capitals and currencies that changed of late.
"""

from __future__ import annotations

import random
from pathlib import Path

from harness.data.items import Item, Row, at_most_each, by_terciles, draw_choices, gives_away, interleave, read_tsv

CITY_BANDS = {"large": (1_000_000, 10**9), "medium": (100_000, 300_000), "small": (15_000, 30_000)}
CITIES_PER_BAND = 300
CITIES_PER_COUNTRY = 25  # and band; else half of the large cities would be in two countries
COUNTRY_BANDS = ("large", "medium", "small")
SMALLEST_COUNTRY = 300_000

NO_COUNTRY = "HK MO PR TW PS XK EH RE GP MQ GF YT NC PF GU VI CS AN"  # ISO codes
DISPUTED_ZONES = ("Europe/Simferopol", "Asia/Jerusalem")
CHANGED_CAPITAL = ("KZ", "GQ", "IL")
CHANGED_CURRENCY = ("ZW", "HR", "VE")


def city_country(registry: Path) -> list[Item]:
    """300 cities a band, four countries to choose from."""
    rng = random.Random("city_country")
    cities = [row for row in _read(registry, "cities15000") if _is_fair(row)]
    return interleave(_city_band(rng, cities, band) for band in CITY_BANDS)


def country_capital(registry: Path) -> list[Item]:
    """Every country of 300,000 and more, four capitals to choose from."""
    rows = [row for row in _countries(registry, "capital") if row["iso"] not in CHANGED_CAPITAL]
    return _country_items("country_capital", rows, "capital", "The capital of {} is")


def country_currency(registry: Path) -> list[Item]:
    """Every country of 300,000 and more, four currencies to choose from."""
    rows = [row for row in _countries(registry, "currencyname") if row["iso"] not in CHANGED_CURRENCY]
    named = [row | {"currency": row["currencyname"].removeprefix("Yuan ").lower()} for row in rows]
    return _country_items("country_currency", named, "currency", "The currency of {} is the")


def _read(registry: Path, table: str) -> list[Row]:
    return read_tsv(registry / "geonames" / f"{table}.tsv")


def _is_fair(city: Row) -> bool:
    return (
        city["unique_name"] == "1"
        and city["countrycode"] not in NO_COUNTRY
        and city["timezone"] not in DISPUTED_ZONES
        and not gives_away(city["name"], city["country"])
    )


def _city_band(rng: random.Random, cities: list[Row], band: str) -> list[Item]:
    low, high = CITY_BANDS[band]
    inside = [city for city in cities if low <= int(city["population"]) < high]
    rng.shuffle(inside)
    drawn = at_most_each(inside, "countrycode", CITIES_PER_COUNTRY)[:CITIES_PER_BAND]
    return _items(rng, drawn, ("name", "country"), "The city of {} is in the country of", band)


def _countries(registry: Path, answer: str) -> list[Row]:
    return [
        row
        for row in _read(registry, "countries")
        if int(row["population"]) >= SMALLEST_COUNTRY
        and row["iso"] not in NO_COUNTRY
        and not gives_away(row["name"], row[answer])
    ]


def _country_items(task: str, rows: list[Row], answer: str, template: str) -> list[Item]:
    rng = random.Random(task)
    bands = by_terciles(rows, "population", COUNTRY_BANDS)
    return interleave(
        _items(rng, rng.sample(band, len(band)), ("name", answer), template, name) for name, band in bands.items()
    )


def _items(rng: random.Random, rows: list[Row], columns: tuple[str, str], template: str, band: str) -> list[Item]:
    asked, answer = columns
    answers = [row[answer] for row in rows]
    items = []
    for row in rows:
        choices, gold = draw_choices(rng, row[answer], answers, is_wrong=lambda _: True)
        items.append(Item(template.format(row[asked]), choices, gold, row[asked], band, float(row["population"])))
    return items
