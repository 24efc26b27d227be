//! A small seeded generator (SplitMix64). The seed is printed, and `SHIKIRI_SEED` sets it, so that
//! a failure can be reproduced.

/// Random numbers that a seed determines.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// The seed from `SHIKIRI_SEED`, or a fresh one. It is printed in either case, with the test's
    /// name.
    pub fn seeded(test: &str) -> Self {
        let seed = match std::env::var("SHIKIRI_SEED") {
            Ok(text) => text.parse().expect("SHIKIRI_SEED is a number"),
            Err(_) => fresh_seed(),
        };
        eprintln!("{test}: SHIKIRI_SEED={seed}");
        Self::new(seed)
    }

    /// For names and ports, which need not be reproduced.
    pub(crate) fn random() -> Self {
        Self::new(fresh_seed())
    }

    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A separate generator for part of the test, so that tasks do not race for numbers.
    pub fn fork(&mut self) -> Self {
        Self::new(self.next())
    }

    #[expect(clippy::should_implement_trait, reason = "an endless source, not an iterator")]
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `from..to`.
    pub fn range(&mut self, from: u64, to: u64) -> u64 {
        assert!(from < to, "an empty range: {from}..{to}");
        from + self.next() % (to - from)
    }

    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.range(0, len as u64)).unwrap_or(0)
    }

    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.index(items.len())]
    }

    /// True one time in `n`.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.range(0, n) == 0
    }
}

/// The hasher's keys are random for each value, which is enough for a seed.
fn fresh_seed() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(std::process::id()) >> 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_sequence() {
        let take = |mut rng: Rng| (0..10).map(|_| rng.range(0, 1_000)).collect::<Vec<_>>();
        assert_eq!(take(Rng::new(7)), take(Rng::new(7)));
        assert_ne!(take(Rng::new(7)), take(Rng::new(8)));
    }
}
