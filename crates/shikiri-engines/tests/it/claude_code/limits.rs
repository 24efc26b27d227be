//! Limits that Claude Code counts itself.

use shikiri_model::execution::Cost;
use shikiri_model::native::ExecutionLimits;

use super::*;

#[tokio::test]
async fn a_turn_ends_at_its_limit_of_replies_or_of_cost() {
    for cli in claude_programs() {
        let few = ExecutionLimits { max_turns: Some(2), ..ExecutionLimits::default() };
        let max_cost_usd = Cost::from_dollars(0.000_001);
        let cheap = ExecutionLimits { max_cost_usd, ..ExecutionLimits::default() };
        for (limits, reached) in [(few, "max_turns"), (cheap, "max_cost_usd")] {
            let world = world_of(&cli).await;
            let replies = (0..6).map(|number| world.echo(&number.to_string()).usage(tokens(1)));
            world.model.script("go", replies);
            let ended = world.run(TurnRequest { limits, ..world.order("go") }).await;
            let finish = ended.finish();
            assert!(finish.is_error && finish.limit == Some(reached), "{finish:?}");
            assert!(world.model.messages().len() < 5, "it was stopped");
        }
    }
}
