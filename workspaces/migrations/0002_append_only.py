"""History cannot be rewritten: the database itself refuses updates and deletes of append-only rows."""

from django.db import migrations

APPEND_ONLY = ("event", "message", "usagerecord", "auditentry")
IMMUTABLE = ("profileversion",)

FORWARD = """
CREATE FUNCTION workspaces_refuse_rewrite() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of % refused: these rows are append-only', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'integrity_constraint_violation';
END $$;
"""


def triggers():
    for table in APPEND_ONLY:
        yield table, "UPDATE OR DELETE"
    for table in IMMUTABLE:
        yield table, "UPDATE"


class Migration(migrations.Migration):
    dependencies = [("workspaces", "0001_initial")]

    operations = [
        migrations.RunSQL(FORWARD, "DROP FUNCTION workspaces_refuse_rewrite()"),
        *[
            migrations.RunSQL(
                f"CREATE TRIGGER workspaces_{table}_append_only BEFORE {what} ON workspaces_{table}"
                " FOR EACH ROW EXECUTE FUNCTION workspaces_refuse_rewrite()",
                f"DROP TRIGGER workspaces_{table}_append_only ON workspaces_{table}",
            )
            for table, what in triggers()
        ],
    ]
