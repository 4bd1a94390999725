create table jobs (
  id       text collate "C" primary key,
  kind     text collate "C" not null,
  owner    text collate "C" not null,
  key      text collate "C" not null,
  payload  json not null,
  state    text not null,
  attempts integer not null,
  error    text not null,
  worker   text not null,
  due      timestamptz not null,
  lease    timestamptz,
  created  timestamptz not null,
  updated  timestamptz not null,
  unique (kind, owner, key)
);

create index jobs_by_state on jobs (state, due);
