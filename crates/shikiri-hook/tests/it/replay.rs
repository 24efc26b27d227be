//! Everything that Claude Code was seen to send, replayed in the order in which it came and in
//! orders in which it could have come.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::capture::{self, Capture, shuffled, text};
use crate::process::{self, is_long};
use crate::world::{self, Rng, World, rows, text_of, write};

const ORDERS: usize = 200;

/// What is left out of the payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hidden {
    Nothing,
    /// As before 2.1.69: only starts and stops name the agent.
    InTools,
    /// The same, but tools still name its type.
    IdInTools,
    /// Nothing names it.
    Everywhere,
    /// The answer of the spawning tool does not name it either.
    InAnswersToo,
}

/// One replay: where, under which names, and what the disk tells.
struct Replay<'a> {
    capture: &'a Capture,
    project: PathBuf,
    projects: PathBuf,
    /// Makes the ids of each replay its own, so that one database can hold many.
    suffix: String,
    hidden: Hidden,
    /// The parent's transcript has the calls, and the subagents' have their prompts.
    transcripts: bool,
}

/// Who was told what: the main agent is the empty name.
type Heard = BTreeMap<String, Vec<String>>;

impl Replay<'_> {
    fn run(&self, order: &[usize], hook: &mut dyn FnMut(&Value) -> Option<Value>) -> Heard {
        let mut heard = Heard::new();
        self.write_transcript();
        for &index in order {
            let event = &self.capture.events[index];
            let name = text(event, "hook_event_name").unwrap();
            let agent = text(event, "agent_id").unwrap_or_default();
            if name != "SubagentStart" {
                self.write_meta(agent);
            }
            if name == "SubagentStop" {
                self.write_last_message(agent, event);
            }
            let payload = self.payload(event);
            let Some(answer) = hook(&payload) else { continue };
            let answer = &answer["hookSpecificOutput"];
            assert!(answer.get("permissionDecision").is_none(), "nothing is denied: {answer}");
            if let Some(told) = text(answer, "additionalContext") {
                heard.entry(agent.to_owned()).or_default().push(told.to_owned());
            }
            if let Some((spawned, told)) = self.written(event, &payload, &answer["updatedInput"]) {
                heard.entry(spawned).or_default().push(told);
            }
        }
        heard
    }

    /// What was written into a prompt, and who is spawned with it.
    fn written(&self, event: &Value, payload: &Value, input: &Value) -> Option<(String, String)> {
        let after = format!("\n\n{}", text(&payload["tool_input"], "prompt")?);
        let told = text(input, "prompt")?.strip_suffix(&after).expect("the prompt is still there");
        let others = |input: &Value| {
            let mut input = input.clone();
            input.as_object_mut().map(|input| input.remove("prompt"));
            input
        };
        assert_eq!(others(input), others(&payload["tool_input"]), "all else is as it was");
        let agent = self.capture.spawned().get(text(event, "tool_use_id")?).copied()?;
        Some((agent.to_owned(), told.to_owned()))
    }

    fn named(&self, text: &str) -> String {
        let session = self.session();
        let mut text = text.replace(session, &format!("{session}{}", self.suffix));
        for agent in self.capture.metas.keys() {
            text = text.replace(agent, &format!("{agent}{}", self.suffix));
        }
        text.replace("/home/user/.claude/projects", self.projects.to_str().unwrap())
    }

    fn session(&self) -> &str {
        text(&self.capture.events[0], "session_id").unwrap()
    }

    fn payload(&self, event: &Value) -> Value {
        let mut payload: Value = serde_json::from_str(&self.named(&event.to_string())).unwrap();
        payload["cwd"] = json!(self.project);
        let is_tool = text(event, "hook_event_name").unwrap().contains("ToolUse");
        let in_tools = matches!(self.hidden, Hidden::InTools | Hidden::IdInTools);
        let fields = payload.as_object_mut().unwrap();
        if self.hidden != Hidden::Nothing && (is_tool || !in_tools) {
            fields.remove("agent_id");
            if is_tool && self.hidden != Hidden::IdInTools {
                fields.remove("agent_type");
            }
        }
        if self.hidden == Hidden::InAnswersToo
            && let Some(answer) = fields.get_mut("tool_response")
        {
            answer.as_object_mut().map(|answer| answer.remove("agentId"));
        }
        payload
    }

    fn transcript(&self) -> String {
        self.named(text(&self.capture.events[0], "transcript_path").unwrap())
    }

    fn write_transcript(&self) {
        let version = if self.hidden == Hidden::Nothing { "2.1.325" } else { "2.1.45" };
        let mut lines =
            vec![json!({ "type": "user", "version": version, "message": { "content": "go" } })];
        let seen =
            self.capture.events.iter().filter(|e| capture::is_spawn(e) && e["agent_id"].is_null());
        let seen =
            seen.filter(|e| text(e, "hook_event_name") == Some("PreToolUse") && self.transcripts);
        let seen = seen.map(|e| (text(e, "tool_use_id").unwrap(), e["tool_input"].clone()));
        let unseen = self.capture.unseen.iter().map(|(id, prompt)| {
            (id.as_str(), json!({ "subagent_type": "general-purpose", "prompt": prompt }))
        });
        for (id, input) in seen.chain(unseen) {
            let block = json!({ "type": "tool_use", "id": id, "name": "Agent", "input": input });
            lines.push(json!({ "type": "assistant", "message": { "content": [block] } }));
        }
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        write(self.transcript().as_ref(), &text);
    }

    fn write_meta(&self, agent: &str) {
        let Some(meta) = self.capture.metas.get(agent) else { return };
        let file = self.file_of(agent, "meta.json");
        if file.exists() {
            return;
        }
        write(&file, &self.named(&meta.to_string()));
        if self.transcripts {
            let prompt = format!("[ROLE:{}] as asked", self.capture.role_of(agent));
            let line = json!({ "type": "user", "message": { "content": prompt } });
            write(&self.file_of(agent, "jsonl"), &format!("{line}\n"));
        }
    }

    /// What an agent said last is in its transcript when it has stopped.
    fn write_last_message(&self, agent: &str, event: &Value) {
        let file = self.file_of(agent, "jsonl");
        if let Ok(before) = std::fs::read_to_string(&file) {
            let said =
                json!({ "content": [{ "type": "text", "text": event["last_assistant_message"] }] });
            let line = json!({ "type": "assistant", "message": said });
            write(&file, &format!("{before}{line}\n"));
        }
    }

    fn file_of(&self, agent: &str, ending: &str) -> PathBuf {
        let folder = PathBuf::from(self.transcript()).with_extension("").join("subagents");
        folder.join(format!("agent-{agent}{}.{ending}", self.suffix))
    }
}

fn replay<'a>(world: &World, capture: &'a Capture, number: usize, hidden: Hidden) -> Replay<'a> {
    Replay {
        capture,
        project: world.place.root.clone(),
        projects: world.place.root.join("claude"),
        suffix: format!("n{number}"),
        hidden,
        transcripts: number % 2 == 1,
    }
}

fn run(world: &mut World, replay: &Replay<'_>, order: &[usize]) -> Heard {
    replay.run(order, &mut |payload| world.hook(payload).answer)
}

/// Each agent heard the text of its role, once, and nothing else, and the rows say why. Only where no
/// hook saw its call it heard before what is for everybody.
#[track_caller]
fn assert_right(replay: &Replay<'_>, heard: &Heard, connection: &rusqlite::Connection) {
    let capture = replay.capture;
    for agent in capture.agents() {
        let role = capture.role_of(&agent);
        let name = format!("{}: {agent}{}", capture.name, replay.suffix);
        let told = heard.get(&agent).cloned().unwrap_or_default();
        let sql = format!(
            "SELECT role, confidence FROM subagents WHERE agent_id = '{agent}{}'",
            replay.suffix
        );
        let row = rows(connection, &sql).pop().unwrap_or_default();
        let (own, others): (Vec<_>, Vec<_>) =
            told.iter().partition(|told| **told == text_of(&role));
        let is_unseen = !capture.spawned().values().any(|spawned| *spawned == agent);
        let default = [&text_of("default")];
        assert!(others.is_empty() || (is_unseen && others == default), "{name}: {told:?}");
        if capture.uses_tools(&agent) {
            assert_eq!(own.len(), 1, "{name}: {told:?}");
        } else {
            // The first of several may have ended before anything named its call.
            assert!(own.len() <= 1, "{name}: {told:?}");
        }
        assert_eq!(row, [Some(role), Some("exact".to_owned())], "{name}");
    }
    let others = heard.keys().filter(|who| !who.is_empty() && !capture.metas.contains_key(*who));
    assert_eq!(others.collect::<Vec<_>>(), Vec::<&String>::new(), "{}", capture.name);
    if let Some(told) = heard.get("") {
        // A compaction has it told again.
        let is_compaction = |event: &&Value| text(event, "source") == Some("compact");
        let times = 1 + capture.events.iter().filter(is_compaction).count();
        assert_eq!(*told, vec![text_of("main"); times], "{}: the main agent", capture.name);
    }
}

/// No agent heard the text of another's role.
#[track_caller]
fn assert_never_wrong(replay: &Replay<'_>, heard: &Heard) {
    for (agent, told) in heard {
        let role = if agent.is_empty() { "main".to_owned() } else { replay.capture.role_of(agent) };
        let allowed = [text_of(&role), text_of("default")];
        assert!(
            told.iter().all(|text| allowed.contains(text)),
            "{} {:?} {}: the {role} {agent} heard {told:?}",
            replay.capture.name,
            replay.hidden,
            replay.suffix
        );
    }
}

/// Every start is told a second time, at some time after the first.
fn with_repeats(capture: &Capture, order: &[usize], rng: &mut Rng) -> Vec<usize> {
    let mut told = order.to_vec();
    let is_start =
        |index: &&usize| text(&capture.events[**index], "hook_event_name") == Some("SubagentStart");
    for index in order.iter().filter(is_start) {
        let first = told.iter().position(|other| other == index).unwrap();
        told.insert(first + 1 + rng.below(told.len() - first), *index);
    }
    told
}

fn as_it_came(capture: &Capture) -> Vec<usize> {
    (0..capture.events.len()).collect()
}

#[test]
fn every_capture_in_its_own_order_gives_every_agent_its_role() {
    for name in capture::NAMES {
        let capture = capture::load(name);
        let mut world = world::world();
        for number in 0..2 {
            let replay = replay(&world, &capture, number, Hidden::Nothing);
            let heard = run(&mut world, &replay, &as_it_came(&capture));
            assert_right(&replay, &heard, &world.database);
        }
    }
}

fn in_many_orders(captures: &[Capture], orders: usize, test: &str) {
    let mut rng = Rng::seeded(test);
    for capture in captures {
        let causes = capture.causes();
        let mut world = world::world();
        for number in 0..orders {
            let mut order = shuffled(&causes, &mut rng);
            if number % 4 >= 2 {
                order = with_repeats(capture, &order, &mut rng);
            }
            let replay = replay(&world, capture, number, Hidden::Nothing);
            let heard = run(&mut world, &replay, &order);
            assert_right(&replay, &heard, &world.database);
        }
    }
}

fn with_agents() -> Vec<Capture> {
    let all = capture::NAMES.iter().map(|name| capture::load(name));
    all.filter(|capture| !capture.metas.is_empty()).collect()
}

/// In parts, so that they run side by side.
fn part_in_200_orders(part: usize) {
    let captures: Vec<_> = with_agents().into_iter().skip(part).step_by(3).collect();
    in_many_orders(&captures, ORDERS, "every capture in 200 orders");
}

#[test]
fn every_capture_in_200_orders_gives_every_agent_its_role() {
    part_in_200_orders(0);
}

#[test]
fn every_capture_in_200_orders_gives_every_agent_its_role_second_part() {
    part_in_200_orders(1);
}

#[test]
fn every_capture_in_200_orders_gives_every_agent_its_role_third_part() {
    part_in_200_orders(2);
}

#[test]
fn nested_agents_in_200_orders_get_their_roles() {
    in_many_orders(&[capture::nested()], ORDERS, "nested_agents_in_200_orders");
}

#[test]
fn sixty_four_agents_of_one_type_in_any_order_get_their_roles() {
    let capture = capture::many(64, &["tester", "coder", "scribe", "alice", "bob"]);
    in_many_orders(&[capture], 5, "sixty_four_agents_of_one_type");
}

fn without_ids(hidden: Hidden) {
    let mut rng = Rng::seeded("no agent ever hears another's text");
    let mut captures = with_agents();
    captures.push(capture::many(6, &["tester", "coder"]));
    let orders = if is_long() { ORDERS } else { ORDERS / 5 };
    for capture in &captures {
        let causes = capture.causes();
        let mut world = world::world();
        for number in 0..orders {
            let order = if number < 2 { as_it_came(capture) } else { shuffled(&causes, &mut rng) };
            let replay = replay(&world, capture, number, hidden);
            let heard = run(&mut world, &replay, &order);
            assert_never_wrong(&replay, &heard);
        }
    }
}

#[test]
fn with_ids_only_at_start_and_stop_no_agent_ever_hears_anothers_text() {
    without_ids(Hidden::InTools);
}

#[test]
fn with_types_but_no_ids_in_tools_no_agent_ever_hears_anothers_text() {
    without_ids(Hidden::IdInTools);
}

#[test]
fn without_ids_no_agent_ever_hears_anothers_text() {
    without_ids(Hidden::Everywhere);
}

#[test]
fn without_ids_in_answers_either_no_agent_ever_hears_anothers_text() {
    without_ids(Hidden::InAnswersToo);
}

#[test]
fn captures_replayed_into_the_program_give_every_agent_its_role() {
    let mut rng = Rng::seeded("captures_replayed_into_the_program");
    for name in ["parallel", "background", "five-a", "team-in-process", "parallel-2.1.197"] {
        let capture = capture::load(name);
        let project = process::project(&world::conventions());
        for (number, order) in
            [as_it_came(&capture), shuffled(&capture.causes(), &mut rng)].into_iter().enumerate()
        {
            let replay = Replay {
                capture: &capture,
                project: project.root.clone(),
                projects: project.home.join(".claude/projects"),
                suffix: format!("n{number}"),
                hidden: Hidden::Nothing,
                transcripts: number == 1,
            };
            let mut hooks = 0;
            let heard = replay.run(&order, &mut |payload| {
                hooks += 1;
                let done = project.hook(payload);
                assert_eq!(done.err, "");
                done.goes_on().answer()
            });
            assert_right(&replay, &heard, &project.database());
            let session = format!("{}n{number}", replay.session());
            let logged = format!("SELECT count(*) FROM hook_log WHERE session_id = '{session}'");
            assert_eq!(project.count(&logged), hooks);
        }
    }
}
