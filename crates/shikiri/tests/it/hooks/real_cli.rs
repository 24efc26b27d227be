//! The real Claude Code, both versions, with hooks as `hooks install` and the plugin put them in:
//! each subagent's own requests to the model show its role's convention, and no other's.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use shikiri_sqlite::{DatabaseOptions, SqliteDatabase};
use shikiri_testkit::{ClaudeCli, FakeModel, Gate, ModelRequest, Reply, claude_programs, until};

use crate::PROGRAM;

const PATIENCE: Duration = Duration::from_secs(60);
pub(super) const ROLES: [&str; 5] = ["tester", "coder", "scribe", "reviewer", "lead"];

/// How the hooks get into Claude Code.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    Install,
    Plugin,
}

pub(super) struct World {
    pub(super) model: FakeModel,
    pub(super) cli: ClaudeCli,
}

pub(super) fn text_of(role: &str) -> String {
    format!("規約・{role}・以上")
}

impl World {
    pub(super) async fn start(program: &Path, way: Way) -> Self {
        Self::start_with(program, way, "context").await
    }

    async fn start_with(program: &Path, way: Way, delivery: &str) -> Self {
        let model = FakeModel::start().await;
        let cli = ClaudeCli::new(program, &model)
            .allow("Bash")
            .allow("Agent")
            .allow("Task")
            .allow("Workflow");
        let cli = cli.patience(PATIENCE).env("CLAUDE_CODE_MAX_RETRIES", 0);
        let folder = cli.project().join(".shikiri");
        std::fs::create_dir(&folder).unwrap();
        let mut conventions = String::from("[default]\ntext = \"規約・default・以上\"\n");
        for role in ROLES {
            let text = text_of(role);
            conventions.push_str(&format!(
                "[roles.{role}]\ntext = \"{text}\"\ndelivery = \"{delivery}\"\n"
            ));
        }
        std::fs::write(folder.join("conventions.toml"), conventions).unwrap();
        let cli = match way {
            Way::Install => {
                install(&cli);
                cli
            }
            Way::Plugin => with_plugin(cli),
        };
        Self { model, cli }
    }

    /// The main agent spawns all of these with one reply and then ends.
    pub(super) fn spawns(&self, words: &str, calls: &[Value]) {
        let (first, rest) = calls.split_first().unwrap();
        let reply = rest.iter().fold(Reply::call("Agent", first.clone()), |reply, call| {
            reply.and_call("Agent", call.clone())
        });
        self.model.script(words, [reply, Reply::text("終わり")]);
    }

    /// A subagent that uses a tool and ends.
    pub(super) fn works(&self, words: &str) {
        let shell = json!({ "command": "echo ok", "description": "x" });
        self.model.script(words, [Reply::call("Bash", shell), Reply::text("済み")]);
    }

    /// The requests of each subagent, by the role that its prompt names.
    fn requests_by_role(&self) -> BTreeMap<String, Vec<ModelRequest>> {
        let mut agents: BTreeMap<String, Vec<ModelRequest>> = BTreeMap::new();
        for request in self.model.messages() {
            if let Some(agent) = request.agent_id() {
                agents.entry(agent.to_owned()).or_default().push(request);
            }
        }
        let role = |requests: &Vec<ModelRequest>| {
            let told = requests[0].body["messages"].to_string();
            let (_, after) = told.split_once("[ROLE:").unwrap_or_else(|| panic!("{told}"));
            after.split_once(']').unwrap().0.to_owned()
        };
        agents.into_values().map(|requests| (role(&requests), requests)).collect()
    }

    /// Each of these got its own text, once, and none got another's or what is for everybody.
    pub(super) fn each_has_its_own(&self, roles: &[&str]) {
        let agents = self.requests_by_role();
        assert_eq!(agents.keys().collect::<Vec<_>>().len(), roles.len(), "{:?}", agents.keys());
        for role in roles {
            let requests = &agents[*role];
            let last = requests.last().unwrap().body.to_string();
            let own = last.matches(&text_of(role)).count();
            assert_eq!(own, 1, "{role} has its text: {last}");
            for other in ROLES.iter().filter(|other| *other != role) {
                assert!(!last.contains(&text_of(other)), "{role} got the text of {other}");
            }
            assert!(
                !last.contains(&text_of("default")),
                "{role} heard what is for everybody: {last}"
            );
        }
    }

    pub(super) fn rows(&self, sql: &str) -> Vec<String> {
        let path = self.cli.project().join(".shikiri/state.db");
        let database = SqliteDatabase::open_reader(&path, &DatabaseOptions::default()).unwrap();
        let mut select = database.prepare(sql).unwrap();
        let rows = select.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    }

    /// What each agent spent, as `subagents` shows it and by the API's own count.
    pub(super) fn bills_are_exact(&self) {
        let told = self.subagents();
        let agents = told["items"].as_array().unwrap().iter();
        let agents = agents.map(|agent| (agent["agent_id"].as_str(), &agent["usage"]));
        let sessions = told["sessions"].as_array().unwrap().iter();
        let main = sessions.map(|session| (None, &session["usage"]));
        for (agent, billed) in agents.chain(main) {
            let spent = self.model.spent();
            let of_agent = spent.iter().filter(|spent| spent.agent_id.as_deref() == agent);
            let spent = of_agent.fold((0, 0), |(input, output), spent| {
                (input + spent.usage.input_tokens, output + spent.usage.output_tokens)
            });
            let count = |field: &str| billed[field].as_u64().unwrap_or_default();
            let billed = (count("input_tokens"), count("output_tokens"));
            assert_eq!(billed, spent, "{agent:?} of {told:#}");
            assert_ne!(billed, (0, 0), "{agent:?}");
        }
    }

    fn subagents(&self) -> Value {
        let done = Command::new(PROGRAM)
            .args(["subagents", "--json"])
            .current_dir(self.cli.project())
            .env("HOME", self.cli.home())
            .env_remove("CLAUDE_PROJECT_DIR")
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        serde_json::from_slice(&done.stdout).unwrap()
    }

    pub(super) fn no_agent_is_left(&self) {
        let left =
            self.rows("SELECT agent_id || ' ' || state FROM subagents WHERE state = 'active'");
        assert!(left.is_empty(), "{left:?}");
    }
}

fn install(cli: &ClaudeCli) {
    let done = Command::new(PROGRAM)
        .args(["hooks", "install"])
        .current_dir(cli.project())
        .env("HOME", cli.home())
        .env_remove("CLAUDE_PROJECT_DIR")
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// The plugin looks for the program in the PATH.
fn with_plugin(cli: ClaudeCli) -> ClaudeCli {
    let programs = Path::new(PROGRAM).parent().unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let plugin = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../plugin");
    cli.arg("--plugin-dir")
        .arg(plugin.canonicalize().unwrap().display())
        .env("PATH", format!("{}:{path}", programs.display()))
}

pub(super) fn call(role: &str, background: bool) -> Value {
    json!({
        "description": role, "subagent_type": "general-purpose",
        "prompt": format!("[ROLE:{role}] {}", task(role)), "run_in_background": background,
    })
}

pub(super) fn task(role: &str) -> String {
    format!("{role}の仕事をせよ")
}

/// Rows 3.21, 3.24 and 3.27: the same type with different roles, three and five at once.
#[tokio::test(flavor = "multi_thread")]
async fn parallel_subagents_of_one_type_each_get_their_roles_text() {
    for program in claude_programs() {
        for (way, count, background) in [
            (Way::Install, 3, false),
            (Way::Install, 5, true),
            (Way::Plugin, 5, false),
            (Way::Plugin, 3, true),
        ] {
            let world = World::start(&program, way).await;
            let roles = &ROLES[..count];
            world.spawns(
                "皆を働かせよ",
                &roles.iter().map(|r| call(r, background)).collect::<Vec<_>>(),
            );
            roles.iter().for_each(|role| world.works(&task(role)));
            let ended = world.cli.print("皆を働かせよ").await;
            assert_eq!(ended.result()["is_error"], false, "{ended:?}");
            world.each_has_its_own(roles);
            world.no_agent_is_left();
            let sure = world.rows("SELECT confidence FROM subagents");
            assert_eq!(sure, vec!["exact"; count], "{program:?} {way:?}");
            world.bills_are_exact();
        }
    }
}

/// An agent type that is a role has its text before its first request.
#[tokio::test(flavor = "multi_thread")]
async fn agents_defined_as_roles_have_their_text_from_the_first_request_on() {
    for program in claude_programs() {
        let mut world = World::start(&program, Way::Install).await;
        let agents: BTreeMap<_, _> = ROLES[..3]
            .iter()
            .map(|role| (*role, json!({ "description": role, "prompt": "働く" })))
            .collect();
        world.cli = world.cli.arg("--agents").arg(json!(agents));
        let calls: Vec<_> = ROLES[..3]
            .iter()
            .map(|role| {
                let mut call = call(role, false);
                call["subagent_type"] = json!(role);
                call
            })
            .collect();
        world.spawns("皆を働かせよ", &calls);
        ROLES[..3].iter().for_each(|role| world.works(&task(role)));
        let ended = world.cli.print("皆を働かせよ").await;
        assert_eq!(ended.result()["is_error"], false, "{ended:?}");
        world.each_has_its_own(&ROLES[..3]);
        for (role, requests) in world.requests_by_role() {
            assert!(requests[0].body.to_string().contains(&text_of(&role)), "{role}");
        }
    }
}

/// Where exactness at the very start matters, the text is written into the prompt.
#[tokio::test(flavor = "multi_thread")]
async fn a_text_in_the_prompt_is_there_from_the_first_request_on() {
    for program in claude_programs() {
        let world = World::start_with(&program, Way::Install, "prompt").await;
        let roles = &ROLES[..3];
        world.spawns(
            "皆を働かせよ",
            &roles.iter().map(|role| call(role, false)).collect::<Vec<_>>(),
        );
        roles.iter().for_each(|role| world.works(&task(role)));
        let ended = world.cli.print("皆を働かせよ").await;
        assert_eq!(ended.result()["is_error"], false, "{ended:?}");
        world.each_has_its_own(roles);
        for (role, requests) in world.requests_by_role() {
            assert!(requests[0].body.to_string().contains(&text_of(&role)), "{role}");
        }
    }
}

/// A subagent that spawns another.
#[tokio::test(flavor = "multi_thread")]
async fn a_nested_subagent_gets_its_own_text_and_knows_its_parent() {
    for program in claude_programs() {
        for way in [Way::Install, Way::Plugin] {
            let world = World::start(&program, way).await;
            world.spawns("始めよ", &[call("lead", false)]);
            let inner = call("tester", false);
            world.model.script(&task("lead"), [Reply::call("Agent", inner), Reply::text("済み")]);
            world.works(&task("tester"));
            let ended = world.cli.print("始めよ").await;
            assert_eq!(ended.result()["is_error"], false, "{ended:?}");
            if world.requests_by_role().len() == 1 {
                // This version lets no subagent spawn another.
                world.each_has_its_own(&["lead"]);
                continue;
            }
            world.each_has_its_own(&["lead", "tester"]);
            let parents = world.rows(
                "SELECT parent.role || '>' || child.role FROM subagents child
                 JOIN subagents parent ON parent.agent_id = child.parent_agent_id",
            );
            assert_eq!(parents, ["lead>tester"], "{way:?}");
        }
    }
}

/// A subagent whose own subagent fails: the model API refuses it.
#[tokio::test(flavor = "multi_thread")]
async fn a_nested_subagent_that_fails_is_ended() {
    for program in claude_programs() {
        let world = World::start(&program, Way::Install).await;
        world.spawns("始めよ", &[call("lead", false)]);
        let inner = call("tester", false);
        world.model.script(&task("lead"), [Reply::call("Agent", inner), Reply::text("済み")]);
        let shell = json!({ "command": "echo ok", "description": "x" });
        let broken = Reply::error(400, "invalid_request_error");
        world.model.script(&task("tester"), [Reply::call("Bash", shell), broken]);
        world.cli.print("始めよ").await;
        world.no_agent_is_left();
        if world.requests_by_role().len() == 2 {
            world.each_has_its_own(&["lead", "tester"]);
            let ends = world.rows("SELECT end_reason FROM subagents WHERE role = 'tester'");
            assert!(["failed", "completed"].contains(&ends[0].as_str()), "{ends:?}");
        }
    }
}

/// A fork has the old session's calls in its transcript, and subagents of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_forked_sessions_subagent_gets_its_own_text() {
    for program in claude_programs() {
        let mut world = World::start(&program, Way::Install).await;
        world.spawns("始めよ", &[call("tester", false)]);
        world.works(&task("tester"));
        let ended = world.cli.print("始めよ").await;
        let session = ended.result()["session_id"].as_str().unwrap().to_owned();
        world.cli = world.cli.arg("--resume").arg(session).arg("--fork-session");
        world.spawns("続けよ", &[call("coder", false)]);
        world.works(&task("coder"));
        let ended = world.cli.print("続けよ").await;
        assert_eq!(ended.result()["is_error"], false, "{ended:?}");
        world.each_has_its_own(&["coder", "tester"]);
        let sources = world.rows(
            "SELECT json_extract(details, '$.source') FROM hook_log
             WHERE event_type = 'SessionStart' ORDER BY id",
        );
        assert_eq!(sources[0], "startup");
        assert!(["fork", "resume"].contains(&sources[1].as_str()), "{sources:?}");
        let sessions = world.rows("SELECT DISTINCT session_id FROM subagents");
        assert_eq!(sessions.len(), 2, "{sessions:?}");
        world.no_agent_is_left();
    }
}

/// Every way to end: the API fails, the user interrupts.
#[tokio::test(flavor = "multi_thread")]
async fn subagents_that_fail_or_are_interrupted_are_ended() {
    for program in claude_programs() {
        let world = World::start(&program, Way::Install).await;
        world.spawns("失敗せよ", &[call("tester", false), call("coder", false)]);
        let shell = json!({ "command": "echo ok", "description": "x" });
        let broken = Reply::error(400, "invalid_request_error");
        world.model.script(&task("tester"), [Reply::call("Bash", shell), broken]);
        world.works(&task("coder"));
        world.cli.print("失敗せよ").await;
        world.each_has_its_own(&["coder", "tester"]);
        world.no_agent_is_left();
        // An older version takes what a failed agent has said so far for its answer.
        let ends = world.rows("SELECT end_reason FROM subagents WHERE role = 'tester'");
        assert!(["failed", "completed"].contains(&ends[0].as_str()), "{ends:?}");

        let gate = Gate::new();
        world.spawns("待て", &[call("scribe", false)]);
        world.model.script(&task("scribe"), [Reply::text("永遠").held(&gate)]);
        let mut host = world.cli.host().await;
        host.say("待て").await;
        world.model.asked(PATIENCE, |request| request.says(&task("scribe"))).await;
        host.control(json!({ "subtype": "interrupt" })).await;
        host.message("result").await;
        host.end().await;
        gate.open();
        until("the interrupted agent is ended", async || {
            world.rows("SELECT state FROM subagents WHERE role = 'scribe'") == ["ended"]
        })
        .await;
    }
}
