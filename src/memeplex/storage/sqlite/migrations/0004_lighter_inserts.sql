-- Every index is a page more that each insert writes and flushes. The audit is read from its end, by people; and what
-- has no author or no place in a run is not looked for by it.
drop index audit_by_owner;
drop index records_by_author;
drop index records_by_place;

create index records_by_author on records (owner, author) where author > '';
create index records_by_place on records (owner, kind, source, position) where source is not null;
