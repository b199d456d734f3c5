"""Forward migrations of the database, run by ``storage.migrate`` when a store opens. Never edit a released one."""
