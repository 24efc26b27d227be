//! Leases: the exclusive right to write until a time, with a fence that rises at every change of
//! owner. A paused holder that continues after expiry has an old fence, and the store refuses its
//! writes in the transaction that contains them.

use std::time::Duration;

/// A time on the store's lease clock, in milliseconds. Not a wall-clock time: SQLite uses the
/// machine's monotonic clock, PostgreSQL the database's.
pub type LeaseTime = i64;

/// A stored lease. The row stays after release so that the fence keeps rising.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub name: String,
    pub owner: String,
    pub fence: u64,
    pub expires_at: LeaseTime,
}

/// Proof that a writer held the lease. Every write under the lease includes it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseGuard {
    pub name: String,
    pub fence: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseChange {
    Acquire { name: String, owner: String, ttl: Duration },
    Renew { guard: LeaseGuard, ttl: Duration },
    Release { guard: LeaseGuard },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseRefusal {
    #[error("{name} is held by {owner}")]
    Held { name: String, owner: String, for_ms: i64 },
    #[error("{name} was lost: another holder may have taken it")]
    Lost { name: String },
}

impl LeaseChange {
    pub fn name(&self) -> &str {
        match self {
            Self::Acquire { name, .. } => name,
            Self::Renew { guard, .. } | Self::Release { guard } => &guard.name,
        }
    }

    /// The lease after this change, given the stored one.
    pub fn apply(&self, stored: Option<&Lease>, now: LeaseTime) -> Result<Lease, LeaseRefusal> {
        match self {
            Self::Acquire { name, owner, ttl } => match stored.filter(|l| l.expires_at > now) {
                Some(held) => Err(LeaseRefusal::Held {
                    name: name.clone(),
                    owner: held.owner.clone(),
                    for_ms: held.expires_at - now,
                }),
                None => Ok(Lease {
                    name: name.clone(),
                    owner: owner.clone(),
                    fence: stored.map_or(0, |l| l.fence) + 1,
                    expires_at: after(now, *ttl),
                }),
            },
            Self::Renew { guard, ttl } => {
                let held = guard.check(stored, now)?;
                Ok(Lease { expires_at: after(now, *ttl), ..held.clone() })
            }
            Self::Release { guard } => {
                let held = guard.check(stored, now)?;
                Ok(Lease { expires_at: now, ..held.clone() })
            }
        }
    }
}

impl LeaseGuard {
    /// Accepts the guard only while its holder has the lease and the lease has not expired. An
    /// expired lease is refused even if it was not taken yet, so that the result does not depend on
    /// a race.
    pub fn check<'a>(
        &self,
        stored: Option<&'a Lease>,
        now: LeaseTime,
    ) -> Result<&'a Lease, LeaseRefusal> {
        stored
            .filter(|lease| lease.fence == self.fence && lease.expires_at > now)
            .ok_or_else(|| LeaseRefusal::Lost { name: self.name.clone() })
    }
}

impl Lease {
    pub fn guard(&self) -> LeaseGuard {
        LeaseGuard { name: self.name.clone(), fence: self.fence }
    }
}

fn after(now: LeaseTime, ttl: Duration) -> LeaseTime {
    now.saturating_add(i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_millis(100);

    fn acquire(owner: &str) -> LeaseChange {
        LeaseChange::Acquire { name: "n".into(), owner: owner.into(), ttl: TTL }
    }

    #[test]
    fn every_change_against_every_state() {
        let first = acquire("a").apply(None, 0).unwrap();
        assert_eq!((first.fence, first.expires_at), (1, 100));

        let held = acquire("b").apply(Some(&first), 99).unwrap_err();
        assert_eq!(held, LeaseRefusal::Held { name: "n".into(), owner: "a".into(), for_ms: 1 });
        let second = acquire("b").apply(Some(&first), 100).unwrap();
        assert_eq!((second.fence, second.owner.as_str()), (2, "b"));

        let renew = LeaseChange::Renew { guard: first.guard(), ttl: TTL };
        assert_eq!(renew.apply(Some(&first), 50).unwrap().expires_at, 150);
        for (stored, now) in [(Some(&first), 100), (Some(&second), 120), (None, 0)] {
            assert!(renew.apply(stored, now).is_err());
        }

        let release = LeaseChange::Release { guard: second.guard() };
        let free = release.apply(Some(&second), 120).unwrap();
        assert_eq!(acquire("a").apply(Some(&free), 120).unwrap().fence, 3);
        assert!(LeaseChange::Release { guard: first.guard() }.apply(Some(&second), 120).is_err());
    }

    #[test]
    fn an_expired_holder_is_refused_even_if_the_lease_is_free() {
        let lease = acquire("a").apply(None, 0).unwrap();
        assert!(lease.guard().check(Some(&lease), 99).is_ok());
        assert!(lease.guard().check(Some(&lease), 100).is_err());
    }
}
