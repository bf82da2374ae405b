"""What runs the tables' plans and writes what they give: sessions, jobs, the stream."""
