"""Pages of the site that are generated; `hook` hands them to MkDocs."""
