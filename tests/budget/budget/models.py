from datetime import UTC

from django.db import models
from django.db.models.functions import TruncMonth

from stator.models import Now

THIS_MONTH = TruncMonth(Now(), tzinfo=UTC, output_field=models.DateField())


class Budget(models.Model):
    tenant = models.CharField(max_length=50, primary_key=True)
    limit = models.PositiveIntegerField()
    spent = models.PositiveIntegerField(default=0)
    month = models.DateField(null=True, editable=False)

    @classmethod
    def used_up(cls):
        return cls.objects.filter(month=THIS_MONTH, spent__gte=models.F("limit"))


class Budgeted(models.Model):
    tenant = models.CharField(max_length=50)
    cost = models.PositiveIntegerField(default=1)

    class Meta:
        abstract = True
