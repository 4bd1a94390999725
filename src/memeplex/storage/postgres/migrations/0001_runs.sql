-- Texts are compared by their bytes, as SQLite does; JSON is kept as it was written, which jsonb would not.
create table runs (
  id       text collate "C" primary key,
  team     text not null,
  status   text not null,
  model    text not null,
  seed     bigint not null,
  spec     json not null,
  task     json not null,
  outcome  json,
  software text not null,
  created  timestamptz not null,
  updated  timestamptz not null
);

create index runs_by_age on runs (created desc, id desc);

create table turns (
  run     text collate "C" not null references runs (id) on delete cascade,
  idx     integer not null,
  speaker text not null,
  body    json not null,
  primary key (run, idx)
);

-- One row for every attempt to update a memory, whether or not it changed anything.
-- Turn -1 is the template that an agent's model wrote before its first turn.
create table memory_versions (
  run     text collate "C" not null references runs (id) on delete cascade,
  agent   text collate "C" not null,
  turn    integer not null,
  version integer not null,
  status  text not null,
  body    json not null,
  primary key (run, agent, turn)
);
