create table runs (
  id       text primary key,
  team     text not null,
  status   text not null,
  model    text not null,
  seed     integer not null,
  spec     text not null check (json_valid(spec)),
  task     text not null check (json_valid(task)),
  outcome  text check (outcome is null or json_valid(outcome)),
  software text not null,
  created  text not null,
  updated  text not null
) strict;

create index runs_by_age on runs (created desc);

create table turns (
  run     text not null references runs (id) on delete cascade,
  idx     integer not null,
  speaker text not null,
  body    text not null check (json_valid(body)),
  primary key (run, idx)
) strict, without rowid;

-- One row for every attempt to update a memory, whether or not it changed anything.
-- Turn -1 is the template that an agent's model wrote before its first turn.
create table memory_versions (
  run     text not null references runs (id) on delete cascade,
  agent   text not null,
  turn    integer not null,
  version integer not null,
  status  text not null,
  body    text not null check (json_valid(body)),
  primary key (run, agent, turn)
) strict, without rowid;
