"""Every version of a section is a row. What was noted before is read from the events.

An event holds a note whole up to 2,000 characters. Of a longer one the whole is known where a checkpoint, or the task
itself, holds it; of a version in between that was overwritten before the next checkpoint the beginning is kept.
"""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

TRIGGER = """
CREATE TRIGGER workspaces_scratchpadedit_append_only BEFORE UPDATE OR DELETE ON workspaces_scratchpadedit
 FOR EACH ROW EXECUTE FUNCTION workspaces_refuse_rewrite()
"""


def versions_from_events(apps, schema_editor):
    Task, Branch, Event, Checkpoint, Edit = (
        apps.get_model("workspaces", name) for name in ("Task", "Branch", "Event", "Checkpoint", "ScratchpadEdit")
    )
    noted = Event.objects.filter(kind="note.written")
    for task in Task.objects.filter(pk__in=noted.values("task")).only("pk", "branch", "scratchpad").iterator():
        for branch in Branch.objects.filter(task=task).order_by("number"):
            told = noted.filter(task=task, branch_number=branch.number).order_by("seq")
            edits = [
                Edit(
                    task=task,
                    branch=branch,
                    seq=event.seq,
                    section=str(event.data.get("section", ""))[:80],
                    text=event.data.get("text", "") if str(event.data.get("text", "")).strip() else "",
                    by=event.data.get("by") or ("operator" if event.actor_id else "agent"),
                    actor_id=event.actor_id,
                    written_at=event.at,
                )
                for event in told.iterator()
            ]
            whole = [
                *Checkpoint.objects.filter(branch=branch).order_by("seq").values_list("seq", "scratchpad"),
                *([(None, task.scratchpad)] if branch.pk == task.branch_id else []),
            ]
            since = 0
            for seq, pad in whole:
                newest = {edit.section: edit for edit in edits if since < edit.seq and (seq is None or edit.seq <= seq)}
                for section, edit in newest.items():
                    edit.text = pad.get(section, "")
                since = seq or since
            Edit.objects.bulk_create(edits)


class Migration(migrations.Migration):

    dependencies = [
        ('workspaces', '0013_incidents'),
    ]

    operations = [
        migrations.CreateModel(
            name='ScratchpadEdit',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('seq', models.BigIntegerField()),
                ('section', models.CharField(max_length=80)),
                ('text', models.TextField(blank=True, default='')),
                ('by', models.CharField(choices=[('agent', 'agent'), ('operator', 'operator')], max_length=16)),
                ('written_at', models.DateTimeField()),
                ('actor', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('branch', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='scratchpad_edits', to='workspaces.branch')),
                ('task', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='scratchpad_edits', to='workspaces.task')),
            ],
            options={
                'indexes': [models.Index(fields=['branch', 'section', '-seq'], name='scratchpad_line')],
                'constraints': [models.UniqueConstraint(fields=('task', 'seq', 'section'), name='scratchpad_edit_once')],
            },
        ),
        migrations.RunPython(versions_from_events, migrations.RunPython.noop),
        migrations.RunSQL(
            TRIGGER, "DROP TRIGGER workspaces_scratchpadedit_append_only ON workspaces_scratchpadedit"
        ),
    ]
