//! A store as one would write it if nothing could fail and there were no other process: maps in
//! memory, changed one commit at a time. The real ones must agree with it.

use std::collections::BTreeMap;

use shikiri_model::cursor::StreamExtent;
use shikiri_model::event::{Seq, StreamId};
use shikiri_model::ids::TenantId;
use shikiri_model::lease::{Lease, LeaseChange, LeaseGuard};
use shikiri_model::record::{
    ExpectedVersion, Record, RecordChange, RecordClaim, RecordKey, RecordQuery,
};
use shikiri_model::time::Timestamp;
use shikiri_store::{Clock, Commit, FakeClock, StreamAppend};

use crate::steps::CURRENT;

#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    now: Timestamp,
    lease_now: i64,
    leases: BTreeMap<String, Lease>,
    streams: BTreeMap<StreamId, Stream>,
    records: BTreeMap<RecordKey, Record>,
}

#[derive(Clone, Debug)]
struct Stream {
    tenant: TenantId,
    events: Vec<Event>,
    first_kept: Seq,
    head: Seq,
    closed: bool,
    note: Option<String>,
}

type Event = (Seq, Timestamp, &'static str, String);

impl Model {
    pub(crate) fn look_at(&mut self, clock: &FakeClock) {
        self.now = clock.now();
        self.lease_now = clock.lease_now();
    }

    /// The commit as a writer makes it who has just read what it names.
    pub(crate) fn informed(&self, mut commit: Commit) -> Commit {
        let fence = |guard: &mut LeaseGuard| {
            if guard.fence == CURRENT {
                guard.fence = self.leases.get(&guard.name).map_or(1, |lease| lease.fence);
            }
        };
        commit.guards.iter_mut().for_each(fence);
        for change in &mut commit.leases {
            if let LeaseChange::Renew { guard, .. } | LeaseChange::Release { guard } = change {
                fence(guard);
            }
        }
        for change in &mut commit.records {
            let found = self.records.get(change.key()).map(|record| record.version);
            match change {
                RecordChange::Put { expect, .. }
                    if *expect == ExpectedVersion::Version(CURRENT) =>
                {
                    *expect = found.map_or(ExpectedVersion::New, ExpectedVersion::Version);
                }
                RecordChange::Delete { version, .. } if *version == CURRENT => {
                    *version = found.unwrap_or(1);
                }
                _ => {}
            }
        }
        commit
    }

    /// What became of it, in words.
    pub(crate) fn commit(&mut self, commit: &Commit) -> String {
        let mut after = self.clone();
        match after.try_commit(commit) {
            Ok(told) => {
                *self = after;
                told
            }
            Err(refusal) => refusal,
        }
    }

    fn try_commit(&mut self, commit: &Commit) -> Result<String, String> {
        for guard in &commit.guards {
            self.held(guard)?;
        }
        let mut leases = Vec::new();
        for change in &commit.leases {
            leases.push(self.change_lease(change)?);
        }
        let mut versions = Vec::new();
        for change in &commit.records {
            versions.push(self.change_record(change)?);
        }
        let mut appended = Vec::new();
        for append in &commit.appends {
            appended.push(self.append(append)?);
        }
        let claimed: Vec<_> = commit.claims.iter().flat_map(|claim| self.claim(claim)).collect();
        Ok(format!("{leases:?} {versions:?} {appended:?} {claimed:?}"))
    }

    fn held(&self, guard: &LeaseGuard) -> Result<Lease, String> {
        match self.leases.get(&guard.name) {
            Some(l) if l.fence == guard.fence && l.expires_at > self.lease_now => Ok(l.clone()),
            _ => Err(format!("{} was lost: another holder may have taken it", guard.name)),
        }
    }

    fn change_lease(&mut self, change: &LeaseChange) -> Result<Lease, String> {
        let until =
            |ttl: &std::time::Duration| self.lease_now + i64::try_from(ttl.as_millis()).unwrap();
        let lease = match change {
            LeaseChange::Acquire { name, owner, ttl } => {
                let stored = self.leases.get(name);
                if let Some(held) = stored.filter(|l| l.expires_at > self.lease_now) {
                    return Err(format!("{name} is held by {}", held.owner));
                }
                let fence = stored.map_or(1, |l| l.fence + 1);
                let (name, owner) = (name.clone(), owner.clone());
                Lease { name, owner, fence, expires_at: until(ttl) }
            }
            LeaseChange::Renew { guard, ttl } => {
                Lease { expires_at: until(ttl), ..self.held(guard)? }
            }
            LeaseChange::Release { guard } => {
                Lease { expires_at: self.lease_now, ..self.held(guard)? }
            }
        };
        self.leases.insert(lease.name.clone(), lease.clone());
        Ok(lease)
    }

    fn change_record(&mut self, change: &RecordChange) -> Result<u64, String> {
        let key = change.key().clone();
        let stored = self.records.get(&key).cloned();
        let changed = format!("{} {} has changed meanwhile", key.kind, key.id);
        match change {
            RecordChange::Delete { version, .. } => match stored {
                Some(record) if record.version == *version => {
                    self.records.remove(&key);
                    Ok(0)
                }
                _ => Err(changed),
            },
            RecordChange::Put { expect, columns, doc, .. } => {
                match (expect, &stored) {
                    (ExpectedVersion::New, Some(_)) => {
                        return Err(format!("{} {} exists already", key.kind, key.id));
                    }
                    (ExpectedVersion::New, None) => {}
                    (ExpectedVersion::Version(v), Some(record)) if record.version == *v => {}
                    (ExpectedVersion::Version(_), _) => return Err(changed),
                }
                let same = |other: &&Record| {
                    columns.unique.is_some()
                        && other.columns.unique == columns.unique
                        && (other.key.kind, &other.key.tenant) == (key.kind, &key.tenant)
                        && other.key.id != key.id
                };
                if let Some(other) = self.records.values().find(same) {
                    let id = &other.key.id;
                    return Err(format!("{} {id} has the same unique value", key.kind));
                }
                let record = Record {
                    key: key.clone(),
                    version: stored.as_ref().map_or(1, |r| r.version + 1),
                    attempts: 0,
                    created_at: stored.map_or(self.now, |r| r.created_at),
                    updated_at: self.now,
                    columns: columns.clone(),
                    doc: doc.clone(),
                };
                let version = record.version;
                self.records.insert(key, record);
                Ok(version)
            }
        }
    }

    fn append(&mut self, append: &StreamAppend) -> Result<(Seq, Seq), String> {
        let stream = self.streams.entry(append.stream.clone()).or_insert_with(|| Stream {
            tenant: append.tenant.clone(),
            events: Vec::new(),
            first_kept: 1,
            head: 0,
            closed: false,
            note: None,
        });
        if stream.closed || stream.tenant != append.tenant {
            return Err(format!("{} is closed", append.stream));
        }
        let first = stream.head + 1;
        for event in &append.events {
            stream.head += 1;
            stream.events.push((stream.head, self.now, event.kind(), event.data().to_owned()));
        }
        stream.closed = append.close;
        stream.note = append.note.clone().or(stream.note.take());
        Ok((first, stream.head))
    }

    fn claim(&mut self, claim: &RecordClaim) -> Vec<Record> {
        let mut due: Vec<_> = self
            .records
            .values()
            .filter(|r| r.key.kind == claim.kind)
            .filter(|r| claim.tenant.as_ref().is_none_or(|tenant| *tenant == r.key.tenant))
            .filter(|r| claim.parent.is_none() || claim.parent == r.columns.parent)
            .filter(|r| r.columns.due_at.is_some_and(|at| at <= self.now))
            .cloned()
            .collect();
        due.sort_by_key(|record| record.columns.due_at);
        due.truncate(claim.limit as usize);
        for record in &mut due {
            record.version += 1;
            record.attempts += 1;
            record.updated_at = self.now;
            if claim.owner.is_some() {
                record.columns.owner.clone_from(&claim.owner);
            }
            record.columns.due_at = Some(self.now + claim.hold);
            self.records.insert(record.key.clone(), record.clone());
        }
        due
    }

    pub(crate) fn read(&self, tenant: &TenantId, name: &StreamId, after: Seq) -> String {
        let Some(stream) = self.streams.get(name).filter(|s| s.tenant == *tenant) else {
            return format!("there is no stream {name}");
        };
        let Stream { first_kept, head, closed, .. } = *stream;
        if let Err(refusal) = (StreamExtent { first_kept, head, closed }).check(after) {
            return refusal.to_string();
        }
        let events: Vec<_> = stream.events.iter().filter(|event| event.0 > after).collect();
        format!("{events:?} {closed} {:?}", stream.note)
    }

    pub(crate) fn list(&self, query: &RecordQuery) -> Vec<Record> {
        let wanted =
            |one: &Option<String>, other: Option<&String>| one.is_none() || one.as_ref() == other;
        let mut found: Vec<_> = self
            .records
            .values()
            .filter(|r| r.key.kind == query.kind)
            .filter(|r| query.tenant.as_ref().is_none_or(|tenant| *tenant == r.key.tenant))
            .filter(|r| wanted(&query.state, Some(&r.columns.state)))
            .filter(|r| wanted(&query.parent, r.columns.parent.as_ref()))
            .filter(|r| wanted(&query.owner, r.columns.owner.as_ref()))
            .cloned()
            .collect();
        found.sort_by_key(|record| (record.created_at, record.key.id.clone()));
        if query.newest_first {
            found.reverse();
        }
        found.truncate(query.limit as usize);
        found
    }

    pub(crate) fn next_due(&self, kind: &str) -> Option<Timestamp> {
        let of_kind = self.records.values().filter(|record| record.key.kind == kind);
        of_kind.filter_map(|record| record.columns.due_at).min()
    }

    pub(crate) fn lapsed_leases(&self, prefix: &str) -> Vec<Lease> {
        let lapsed = self.leases.values().filter(|lease| lease.expires_at <= self.lease_now);
        lapsed.filter(|lease| lease.name.starts_with(prefix)).cloned().collect()
    }

    pub(crate) fn forget_lease(&mut self, guard: &LeaseGuard) {
        let now = self.lease_now;
        self.leases
            .retain(|name, l| *name != guard.name || l.fence != guard.fence || l.expires_at > now);
    }

    /// How many commits went.
    pub(crate) fn purge(&mut self, before: Timestamp) -> usize {
        let mut gone = 0;
        for stream in self.streams.values_mut().filter(|stream| stream.closed) {
            let kept = stream.events.iter().position(|event| event.1 >= before);
            let rest = stream.events.split_off(kept.unwrap_or(stream.events.len()));
            let mut times: Vec<_> = stream.events.iter().map(|event| event.1).collect();
            times.dedup();
            gone += times.len();
            stream.first_kept += stream.events.len() as u64;
            stream.events = rest;
        }
        gone
    }

    pub(crate) fn erase(&mut self, tenant: &TenantId) {
        self.streams.retain(|_, stream| stream.tenant != *tenant);
        self.records.retain(|key, _| key.tenant != *tenant);
    }
}
