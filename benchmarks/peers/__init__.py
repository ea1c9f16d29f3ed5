"""What a user could take instead: the same messages in other stores, as they are shipped."""
