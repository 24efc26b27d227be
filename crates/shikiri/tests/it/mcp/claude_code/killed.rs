//! A server that is killed in the middle of a call and started again. The run is carried to its
//! end, once, in both eras. In the older one the client resumes the call and gets its result. In
//! the newer one streams cannot be resumed: the client gives the call up after two minutes, or
//! when its own limit is over.

use std::path::Path;

use serde_json::{Value, json};
use shikiri_testkit::{Cut, Tenant, TestApp, ToolResult, wait_until};

use super::{NEWER, OLDER, PATIENCE, World, call, data, noted, repeat, versions};
use crate::PROGRAM;

const STEPS: u64 = 10;

#[tokio::test(flavor = "multi_thread")]
async fn a_run_survives_the_death_of_its_server_and_so_does_the_session() {
    for (program, protocol) in versions() {
        let mut world = World::of(TestApp::new(PROGRAM).env("SHIKIRI_NODE_LEASE_SECONDS", 1)).await;
        let [first, second] = killed_at_work(&mut world, &program, protocol).await;
        if protocol == OLDER {
            assert!(!first.is_error, "{first:?}");
            assert_eq!(data(&first.text), json!({ "steps": STEPS }));
        } else {
            assert!(first.is_error && first.text.contains("timed out"), "{first:?}");
        }
        assert!(!second.is_error, "{second:?}");
        assert_eq!(data(&second.text), json!({ "steps": 2 }));

        // Nothing was said twice: neither hello nor a call.
        let asked = world.recorder.asked();
        let said = |method: &str| asked.iter().filter(|asked| asked.method() == method).count();
        let hellos = usize::from(protocol == OLDER);
        assert_eq!((said("initialize"), said("tools/call")), (hellos, 2), "{asked:#?}");

        let noted = noted(&world.app.data_folder()).await;
        assert_eq!(noted.len(), 2, "{noted:#?}");
        for (noted, steps) in noted.iter().zip([STEPS, 2]) {
            worked_once(&world.app.local(), noted.call["run_id"].as_str().unwrap(), steps).await;
        }
    }
}

/// The model calls twice; the server dies during the first call. Gives what the calls gave back.
async fn killed_at_work(world: &mut World, program: &Path, protocol: &str) -> [ToolResult; 2] {
    let work = call("long_running_agent", json!({ "steps": STEPS, "step_ms": 100 }));
    let more = call("long_running_agent", json!({ "steps": 2, "step_ms": 1 }));
    world.model.script("work", [work, more, repeat()]);
    let mut claude = world.claude(program);
    if protocol == NEWER {
        claude = claude.env("MCP_TOOL_TIMEOUT", 4_000);
    }
    let World { app, recorder, model } = world;
    let killing = async {
        let is_progress = |told: &Value| told["method"] == "notifications/progress";
        let at_work = async || recorder.told().iter().any(is_progress);
        wait_until("the call tells progress", PATIENCE, at_work).await;
        app.restart().await;
    };
    let (ended, ()) = tokio::join!(claude.print("work"), killing);
    assert_eq!(ended.code, 0, "{ended:#?}");
    let results: Vec<_> = model.messages().iter().flat_map(|asked| asked.tool_results()).collect();
    results.try_into().unwrap_or_else(|results| panic!("{results:#?}"))
}

/// The run did each step once and ended once.
async fn worked_once(tenant: &Tenant, run: &str, steps: u64) {
    let events = tenant.reader(run, Cut::End).rest().await;
    let count = |kind: &str| events.iter().filter(|event| event.event == kind).count() as u64;
    assert_eq!((count("step_completed"), count("result")), (steps, 1), "{events:#?}");
}
