"""``Distribute``: a model's table over partitions, with all that it has, and the way back."""

import pytest
from django.core.management.base import CommandError
from django.db import IntegrityError, connection, migrations, models

from stator.extensions.partitions.conversion import SETS_ROLES
from stator.migration_operations import Distribute, StorageParameters
from stator.rows.spread import SPREAD
from tests.stator.dividing import PARCEL, SHARD, Tables, execute, parcel, shape

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgresql]


@pytest.fixture
def tables():
    """Tables with a parcel, in use before its shard was added."""
    tables = Tables()
    tables.migrate(parcel())
    tables.add(3)
    tables.migrate(migrations.AddField("parcel", "shard", SHARD))
    yield tables
    while tables.done:
        tables.back()


def partitions(table=PARCEL):
    found = execute("SELECT relid::regclass::text FROM pg_partition_tree(%s) WHERE isleaf ORDER BY 1", table)
    return {name: execute(f"SELECT count(*) FROM {name}")[0][0] for (name,) in found}


def tids():
    return execute(f"SELECT id, ctid FROM {PARCEL} ORDER BY id")


DIVIDE = Distribute("parcel", by="shard", partitions=4)


def test_a_table_becomes_the_first_partition_and_then_is_as_before(tables):
    before, places = shape(PARCEL), tids()
    tables.migrate(DIVIDE)
    assert tids() == places
    assert partitions() == {f"{PARCEL}_part{number}": 3 * (number == 0) for number in range(4)}
    columns, constraints = shape(PARCEL)
    assert (columns, constraints.keys()) == (before[0], before[1].keys())
    [key] = [columns for columns, _, primary, _ in constraints.values() if primary]
    assert key == ["id", "shard"]
    with pytest.raises(CommandError, match="is divided in another way already, into 4 partitions by shard"):
        tables.migrate(Distribute("parcel", by="shard", partitions=8))
    tables.back()
    assert shape(PARCEL) == before
    assert partitions() == {}


def test_rows_of_other_values_are_copied(tables):
    for value in SPREAD:
        tables.add(shard=value)
    rows = list(tables.model().objects.order_by("pk").values_list())
    before = shape(PARCEL)
    tables.migrate(DIVIDE)
    assert list(tables.model().objects.order_by("pk").values_list()) == rows
    assert list(partitions().values()) == [11, 8, 8, 8]
    [new] = tables.add(shard=1)
    assert new.pk == rows[-1][0] + 1
    tables.back()
    assert tables.model().objects.count() == len(rows) + 1
    assert shape(PARCEL) == before


def test_later_migrations_find_the_table_as_they_know_it(tables):
    index = models.Index(fields=["label", "shard"], name="crates_label")
    tables.migrate(migrations.AddIndex("parcel", index), DIVIDE)
    once = models.UniqueConstraint(
        fields=["label", "weight", "shard"], name="crates_once", condition=~models.Q(label="")
    )
    tables.migrate(
        migrations.RemoveIndex("parcel", "crates_label"),
        migrations.AddField("parcel", "weight", models.IntegerField(default=1)),
        migrations.AddIndex("parcel", models.Index(fields=["weight"], name="crates_weight")),
        migrations.AlterField("parcel", "weight", models.BigIntegerField(null=True)),
        migrations.AlterField("parcel", "label", models.CharField(max_length=30, default="")),
        migrations.RenameField("parcel", "label", "name"),
        migrations.RenameField("parcel", "name", "label"),
        migrations.AddConstraint("parcel", once),
        StorageParameters("parcel", {"fillfactor": 60}, key={"fillfactor": 70}),
    )
    tables.add(label="x", weight=2, shard=5)
    with pytest.raises(IntegrityError):
        tables.add(label="x", weight=2, shard=5)
    set_for = "SELECT DISTINCT reloptions FROM pg_class WHERE relkind = %s AND relname ~ %s"
    assert execute(set_for, "r", f"{PARCEL}_part") == [(["fillfactor=60"],)]
    names = set(shape(PARCEL)[1])
    assert {"crates_weight", "crates_once"} <= names
    assert "crates_label" not in names
    while tables.done[-1] is not DIVIDE:
        tables.back()
    assert "crates_label" in shape(PARCEL)[1]


SHOUT = """
CREATE FUNCTION crates_shout() RETURNS trigger LANGUAGE plpgsql
AS 'BEGIN NEW.label = upper(NEW.label); RETURN NEW; END'
"""
GIVEN = (
    f"ALTER TABLE {PARCEL} OWNER TO owner_of_crates",
    f"CREATE TRIGGER shout BEFORE UPDATE ON {PARCEL} FOR EACH ROW EXECUTE FUNCTION crates_shout()",
    f"CREATE TRIGGER off BEFORE UPDATE ON {PARCEL} FOR EACH ROW EXECUTE FUNCTION crates_shout()",
    f"ALTER TABLE {PARCEL} DISABLE TRIGGER off",
    f"ALTER TABLE {PARCEL} ENABLE ALWAYS TRIGGER shout",
    f"COMMENT ON TABLE {PARCEL} IS 'it''s 100%'",
    f"GRANT SELECT ON {PARCEL} TO reader_of_crates WITH GRANT OPTION",
    f"GRANT UPDATE (label) ON {PARCEL} TO reader_of_crates",
    f"GRANT INSERT ON {PARCEL} TO PUBLIC",
)
HAD = (
    "tgname, tgenabled FROM pg_trigger WHERE NOT tgisinternal AND tgrelid",
    "description FROM pg_description WHERE objsubid = 0 AND objoid",
    "acl::text FROM pg_class, unnest(relacl) acl WHERE oid",
    "attname, attacl::text FROM pg_attribute WHERE attacl IS NOT NULL AND attrelid",
    "conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE contype = 'f' AND conrelid",
)


def had():
    return [execute(f"SELECT {each} = %s::regclass ORDER BY 1", PARCEL) for each in HAD]


def stored(relation):
    """The owner and the storage parameters of a table or an index, and those of its large values."""
    return execute(
        "SELECT c.relowner::regrole::text, c.reloptions, t.reloptions "
        "FROM pg_class c LEFT JOIN pg_class t ON t.oid = c.reltoastrelid "
        "WHERE c.relname = %s",
        relation,
    )


def test_all_that_the_table_has_stays(tables):
    crate = migrations.CreateModel("Crate", [("id", models.BigAutoField(primary_key=True))])
    tables.migrate(crate, migrations.AddField("parcel", "crate", models.ForeignKey("Crate", models.CASCADE, null=True)))
    tables.migrate(
        StorageParameters("parcel", {"fillfactor": 60, "toast.autovacuum_enabled": False}, {"fillfactor": 70})
    )
    execute(SHOUT)
    execute("CREATE ROLE reader_of_crates")
    # Another role than the one that migrates.
    execute("CREATE ROLE owner_of_crates")
    try:
        for statement in GIVEN:
            execute(statement)
        before, storage, key = had(), stored(PARCEL), stored(f"{PARCEL}_pkey")
        assert all(before)
        ways = lambda: tables.migrate(DIVIDE), tables.back, lambda: tables.add(shard=3) and tables.migrate(DIVIDE)
        for way in ways:
            way()
            assert (had(), stored(f"{PARCEL}_pkey")) == (before, key)
            assert {str(stored(leaf)) for leaf in partitions() or [PARCEL]} == {str(storage)}
        execute(f"UPDATE {PARCEL} SET label = 'quiet'")
        assert execute(f"SELECT DISTINCT label FROM {PARCEL}") == [("QUIET",)]
        with pytest.raises(IntegrityError):
            execute(f"UPDATE {PARCEL} SET crate_id = 1")
    finally:
        execute("REASSIGN OWNED BY owner_of_crates TO CURRENT_USER")
        execute("DROP OWNED BY reader_of_crates")
        execute("DROP ROLE reader_of_crates, owner_of_crates")
        execute("DROP FUNCTION crates_shout CASCADE")


def test_keys_that_a_sequence_numbers_go_on(tables):
    """As tables that were made with Django before 4.1 have it."""
    execute(f"ALTER TABLE {PARCEL} ALTER id DROP IDENTITY")
    execute(f"CREATE SEQUENCE crates_numbers START 4 OWNED BY {PARCEL}.id")
    execute(f"ALTER TABLE {PARCEL} ALTER id SET DEFAULT nextval('crates_numbers')")
    tables.migrate(DIVIDE)
    tables.add(shard=1)
    tables.back()
    tables.add()
    assert list(tables.model().objects.order_by("pk").values_list("pk", flat=True)) == [1, 2, 3, 4, 5]
    assert execute("SELECT pg_get_serial_sequence(%s, 'id')", PARCEL)[0][0].endswith("crates_numbers")


def test_keys_without_numbers_stay():
    tables = Tables()
    tables.migrate(parcel(id=models.CharField(max_length=20, primary_key=True), shard=SHARD))
    tables.add(id="a%b")
    before = shape(PARCEL)
    tables.migrate(DIVIDE)
    tables.add(id="c", shard=2)
    assert partitions()[f"{PARCEL}_part2"] == 1
    tables.back()
    assert shape(PARCEL) == before
    tables.back()


def test_a_field_of_the_project_is_divided_by_hash():
    tables = Tables()
    tables.migrate(parcel(owner=models.CharField(max_length=9, default="")))
    rows = {tables.add(owner=str(number))[0].pk: str(number) for number in range(40)}
    before = shape(PARCEL)
    tables.migrate(Distribute("parcel", by="owner", partitions=4))
    found = partitions()
    assert len(found) == 4
    assert all(found.values())
    tables.add(owner=41)
    tables.back()
    assert {row.pk: row.owner for row in tables.rows().filter(pk__in=rows)} == rows
    assert tables.rows().count() == 41
    assert shape(PARCEL) == before
    tables.back()


@pytest.mark.parametrize("parts", [("number", "owner"), ("number", "label")])
def test_a_composite_key_gets_the_column_unless_it_has_it(parts):
    tables = Tables()
    fields = {
        "pk": models.CompositePrimaryKey(*parts),
        "owner": models.IntegerField(),
        "number": models.IntegerField(),
        "label": models.CharField(max_length=9, default=""),
    }
    tables.migrate(migrations.CreateModel("Parcel", list(fields.items())))
    before = shape(PARCEL)
    tables.rows().bulk_create([tables.model()(owner=n % 5, number=n) for n in range(30)])
    tables.migrate(Distribute("parcel", by="owner", partitions=4))
    tables.rows().bulk_create([tables.model()(owner=9, number=n) for n in range(40, 50)])
    assert sum(partitions().values()) == 40
    tables.back()
    assert tables.rows().count() == 40
    assert shape(PARCEL) == before
    tables.back()


def test_a_table_in_another_schema_stays_there():
    execute("CREATE SCHEMA crates")
    try:
        tables = Tables()
        fields = parcel(shard=SHARD).fields
        tables.migrate(migrations.CreateModel("Parcel", fields, options={"db_table": '"crates"."parcel"'}), DIVIDE)
        tables.add(shard=2)
        assert partitions("crates.parcel")["crates.parcel_part2"] == 1
        tables.back()
        assert tables.rows().count() == 1
    finally:
        execute("DROP SCHEMA crates CASCADE")


@pytest.mark.parametrize("alike", ["crates_" + "x" * 53, "crates_" + "ä" * 26], ids=["letters", "wide letters"])
@pytest.mark.parametrize("copied", [False, True], ids=["in place", "copied"])
def test_tables_with_long_names_that_begin_alike_have_partitions_of_their_own(alike, copied):
    tables = Tables()
    # Without the indexes of a label: Django cannot name them if letters are wide.
    fields = parcel(shard=SHARD, label=models.CharField(max_length=20, default="")).fields
    for number, name in enumerate(("Parcel", "Letter")):
        tables.migrate(migrations.CreateModel(name, fields, options={"db_table": f"{alike}_{number}"}))
        tables.model(name).objects.bulk_create(
            tables.model(name)(shard=shard) for shard in ((1, 2) if copied else (0,))
        )
    before = [shape(f"{alike}_{number}") for number in range(2)]
    tables.migrate(DIVIDE, Distribute("letter", by="shard", partitions=4))
    own = [partitions(f"{alike}_{number}").keys() for number in range(2)]
    assert [len(each) for each in own] == [4, 4]
    assert not own[0] & own[1]
    for _ in range(2):
        tables.back()
    assert [shape(f"{alike}_{number}") for number in range(2)] == before
    for _ in range(2):
        tables.back()


LABEL_ONCE = models.UniqueConstraint(fields=["label"], name="crates_once", condition=~models.Q(label=""))
LINE = migrations.CreateModel(
    "Line", [("id", models.BigAutoField(primary_key=True)), ("parcel", models.ForeignKey("Parcel", models.CASCADE))]
)


LOWER_ONCE = models.UniqueConstraint(models.functions.Concat("label", "id"), name="crates_lower")
NULL, TEXT = models.SmallIntegerField(null=True), models.TextField(default="")
REFUSED = {
    "condition": (migrations.AddConstraint("parcel", LABEL_ONCE), "crates_once of .* is unique without shard"),
    "expression": (migrations.AddConstraint("parcel", LOWER_ONCE), "crates_lower of"),
    "reference": (LINE, "foreign key crates_line_parcel_id_.* of crates_line refers to .* db_constraint=False"),
    "outside": (migrations.RunSQL(f"UPDATE {PARCEL} SET shard = 32 WHERE id = 2", ""), "a row whose shard is 32; it"),
    "null": (migrations.AlterField("parcel", "shard", NULL), "'shard' of crates.Parcel may be null"),
    "text": (migrations.AlterField("parcel", "shard", TEXT), "'shard' of crates.Parcel is a TextField; it must be an"),
}


@pytest.mark.parametrize(("operation", "message"), REFUSED.values(), ids=REFUSED)
def test_what_partitions_cannot_have_is_refused_and_the_table_stays(tables, operation, message):
    tables.migrate(operation)
    before = shape(PARCEL)
    with pytest.raises(CommandError, match=message):
        tables.migrate(DIVIDE)
    assert shape(PARCEL) == before
    assert partitions() == {}


# What the role that migrates has, and what is asked for.
RIGHTS = {
    "no owner": (
        [],
        "the role crates_migrator is no member of crates_owner, the owner of crates_parcel. GRANT crates_owner",
    ),
    "no room": (
        ["GRANT crates_owner TO crates_migrator"],
        "the role crates_migrator may not create tables in the schema {schema}. GRANT CREATE ON SCHEMA {schema} TO",
    ),
    "no room for the owner": (
        ["GRANT crates_owner TO crates_migrator", "GRANT CREATE ON SCHEMA {schema} TO crates_migrator"],
        "the role crates_owner may not create tables in the schema {schema}. GRANT CREATE ON SCHEMA {schema} TO",
    ),
    "no way to be the owner": (
        [
            "GRANT crates_owner TO crates_migrator WITH SET FALSE",
            "GRANT CREATE ON SCHEMA {schema} TO crates_migrator, crates_owner",
        ],
        "the role crates_migrator is no member of crates_owner, the owner of crates_parcel. GRANT crates_owner",
    ),
}


@pytest.mark.parametrize(("rights", "message"), RIGHTS.values(), ids=RIGHTS)
@pytest.mark.parametrize("copied", [False, True], ids=["in place", "copied"])
def test_role_that_may_not_make_the_table_for_its_owner_is_refused_and_the_table_stays(tables, rights, message, copied):
    if connection.pg_version < SETS_ROLES and any("SET FALSE" in right for right in rights):
        pytest.skip("here a member of a role may always become it")
    [(schema,)] = execute("SELECT quote_ident(current_schema())")
    if copied:
        tables.add(shard=1)
    before, places = shape(PARCEL), tids()
    execute("CREATE ROLE crates_owner")
    execute("CREATE ROLE crates_migrator")
    try:
        execute(f"GRANT USAGE ON SCHEMA {schema} TO crates_migrator, crates_owner")
        execute(f"ALTER TABLE {PARCEL} OWNER TO crates_owner")
        for right in rights:
            execute(right.format(schema=schema))
        execute("SET ROLE crates_migrator")
        with pytest.raises(CommandError, match=message.format(schema=schema)):
            tables.migrate(DIVIDE)
    finally:
        execute("RESET ROLE")
        execute(f"ALTER TABLE {PARCEL} OWNER TO CURRENT_USER")
        execute("DROP OWNED BY crates_migrator, crates_owner")
        execute("DROP ROLE crates_migrator, crates_owner")
    assert (shape(PARCEL), tids()) == (before, places)
    assert partitions() == {}


def test_a_reference_that_the_database_does_not_know_stays(tables):
    with pytest.raises(CommandError, match="give the migration atomic = False"):
        tables.migrate(DIVIDE, atomic=True)
    far = models.ForeignKey("Parcel", models.CASCADE, db_constraint=False)
    tables.migrate(
        migrations.CreateModel("Line", [("id", models.BigAutoField(primary_key=True)), ("parcel", far)]), DIVIDE
    )
    [one] = tables.add(shard=9)
    tables.model("Line").objects.create(parcel_id=one.pk)
    assert tables.model("Line").objects.select_related("parcel").get().parcel.shard == 9
