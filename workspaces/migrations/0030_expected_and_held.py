from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("workspaces", "0029_deadline_questions"),
    ]

    operations = [
        migrations.AddField(
            model_name="modelcall",
            name="held_tokens",
            field=models.BigIntegerField(null=True),
        ),
        migrations.RenameField(model_name="budgetwait", old_name="usd", new_name="expected_usd"),
        migrations.RenameField(model_name="budgetwait", old_name="tokens", new_name="expected_tokens"),
        migrations.AddField(
            model_name="budgetwait",
            name="held_usd",
            field=models.DecimalField(decimal_places=9, default=0, max_digits=20),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name="budgetwait",
            name="held_tokens",
            field=models.BigIntegerField(default=0),
            preserve_default=False,
        ),
    ]
