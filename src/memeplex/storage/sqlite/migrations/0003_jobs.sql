-- Times are seconds since 1970, in UTC.
create table jobs (
  id       text primary key,
  kind     text not null,
  owner    text not null,
  key      text not null,
  payload  text not null check (json_valid(payload)),
  state    text not null,
  attempts integer not null,
  error    text not null,
  worker   text not null,
  due      real not null,
  lease    real,
  created  real not null,
  updated  real not null,
  unique (kind, owner, key)
) strict;

create index jobs_by_state on jobs (state, due);
