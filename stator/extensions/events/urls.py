"""The page of answers by link."""

from django.urls import path

from stator.extensions.events.answering import show_answer

urlpatterns = [path("answer/<str:token>/", show_answer, name="answer")]
