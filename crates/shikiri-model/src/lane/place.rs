//! Which lane is whose, and which must go when there are too many.

use super::{Identity, Lane};
use crate::time::Timestamp;

/// What there is to do for a caller who wants its lane.
#[derive(Clone, Debug, PartialEq)]
pub enum Find {
    /// This one is its own.
    Own,
    /// Nobody has it any more, and the caller is who had it: it goes on with it.
    TakeOver,
    /// Somebody else's that is over, under the caller's name: it makes room.
    Replace,
    /// Somebody else has that name: another must be found.
    Taken,
}

/// What a lane is to a caller. `is_gone` says that whoever had it does not live any more.
pub fn find(lane: &Lane, who: &Identity, is_gone: bool) -> Find {
    if lane.is_of(who) {
        return Find::Own;
    }
    if !is_gone {
        return Find::Taken;
    }
    // A subagent never comes back: its id is made anew each time.
    let is_same = lane.agent == who.agent && lane.subagent.is_none() && who.subagent.is_none();
    if who.is_declared && is_same { Find::TakeOver } else { Find::Replace }
}

/// Every lane has a question in flight: none can go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllBusy;

/// Which of the open lanes must go so that one more fits: the least recently used of those with
/// nothing in flight, in the order in which they go.
pub fn make_room(
    open: &[Lane],
    max: u32,
    is_busy: impl Fn(&Lane) -> bool,
) -> Result<Vec<usize>, AllBusy> {
    let max = usize::try_from(max).unwrap_or(usize::MAX).max(1);
    let surplus = (open.len() + 1).saturating_sub(max);
    if surplus == 0 {
        return Ok(Vec::new());
    }
    let mut idle: Vec<usize> = (0..open.len()).filter(|at| !is_busy(&open[*at])).collect();
    if idle.len() < surplus {
        return Err(AllBusy);
    }
    let age = |at: &usize| -> (Timestamp, String) {
        let lane = &open[*at];
        (lane.last_access, lane.name.clone())
    };
    idle.sort_by_key(age);
    idle.truncate(surplus);
    Ok(idle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::TenantId;
    use crate::lane::Way;

    fn who(pid: u32, declared: Option<&str>) -> Identity {
        let declared = declared.map(str::to_owned);
        Identity::of(&Way::Process { pid, started_ms: 1, declared }, "claude-code")
    }

    fn lane(who: &Identity, at: i64) -> Lane {
        let (id, now) = ("lan_1".parse().unwrap(), Timestamp::from_millis(at));
        Lane::open(id, TenantId::local(), who, who.lane_name(), now)
    }

    #[test]
    fn a_declared_agent_takes_over_only_what_was_its_own_and_nobody_has() {
        let (mine, again) = (who(1, Some("a")), who(2, Some("a")));
        let of_mine = lane(&mine, 0);
        assert_eq!(find(&of_mine, &mine, false), Find::Own);
        assert_eq!(find(&of_mine, &mine, true), Find::Own);
        assert_eq!(find(&of_mine, &again, true), Find::TakeOver);
        assert_eq!(find(&of_mine, &again, false), Find::Taken);
        assert_eq!(find(&of_mine, &who(2, Some("b")), true), Find::Replace);
        // Who was not declared is nobody's successor.
        let plain = lane(&who(1, None), 0);
        let later = Identity { holder: "process:1:9".into(), ..who(1, None) };
        assert_eq!(find(&plain, &later, true), Find::Replace);
        assert_eq!(find(&plain, &later, false), Find::Taken);
        // Nor is a subagent, or the successor of one.
        assert_eq!(find(&of_mine, &again.clone().for_subagent(Some("s")), true), Find::Replace);
        let of_sub = lane(&mine.for_subagent(Some("s")), 0);
        assert_eq!(find(&of_sub, &again, true), Find::Replace);
    }

    #[test]
    fn the_oldest_idle_lane_goes_and_never_one_at_work() {
        let lanes: Vec<Lane> =
            [30, 10, 20].into_iter().map(|at| lane(&who(at as u32, None), at)).collect();
        let none = |_: &Lane| false;
        assert_eq!(make_room(&lanes, 4, none), Ok(vec![]));
        assert_eq!(make_room(&lanes, 3, none), Ok(vec![1]));
        assert_eq!(make_room(&lanes, 1, none), Ok(vec![1, 2, 0]));
        let oldest_works = |lane: &Lane| lane.last_access.as_millis() == 10;
        assert_eq!(make_room(&lanes, 3, oldest_works), Ok(vec![2]));
        assert_eq!(make_room(&lanes, 3, |_: &Lane| true), Err(AllBusy));
        assert_eq!(make_room(&[], 0, none), Ok(vec![]));
    }
}
