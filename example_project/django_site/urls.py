"""The pages of the Django site."""

from django.urls import path

from django_site import views

urlpatterns = [
    path("", views.index),
    path("table", views.table),
    path("jobs", views.create),
    path("jobs/<uuid:job_id>", views.job),
    path("jobs/<uuid:job_id>/<str:name>", views.download),
]
