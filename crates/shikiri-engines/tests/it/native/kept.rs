//! Nothing follows from a step before it is kept: no call of a tool, no question to the model.

use shikiri_executions::execution::{EngineOutput, EngineReceiver, EngineSender};
use tokio_util::sync::CancellationToken;

use super::*;

each_engine! {
    only native: "the CLI keeps no steps";
    a_reply_has_no_consequence_before_it_is_kept;
    a_turn_whose_reply_cannot_be_kept_calls_nothing;
}

/// Long enough for an engine that does not wait: its tools and its model answer at once.
const A_WHILE: Duration = Duration::from_millis(150);

/// The turn as it runs.
fn begin(world: &World) -> (EngineReceiver, tokio::task::JoinHandle<Result<(), String>>) {
    let (told, heard) = EngineSender::channel();
    let (engine, order) = (Arc::clone(&world.engine), world.order("go"));
    let running = tokio::spawn(async move {
        let ended = engine.run(order, told, CancellationToken::new()).await;
        ended.map_err(|error| error.0)
    });
    (heard, running)
}

async fn a_reply_has_no_consequence_before_it_is_kept(which: TestEngine) {
    let world = World::new(which).await;
    world.model.script("helper, work", [world.echo("b"), Reply::text("helped")]);
    world.model.script("go", [world.echo("a"), world.spawn("helper, work"), Reply::text("done")]);
    let (mut heard, running) = begin(&world);
    // What may have been done so far, by the steps that were kept: requests, and calls of `echo`.
    let (mut may, mut steps) = ((0, 0), Vec::new());
    while let Some(word) = heard.next_output().await {
        let EngineOutput::Step { entry, kept, .. } = word else { continue };
        let done = || (world.model.messages().len(), world.tools.calls("echo"));
        tokio::time::sleep(A_WHILE).await;
        assert_eq!(done(), may, "before {entry} is kept, after {steps:?}");
        let kind = entry["entry"].as_str().unwrap().to_owned();
        let reply = entry["reply"]["content"].to_string();
        // The model is asked once the session is open, a subagent begins, or an answer is there.
        let asks = kind != "reply" || reply.contains("\"Task\"");
        may = (may.0 + usize::from(asks), may.1 + usize::from(reply.contains("\"echo\"")));
        steps.push(kind);
        kept.confirm();
    }
    assert_eq!(running.await.unwrap(), Ok(()));
    let expected =
        ["opened", "reply", "answer", "reply", "reply", "answer", "reply", "answer", "reply"];
    assert_eq!(steps, expected);
}

async fn a_turn_whose_reply_cannot_be_kept_calls_nothing(which: TestEngine) {
    let world = World::new(which).await;
    world.model.script("go", [world.echo("a"), Reply::text("done")]);
    let (mut heard, running) = begin(&world);
    while let Some(word) = heard.next_output().await {
        match word {
            // Dropped: it never will be.
            EngineOutput::Step { entry, kept, .. } if entry["entry"] == "reply" => drop(kept),
            EngineOutput::Step { kept, .. } => kept.confirm(),
            _ => {}
        }
    }
    assert_eq!(running.await.unwrap(), Err("a step of the turn could not be kept".to_owned()));
    assert_eq!((world.model.messages().len(), world.tools.calls("echo")), (1, 0));
}
