//! A project in which there is something of everything.

use console::measure_text_width;
use serde_json::{Value, json};
use shikiri_testkit::TestApp;

use super::*;
use crate::PROGRAM;

/// Ids, times and numbers that differ from run to run, replaced by what they are.
fn redact(value: &mut Value, name: &str) {
    match value {
        Value::Object(fields) => fields.iter_mut().for_each(|(name, value)| redact(value, name)),
        Value::Array(items) => items.iter_mut().for_each(|item| redact(item, name)),
        Value::Number(_) if matches!(name, "pid" | "duration_ms") => *value = json!("[number]"),
        Value::String(text) => {
            let is_time = text.len() == 24 && text.ends_with('Z');
            let redacted = match name {
                "project" | "host" | "day" | "version" | "command" => format!("[{name}]"),
                "address" | "url" if text.contains("127.0.0.1") => "[address]".to_owned(),
                _ if is_time => "[time]".to_owned(),
                _ => match text.split_once('_') {
                    Some((kind, rest)) if rest.len() == 32 => format!("[{kind}]"),
                    _ => return,
                },
            };
            *value = json!(redacted);
        }
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_goes_on_is_shown() {
    let app = TestApp::new(PROGRAM).start().await;
    let cli = app.cli();
    let run = waiting_run(&app).await;
    let execution = running_execution(&app).await;
    let _mia = open_dialogue(&app, "plan").await;
    work_in_claude_code(&cli, "session-1");
    lane(&app, &cli);

    let mut status = status(&cli);
    assert_eq!(status["questions"][0]["run_id"], *run);
    assert_eq!(status["executions"]["active"][0]["id"], *execution);
    assert_eq!(status["server"]["url"], format!("http://127.0.0.1:{}", app.port()));
    let page = shown(&cli);
    redact(&mut status, "");
    insta::assert_snapshot!(serde_json::to_string_pretty(&status).unwrap());

    for line in page.lines() {
        assert!(measure_text_width(line) <= 80, "too wide: {line}\n{page}");
    }
    let order = [
        &format!("running at http://127.0.0.1:{}", app.port()),
        "Waits for you",
        "travel_agent asks: Please confirm the estimated price of $1200 for you",
        &format!("shikiri runs answer {run}"),
        "Claude Code",
        "session session-1 working",
        "├ main agent  Agent",
        "└ 翻訳者 a1  Edit",
        "Runs        1 waiting",
        "Executions  1 running",
        &format!("  {execution} offline こんにちは"),
        "Dialogues",
        "plan-mia and plan-ben  pending, 1 of",
        "plan-ben is next: 言葉遊び",
        "Lanes",
        "legacy-my_project  chatgpt",
        "None: spending today.",
    ];
    let mut rest = page.as_str();
    for part in order {
        let Some(at) = rest.find(part) else { panic!("no {part:?}, or not there, in:\n{page}") };
        rest = &rest[at + part.len()..];
    }
    assert!(!page.contains('\u{1b}'), "colour without a terminal: {page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_is_told_with_the_command_that_settles_it() {
    let app = TestApp::new(PROGRAM).start().await;
    let cli = app.cli();
    assert!(shown(&cli).contains("Nothing waits for you."), "{}", shown(&cli));
    let run = waiting_run(&app).await;
    let answer = shown(&cli);
    let answer = answer.lines().find(|line| line.contains("runs answer")).unwrap().trim();
    let words: Vec<&str> = answer.split(' ').skip(1).collect();
    tokio::task::block_in_place(|| {
        // Without a choice it says what is asked.
        cli.run(&words).refused(2, &["confirm", "--yes"]);
        cli.run(&[&words[..], &["--yes", "--no"]].concat()).refused(2, &["--no"]);
        cli.run(&["runs", "answer", &run, "q_1", "--yes"]).refused(4, &["q_1"]);
        cli.run(&[&words[..], &["--yes"]].concat()).done();
    });
    let local = app.local();
    shikiri_testkit::until("the trip is booked", async || {
        local.run(&run).await["result"]["booked"] == true
    })
    .await;
    tokio::task::block_in_place(|| cli.run(&words).refused(3, &[&run]));
    assert!(shown(&cli).contains("Nothing waits for you."));

    let talk = Talk::start(&local).await;
    talk.say("#offline error=過負荷です").await;
    let failed = status(&cli)["failed"][0].clone();
    assert_eq!((&failed["code"], &failed["message"]), (&json!("SDK_ERROR"), &json!("過負荷です")));
    let page = shown(&cli);
    assert!(page.contains("✗ turn on offline failed: SDK_ERROR: 過負荷です"), "{page}");
    let command = failed["command"].as_str().unwrap();
    assert!(page.contains(command), "{page}");
    let words: Vec<&str> = command.split(' ').skip(1).collect();
    tokio::task::block_in_place(|| cli.run(&words).done());
    assert!(page.contains("Spent today"), "{page}");
    let spent = status(&cli)["spend_today"].clone();
    assert_eq!(
        (&spent["executions"], &spent["by_model"][0]["model"]),
        (&json!(1), &json!("offline"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dialogue_that_was_cancelled_is_told() {
    let app = TestApp::new(PROGRAM).start().await;
    let _mia = open_dialogue(&app, "p").await;
    let cli = app.cli();
    let dialogue = status(&cli)["dialogues"][0]["id"].as_str().unwrap().to_owned();
    let cancel = ["dialogues", "cancel", &dialogue, "--project", "p"];
    tokio::task::block_in_place(|| cli.run(&cancel).done());
    let after = status(&cli);
    assert_eq!(after["dialogues"], json!([]));
    assert_eq!(after["cancelled_dialogues"][0]["id"], *dialogue);
    let page = shown(&cli);
    assert!(page.contains("dialogue of p-mia and p-ben was cancelled"), "{page}");
    assert!(page.contains(&format!("shikiri dialogues show {dialogue} --project p")), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_list_is_cut_and_says_how_to_see_the_rest() {
    let app = TestApp::new(PROGRAM).start().await;
    for _ in 0..12 {
        waiting_run(&app).await;
    }
    let page = shown(&app.cli());
    assert_eq!(page.matches("travel_agent asks").count(), 10, "{page}");
    assert!(page.contains("and 2 more: shikiri runs list --status waiting"), "{page}");
    assert_eq!(status(&app.cli())["questions"].as_array().unwrap().len(), 12);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_tenant_has_a_status_of_its_own() {
    let app = TestApp::new(PROGRAM).start().await;
    let acme = app.tenant("acme").await;
    let run = acme.start_run("travel_agent", json!({ "step_ms": 1 })).await;
    shikiri_testkit::until("the run asks", async || acme.run(&run).await["status"] == "waiting")
        .await;
    let cli = app.cli();
    let local = status(&cli);
    assert_eq!(
        (&local["questions"], &local["runs"]["by_state"]["waiting"]),
        (&json!([]), &json!(0))
    );
    assert!(!shown(&cli).contains(&run));
    let of_acme = tokio::task::block_in_place(|| cli.run(&["status", "--tenant", "acme"]).done());
    let command = format!("shikiri runs answer {run} --tenant acme");
    assert!(of_acme.stdout.contains(&command), "{}", of_acme.stdout);
    let json = ["status", "--tenant", "acme", "--json"];
    let json = tokio::task::block_in_place(|| cli.run(&json).done().json());
    assert_eq!(json["questions"][0]["command"], command);
    let nobody = ["status", "--tenant", "nobody"];
    tokio::task::block_in_place(|| cli.run(&nobody).refused(4, &["nobody"]));
}

/// What models and pages write cannot command the terminal.
#[tokio::test(flavor = "multi_thread")]
async fn control_characters_are_shown_and_not_obeyed() {
    let app = TestApp::new(PROGRAM).start().await;
    let run =
        app.start_run("travel_agent", json!({ "destination": "\u{1b}[2J", "step_ms": 1 })).await;
    let local = app.local();
    shikiri_testkit::until("the run asks", async || local.run(&run).await["status"] == "waiting")
        .await;
    hook(&app.cli(), "s\u{9b}2J", "PreToolUse", json!({ "tool_name": "Ba\u{1b}]0;x\u{7}sh" }));
    let page = shown(&app.cli());
    assert!(page.chars().all(|c| c == '\n' || !c.is_control()), "{page:?}");
    let json = tokio::task::block_in_place(|| app.cli().run(&["status", "--json"]).done().stdout);
    assert!(json.chars().all(|c| c == '\n' || !c.is_control()), "{json:?}");
}
