//! A person at a terminal is asked, once for each content.

use super::{ClonedRepository, Listener};
use crate::tmux::Pane;

const SIZE: (u16, u16) = (140, 40);
const QUESTION: &str = "[y/N]";

#[tokio::test(flavor = "multi_thread")]
async fn person_is_asked_once_and_again_with_the_difference_when_a_file_changed() {
    let listener = Listener::start();
    let store = |name: &str| format!("store = 'sqlite:../{name}.db'\nlog = 'error'\n");
    let repository = ClonedRepository::with(&[("shikiri.toml", &store("first"))]);
    let command = || repository.cli().command(&["tenants", "create", "acme"]);

    // No is the default.
    let Some(pane) = Pane::start(&command(), SIZE).await else { return };
    let screen = pane.sees(QUESTION).await;
    assert!(screen.contains("shikiri.toml") && screen.contains("../first.db"), "{screen}");
    pane.line("");
    assert_eq!(pane.ended().await, 3);
    assert!(pane.screen().contains("shikiri trust"), "{}", pane.screen());
    assert!(!repository.trust_file().exists() && !repository.root().join("../first.db").exists());

    let pane = Pane::start(&command(), SIZE).await.unwrap();
    pane.sees(QUESTION).await;
    pane.line("y");
    assert_eq!(pane.ended().await, 0, "{}", pane.screen());
    assert!(repository.root().join("../first.db").exists());
    let pane = Pane::start(&repository.cli().command(&["tenants", "list"]), SIZE).await.unwrap();
    assert_eq!(pane.ended().await, 0);
    assert!(!pane.screen().contains(QUESTION), "it was asked again: {}", pane.screen());

    repository.write("shikiri.toml", &store("second"));
    let pane = Pane::start(&command(), SIZE).await.unwrap();
    let screen = pane.sees(QUESTION).await;
    let line = |mark: &str, words: &str| {
        screen.lines().any(|line| line.trim_start().starts_with(mark) && line.contains(words))
    };
    assert!(screen.contains("changed"), "{screen}");
    assert!(line("-", "../first.db") && line("+", "../second.db"), "{screen}");
    pane.line("y");
    assert_eq!(pane.ended().await, 0);
    assert!(repository.root().join("../second.db").exists());
    listener.assert_unvisited();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_stranger_wrote_cannot_steer_the_terminal_of_the_question() {
    let servers = r#"{"mcpServers": {"a\u001b[2K\rb": {"command": "x\u202ey\nz"}}}"#;
    let repository = ClonedRepository::with(&[(".mcp.json", servers)]);
    let command = repository.cli().command(&["host", "list"]);
    let Some(pane) = Pane::start(&command, SIZE).await else { return };
    let screen = pane.sees(QUESTION).await;
    assert!(screen.contains("\\u{1b}[2K"), "{screen}");
    pane.keys(&["C-c"]);
    assert_ne!(pane.ended().await, 0);
    assert!(!pane.raw().windows(4).any(|bytes| bytes == b"\x1b[2K"), "{screen}");
    assert!(!repository.trust_file().exists());
}
