//! A call whose connection is cut again and again, in the middle of events too: its client has a
//! log without gap or repeat, and no other client can read with its cursors.

use std::time::Duration;

use serde_json::json;
use shikiri_testkit::{McpClient, Policy, Resuming, Rng, TestApp, long};

use super::mcp_check::Followed;
use crate::PROGRAM;

const PATIENCE: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_cut_fifty_times_is_heard_whole() {
    let rounds = if long() { 20 } else { 1 };
    let mut rng = Rng::seeded("mcp_cut");
    let app = TestApp::new(PROGRAM).start().await;
    let local = app.local();
    let door = McpClient::connect(&local.client).await;
    for round in 0..rounds {
        let arguments = json!({ "steps": 250, "step_ms": 3, "wait": true });
        let mut call = Resuming::call(&door, "long_running_agent", arguments, Policy::Leave);
        let cuts = tokio::time::timeout(PATIENCE, cut_often(&mut call, 50, &mut rng)).await;
        assert_eq!(cuts.expect("an end"), 50, "the call was over before it was cut so often");
        Followed::of(&call, &local).await.check();
        let stranger = app.tenant(&format!("stranger-{round}")).await;
        belongs_to_its_client_alone(&app, &call, &door.through(&stranger.client)).await;
    }
}

/// Follows the call to its end and cuts it on the way; gives how often.
async fn cut_often(call: &mut Resuming, wanted: u32, rng: &mut Rng) -> u32 {
    let mut cuts = 0;
    loop {
        let before = call.log().connections;
        if cuts < wanted && before == cuts + 1 {
            cuts += 1;
            if rng.one_in(3) {
                // What comes meanwhile lies unread in the socket when it is closed.
                tokio::time::sleep(Duration::from_millis(rng.range(0, 25))).await;
                call.cut();
            } else {
                call.cut_after(usize::try_from(rng.range(1, 1_500)).expect("a number of bytes"));
            }
        }
        if call.next().await.is_none() {
            return cuts.min(call.log().connections - 1);
        }
    }
}

/// Another session, and another key with this session's id, get an error and not one event.
async fn belongs_to_its_client_alone(app: &TestApp, call: &Resuming, stranger: &McpClient) {
    let neighbour = McpClient::connect(&app.client()).await;
    let numbered = call.log().numbered();
    let middle = &numbered[numbered.len() / 2];
    let ids = [call.log().first_id.clone(), middle.id.clone(), numbered[0].id.clone()];
    for id in ids.iter().flatten() {
        let mut refused = neighbour.resume(id).await;
        assert_eq!((refused.status, refused.is_stream()), (400, false));
        assert_eq!(refused.error(-32602).await["data"]["reason"], "unknown_event_id");
        let mut refused = stranger.resume(id).await;
        assert_eq!((refused.status, refused.is_stream()), (404, false));
        refused.error(-32600).await;
    }
}
