-- "documents" and "length" are how many records an owner has and how many terms they have together: what BM25 needs to
-- know of all owners. They change under the owner's row lock, so that no two owners' writers ever wait for each other.
create table owners (
  id        bigint generated always as identity primary key,
  name      text collate "C" not null unique,
  documents bigint not null default 0,
  length    bigint not null default 0
);

-- One row for every changing call.
create table audit (
  id      bigint generated always as identity primary key,
  at      timestamptz not null,
  actor   text not null,
  action  text not null,
  owner   text collate "C" not null,
  records integer not null,
  cause   text not null
);

create index audit_by_owner on audit (owner, id);

-- Names of authors and sources are cut, since an index holds no long ones.
create table records (
  num           bigint generated always as identity primary key,
  id            text collate "C" not null unique,
  owner         bigint not null references owners (id),
  kind          text collate "C" not null,
  key           text collate "C" not null,
  text          text not null,
  payload       json not null,
  provenance    json not null,
  trust         double precision not null,
  supersedes    text,
  superseded_by text,
  revision      integer not null,
  origin        json not null,
  created       timestamptz not null,
  updated       timestamptz not null,
  author        text collate "C" not null generated always as (left(coalesce(provenance ->> 'author', ''), 200)) stored,
  source        text collate "C" generated always as (left(provenance ->> 'run', 200)) stored,
  position      bigint generated always as ((provenance #>> '{turns,0}')::bigint) stored,
  unique (owner, kind, key)
);

create index records_by_id on records (owner, id);
create index records_by_kind on records (owner, kind, id);
create index records_by_author on records (owner, author);
create index records_by_place on records (owner, kind, source, position);

-- Revisions that have been edited away or forgotten. "origin" is the call that made one, "ended" the one that forgot it.
create table revisions (
  record   text collate "C" not null,
  revision integer not null,
  owner    bigint not null references owners (id),
  origin   json not null,
  ended    json,
  body     json not null,
  primary key (record, revision)
);

create index revisions_by_owner on revisions (owner);

create table embedders (
  id        integer generated always as identity primary key,
  name      text not null unique,
  dimension integer not null
);

-- Of any dimension; an index of one embedder's vectors is made when they have become many (indexing.py).
create table vectors (
  record   bigint primary key references records (num) on delete cascade,
  owner    bigint not null,
  kind     text collate "C" not null,
  embedder integer not null references embedders (id),
  vector   vector not null
);

create index vectors_by_owner on vectors (owner, embedder);

-- The stemmer that SQLite's index uses: Porter's first, not the later one that PostgreSQL uses for English.
create text search dictionary porter (template = snowball, language = porter);

create function porter(term text) returns text immutable strict parallel safe language sql
return case when length(term) < 3 then term else coalesce((ts_lexize('porter', term))[1], term) end;

-- SQLite's has two rules more, as Porter's own program: -bly is as -ble, and -logy as -log, behind a whole syllable.
create function stem(term text) returns text immutable strict parallel safe language sql
return case
 when term not like '%bl%' and term not like '%log%' then porter(term)
 when porter(term) like '%bli' and left(porter(term), -3) ~ '[aeiouy][^aeiouy]' then porter(left(porter(term), -1) || 'e')
 when porter(term) like '%logi' and left(porter(term), -4) ~ '[aeiouy][^aeiouy]' then left(porter(term), -1)
 else porter(term)
end;

-- Stems of the terms that storage/terms.py makes: how often (tf) each is in a record of so many terms (length).
-- No foreign key: it would be looked up for every word of every record.
create table words (
  term   text collate "C" not null,
  owner  bigint not null,
  record bigint not null,
  tf     integer not null,
  length integer not null
);

create unique index words_by_term on words (term, owner, record) include (tf, length);
create index words_by_record on words (record);

-- Statistics hold values, of what is purged as well, and the server never lets go of old ones. Nothing is planned by these.
alter table audit alter column cause set statistics 0;
alter table records alter column text set statistics 0, alter column key set statistics 0,
 alter column author set statistics 0, alter column source set statistics 0;
alter table vectors alter column vector set statistics 0;
alter table words alter column term set statistics 0;
