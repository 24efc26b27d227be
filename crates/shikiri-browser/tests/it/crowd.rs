//! Many lanes ask at once, several questions each, in one browser.

use std::sync::Arc;

use serde_json::json;
use shikiri_lanes::{PageDriver as _, SendStatus};
use shikiri_testkit::{ChatSite, long};

use crate::world::{Watcher, World, question, then};

/// Row 0.1: every answer comes to the lane that asked, in its own chat; nothing is sent twice, and
/// every answer is whole.
#[tokio::test(flavor = "multi_thread")]
async fn lanes_that_ask_at_once_get_their_own_answers() {
    let (lanes, questions) = if long() { (20, 10) } else { (6, 4) };
    let manner =
        json!({ "marked": true, "editor": "editable", "piece_ms": 10, "input_delay_ms": 100 });
    let Some(world) = World::start(&[("crowd", manner)]).await else { return };
    let world = Arc::new(world);
    let asking: Vec<_> = (1..=lanes)
        .map(|lane| {
            let world = Arc::clone(&world);
            tokio::spawn(async move { ask_all(&world, lane, questions).await })
        })
        .collect();
    let mut chats = Vec::new();
    for asked in asking {
        chats.push(asked.await.unwrap());
    }
    let log = world.site.log();
    assert_eq!(log.sends.len(), lanes * questions, "each was sent once");
    assert_eq!(log.chats.len(), lanes, "each lane has one chat");
    for (lane, chat) in (1..=lanes).zip(&chats) {
        let expected: Vec<_> = (1..=questions).map(|number| text(lane, number)).collect();
        let found: Vec<_> = log.chats[chat].iter().map(|(q, _)| q.trim().to_owned()).collect();
        assert_eq!(found, expected, "only its own questions, in order");
    }
}

fn text(lane: usize, number: usize) -> String {
    format!("lane {lane} question {number} レーン words={}", 20 + 30 * number)
}

/// The chat in which one lane asked everything.
async fn ask_all(world: &World, lane: usize, questions: usize) -> String {
    let name = format!("agent-{lane}");
    let first = question(&name, "crowd", &text(lane, 1));
    let mut next = first.clone();
    for number in 1..=questions {
        let asked = world.bridge.ask(&next, &Watcher::default()).await;
        let asked = asked.unwrap_or_else(|error| {
            assert_ne!(error.sent, SendStatus::Unknown);
            panic!("lane {lane} question {number}: {error:?}")
        });
        assert_eq!(asked.answer, ChatSite::answer_to(&text(lane, number)), "whole, and its own");
        next = then(&first, &asked, &text(lane, number + 1));
    }
    next.url.unwrap().rsplit('/').next().unwrap().to_owned()
}
