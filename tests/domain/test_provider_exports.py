"""Exports of providers: known forms are recognised and read, every line is accounted for, differences are explained."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workspaces.domain.provider_exports import (
    MAX_BYTES,
    MAX_ROWS,
    ColumnMap,
    NotReadable,
    decoded,
    model_key,
    read_export,
    sheet_of,
)
from workspaces.domain.reconciliation import Counted, Gaps, differences

D = Decimal
DAY = date(2026, 9, 1)
ANTHROPIC_USAGE = (
    "usage_date_utc,model_version,api_key,workspace,usage_type,context_window,usage_input_tokens_no_cache,"
    "usage_input_tokens_cache_write_5m,usage_input_tokens_cache_write_1h,usage_input_tokens_cache_read,"
    "usage_output_tokens,web_search_count,inference_geo,speed\n"
    '2026-09-01,claude-haiku-4-5-20251001,"Desk, main",Default,standard,≤ 200k,100,20,5,1000,40,0,global,\n'
)
ANTHROPIC_COST = (
    "usage_date_utc,model,workspace,api_key,usage_type,context_window,token_type,cost_usd,list_price_usd,cost_type\n"
    "2026-09-01,Claude Haiku 4.5,Default,Desk,message,≤ 200k,input_no_cache,0.19,0.19,token\n"
    "2026-09-01,Claude Haiku 4.5,Default,Desk,message,≤ 200k,output,0.03,0.03,token\n"
)
OPENAI_USAGE = (
    "start_time,end_time,start_time_iso,end_time_iso,project_id,num_model_requests,user_id,api_key_id,model,batch,"
    "service_tier,input_tokens,output_tokens,input_cached_tokens,input_uncached_tokens\n"
    "1788220800,1788307200,2026-09-01T00:00:00+00:00,2026-09-02T00:00:00+00:00,p,3,u,k,gpt-4.1-2025-04-14,false,"
    "default,1000,50,400,600\n"
    "1788307200,1788393600,2026-09-02T00:00:00+00:00,2026-09-03T00:00:00+00:00,,,,,,,,,,,\n"
)
OPENAI_COST = (
    "start_time,end_time,start_time_iso,end_time_iso,amount_value,amount_currency,line_item,project_id\n"
    '1788220800,1788307200,2026-09-01T00:00:00+00:00,2026-09-02T00:00:00+00:00,0.5,usd,"gpt-4.1-2025-04-14, input",p\n'
    '1788220800,1788307200,2026-09-01T00:00:00+00:00,2026-09-02T00:00:00+00:00,0.5,eur,"gpt-4.1-2025-04-14, input",p\n'
)


def read(text: str):  # type: ignore[no-untyped-def]
    sheet = sheet_of(text)
    form = sheet.form()
    assert form
    return form, read_export(sheet, form.columns)


def test_the_known_exports_are_recognised_and_each_token_counts_once() -> None:
    form, found = read(ANTHROPIC_USAGE)
    (row,) = found.good
    assert (form.name, row.day, row.model) == ("anthropic_usage", DAY, "claude-haiku-4-5-20251001")
    assert (row.input_tokens, row.cached_input_tokens, row.cache_write_tokens, row.output_tokens) == (100, 1000, 25, 40)
    assert row.cost_usd is None
    form, found = read(ANTHROPIC_COST)
    assert form.name == "anthropic_cost"
    assert [(row.cost_usd, row.input_tokens) for row in found.good] == [(D("0.19"), None), (D("0.03"), None)]
    form, found = read(OPENAI_USAGE)
    (row,) = found.good
    assert (form.name, found.empty) == ("openai_usage", 1), "a day without calls is empty, not bad"
    assert (row.day, row.input_tokens, row.cached_input_tokens, row.output_tokens) == (DAY, 600, 400, 50)
    form, found = read(OPENAI_COST)
    (row,) = found.good
    assert (form.name, row.model, row.cost_usd) == ("openai_cost", "gpt-4.1-2025-04-14", D("0.5"))
    assert [(row.line, row.problem) for row in found.bad] == [(3, "the amount is in “eur”, not in USD")]


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        ("2026-13-01,m,1,2,0.1", "“2026-13-01” is not a day"),
        ("01/09/2026,m,1,2,0.1", "“01/09/2026” is not a day"),
        (",m,1,2,0.1", "the day is missing"),
        ("2026-09-01,m,-1,2,0.1", "“-1” in in is not a count"),
        ("2026-09-01,m,1.5,2,0.1", "“1.5” in in is not a count"),
        ("2026-09-01,m,٣,2,0.1", "“٣” in in is not a count"),
        ("2026-09-01,m,1,2,NaN", "“NaN” is not an amount"),
        ("2026-09-01,m,1,2,1e99", "“1e99” is not an amount"),
        ("2026-09-01,m,1,2,0.1,more", "it has 6 cells under 5 columns"),
    ],
)
def test_a_bad_line_is_named_with_its_number_and_kept(cells: str, told: str) -> None:
    columns = ColumnMap(day=("at",), model="model", input_tokens=("in",), output_tokens=("out",), cost_usd="usd")
    sheet = sheet_of(f'at,model,in,out,usd\n2026/9/1,"two\nlines","1,000",2,$0.5\n\n{cells}\n1788220800,m,1,2,0\n')
    found = read_export(sheet, columns)
    assert [(row.day, row.input_tokens, row.cost_usd) for row in found.good] == [(DAY, 1000, D("0.5")), (DAY, 1, D(0))]
    (bad,) = found.bad
    assert bad.line == 5, "the number in the file, with the line break inside a cell and the blank line counted"
    assert told in bad.problem
    assert bad.raw.startswith(cells.split(",")[0])


def test_files_that_are_no_export_are_refused_in_words() -> None:
    for data, told in (
        (b"", "is empty"),
        (b"a,b\n", "no rows"),
        (b"one\ntwo\n", "must name the columns"),
        (b"x" * (MAX_BYTES + 1), "at most 5 MB"),
        (b"a,b\n" + b"1,2\n" * (MAX_ROWS + 1), f"more than {MAX_ROWS:,} rows"),
        (b'a,b\n"' + b"x" * 200_000 + b'",1\n', "cannot be read"),
    ):
        with pytest.raises(NotReadable, match=told):
            sheet_of(decoded(data))
    assert sheet_of(decoded("﻿Day;Model\n1;2\n".encode())).columns == ("day", "model")
    assert sheet_of(decoded("day\tmodel\r\n1\t2".encode("utf-16"))).columns == ("day", "model")


@settings(derandomize=True, deadline=None, max_examples=80)
@given(text=st.text(alphabet=st.sampled_from('a1,;"\n\r\t-.= \x00é'), max_size=120))
def test_whatever_a_file_holds_every_row_is_read_empty_or_bad(text: str) -> None:
    try:
        sheet = sheet_of(decoded(("day,in\n" + text).encode()))
    except NotReadable:
        return
    found = read_export(sheet, ColumnMap(day=("day",), input_tokens=("in",)))
    assert len(found.good) + len(found.bad) + found.empty == len(sheet.lines)
    assert len({row.line for row in found.rows}) == len(found.rows)


def test_names_of_one_model_are_one_key() -> None:
    names = ("claude-haiku-4-5-20251001", "anthropic/claude-haiku-4-5", "Claude Haiku 4.5", "claude-haiku-4-5-latest")
    assert {model_key(name) for name in names} == {"claude-haiku-4-5"}
    assert model_key("gpt-4.1-2025-04-14") == model_key("gpt-4.1") != model_key("gpt-4.1-mini")


def test_differences_are_ours_less_theirs_with_what_explains_them() -> None:
    ours = [Counted(DAY, "gpt-4.1", 900, 50, D("1.00")), Counted(DAY, "o4-mini", 10, 1, D("0.1"))]
    theirs = [
        Counted(DAY, "gpt-4.1-2025-04-14", 600, 30, None),
        Counted(DAY, "gpt-4.1-2025-04-14", 400, 30, None),
        Counted(DAY, "gpt-4.1-mini", 5, 5, None),
    ]
    first, second, third = differences(ours, theirs, [Gaps(DAY, "gpt-4.1", without_usage=1, lost=2, unpriced=3)])
    assert (first.input_tokens, first.output_tokens, first.cost_usd) == (-100, -10, None)
    for words in (
        "2 calls of ours never answered",
        "1 call of ours answered without",
        "3 records of ours have no price",
    ):
        assert words in first.why
    assert (second.model, second.input_tokens) == ("gpt-4.1-mini", -5)
    assert "nothing of this model was recorded here" in second.why
    assert "the export has nothing of this model" in third.why
    (same,) = differences(ours[:1], [Counted(DAY, "gpt-4.1", 900, 50, D("1.004"))], [])
    assert (same.agrees, same.why) == (True, "agrees")
    (odd,) = differences(ours[:1], [Counted(DAY, "gpt-4.1", 901, 50, D(1))], [])
    assert "was the key used elsewhere?" in odd.why
    (whole,) = differences(ours, [Counted(DAY, "", None, None, D("1.10"))], [], whole_days=True)
    assert (whole.model, whole.cost_usd, whole.agrees) == ("every model", D(0), True)


@pytest.mark.parametrize(
    ("day", "usd", "said"),
    [
        ("9999-12-31", "1", "is not a day"),
        ("0001-01-01T00:00:00+14:00", "1", "is not a day"),
        ("99999999999", "1", "is not a day"),
        ("2026-11-30", "1e999999999", "is not an amount"),
        ("2026-11-30", "-1e999999999", "is not an amount"),
        ("2026-11-30", "sNaN", "is not an amount"),
    ],
)
def test_a_day_or_an_amount_that_no_provider_writes_is_a_bad_line(day: str, usd: str, said: str) -> None:
    (row,) = read_export(sheet_of(f"day,usd\n{day},{usd}\n"), ColumnMap(day=("day",), cost_usd="usd")).bad
    assert said in row.problem


def test_a_file_with_a_hundred_thousand_columns_is_refused() -> None:
    with pytest.raises(NotReadable, match="100,000 columns"):
        sheet_of(",".join("c" for _ in range(100_000)) + "\n1,2\n")
