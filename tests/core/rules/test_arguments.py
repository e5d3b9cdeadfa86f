"""What the names of arguments tell: which hold commands or code, and which hold a place."""

import pytest

from pml.core.rules.arguments import holds_code, names_code, names_location
from pml.core.values import JsonObject
from tests.promises import promise

CODE_NAMES = (
    "command cmd script argv function eval "
    "query queries cypher graphql source sources stdin snippet snippets macro macros formula formulas "
    "cOmMaNd QUERY shell_command shell-command shellCommand sqlQuery SQLQuery sql2 query1 "
    "SQLquery runSQLnow RUNsql myJSsnippet _sqltext sqltext rawsql execsql shellcmd runshell scripttext "
    "postscript commandtext runcommand codeblock sourcecode cOmMaNdText script_path c-m-d "
    "code promo_code countrycode source_code source_text source_path code_country country_code_script "
    "country_source source_timezone_query execute evaluate sparql lua ruby perl php sh stmt rawquery "
    "executable gremlin kql aql expr keystrokes"
).split()


@promise("rules:commands-never-by-glob")
@pytest.mark.parametrize("name", CODE_NAMES)
def test_a_name_with_a_word_for_commands_or_code_tells_of_code(name: str) -> None:
    assert names_code(name)


@pytest.mark.parametrize(
    "name",
    [
        *"path title url id text body input payload template decoder encoded commander description".split(),
        *"resource subscription conscripted executive jsonl 0".split(),
        *"source_timezone sourceTimeZone source_language country_code countryCode ISO-country-code".split(),
        *"status_code zipCode source_country_code".split(),
        "",
    ],
)
def test_a_name_that_only_resembles_a_word_for_code_is_another(name: str) -> None:
    assert not names_code(name)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("script_path", True),
        ("scriptURL", True),
        ("source", True),  # of a tool that moves files
        ("path_script", False),
        ("query", False),
        ("command", False),
        ("profile", False),
        ("", False),
    ],
)
def test_a_name_that_ends_in_a_word_for_a_place_is_a_place(name: str, found: bool) -> None:
    assert names_location(name) is found


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"steps": [[{"SQLquery": 1}]]}, True),
        ({"path": {"source": None}}, True),
        ({"path": "query", "tags": ["sql"]}, False),
        ({}, False),
    ],
)
def test_code_is_found_by_its_name_however_deep(arguments: JsonObject, found: bool) -> None:
    assert holds_code(arguments) is found
