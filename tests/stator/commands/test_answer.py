"""The answer of a subcommand as a table."""

from stator.commands.answer import table


def test_columns_are_as_wide_as_their_content_and_lines_have_no_space_at_the_end():
    assert table(["name", "n"], [["a", 1000], ["longer", 2]]) == ["name    n", "a       1000", "longer  2"]


def test_table_without_rows_is_its_heads():
    assert table(["name", "number"], []) == ["name  number"]


def test_control_characters_in_a_cell_are_spelled_out():
    assert table(["name"], [["a\x1b[31m\nb"]]) == ["name", "a\\x1b[31m\\nb"]
