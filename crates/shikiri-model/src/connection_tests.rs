use serde_json::json;

use super::*;
use crate::record::Document;

fn connection(id: &str, principal: &str, salt: &str) -> McpConnection {
    McpConnection {
        id: id.parse().unwrap(),
        tenant: TenantId::local(),
        principal: principal.to_owned(),
        protocol: "2025-11-25".to_owned(),
        client: ClientInfo { name: "テスト".to_owned(), version: "1".to_owned() },
        capabilities: json!({ "elicitation": {} }),
        log_level: None,
        subscriptions: Vec::new(),
        seen_at: Timestamp::from_millis(1_000),
        idle_limit_ms: 10_000,
        salt: salt.to_owned(),
    }
}

#[test]
fn event_ids_are_decimal_rise_in_their_stream_and_are_read_back() {
    let ours = connection("con_a", "key_1", "salt");
    let mut last = None;
    for (call, seq) in
        [(0, 1), (0, 2), (7, 0), (7, 1), (7, u64::from(u32::MAX)), ((1 << 40) - 1, 3)]
    {
        let place = EventPosition { call, seq };
        let id = ours.event_id(place);
        assert!(last < Some(id));
        last = Some(id);
        let text = id.to_string();
        assert!(text.bytes().all(|b| b.is_ascii_digit()));
        assert_eq!(ours.parse_event_id(&text), Some(place));
    }
}

#[test]
fn an_id_means_nothing_to_another_connection_principal_or_to_a_guess() {
    let ours = connection("con_a", "key_1", "salt");
    let id = ours.event_id(EventPosition { call: 3, seq: 4 }).to_string();
    for other in [
        connection("con_b", "key_1", "salt"),
        connection("con_a", "key_2", "salt"),
        connection("con_a", "key_1", "other"),
    ] {
        assert_eq!(other.parse_event_id(&id), None);
    }
    let number: u128 = id.parse().unwrap();
    for guess in [
        (number + 1).to_string(),
        (number + (1 << 56)).to_string(),
        format!("0{id}"),
        format!("+{id}"),
        format!("{id} "),
        "0".to_owned(),
        String::new(),
        "latest".to_owned(),
        "9".repeat(60),
    ] {
        assert_eq!(ours.parse_event_id(&guess), None, "{guess:?}");
    }
}

#[test]
fn a_connection_ends_when_it_was_not_used_and_use_is_noted_in_time() {
    let ours = connection("con_a", "key_1", "salt");
    assert_eq!(ours.ends_at(), Timestamp::from_millis(11_000));
    assert!(!ours.is_touch_due(Timestamp::from_millis(1_999)));
    assert!(ours.is_touch_due(Timestamp::from_millis(2_000)));
    assert_eq!(ours.columns().due_at, Some(ours.ends_at()));
}

#[test]
fn a_continuation_admits_only_its_principal_with_its_request_in_time() {
    let ticket = CallContinuation {
        id: "hash".to_owned(),
        tenant: TenantId::local(),
        principal: "key_1".to_owned(),
        run: "run_1".parse().unwrap(),
        request_digest: "digest".to_owned(),
        after: 3,
        asked: BTreeMap::new(),
        expires_at: Timestamp::from_millis(100),
        uses: 0,
        responses_digest: None,
    };
    let (before, after) = (Timestamp::from_millis(99), Timestamp::from_millis(100));
    assert!(ticket.admits("key_1", "digest", before));
    assert!(!ticket.admits("key_2", "digest", before));
    assert!(!ticket.admits("key_1", "other", before));
    assert!(!ticket.admits("key_1", "digest", after));
    let used = ticket.used_with("yes").unwrap();
    assert_eq!((used.uses, used.responses_digest.as_deref()), (1, Some("yes")));
    assert!(used.admits("key_1", "digest", before), "the same may be sent again");
    assert_eq!(used.used_with("yes").map(|again| again.uses), Some(2));
    assert_eq!(used.used_with("no"), None, "what it brought counts");
}

#[test]
fn levels_are_ordered_by_weight() {
    assert!(LogLevel::Debug < LogLevel::Info && LogLevel::Warning < LogLevel::Emergency);
    assert_eq!(json!(LogLevel::Notice), json!("notice"));
}
