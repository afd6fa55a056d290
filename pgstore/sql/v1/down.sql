DROP TABLE dibs.levels, dibs.releases, dibs.removed, dibs.waiters, dibs.holders, dibs.names, dibs.versions;
