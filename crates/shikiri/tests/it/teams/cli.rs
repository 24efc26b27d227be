//! Teams from the terminal: every command is a process of its own on the same store.

use std::io::Write as _;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use shikiri_app::{App, AppOptions};
use shikiri_model::ids::TenantId;
use shikiri_model::key::SecretToken;
use shikiri_model::team::{SessionPurpose, SessionRequirement, ToolPermission};
use shikiri_store::sqlite::{SqliteOptions, SqliteStore};
use shikiri_teams::{AgentLoginRequest, AgentSessionHandle, NewDialogue};
use shikiri_testkit::Cli;
use tempfile::TempDir;

use crate::PROGRAM;

const HELP: ToolPermission = ToolPermission { tool: "help", requires: SessionRequirement::Session };

fn fresh() -> (TempDir, Cli) {
    let folder = TempDir::new().unwrap();
    let cli = Cli::new(PROGRAM, folder.path());
    (folder, cli)
}

/// A project `p` with Mia, Ben and Ann, who is a person.
struct Team {
    folder: TempDir,
    cli: Cli,
    passkeys: Vec<(&'static str, String)>,
}

impl Team {
    fn new() -> Self {
        let (folder, cli) = fresh();
        cli.run(&["projects", "create", "p", "--name", "しりとり"]).done();
        let passkeys = ["mia", "ben"].map(|id| {
            let made = cli.run(&["agents", "add", id]).done();
            assert!(made.stderr.contains("shown this once"), "{}", made.stderr);
            (id, made.stdout.trim_end().to_owned())
        });
        cli.run(&["agents", "add", "ann", "--kind", "human", "--rank", "manager"]).done();
        Self { folder, cli, passkeys: passkeys.to_vec() }
    }

    /// What a session of an agent can do, in this process.
    async fn desk(&self, agent: &str, purpose: SessionPurpose) -> AgentSessionHandle {
        let path = self.folder.path().join(".shikiri/state.db");
        let store = SqliteStore::open(&path, SqliteOptions::default()).unwrap();
        let app = App::new(Arc::new(store), Vec::new(), AppOptions::default());
        let passkey = self.passkeys.iter().find(|(id, _)| *id == agent).unwrap();
        let login = AgentLoginRequest {
            agent_id: agent.to_owned(),
            passkey: SecretToken::from_caller(&passkey.1),
            project_id: "p".to_owned(),
            purpose: Some(purpose),
            by: "key".to_owned(),
        };
        let (_, token) = app.teams.authenticate(&TenantId::local(), login).await.unwrap();
        app.teams.enter_session(&token, HELP).await.unwrap()
    }
}

fn talk() -> NewDialogue {
    NewDialogue {
        target: "ben".to_owned(),
        initial_message: "りんご \u{1b}[2J".to_owned(),
        purpose: Some("しりとり".to_owned()),
        ..NewDialogue::default()
    }
}

#[test]
fn a_team_is_set_up_and_its_tasks_are_steered() {
    let Team { folder: _folder, cli, passkeys } = Team::new();
    assert!(passkeys.iter().all(|(_, passkey)| passkey.starts_with("pass_")));
    let agents = cli.run(&["agents", "list", "--json"]).done();
    let ids = |page: &Value| {
        let items = page["items"].as_array().unwrap();
        items.iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ids(&agents.json()), ["mia", "ben", "ann"]);
    assert!(passkeys.iter().all(|(_, passkey)| !agents.stdout.contains(passkey)));
    let shown = cli.run(&["agents", "show", "ann"]).done().stdout;
    assert!(shown.contains("human") && shown.contains("manager"), "{shown}");
    assert_eq!(cli.run(&["projects", "show", "p", "--json"]).json()["name"], "しりとり");
    assert!(cli.run(&["projects", "list"]).done().stdout.contains("しりとり"));

    let add = ["tasks", "add", "Play", "--assignee", "mia", "--priority", "-2"];
    let task = cli.run(&add).done().stdout.trim_end().to_owned();
    let set = ["tasks", "set", &task, "--status", "blocked", "--assignee", "ben", "--json"];
    let changed = cli.run(&set).done().json();
    assert_eq!(
        (&changed["status"], &changed["assignee"], &changed["priority"]),
        (&json!("blocked"), &json!("ben"), &json!(-2))
    );
    assert!(ids(&cli.run(&["tasks", "list", "--status", "todo", "--json"]).json()).is_empty());
    assert!(cli.run(&["tasks", "list"]).done().stdout.contains(&task));
    let free = cli.run(&["tasks", "set", &task, "--assignee", ""]).done().stdout;
    assert!(free.contains("assignee") && free.contains("none"), "{free}");
    cli.run(&["tasks", "show", &task, "--project", "p"]).done();
}

#[test]
fn agents_are_changed_and_removed_and_projects_too() {
    let Team { folder: _folder, cli, passkeys } = Team::new();
    let set = ["agents", "set", "mia", "--role", "Asks", "--rank", "manager", "--spawn", "auto"];
    let shown = cli.run(&set).done().stdout;
    assert!(shown.contains("Asks") && shown.contains("manager"), "{shown}");
    let emptied = cli.run(&["agents", "set", "mia", "--role", "", "--json"]).done().json();
    assert_eq!((&emptied["role"], &emptied["spawn"]), (&Value::Null, &json!("auto")));
    let rotated = cli.run(&["agents", "set", "mia", "--new-passkey"]).done();
    let passkey = rotated.stdout.trim_end();
    assert!(passkey.starts_with("pass_") && rotated.stderr.contains("shown this once"));
    assert_ne!(passkey, passkeys[0].1);
    assert_eq!(cli.run(&["agents", "set", "otto", "--name", "O"]).code, 4);
    let task = ["tasks", "add", "Play", "--assignee", "mia"];
    let task = cli.run(&task).done().stdout.trim_end().to_owned();
    cli.run(&["agents", "remove", "mia"]).done();
    assert_eq!(cli.run(&["agents", "show", "mia"]).code, 4);
    let shown = cli.run(&["tasks", "show", &task, "--json"]).done().json();
    assert_eq!((&shown["status"], &shown["assignee"]), (&json!("blocked"), &json!("mia")));
    cli.run(&["projects", "remove", "p"]).done();
    assert_eq!(cli.run(&["projects", "show", "p"]).code, 4);
    assert_eq!(cli.run(&["projects", "remove", "p"]).code, 4);
}

#[test]
fn a_passkey_comes_from_stdin_and_never_from_the_command_line() {
    let (_folder, cli) = fresh();
    cli.run(&["projects", "create", "p"]).done();
    let add = |id: &str, passkey: &str| {
        let mut command = cli.command(&["agents", "add", id, "--passkey-stdin"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(passkey.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    let added = add("mia", "合言葉\n");
    assert!(added.status.success());
    assert!(!String::from_utf8_lossy(&added.stdout).contains("合言葉"));
    assert_eq!(add("ben", "\n").status.code(), Some(2));
    // The same agent elsewhere: with its own passkey, or with none.
    cli.run(&["projects", "create", "q"]).done();
    let joined = cli.run(&["agents", "add", "mia", "--project", "q", "--json"]).done().json();
    assert_eq!((&joined["has_passkey"], joined.get("passkey")), (&json!(true), None));
    cli.run(&["agents", "add", "mia", "--project", "q"]).refused(3, &["mia"]);
    cli.run(&["agents", "add", "eve", "--passkey", "x"]).refused(2, &["--passkey"]);
}

#[test]
fn what_is_missing_is_named_with_the_next_step() {
    let (_folder, cli) = fresh();
    cli.run(&["projects", "list"]).refused(4, &["serve"]);
    cli.run(&["tasks", "add", "x"]).refused(2, &["projects create"]);
    cli.run(&["projects", "create", "p"]).done();
    cli.run(&["projects", "create", "p"]).refused(3, &["exists"]);
    cli.run(&["projects", "show", "x"]).refused(4, &["projects list"]);
    cli.run(&["tasks", "show", "tsk_0"]).refused(4, &["tasks list"]);
    cli.run(&["tasks", "add", "x", "--assignee", "absent"]).refused(4, &["agents list"]);
    cli.run(&["tasks", "add", " "]).refused(2, &["title"]);
    cli.run(&["delegations", "show", "dlg_0"]).refused(4, &["delegations list"]);
    cli.run(&["dialogues", "show", "dia_0"]).refused(4, &["dialogues list"]);
    cli.run(&["dialogues", "show", "dia_0", "--follow"]).refused(4, &["dialogues list"]);
    cli.run(&["dialogues", "cancel", "dia_0"]).refused(4, &["dialogues list"]);
    cli.run(&["projects", "create", "q"]).done();
    cli.run(&["tasks", "list"]).refused(2, &["--project"]);
    cli.run(&["tasks", "list", "--project", "q"]).done();
    cli.run(&["tasks", "list", "--tenant", "absent"]).refused(4, &["absent"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_and_delegations_are_seen() {
    let team = Team::new();
    let cli = &team.cli;
    let send = ["messages", "send", "--from", "ann", "--to", "mia", "こんにちは"];
    let id = cli.run(&send).done().stdout.trim_end().to_owned();
    let listed = cli.run(&["messages", "list", "--agent", "mia", "--json"]).done().json();
    assert_eq!(
        (&listed["items"][0]["id"], &listed["items"][0]["read"]),
        (&json!(id), &json!(false))
    );
    assert!(cli.run(&["messages", "list"]).done().stdout.contains("unread"));
    let empty = cli.run(&["messages", "list", "--agent", "ben", "--json"]).done().json();
    assert_eq!(empty["items"], json!([]));
    cli.run(&["messages", "send", "--from", "ann", "--to", "ann", "x"]).refused(2, &["another"]);
    let long = "語".repeat(4_001);
    cli.run(&["messages", "send", "--from", "ann", "--to", "mia", &long]).refused(2, &["4000"]);

    let worker = team.desk("mia", SessionPurpose::Task).await;
    let asked = worker.delegate("ben", "しりとり", None).await.unwrap().id.to_string();
    let listed = cli.run(&["delegations", "list", "--status", "pending"]).done().stdout;
    assert!(listed.contains(&asked) && listed.contains("しりとり"), "{listed}");
    let shown = cli.run(&["delegations", "show", &asked, "--json"]).done().json();
    assert_eq!(
        (&shown["delegation_id"], &shown["target_agent_id"]),
        (&json!(asked), &json!("ben"))
    );
    assert!(cli.run(&["delegations", "show", &asked]).done().stdout.contains("pending"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dialogue_is_followed_live_and_cancelled() {
    let team = Team::new();
    let (mia, ben) = (
        team.desk("mia", SessionPurpose::Chat).await,
        team.desk("ben", SessionPurpose::Chat).await,
    );
    let id = mia.start_conversation(&talk()).await.unwrap().conversation_id.to_string();
    let mut told = team.cli.start(&["dialogues", "show", &id, "--follow"]);
    let patience = Duration::from_secs(20);
    assert!(told.find(patience, |line| line.contains("mia: りんご").then_some(())).is_some());
    ben.send_dialogue_message(&id, "ごりら").await.unwrap();
    assert!(told.find(patience, |line| line.contains("ben: ごりら").then_some(())).is_some());
    assert!(told.ended().is_none(), "it ended before the dialogue did");
    let shown = team.cli.run(&["dialogues", "show", &id, "--json"]).done().json();
    assert_eq!((&shown["messages"], &shown["state"]), (&json!(2), &json!("active")));
    assert_eq!(shown["transcript"][1]["content"], "ごりら");

    let cancelled = team.cli.run(&["dialogues", "cancel", &id, "--json"]).done().json();
    assert_eq!(cancelled["end_reason"], "cancelled");
    assert_eq!(told.wait(patience), 0);
    assert!(told.output().contains("ended: cancelled"), "{}", told.output());
    assert!(!told.output().contains('\u{1b}'), "an agent's words command no terminal");
    team.cli.run(&["dialogues", "cancel", &id]).refused(3, &["ended (cancelled)"]);
    let events = team.cli.run(&["dialogues", "show", &id, "--follow", "--json"]).done().stdout;
    let events: Vec<Value> = events.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let kinds: Vec<_> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["message", "message", "conversation_ended"]);
    let listed = team.cli.run(&["dialogues", "list", "--state", "ended"]).done().stdout;
    assert!(listed.contains(&id) && listed.contains("ended: cancelled"), "{listed}");
}
