//! What a person sees at a terminal, in a real pty; and that a pipe gets everything whole.

use serde_json::json;
use shikiri_testkit::{Cli, TestApp};

use super::fresh;
use crate::PROGRAM;
use crate::tmux::Pane;

/// Where every time is nine hours ahead of UTC.
const TOKYO: &str = "JST-9";

/// What a command shows at a terminal of this width.
async fn shown(cli: &Cli, words: &[&str], width: u16) -> Option<String> {
    let pane = Pane::start(&cli.command(words), (width, 40)).await?;
    assert_eq!(pane.ended().await, 0, "{words:?}: {}", pane.screen());
    let screen = pane.screen();
    let text = screen.split("\nPane is dead").next().unwrap_or_default();
    Some(text.trim().to_owned())
}

/// The id of a record that a command made.
fn made(cli: &Cli, words: &[&str]) -> String {
    cli.run(words).done().stdout.trim().to_owned()
}

fn ending(id: &str) -> &str {
    &id[id.len() - 6..]
}

/// A project with Japanese names, tasks in several states, and two runs.
struct Office {
    _folder: tempfile::TempDir,
    cli: Cli,
    ids: Vec<String>,
}

impl Office {
    fn new() -> Self {
        let (folder, cli) = fresh();
        let mut ids = Vec::new();
        cli.run(&["projects", "create", "旅行"]).refused(2, &["letters"]);
        cli.run(&["projects", "create", "trip", "--name", "京都への社員旅行の計画"]).done();
        cli.run(&["agents", "add", "hana", "--name", "花子", "--role", "宿と食事を予約する"])
            .done();
        for (title, status) in [
            ("京都で泊まる旅館を三つ選び、値段と駅からの距離を比べて表にする", "in_progress"),
            ("Book the train", "done"),
            ("嵐山の竹林を歩く道順を調べて、雨の日の代わりの案も二つ書いておく", "todo"),
        ] {
            let task = made(&cli, &["tasks", "add", title, "--assignee", "hana"]);
            let _ = cli.run(&["tasks", "set", &task, "--status", status]).done();
            ids.push(task);
        }
        for _ in 0..2 {
            ids.push(made(&cli, &["runs", "start", "long_running_agent"]));
        }
        cli.run(&["cancel", &ids[4]]).done();
        let title = "秋の京都を二泊三日で巡る旅の相談、宿と食事と電車の予約まで";
        ids.push(made(&cli, &["conversations", "create", "--title", title]));
        Self { _folder: folder, cli, ids }
    }

    /// The text, with the same stand-in for every id and every time.
    fn without_chance(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for id in &self.ids {
            text = text.replace(id, &format!("{}{}", &id[..4], "0".repeat(32)));
            text = text.replace(ending(id), "000000");
        }
        let is_time = |word: &str| word.len() == 24 && word.ends_with('Z');
        let words = text.split(' ').map(|word| match is_time(word) {
            true => "2026-01-01T00:00:00.000Z",
            false => word,
        });
        words.collect::<Vec<_>>().join(" ")
    }
}

const LISTS: [&[&str]; 7] = [
    &["tasks", "list"],
    &["agents", "list"],
    &["runs", "list", "--utc"],
    &["conversations", "list", "--utc"],
    &["projects", "list", "--utc"],
    &["models", "list"],
    &["usage"],
];

async fn lists_at(office: &Office, width: u16) -> Option<String> {
    let mut all = String::new();
    for words in LISTS {
        let text = shown(&office.cli, words, width).await?;
        let piped = office.cli.run(words).done().stdout;
        assert_eq!(text.lines().count(), piped.lines().count(), "a row is a line: {text}");
        let text = office.without_chance(&text);
        all.push_str(&format!("$ shikiri {}\n{text}\n\n", words.join(" ")));
    }
    Some(all)
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_fit_a_terminal_of_80_columns() {
    let office = Office::new();
    let Some(all) = lists_at(&office, 80).await else { return };
    insta::assert_snapshot!(all);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_fit_a_terminal_of_120_columns() {
    let office = Office::new();
    let Some(all) = lists_at(&office, 120).await else { return };
    insta::assert_snapshot!(all);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipe_gets_whole_ids_and_times_in_utc() {
    let office = Office::new();
    let all: Vec<_> = LISTS.iter().map(|words| office.cli.run(words).done().stdout).collect();
    for id in &office.ids {
        assert!(all.iter().any(|text| text.contains(id.as_str())), "{id}: {all:?}");
    }
    assert!(!all.concat().contains(['\u{1b}', '…']), "{all:?}");
    let runs = office.without_chance(&all[2]);
    assert!(runs.contains("  cancelled  2026-01-01T00:00:00.000Z  long_running_agent\n"), "{runs}");
}

#[tokio::test(flavor = "multi_thread")]
async fn states_are_coloured_where_colours_are_wanted() {
    let office = Office::new();
    let words = ["tasks", "list"];
    // The other tests want none.
    let coloured = office.cli.clone().env("NO_COLOR", "");
    let Some(pane) = Pane::start(&coloured.command(&words), (80, 40)).await else { return };
    assert_eq!(pane.ended().await, 0);
    let raw = String::from_utf8(pane.raw()).unwrap();
    insta::assert_snapshot!(office.without_chance(raw.trim()).escape_debug().to_string());
    for painted in ["\u{1b}[36min_progress\u{1b}[0m", "\u{1b}[32mdone\u{1b}[0m", "\u{1b}[2mID"] {
        assert!(raw.contains(painted), "{raw:?}");
    }
    let Some(pane) = Pane::start(&office.cli.command(&words), (80, 40)).await else { return };
    assert_eq!(pane.ended().await, 0);
    let raw = String::from_utf8(pane.raw()).unwrap();
    assert!(raw.contains("in_progress") && !raw.contains("\u{1b}["), "{raw:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn times_are_local_on_a_terminal_unless_utc_is_asked_for() {
    let office = Office::new();
    let (cli, run) = (office.cli.clone().env("TZ", TOKYO), &office.ids[3]);
    let record = cli.run(&["runs", "show", run, "--json"]).json();
    let utc = record["created_at"].as_str().unwrap();
    let Some(text) = shown(&cli, &["runs", "show", run], 80).await else { return };
    let hour: u32 = utc[11..13].parse().unwrap();
    let local = format!("{:02}{} (", (hour + 9) % 24, &utc[13..19]);
    assert!(text.contains(&local) && !text.contains(utc), "{local} is not in {text}");
    let text = shown(&cli, &["runs", "show", run, "--utc"], 80).await.unwrap();
    assert!(text.contains(utc), "{text}");
    let text = shown(&cli, &["runs", "list"], 80).await.unwrap();
    assert!(text.contains(" ago  ") || text.contains(" now  "), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_list_says_how_to_make_the_first() {
    let (_folder, cli) = fresh();
    cli.run(&["projects", "create", "p"]).done();
    for (words, sentence) in [
        (&["runs", "list"][..], "shikiri runs start long_running_agent --follow"),
        (&["conversations", "list"], "shikiri run \"Hello\""),
        (&["tasks", "list"], "shikiri tasks add"),
        (&["servers", "list"], "shikiri servers create"),
        (&["history"], "shikiri runs start ask_chatgpt_web"),
        (&["subagents"], "shikiri hooks install"),
    ] {
        let Some(text) = shown(&cli, words, 120).await else { return };
        assert!(text.contains(" yet. ") && text.contains(sentence), "{words:?}: {text}");
        assert!(!cli.run(words).done().stdout.contains(" yet. "), "a pipe gets the head alone");
    }
    let text = shown(&cli, &["runs", "list", "--status", "failed"], 80).await.unwrap();
    assert_eq!(text, "No runs like that.");
}

/// What a list shows can be typed.
#[tokio::test(flavor = "multi_thread")]
async fn endings_and_last_stand_for_ids() {
    let office = Office::new();
    let (cli, ids) = (&office.cli, &office.ids);
    for (words, id) in [
        (["tasks", "show"], &ids[0]),
        (["runs", "show"], &ids[3]),
        (["conversations", "show"], &ids[5]),
    ] {
        let shows = |typed: &str| cli.run(&[words[0], words[1], typed]).done().stdout;
        assert!(shows(ending(id)).contains(id.as_str()), "{words:?}");
        assert!(shows(&format!("…{}", ending(id))).contains(id.as_str()), "{words:?}");
    }
    assert!(cli.run(&["runs", "show", "@last"]).done().stdout.contains(&ids[4]));
    assert!(cli.run(&["tasks", "show", "@last"]).done().stdout.contains(&ids[2]));
    cli.run(&["executions", "show", "@last"]).refused(4, &["run @last", "runs list"]);
    cli.run(&["servers", "show", "@last"]).refused(4, &["servers list"]);
    // Three digits are no ending, and another tenant's records are not seen.
    let tail = ending(&ids[3]);
    cli.run(&["runs", "show", &tail[3..]]).refused(4, &[&tail[3..]]);
    cli.run(&["tenants", "create", "acme"]).done();
    cli.run(&["runs", "show", tail, "--tenant", "acme"]).refused(4, &[tail]);
    cli.run(&["cancel", tail]).done();
    assert!(cli.run(&["runs", "show", tail]).done().stdout.contains("cancelled"));
}

/// Commands that change something take endings too, in their own tenant alone.
#[test]
fn commands_that_write_take_endings_of_their_tenant() {
    let (_folder, cli) = fresh();
    cli.run(&["tenants", "create", "acme"]).done();
    let key = cli.run(&["keys", "create", "ci", "--tenant", "acme", "--json"]).json();
    let key = key["id"].as_str().unwrap();
    cli.run(&["keys", "revoke", ending(key)]).refused(4, &[ending(key)]);
    let revoked = cli.run(&["keys", "revoke", ending(key), "--tenant", "acme"]).done();
    assert_eq!(revoked.stdout, format!("{key} is revoked\n"));

    let url = "https://tools.example/mcp";
    let server = ["servers", "create", "tools", "--type", "http", "--url", url, "--json"];
    let server = cli.run(&server).json()["id"].as_str().unwrap().to_owned();
    let removed = cli.run(&["servers", "remove", "@last"]).done();
    assert_eq!(removed.stdout, format!("MCP server {server} is removed\n"));

    let conversation = made(&cli, &["conversations", "create"]);
    cli.run(&["run", "Hello", "--conversation", ending(&conversation)]).done();
    let archived = cli.run(&["conversations", "archive", "@last"]).done();
    assert!(archived.stdout.contains(&conversation), "{}", archived.stdout);
    let of_it = ["executions", "list", "--conversation", ending(&conversation), "--json"];
    let execution = cli.run(&of_it).json()["items"][0]["id"].as_str().unwrap().to_owned();
    // The newest run is another one.
    made(&cli, &["runs", "start", "long_running_agent"]);
    let shown = cli.run(&["executions", "show", "@last"]).done().stdout;
    assert!(shown.contains(&execution), "{shown}");
}

#[test]
fn a_lane_is_shown_by_the_end_of_its_name() {
    let (folder, cli) = fresh();
    let agent = |chat: &str| {
        let url = format!("https://chatgpt.com/c/{chat}");
        json!({ "lastAccess": "2026-11-19T05:00:00.000Z", "chatgpt": { "url": url } })
    };
    let file = folder.path().join("sessions.json");
    let sessions = json!({ "version": 2, "agents": {
        "codex-1111": agent("a"), "claude-code-21112": agent("b"), "other-333": agent("c"),
    }});
    std::fs::write(&file, sessions.to_string()).unwrap();
    cli.run(&["lanes", "import", file.to_str().unwrap()]).done();
    let shown = |typed: &str| cli.run(&["lanes", "show", typed]);
    assert!(shown("1112").done().stdout.contains("claude-code-21112"));
    assert!(shown("other-333").done().stdout.contains("other-333"));
    assert!(shown("r-333").done().stdout.contains("other-333"));
    shown("111").refused(4, &["111", "lanes list"]);
    shown("0000").refused(4, &["0000"]);
}

/// A server's conversations are searched over REST.
#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_of_a_server_is_found_by_its_end() {
    let app = TestApp::new(PROGRAM).start().await;
    let (cli, url) = (app.cli(), format!("http://127.0.0.1:{}", app.port()));
    let conversation = made(&cli, &["conversations", "create"]);
    for typed in [ending(&conversation), "@last"] {
        cli.run(&["run", "Hello", "--server", &url, "--conversation", typed]).done();
    }
    let shown = cli.run(&["conversations", "show", "@last", "--json"]).json();
    assert_eq!((&shown["id"], &shown["turns"]), (&conversation.into(), &2.into()));
}

fn endings_that_several_share(cli: &Cli) {
    let id = |digits: &str| format!("prj_{digits:0>32}");
    for project in [id("aabbcc"), id("11bbcc"), "bbcc".to_owned(), id("ddeeff")] {
        cli.run(&["projects", "create", &project]).done();
    }
    let shown = |typed: &str| cli.run(&["projects", "show", typed]);
    assert!(shown("ddeeff").done().stdout.contains(&id("ddeeff")));
    assert!(shown("bbcc").done().stdout.contains("project  bbcc\n"), "a name comes first");
    assert!(shown("0aabbcc").done().stdout.contains(&id("aabbcc")));
    shown("00aabbcd").refused(4, &["00aabbcd", "projects list"]);
    cli.run(&["projects", "create", &id("22ddeeff")]).done();
    shown("eeff").refused(2, &[&id("ddeeff"), &id("22ddeeff"), "type more"]);
    assert!(shown("@last").done().stdout.contains(&id("22ddeeff")));
    let tasks = ["tasks", "list", "--project", "22ddeeff", "--json"];
    assert_eq!(cli.run(&tasks).json()["items"].as_array().map(Vec::len), Some(0));
}

#[test]
fn an_ending_that_several_share_is_refused_with_all_of_them() {
    let (_folder, cli) = fresh();
    endings_that_several_share(&cli);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ending_that_several_share_is_refused_on_postgres_too() {
    if !shikiri_testkit::have_postgres("endings of ids on PostgreSQL") {
        return;
    }
    let database = shikiri_testkit::TestDatabase::create().await;
    let (_folder, cli) = fresh();
    tokio::task::block_in_place(|| endings_that_several_share(&cli.store(database.url())));
}

/// Without a server, a run stays in the queue: the spinner says so, and goes with the first event.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_is_told_while_it_lasts() {
    let mut app = TestApp::new(PROGRAM).start().await;
    app.kill9();
    let input = r#"{"steps":1,"step_ms":10}"#;
    let words = ["runs", "start", "long_running_agent", "--input", input, "--follow"];
    let command = app.cli().command(&words);
    let Some(pane) = Pane::start(&command, (100, 30)).await else { return };
    pane.sees("in the queue until a server takes it").await;
    app.restart().await;
    assert_eq!(pane.ended().await, 0);
    let screen = pane.screen();
    assert!(screen.contains("result") && !screen.contains("a server takes it"), "{screen}");
}
