//! The status at a terminal, in a real pty.

use console::{measure_text_width, strip_ansi_codes, truncate_str};
use shikiri_testkit::TestApp;

use super::*;
use crate::PROGRAM;
use crate::tmux::Pane;

/// Where lines that are cut are compared up to. Where they are cut depends on how long ago is shown.
const COMPARED: usize = 40;

/// A server whose project has something of everything, with Japanese names.
async fn world() -> (TestApp, Player) {
    let app = TestApp::new(PROGRAM).start().await;
    let cli = app.cli();
    waiting_run(&app).await;
    let local = app.local();
    let talk = Talk::start(&local).await;
    let long = "秋の京都を二泊三日で巡る旅の相談、宿と食事と電車の予約、雨の日の代わりの案まで";
    let execution = talk.begin(&format!("{long}\n#offline hang=1")).await;
    shikiri_testkit::until("the execution runs", async || {
        local.run(&execution).await["status"] == "running"
    })
    .await;
    let mia = open_dialogue(&app, "plan").await;
    work_in_claude_code(&cli, "session-1");
    lane(&app, &cli);
    (app, mia)
}

/// What `shikiri status` writes to a terminal of this width, and what is on its screen.
async fn at_terminal(cli: &Cli, width: u16) -> Option<(String, String)> {
    let pane = Pane::start(&cli.command(&["status"]), (width, 60)).await?;
    assert_eq!(pane.ended().await, 0, "{}", pane.screen());
    let raw = String::from_utf8(pane.raw()).unwrap().replace('\r', "");
    let screen = pane.screen();
    let screen = screen.split("\nPane is dead").next().unwrap_or_default();
    Some((raw.trim().to_owned(), screen.trim().to_owned()))
}

/// The text with stand-ins for folders, ids and numbers, which are others each time.
fn without_chance(app: &TestApp, text: &str) -> String {
    let folder = app.root();
    let text = text.replace(&folder.display().to_string(), "FOLDER");
    let text = text.replace(&folder.file_name().unwrap().display().to_string(), "FOLDER");
    let lines = text.lines().map(|line| {
        // On a busy machine a minute may have passed.
        let line = without_numbers(&without_ids(line)).replace("0 min", "0 s");
        match line.contains('…') {
            true => truncate_str(&line, COMPARED, "…").into_owned(),
            false => line,
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn without_ids(line: &str) -> String {
    let is_id = |word: &str| {
        let rest = word.split_once('_').map_or("", |(_, rest)| rest);
        rest.len() >= 32 && rest.bytes().take(32).all(|byte| byte.is_ascii_hexdigit())
    };
    let words = line.split(' ').map(|word| match is_id(word) {
        true => word[..4].to_owned() + "ID" + &word[36..],
        false => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// With one `0` for each number, and with two spaces where there are more; colours stay.
fn without_numbers(line: &str) -> String {
    let mut kept = String::new();
    let mut is_colour = false;
    for c in line.chars() {
        is_colour = c == '\u{1b}' || is_colour && !kept.ends_with('m');
        let is_repeated = !is_colour && c.is_ascii_digit() && kept.ends_with('0');
        if is_repeated || c == ' ' && kept.trim_start().ends_with("  ") {
            continue;
        }
        kept.push(if c.is_ascii_digit() && !is_colour { '0' } else { c });
    }
    kept
}

async fn fits(width: u16) {
    let (app, _mia) = world().await;
    let Some((raw, screen)) = at_terminal(&app.cli(), width).await else { return };
    for line in raw.lines() {
        assert!(measure_text_width(line) <= usize::from(width), "too wide: {line}\n{raw}");
    }
    // No line was broken by the terminal.
    assert_eq!(screen.lines().count(), raw.lines().count(), "{screen}\n{raw}");
    insta::assert_snapshot!(format!("status_at_{width}_columns"), without_chance(&app, &screen));

    let coloured = app.cli().env("NO_COLOR", "");
    let Some((raw, _)) = at_terminal(&coloured, width).await else { return };
    let plain = strip_ansi_codes(&raw).into_owned();
    assert_eq!(without_chance(&app, &plain), without_chance(&app, &screen), "colours add nothing");
    let raw = without_chance(&app, &raw).replace('\u{1b}', "␛");
    insta::assert_snapshot!(format!("coloured_status_at_{width}_columns"), raw);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_fits_a_terminal_of_80_columns() {
    fits(80).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_fits_a_terminal_of_120_columns() {
    fits(120).await;
}
