-- Ids are never used twice, so that an array in some process's memory cannot be taken for that of a later owner.
-- "changed" and "removed" are the last audit rows that touched, and that took something from, an owner's records.
create table owners (
  id      integer primary key autoincrement,
  name    text not null unique,
  changed integer not null default 0,
  removed integer not null default 0
) strict;

-- One row for every changing call. Its id is the clock by which arrays are kept current.
create table audit (
  id      integer primary key autoincrement,
  at      text not null,
  actor   text not null,
  action  text not null,
  owner   text not null,
  records integer not null,
  cause   text not null
) strict;

create index audit_by_owner on audit (owner, id);

create table records (
  num           integer primary key autoincrement,
  id            text not null unique,
  owner         integer not null references owners (id),
  kind          text not null,
  key           text not null,
  text          text not null,
  payload       text not null check (json_valid(payload)),
  provenance    text not null check (json_valid(provenance)),
  trust         real not null,
  supersedes    text,
  superseded_by text,
  revision      integer not null,
  audit         integer not null,
  origin        text not null check (json_valid(origin)),
  created       text not null,
  updated       text not null,
  author        text not null as (coalesce(json_extract(provenance, '$.author'), '')),
  source        text as (json_extract(provenance, '$.run')),
  position      integer as (json_extract(provenance, '$.turns[0]')),
  unique (owner, kind, key)
) strict;

create index records_by_author on records (owner, author);
create index records_by_place on records (owner, kind, source, position);

create index records_by_id on records (owner, id);

-- Revisions that have been edited away or forgotten. "origin" is the call that made one, "ended" the one that forgot it.
create table revisions (
  record   text not null,
  revision integer not null,
  owner    integer not null references owners (id),
  origin   text not null check (json_valid(origin)),
  ended    text check (ended is null or json_valid(ended)),
  body     text not null check (json_valid(body)),
  primary key (record, revision)
) strict, without rowid;

create index revisions_by_owner on revisions (owner);

create table embedders (
  id        integer primary key autoincrement,
  name      text not null unique,
  dimension integer not null
) strict;

create table vectors (
  record   integer primary key references records (num) on delete cascade,
  owner    integer not null,
  embedder integer not null references embedders (id),
  changed  integer not null,
  vector   blob not null
) strict;

create index vectors_by_change on vectors (owner, changed);

-- Terms, as storage/terms.py makes them; "owner" is one term, so that a search reads one owner's rows alone.
create virtual table words using fts5 (owner, terms, content = '', tokenize = 'porter ascii');
