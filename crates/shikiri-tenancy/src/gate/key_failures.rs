//! Wrong keys of the last minute, by address: an address that sends many of them is slowed down.
//!
//! Each process counts for itself, and also what comes from this machine. A key has 256 random bits
//! and cannot be guessed; this keeps guessing from costing the server anything, and makes it show.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use shikiri_runtime::AppError;

/// Up to this many failures cause no delay.
const FREE: u32 = 10;
const WITHIN: Duration = Duration::from_secs(60);
const FIRST_DELAY: Duration = Duration::from_millis(50);
const MAX_DELAY: Duration = Duration::from_secs(1);
/// Requests of one address that are held back at once; more are refused.
const MAX_HELD: u32 = 16;
const MAX_ADDRESSES: usize = 10_000;

#[derive(Default)]
pub(super) struct KeyFailures(Mutex<HashMap<IpAddr, AddressFailures>>);

struct AddressFailures {
    since: Instant,
    count: u32,
    held: u32,
}

/// The reaction to one wrong key.
#[derive(Debug, PartialEq, Eq)]
enum KeyFailureAction {
    Free,
    Delay(Duration),
    Refuse(Duration),
}

impl KeyFailures {
    pub(super) async fn slow_down(&self, address: IpAddr) -> Result<(), AppError> {
        let address = network(address);
        match self.count(address, Instant::now()) {
            KeyFailureAction::Free => Ok(()),
            KeyFailureAction::Delay(delay) => {
                let _held = DelayGuard { failures: self, address };
                tokio::time::sleep(delay).await;
                Ok(())
            }
            KeyFailureAction::Refuse(retry_after) => {
                let detail = "too many wrong keys came from this address: check the key, and \
                              wait before the next try"
                    .to_owned();
                Err(AppError::Limit { detail, retry_after })
            }
        }
    }

    fn count(&self, address: IpAddr, now: Instant) -> KeyFailureAction {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MAX_ADDRESSES && !all.contains_key(&address) {
            all.retain(|_, known| now.saturating_duration_since(known.since) < WITHIN);
            // This many addresses are not mistakes: forgetting some costs only their delay.
            if all.len() >= MAX_ADDRESSES {
                all.clear();
            }
        }
        let known = all.entry(address).or_insert(AddressFailures { since: now, count: 0, held: 0 });
        let age = now.saturating_duration_since(known.since);
        if age >= WITHIN {
            (known.since, known.count) = (now, 0);
        }
        if known.held >= MAX_HELD {
            return KeyFailureAction::Refuse(MAX_DELAY);
        }
        known.count = known.count.saturating_add(1);
        if known.count <= FREE {
            return KeyFailureAction::Free;
        }
        known.held += 1;
        let doublings = (known.count - FREE - 1).min(10);
        KeyFailureAction::Delay((FIRST_DELAY * 2_u32.pow(doublings)).min(MAX_DELAY))
    }
}

/// One request that is held back.
struct DelayGuard<'a> {
    failures: &'a KeyFailures,
    address: IpAddr,
}

impl Drop for DelayGuard<'_> {
    fn drop(&mut self) {
        let mut all = self.failures.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get_mut(&self.address) {
            known.held = known.held.saturating_sub(1);
        }
    }
}

/// One customer of a provider has at least a /64 of IPv6 addresses.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        network(text.parse().unwrap())
    }

    #[test]
    fn the_first_mistakes_are_free_then_delays_double_up_to_a_second() {
        let (failures, start) = (KeyFailures::default(), Instant::now());
        let (bad, good) = (address("192.0.2.1"), address("192.0.2.2"));
        let fail = |now| {
            let verdict = failures.count(bad, now);
            if let KeyFailureAction::Delay(_) = verdict {
                drop(DelayGuard { failures: &failures, address: bad });
            }
            verdict
        };
        for _ in 0..FREE {
            assert_eq!(fail(start), KeyFailureAction::Free);
        }
        assert_eq!(fail(start), KeyFailureAction::Delay(FIRST_DELAY));
        assert_eq!(fail(start), KeyFailureAction::Delay(FIRST_DELAY * 2));
        for _ in 0..100 {
            assert!(matches!(fail(start), KeyFailureAction::Delay(delay) if delay <= MAX_DELAY));
        }
        assert_eq!(fail(start), KeyFailureAction::Delay(MAX_DELAY));
        assert_eq!(failures.count(good, start), KeyFailureAction::Free);
        assert_eq!(fail(start + WITHIN), KeyFailureAction::Free);
    }

    #[test]
    fn many_at_once_are_refused_and_not_all_held() {
        let (failures, start) = (KeyFailures::default(), Instant::now());
        let bad = address("2001:db8::1");
        assert_eq!(bad, address("2001:db8::ffff:1"));
        for _ in 0..FREE + MAX_HELD {
            assert!(!matches!(failures.count(bad, start), KeyFailureAction::Refuse(_)));
        }
        assert!(matches!(failures.count(bad, start), KeyFailureAction::Refuse(_)));
    }
}
