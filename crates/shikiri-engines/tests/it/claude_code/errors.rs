//! What goes wrong at the model's end.

use shikiri_testkit::{Reply, claude_programs};

use super::*;

/// How the turn ended that did not go well.
#[track_caller]
fn failure(ended: &Outcome) -> &shikiri_model::execution::Finish {
    assert_eq!(ended.outcome, Ok(()));
    let finish = ended.processor.finish().unwrap();
    assert!(finish.is_error, "{finish:?}");
    finish
}

#[tokio::test]
async fn a_request_that_the_model_refuses_is_an_error_in_its_own_words() {
    for cli in claude_programs() {
        let world = World::new(&cli).await;
        world.model.script("go", [Reply::error(400, "invalid_request_error")]);
        let ended = world.run(world.order("go")).await;
        let finish = failure(&ended);
        assert!(finish.errors[0].contains("400"), "{finish:?}");
        assert_eq!(ended.processor.text(), "", "the CLI's words are not the model's");
        assert_eq!(ended.rows(), []);
        ended.assert_exact(&world);
    }
}

#[tokio::test]
async fn an_overloaded_model_is_asked_again_and_in_the_end_given_up() {
    for cli in claude_programs() {
        let world = World::new(&cli).await;
        let at_last = Reply::text("at last").after_failures(1, 529, "overloaded_error");
        world.model.script("busy", [at_last]);
        world.model.script("down", [Reply::error(529, "overloaded_error")]);
        let ended = world.run(world.order("busy")).await;
        assert_eq!(ended.result(), "at last");
        assert_eq!(ended.notes("api_retry"), 1);
        ended.assert_exact(&world);

        let ended = world.run(world.order("down")).await;
        let finish = failure(&ended);
        assert!(finish.errors[0].contains("529"), "{finish:?}");
        assert_eq!(ended.notes("api_retry"), 2);
    }
}

#[tokio::test]
async fn a_stream_that_breaks_off_is_repaired_or_given_up_and_billed() {
    for cli in claude_programs() {
        let world = World::new(&cli).await;
        let broken = Reply::text("the first half").and_text("never sent").broken_off();
        world.model.script("go", [broken, Reply::text("and the rest")]);
        let ended = world.run(world.order("go")).await;
        match world.model.spent().len() {
            // Older versions give up.
            1 => {
                assert!(failure(&ended).errors[0].contains("overloaded"), "{:#?}", ended.messages);
                assert_eq!(ended.processor.text(), "the first half");
            }
            requests => {
                assert_eq!((requests, ended.result()), (2, "and the rest"));
                assert_eq!(ended.processor.text(), "the first halfand the rest");
            }
        }
        assert_eq!(ended.bill(), world.bill(), "{:#?}", ended.messages);
        assert_eq!(ended.warnings(), ["USAGE_INCOMPLETE"], "the output of the first is unknown");
    }
}
