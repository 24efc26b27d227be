//! The clock of the store. Production uses the machine's clock; tests move a clock themselves.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use shikiri_model::lease::LeaseTime;
use shikiri_model::time::Timestamp;

pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Wall-clock time, for records and timers.
    fn now(&self) -> Timestamp;

    /// A clock that never jumps and is the same for all processes of the machine, for leases.
    fn lease_now(&self) -> LeaseTime;
}

#[derive(Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the system clock")]
    fn now(&self) -> Timestamp {
        let since_epoch =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
    }

    fn lease_now(&self) -> LeaseTime {
        // Boot time includes suspended hours: after a suspend, a laptop has lost its leases.
        #[cfg(target_os = "linux")]
        let id = rustix::time::ClockId::Boottime;
        #[cfg(not(target_os = "linux"))]
        let id = rustix::time::ClockId::Monotonic;
        let time = rustix::time::clock_gettime(id);
        time.tv_sec * 1_000 + time.tv_nsec / 1_000_000
    }
}

/// A clock that stands still until a test moves it.
#[derive(Debug)]
pub struct FakeClock {
    now_ms: AtomicI64,
    lease_ms: AtomicI64,
}

impl FakeClock {
    pub fn starting_at(now: Timestamp) -> Self {
        Self { now_ms: AtomicI64::new(now.as_millis()), lease_ms: AtomicI64::new(1_000_000) }
    }

    /// Advances both clocks.
    pub fn advance(&self, by: Duration) {
        let ms = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        self.lease_ms.fetch_add(ms, Ordering::SeqCst);
        self.jump(ms);
    }

    /// Sets the wall clock forward or back, like an operator or NTP.
    pub fn jump(&self, by_ms: i64) {
        self.now_ms.fetch_add(by_ms, Ordering::SeqCst);
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now_ms.load(Ordering::SeqCst))
    }

    fn lease_now(&self) -> LeaseTime {
        self.lease_ms.load(Ordering::SeqCst)
    }
}
