DROP TABLE dibs_removed, dibs_messages, dibs_waiters, dibs_releases, dibs_guards, dibs_holders, dibs_names, dibs_versions;
