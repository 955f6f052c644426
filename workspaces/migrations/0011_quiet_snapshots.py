"""A snapshot says whether anything could have changed the disk after it; of those taken so far that is not known."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('workspaces', '0010_effects_and_leftovers'),
    ]

    operations = [
        migrations.AddField(
            model_name='snapshot',
            name='quiet',
            field=models.BooleanField(db_default=False),
        ),
    ]
