"""Sums of usage by the day, made of those by the hour that are there."""

from __future__ import annotations

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


FILL = """
INSERT INTO workspaces_usageday (day, user_id, workspace_id, task_id, profile_id, model, purpose, records, cost_usd,
                                 unpriced)
SELECT (hour AT TIME ZONE 'UTC')::date AS day, user_id, workspace_id, task_id, profile_id, model, purpose,
       sum(records), sum(cost_usd), sum(unpriced)
  FROM workspaces_usagerollup GROUP BY 1, 2, 3, 4, 5, 6, 7 ORDER BY 1
"""


class Migration(migrations.Migration):

    dependencies = [
        ('workspaces', '0032_metering'),
    ]

    operations = [
        migrations.CreateModel(
            name='UsageDay',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('day', models.DateField()),
                ('model', models.CharField(blank=True, default='', max_length=200)),
                ('purpose', models.CharField(choices=[('step', 'step'), ('retry', 'retry'), ('summary', 'summary'), ('claim_check', 'claim check'), ('sandbox', 'sandbox'), ('storage', 'storage')], max_length=16)),
                ('records', models.IntegerField()),
                ('cost_usd', models.DecimalField(decimal_places=9, default=0, max_digits=20)),
                ('unpriced', models.IntegerField(default=0)),
                ('profile', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='workspaces.agentprofile')),
                ('task', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='workspaces.task')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('workspace', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='workspaces.workspace')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('day', 'task', 'workspace', 'user', 'profile', 'model', 'purpose'), name='usage_day_once', nulls_distinct=False)],
            },
        ),
        migrations.RunSQL(FILL, "DELETE FROM workspaces_usageday"),
    ]
