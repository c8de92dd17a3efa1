"""Pages of schedules in the admin, and a schedule."""

from django.urls import reverse

LIST = reverse("admin:tasks_schedule_changelist")


def page(schedule):
    return reverse("admin:tasks_schedule_change", args=[schedule.pk])


def act(client, name, *schedules):
    return client.post(LIST, {"action": name, "_selected_action": [schedule.pk for schedule in schedules]}, follow=True)
