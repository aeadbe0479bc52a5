"""Loop nests by schedules that users and searches write."""
