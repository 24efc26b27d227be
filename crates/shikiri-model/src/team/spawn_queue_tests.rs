use std::collections::BTreeMap;

use super::*;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn target(agent: &str, purpose: SessionPurpose) -> SpawnTarget {
    let place = ProjectMember { project: "p".parse().unwrap(), agent: agent.parse().unwrap() };
    SpawnTarget { tenant: TenantId::local(), place, purpose }
}

fn limits(max_spawns: u32) -> TeamLimits {
    TeamLimits { max_spawns, ..TeamLimits::default() }
}

/// All that are given a place at this time.
fn taken(queue: &mut SpawnQueue, limits: &TeamLimits, now: i64) -> Vec<(String, SessionPurpose)> {
    let next = std::iter::from_fn(|| queue.next(limits, at(now)));
    next.map(|target| (target.place.agent.to_string(), target.purpose)).collect()
}

#[test]
fn no_more_are_carried_out_at_once_than_there_are_places() {
    use SessionPurpose::Chat;
    let (mut queue, limits) = (SpawnQueue::default(), limits(2));
    for (agent, ms) in [("a", 3), ("b", 1), ("c", 2)] {
        queue.enqueue(target(agent, Chat), [], at(ms));
    }
    assert_eq!(queue.next_at(&limits), Some(at(1)));
    assert_eq!(taken(&mut queue, &limits, 0), []);
    let (b, c) = (("b".to_owned(), Chat), ("c".to_owned(), Chat));
    assert_eq!(taken(&mut queue, &limits, 9), [b, c], "the longest waiting first");
    assert_eq!(queue.next_at(&limits), None, "nothing to look at before one is free");
    queue.release(&target("c", Chat), None);
    assert_eq!(queue.next_at(&limits), Some(at(3)));
    assert_eq!(taken(&mut queue, &limits, 9), [("a".to_owned(), Chat)]);
    queue.release(&target("b", Chat), None);
    assert_eq!(taken(&mut queue, &limits, 9), []);
}

#[test]
fn talk_comes_before_tasks_and_tasks_leave_room_for_a_talk() {
    use SessionPurpose::{Chat, Task};
    let (mut queue, three) = (SpawnQueue::default(), limits(3));
    for agent in ["a", "b"] {
        queue.enqueue(target(agent, Task), [], at(1));
        queue.enqueue(target(agent, Chat), [], at(2));
    }
    let expected = [("a".to_owned(), Chat), ("b".to_owned(), Chat), ("a".to_owned(), Task)];
    assert_eq!(taken(&mut queue, &three, 9), expected);
    queue.release(&target("a", Chat), None);
    assert_eq!(taken(&mut queue, &three, 9), [], "a second task would take a talk's place");
    queue.release(&target("a", Task), None);
    assert_eq!(taken(&mut queue, &three, 9), [("b".to_owned(), Task)]);
    // With fewer places than that, a task takes the one there is.
    let mut queue = SpawnQueue::default();
    queue.enqueue(target("a", Task), [], at(1));
    assert_eq!(taken(&mut queue, &limits(1), 9), [("a".to_owned(), Task)]);
}

#[test]
fn what_comes_for_a_busy_errand_is_looked_at_when_it_is_free() {
    let (mut queue, limits, one) =
        (SpawnQueue::default(), limits(3), target("a", SessionPurpose::Chat));
    queue.mark_running(one.clone());
    queue.enqueue(one.clone(), [], at(5));
    queue.enqueue(one.clone(), [], at(3));
    queue.enqueue(one.clone(), [], at(7));
    assert_eq!((queue.next(&limits, at(9)), queue.next_at(&limits)), (None, None));
    queue.release(&one, None);
    assert_eq!(queue.next_at(&limits), Some(at(3)), "at the earliest time that was wanted");
    assert_eq!(queue.next(&limits, at(9)), Some(one));
}

#[test]
fn what_is_looked_at_again_is_still_awaited_by_those_who_waited() {
    use SessionPurpose::Chat;
    let (mut queue, limits, a, b) =
        (SpawnQueue::default(), limits(1), target("a", Chat), target("b", Chat));
    queue.enqueue(a.clone(), [], at(0));
    queue.enqueue(b.clone(), [a.clone()], at(0));
    assert_eq!(queue.next(&limits, at(1)), Some(a.clone()));
    assert_eq!(queue.next(&limits, at(1)), Some(b.clone()), "on a's place");
    // It crashes, and is to be started again.
    queue.release(&b, Some(at(5)));
    assert_eq!((queue.next(&limits, at(4)), queue.next_at(&limits)), (None, Some(at(5))));
    assert_eq!(queue.next(&limits, at(5)), Some(b.clone()));
    // The one that waited ends first: the place is its partner's then, and no other's.
    queue.enqueue(target("c", Chat), [], at(5));
    queue.release(&a, None);
    assert_eq!(queue.next(&limits, at(6)), None);
    queue.release(&b, None);
    assert_eq!(queue.next(&limits, at(6)), Some(target("c", Chat)));
}

#[test]
fn a_place_is_lent_to_one_and_only_by_those_at_work() {
    use SessionPurpose::Chat;
    let (mut queue, limits, a) = (SpawnQueue::default(), limits(1), target("a", Chat));
    queue.enqueue(a.clone(), [], at(0));
    for partner in ["b", "c"] {
        queue.enqueue(target(partner, Chat), [a.clone()], at(1));
    }
    queue.enqueue(target("d", Chat), [target("elsewhere", Chat)], at(0));
    let names = |taken: Vec<(String, SessionPurpose)>| -> Vec<String> {
        taken.into_iter().map(|(agent, _)| agent).collect()
    };
    assert_eq!(names(taken(&mut queue, &limits, 2)), ["a", "b"]);
    // The second partner comes before what came earlier, but for no one at work.
    queue.release(&target("b", Chat), None);
    assert_eq!(names(taken(&mut queue, &limits, 2)), ["c"]);
    queue.release(&target("c", Chat), None);
    queue.release(&a, None);
    assert_eq!(names(taken(&mut queue, &limits, 2)), ["d"]);
}

/// Runs that each end when all those have ended that they wait for.
struct SpawnQueueStory {
    needs: BTreeMap<SpawnTarget, Vec<SpawnTarget>>,
    queue: SpawnQueue,
    at_work: BTreeSet<SpawnTarget>,
    ended: BTreeSet<SpawnTarget>,
    most: usize,
}

impl SpawnQueueStory {
    /// Tasks at once, each with a chain of talks behind it; every link has so many partners. With
    /// `shared`, all talk to the same ones.
    fn new(tasks: usize, chain: usize, partners: usize, shared: bool) -> Self {
        let mut needs = BTreeMap::new();
        let mut queue = SpawnQueue::default();
        for task in 0..tasks {
            let own = |purpose| target(&format!("t{task}"), purpose);
            needs.insert(own(SessionPurpose::Task), vec![own(SessionPurpose::Chat)]);
            queue.enqueue(own(SessionPurpose::Task), [], at(0));
            let mut links = vec![own(SessionPurpose::Chat)];
            for link in 0..chain {
                let whose = if shared { "s".to_owned() } else { format!("t{task}") };
                let next: Vec<_> = (0..partners)
                    .map(|one| target(&format!("{whose}-{link}-{one}"), SessionPurpose::Chat))
                    .collect();
                for waiting in links {
                    needs.insert(waiting, next.clone());
                }
                links = next;
            }
            needs.extend(links.into_iter().map(|last| (last, Vec::new())));
        }
        Self { needs, queue, at_work: BTreeSet::new(), ended: BTreeSet::new(), most: 0 }
    }

    fn start_all(&mut self, limits: &TeamLimits) {
        while let Some(target) = self.queue.next(limits, at(1)) {
            for needed in &self.needs[&target] {
                if !self.ended.contains(needed) && !self.at_work.contains(needed) {
                    self.queue.enqueue(needed.clone(), [target.clone()], at(1));
                }
            }
            self.at_work.insert(target);
        }
        self.most = self.most.max(self.at_work.len());
        let own = self.queue.busy.values().filter(|busy| busy.lender.is_none()).count();
        assert!(own <= limits.max_spawns as usize, "more places than there are");
    }

    /// One that waits for no other ends. False if there is none.
    fn end_one(&mut self) -> bool {
        let can_end =
            |target: &&SpawnTarget| self.needs[*target].iter().all(|o| self.ended.contains(o));
        let Some(target) = self.at_work.iter().find(can_end).cloned() else { return false };
        self.at_work.remove(&target);
        self.queue.release(&target, None);
        self.ended.insert(target)
    }
}

#[test]
fn an_agent_that_waits_for_another_is_never_in_its_way() {
    for max_spawns in 1..=4 {
        for (tasks, chain) in (1..=5).flat_map(|tasks| (0..=3).map(move |chain| (tasks, chain))) {
            for (partners, shared) in [(1, false), (2, false), (1, true), (3, true)] {
                let what = format!("{max_spawns} places: {tasks}, {chain}, {partners}, {shared}");
                let (mut story, limits) =
                    (SpawnQueueStory::new(tasks, chain, partners, shared), limits(max_spawns));
                loop {
                    story.start_all(&limits);
                    if !story.end_one() {
                        break;
                    }
                }
                assert_eq!(story.ended.len(), story.needs.len(), "{what}: an agent waits for ever");
                let bound = max_spawns as usize * (chain + 2);
                assert!(story.most <= bound, "{what}: {} at work", story.most);
            }
        }
    }
}

/// Three that began to talk at once, with three places: the case that starved.
#[test]
fn partners_of_all_who_have_a_place_can_be_started() {
    use SessionPurpose::Chat;
    for places in 1..=4_u32 {
        let (mut queue, limits) = (SpawnQueue::default(), limits(places));
        for one in 0..places {
            queue.enqueue(target(&format!("a{one}"), Chat), [], at(0));
        }
        assert_eq!(taken(&mut queue, &limits, 1).len(), places as usize);
        for one in 0..places {
            let (a, b) = (target(&format!("a{one}"), Chat), target(&format!("b{one}"), Chat));
            queue.enqueue(b, [a], at(1));
        }
        assert_eq!(taken(&mut queue, &limits, 1).len(), places as usize, "{places}");
        assert_eq!(queue.next_at(&limits), None);
    }
}

#[test]
fn who_waits_for_whom_is_read_off_what_waits() {
    use crate::team::{DialogueEndReason, DialogueMessage};
    let said = DialogueMessage {
        message_id: "msg_1".parse().unwrap(),
        from_agent_id: "b".parse().unwrap(),
        content: "りんご".to_owned(),
        created_at: at(0),
    };
    let dialogue = || "dia_1".parse().unwrap();
    let place = target("a", SessionPurpose::Chat).place;
    let awaiting = |what| {
        SpawnTarget::blocked_target(&InboxItem::new(
            TenantId::local(),
            place.clone(),
            what,
            Some(at(0)),
        ))
    };
    let partner = Some(target("b", SessionPurpose::Chat));
    let invitation = InboxItemKind::Invitation { dialogue: dialogue(), said: said.clone() };
    assert_eq!(awaiting(invitation), partner);
    assert_eq!(awaiting(InboxItemKind::Turn { dialogue: dialogue(), said, budget: None }), partner);
    let delegation = InboxItemKind::Delegation("dlg_1".parse().unwrap());
    assert_eq!(awaiting(delegation), Some(target("a", SessionPurpose::Task)));
    assert_eq!(awaiting(InboxItemKind::Message("msg_1".parse().unwrap())), None);
    assert_eq!(awaiting(InboxItemKind::Task("tsk_1".parse().unwrap())), None);
    let reason = DialogueEndReason::MaxTurns;
    assert_eq!(awaiting(InboxItemKind::Ended { dialogue: dialogue(), reason }), None);
}
