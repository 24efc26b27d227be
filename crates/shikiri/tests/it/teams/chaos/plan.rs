//! In which ways a player misbehaves. Its seed says all of it.

use shikiri_testkit::Rng;

/// What happens to a player instead of an ordinary call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accident {
    /// The call is never made.
    CrashBefore,
    /// The call is made, and its answer never read.
    CrashAfter,
    /// It dies with what has come for it in its hands: the server has every reason to think that it
    /// was read.
    CrashWithNews,
    /// It calls nothing for longer than it may.
    Silence,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// One call in so many has an accident.
    pub(crate) accidents: Option<u64>,
    /// How often it comes back after a crash or when its session is over.
    pub(crate) lives: u32,
    /// It leaves without a word after so many calls.
    pub(crate) leaves_after: Option<u32>,
    pub(crate) answers_twice: bool,
    pub(crate) speaks_out_of_turn: bool,
    pub(crate) never_ends: bool,
    pub(crate) ends_early: bool,
    pub(crate) reports_twice: bool,
    /// It sends one message where a talk was meant.
    pub(crate) sends_message: bool,
    /// Delegations after the first, each when the one before is over.
    pub(crate) loops: u32,
    /// Its token is in the header, not among the arguments.
    pub(crate) shows_token: bool,
    pub(crate) max_turns: Option<u64>,
}

impl Plan {
    /// One player in four does everything right.
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let shows_token = rng.one_in(2);
        let max_turns = match rng.range(0, 4) {
            0 => Some(12),
            1 => Some(rng.range(2, 41)),
            _ => None,
        };
        let lives = u32::try_from(rng.range(0, 4)).unwrap_or(0);
        if rng.one_in(4) {
            return Self { shows_token, max_turns, lives: 3, ..Self::default() };
        }
        Self {
            accidents: rng.one_in(2).then(|| rng.range(5, 40)),
            lives,
            leaves_after: rng.one_in(5).then(|| u32::try_from(rng.range(1, 16)).unwrap_or(1)),
            answers_twice: rng.one_in(3),
            speaks_out_of_turn: rng.one_in(4),
            never_ends: rng.one_in(4),
            ends_early: rng.one_in(5),
            reports_twice: rng.one_in(3),
            sends_message: rng.one_in(8),
            loops: 0,
            shows_token,
            max_turns,
        }
    }

    pub(crate) fn accident(&self, rng: &mut Rng) -> Option<Accident> {
        let often = self.accidents?;
        let all = [
            Accident::CrashBefore,
            Accident::CrashAfter,
            Accident::CrashWithNews,
            Accident::Silence,
        ];
        rng.one_in(often).then(|| *rng.pick(&all))
    }
}
