use std::sync::Arc;

use super::*;

fn named(count: usize, length: usize) -> BTreeSet<String> {
    (0..count).map(|n| format!("s:{n:0length$}")).collect()
}

#[test]
fn topics_are_split_over_payloads_that_the_server_takes() {
    assert_eq!(payloads("t", &named(2, 1)), [r#"["t","s:0","s:1"]"#]);
    assert_eq!(payloads("t", &BTreeSet::new()), [""; 0]);

    let split = payloads("t", &named(300, 100));
    assert!((2..=MOST_PAYLOADS).contains(&split.len()), "{}", split.len());
    assert!(split.iter().all(|payload| payload.len() <= PAYLOAD_BYTES));
    let told: Vec<String> = split
        .iter()
        .flat_map(|payload| serde_json::from_str::<Vec<String>>(payload).unwrap().split_off(1))
        .collect();
    assert_eq!(told, named(300, 100).into_iter().collect::<Vec<_>>());
}

#[test]
fn too_many_or_too_long_topics_become_one_call_to_everybody() {
    let all = [r#"["t","*"]"#];
    assert_eq!(payloads("t", &named(2_000, 100)), all);
    assert_eq!(payloads("t", &named(1, 9_000)), all);
}

#[test]
fn a_payload_wakes_exactly_whom_it_names() {
    let woken = |payload: &str| {
        let hub = Arc::new(Hub::default());
        let topics = [
            HubTopic::Stream(StreamId::new("a:b")),
            HubTopic::Due("run"),
            HubTopic::Lease("l".into()),
        ];
        let mut subscriptions = topics.map(|topic| hub.subscribe(topic));
        publish_payload(&hub, "me", payload);
        subscriptions.each_mut().map(|subscription| !subscription.take().is_empty())
    };
    assert_eq!(woken(r#"["you","s:a:b"]"#), [true, false, false]);
    assert_eq!(woken(r#"["you","d:run","d:other"]"#), [false, true, false]);
    assert_eq!(woken(r#"["you","l:l"]"#), [false, false, true]);
    assert_eq!(woken(r#"["me","s:a:b","d:run","l:l"]"#), [false; 3]);
    assert_eq!(woken(r#"["you","s:x","d:x","l:x"]"#), [false; 3]);
    for everybody in [r#"["you","*"]"#, r#"["you","x:new"]"#, "nonsense"] {
        assert_eq!(woken(everybody), [true; 3], "{everybody}");
    }
}
