//! Many hooks at once on one database, some of which are killed.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::process::{Child, Stdio};
use std::sync::{Barrier, mpsc};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use shikiri_sqlite::maintenance;

use crate::process::{self, Done, Project, is_long};
use crate::world::{Rng, conventions, text_of};

const CROWD: usize = 32;
const ROLES: [&str; 3] = ["tester", "coder", "scribe"];

/// A call of an agent whose type is its role. Calls of MCP tools are logged with their id.
fn call(agent: usize, id: &str) -> Value {
    json!({
        "session_id": "s", "hook_event_name": "PreToolUse", "agent_id": format!("a{agent}"),
        "agent_type": ROLES[agent % ROLES.len()], "tool_name": "mcp__x__y", "tool_use_id": id,
    })
}

struct Ended {
    agent: usize,
    id: String,
    done: Done,
}

/// When a hook is killed.
enum Death {
    Never,
    After(Duration),
    /// As soon as it has begun to answer.
    WhenItSpeaks,
}

fn draw_death(rng: &mut Rng) -> Death {
    match rng.below(15) {
        0..2 => Death::After(Duration::from_micros(rng.below(12_000) as u64)),
        2 => Death::WhenItSpeaks,
        _ => Death::Never,
    }
}

/// One of the crowd: hook after hook for whichever agent, and one in five is killed.
fn member(
    project: &Project,
    number: usize,
    calls: usize,
    agents: usize,
    mut rng: Rng,
) -> Vec<Ended> {
    let one = |index| {
        let (agent, id) = (rng.below(agents), format!("t{number}-{index}"));
        let (mut child, started) = (start(project), Instant::now());
        feed(&mut child, &call(agent, &id));
        match draw_death(&mut rng) {
            Death::Never => {}
            Death::After(pause) => {
                std::thread::sleep(pause);
                child.kill().unwrap();
            }
            Death::WhenItSpeaks => {
                let _ = child.stdout.as_mut().unwrap().read(&mut [0]).unwrap();
                child.kill().unwrap();
            }
        }
        Ended { agent, id, done: process::wait(child, started) }
    };
    (0..calls).map(one).collect()
}

fn start(project: &Project) -> Child {
    process::spawn(project.command().stdin(Stdio::piped()))
}

fn feed(child: &mut Child, payload: &Value) {
    // One that waited for it too long has closed its end, and says so itself.
    let _ = child.stdin.take().unwrap().write_all(payload.to_string().as_bytes());
}

/// Rows 3.15, 3.27: a claim is made once, however many claim and die.
#[test]
fn a_crowd_of_hooks_delivers_every_convention_once_though_some_are_killed() {
    let mut rng = Rng::seeded("a_crowd_of_hooks");
    let calls = if is_long() { 1_000 } else { 40 };
    let agents = CROWD * calls / 8;
    let project = process::project(&conventions());
    let mut ended: Vec<Ended> = std::thread::scope(|scope| {
        let members: Vec<_> = (0..CROWD)
            .map(|number| (number, rng.fork()))
            .map(|(number, rng)| (number, rng, &project))
            .map(|(n, rng, project)| scope.spawn(move || member(project, n, calls, agents, rng)))
            .collect();
        members.into_iter().flat_map(|member| member.join().unwrap()).collect()
    });
    // An agent that has lost its hooks so far calls again.
    for agent in 0..agents {
        let id = format!("last-{agent}");
        let done = project.hook(&call(agent, &id));
        ended.push(Ended { agent, id, done });
    }
    assert_delivered_once(&project, &ended);
    assert_logged(&project, &ended);
    let report = maintenance::check(&project.place().database()).unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
}

/// Exactly one hook that ended well told each agent its text, and it was the right one.
fn assert_delivered_once(project: &Project, ended: &[Ended]) {
    let mut told: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    for one in ended {
        let text = one.done.out.contains(&text_of(ROLES[one.agent % ROLES.len()]));
        let (heard, lost) = told.entry(one.agent).or_default();
        if one.done.code == Some(0) && !one.done.is_late() {
            assert_eq!(one.done.err, "", "{}", one.id);
            assert!(text || one.done.out.is_empty(), "{}: {}", one.id, one.done.out);
            *heard += usize::from(text);
        } else {
            // What a killed hook has printed is not read by anybody; a late one has not decided.
            *lost += usize::from(text);
        }
    }
    let (mut again, mut between) = (0, 0);
    for (agent, (heard, lost)) in &told {
        let sql = format!("SELECT startup_processed FROM subagents WHERE agent_id = 'a{agent}'");
        // Killed when it had confirmed, before it could end: that cannot be told from outside.
        let confirmed = *heard == 0 && *lost > 0 && project.count(&sql) == 1;
        assert!(*heard == 1 || confirmed, "a{agent}: {heard} heard, {lost} lost");
        between += usize::from(confirmed);
        again += usize::from(*heard == 1 && *lost > 0);
    }
    let killed = ended.iter().filter(|one| one.done.code.is_none()).count();
    let late = ended.iter().filter(|one| one.done.is_late()).count();
    eprintln!(
        "{} hooks, {killed} killed, {late} late; {} agents: {again} told again, {between} by one \
         that had confirmed and could not end",
        ended.len(),
        told.len()
    );
    assert!(killed > ended.len() / 50, "only {killed} were killed");
    assert!(late < ended.len() / 10, "{late} were late");
}

/// Every hook that ended well has its row.
fn assert_logged(project: &Project, ended: &[Ended]) {
    let rows = crate::world::rows(&project.database(), "SELECT tool_use_id FROM hook_log");
    let mut logged: BTreeMap<String, usize> = BTreeMap::new();
    for id in rows.into_iter().flatten().flatten() {
        *logged.entry(id).or_default() += 1;
    }
    let is_well = |done: &Done| done.code == Some(0) && !done.is_late();
    for one in ended.iter().filter(|one| is_well(&one.done)) {
        assert_eq!(logged.get(&one.id), Some(&1), "{}", one.id);
    }
}

/// As many hooks as the crowd has members, all started at the same moment.
fn at_once(project: &Project) -> Vec<Ended> {
    let barrier = Barrier::new(CROWD);
    let one = |agent| {
        let id = format!("t{agent}");
        barrier.wait();
        let (started, mut child) = (Instant::now(), start(project));
        feed(&mut child, &call(agent, &id));
        Ended { agent, id, done: process::wait(child, started) }
    };
    std::thread::scope(|scope| {
        let hooks: Vec<_> = (0..CROWD).map(|agent| scope.spawn(move || one(agent))).collect();
        hooks.into_iter().map(|hook| hook.join().unwrap()).collect()
    })
}

/// Row 3.5: the first hooks of a project may all come at once.
#[test]
fn thirty_two_first_hooks_at_once_make_one_schema_and_lose_no_row() {
    for _ in 0..3 {
        let project = process::project("");
        let ended = at_once(&project);
        let mut late = 0;
        for one in &ended {
            assert_eq!(one.done.code, Some(0), "{:?}", one.done);
            if one.done.is_late() {
                late += 1;
            } else {
                one.done.is_silent();
            }
        }
        assert!(late < CROWD / 2, "{late} of {CROWD} were late");
        assert_logged(&project, &ended);
        let counted = |sql| project.count(sql);
        let recorded = i64::try_from(CROWD - late).unwrap();
        assert_eq!(counted("SELECT count(*) FROM hook_log"), recorded);
        assert_eq!(counted("SELECT count(*) FROM subagents"), recorded);
        let known = i64::from(shikiri_sqlite::migrate::latest_version());
        assert_eq!(counted("SELECT count(*) FROM schema_version"), known);
        let folder = std::fs::read_dir(project.place().folder()).unwrap();
        let mut names: Vec<_> =
            folder.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        let expected = [".gitignore", "state.db", "state.db-shm", "state.db-wal", "state.db.lock"];
        assert_eq!(names, expected);
    }
}

/// Row 3.15: of two hooks for one agent at the same moment one delivers.
#[test]
fn two_hooks_at_once_for_one_agent_deliver_once() {
    let project = process::project(&conventions());
    for agent in 0..30 {
        let barrier = Barrier::new(2);
        let run = |side: &str| {
            let mut child = start(&project);
            barrier.wait();
            let started = Instant::now();
            feed(&mut child, &call(agent, &format!("{side}{agent}")));
            process::wait(child, started)
        };
        let done = std::thread::scope(|scope| {
            let other = scope.spawn(|| run("b"));
            [run("a"), other.join().unwrap()]
        });
        let told: Vec<_> = done.iter().filter_map(|done| done.goes_on().context()).collect();
        assert_eq!(told, [text_of(ROLES[agent % ROLES.len()])]);
    }
}

/// The same for sure: the second comes while the first one prints, which takes as long as the reader
/// likes.
#[test]
fn while_one_hook_prints_another_one_for_the_same_agent_does_not() {
    let long = "x".repeat(300_000);
    let project = process::project(&format!("[roles.tester]\ntext = \"{long}\"\n"));
    let (mut first, started) = (start(&project), Instant::now());
    feed(&mut first, &call(0, "first"));
    let mut begun = [0; 100];
    first.stdout.as_mut().unwrap().read_exact(&mut begun).unwrap();
    let (sender, second) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| sender.send(project.hook(&call(0, "second"))).unwrap());
        // It may also wait for the first one to end.
        let early = second.recv_timeout(Duration::from_millis(500)).ok();
        let first = process::wait(first, started);
        let second = early.unwrap_or_else(|| second.recv().unwrap());
        assert_eq!((first.code, begun.len() + first.out.len() > long.len()), (Some(0), true));
        second.goes_on().is_silent();
    });
}

/// A long answer takes as long as its reader likes, and only its own agent waits for that.
#[test]
fn a_reader_that_takes_its_time_keeps_no_other_hook_waiting() {
    let long = "x".repeat(300_000);
    let project = process::project(&format!("[roles.tester]\ntext = \"{long}\"\n"));
    let (mut first, started) = (start(&project), Instant::now());
    feed(&mut first, &call(0, "first"));
    let mut begun = [0; 100];
    first.stdout.as_mut().unwrap().read_exact(&mut begun).unwrap();
    project.hook(&call(1, "second")).goes_on().is_silent();
    assert!(first.try_wait().unwrap().is_none(), "its answer is not read yet");
    let first = process::wait(first, started);
    assert_eq!((first.code, begun.len() + first.out.len() > long.len()), (Some(0), true));
    let sql = "SELECT count(*) FROM subagents WHERE delivered IS NOT NULL";
    assert_eq!(project.count(sql), 1, "what was read is confirmed");
}
