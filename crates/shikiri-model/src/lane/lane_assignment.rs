//! Assigns lanes to callers, and chooses the lanes to evict when there are too many.

use super::{CallerIdentity, Lane};
use crate::time::Timestamp;

/// What to do with a lane for a caller.
#[derive(Clone, Debug, PartialEq)]
pub enum LaneMatch {
    /// The lane belongs to the caller.
    Own,
    /// The holder is gone and the caller is its successor: the caller takes the lane over.
    TakeOver,
    /// An expired lane of another holder under the caller's name: it is replaced.
    Replace,
    /// Another holder has the name: the caller needs another name.
    Taken,
}

/// Matches a lane with a caller. `is_gone`: the lane's holder is not alive any more.
pub fn match_lane(lane: &Lane, who: &CallerIdentity, is_gone: bool) -> LaneMatch {
    if lane.is_held_by(who) {
        return LaneMatch::Own;
    }
    if !is_gone {
        return LaneMatch::Taken;
    }
    // A subagent never returns: its id is new each time.
    let is_same = lane.agent == who.agent && lane.subagent.is_none() && who.subagent.is_none();
    if who.is_declared && is_same { LaneMatch::TakeOver } else { LaneMatch::Replace }
}

/// Every lane has a question in flight, so none can be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllLanesBusy;

/// The open lanes to evict so that one more fits: the least recently used without a question in
/// flight, in order.
pub fn choose_evictions(
    open: &[Lane],
    max: u32,
    is_busy: impl Fn(&Lane) -> bool,
) -> Result<Vec<usize>, AllLanesBusy> {
    let max = usize::try_from(max).unwrap_or(usize::MAX).max(1);
    let surplus = (open.len() + 1).saturating_sub(max);
    if surplus == 0 {
        return Ok(Vec::new());
    }
    let mut idle: Vec<usize> = (0..open.len()).filter(|at| !is_busy(&open[*at])).collect();
    if idle.len() < surplus {
        return Err(AllLanesBusy);
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
    use crate::lane::CallerOrigin;

    fn who(pid: u32, declared: Option<&str>) -> CallerIdentity {
        let declared = declared.map(str::to_owned);
        CallerIdentity::of(&CallerOrigin::Process { pid, started_ms: 1, declared }, "claude-code")
    }

    fn lane(who: &CallerIdentity, at: i64) -> Lane {
        let (id, now) = ("lan_1".parse().unwrap(), Timestamp::from_millis(at));
        Lane::open(id, TenantId::local(), who, who.lane_name(), now)
    }

    #[test]
    fn a_declared_agent_takes_over_only_its_own_lanes_without_a_holder() {
        let (mine, again) = (who(1, Some("a")), who(2, Some("a")));
        let of_mine = lane(&mine, 0);
        assert_eq!(match_lane(&of_mine, &mine, false), LaneMatch::Own);
        assert_eq!(match_lane(&of_mine, &mine, true), LaneMatch::Own);
        assert_eq!(match_lane(&of_mine, &again, true), LaneMatch::TakeOver);
        assert_eq!(match_lane(&of_mine, &again, false), LaneMatch::Taken);
        assert_eq!(match_lane(&of_mine, &who(2, Some("b")), true), LaneMatch::Replace);
        // A caller without a declared name is no successor.
        let plain = lane(&who(1, None), 0);
        let later = CallerIdentity { holder: "process:1:9".into(), ..who(1, None) };
        assert_eq!(match_lane(&plain, &later, true), LaneMatch::Replace);
        assert_eq!(match_lane(&plain, &later, false), LaneMatch::Taken);
        // Neither is a subagent, or the successor of one.
        assert_eq!(
            match_lane(&of_mine, &again.clone().for_subagent(Some("s")), true),
            LaneMatch::Replace
        );
        let of_sub = lane(&mine.for_subagent(Some("s")), 0);
        assert_eq!(match_lane(&of_sub, &again, true), LaneMatch::Replace);
    }

    #[test]
    fn the_oldest_idle_lane_goes_and_never_one_at_work() {
        let lanes: Vec<Lane> =
            [30, 10, 20].into_iter().map(|at| lane(&who(at as u32, None), at)).collect();
        let none = |_: &Lane| false;
        assert_eq!(choose_evictions(&lanes, 4, none), Ok(vec![]));
        assert_eq!(choose_evictions(&lanes, 3, none), Ok(vec![1]));
        assert_eq!(choose_evictions(&lanes, 1, none), Ok(vec![1, 2, 0]));
        let oldest_works = |lane: &Lane| lane.last_access.as_millis() == 10;
        assert_eq!(choose_evictions(&lanes, 3, oldest_works), Ok(vec![2]));
        assert_eq!(choose_evictions(&lanes, 3, |_: &Lane| true), Err(AllLanesBusy));
        assert_eq!(choose_evictions(&[], 0, none), Ok(vec![]));
    }
}
